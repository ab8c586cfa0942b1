"""Turns an item of the source into a sample as it is stored: image, masks, small fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import DecodeError
from rawpack.pixels.resize import fit_nearest
from rawpack.transforms.followers import BOXES
from rawpack.transforms.left_behind import looks_like
from rawpack_packer.images import read_header
from rawpack_packer.images.pixels import to_color
from rawpack_packer.images.png import decode_values
from rawpack_packer.recipe.fields import CURATED, IMAGE, left_behind
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.samples.boxes import boxes_by_recipe, follower_by_recipe
from rawpack_packer.samples.curation import measures_of
from rawpack_packer.samples.image import by_recipe, cropped, encoded, prepare
from rawpack_packer.samples.values import REASON as BAD_FIELD
from rawpack_packer.samples.values import as_stored
from rawpack_packer.sources import Item
from rawpack_packer.sources.fields import Value
from rawpack_packer.voice import speaking_python


@dataclass(frozen=True)
class Stored:
    """One image or mask as it is stored."""

    data: NDArray[Any]
    """The values in C order, or planes (n,), or the bytes (n,) of a JPEG or PNG file."""
    shape: tuple[int, ...]
    """The shape of the values: (H, W, C), or any other for arrays."""


@dataclass(frozen=True)
class PreparedSample:
    """One sample as it is stored."""

    parts: Mapping[str, Stored]
    """Image and masks, by the field's name."""
    values: Mapping[str, str | NDArray[Any]]
    """The fields in columns, except the key."""
    notes: tuple[str, ...]
    """Keys of `counts.COUNTS` that apply."""


def prepare_sample(item: Item, recipe: Recipe, fields: Mapping[str, Field]) -> PreparedSample:
    """One sample as `recipe` stores it with these fields. Raises DecodeError if it is to be rejected."""
    made = CURATED if recipe.curate else {}
    small = {name: field for name, field in fields.items() if not field.in_shards and name not in ("key", *made)}
    values = {name: as_stored(name, _value(item, name), field) for name, field in small.items() if not field.moves}
    notes: list[str] = []
    if isinstance(item.image, bytes):
        image = prepare(item.image, recipe)
        notes, size = list(image.notes), image.size
        _check_shape(image.shape, fields[IMAGE])
        parts = {IMAGE: Stored(image.image, image.shape)}
        values |= image.measures
    else:
        stored, size = _from_array(item.image, recipe, fields[IMAGE], notes, values)
        if item.planes is not None and fields[IMAGE].planar and recipe.crop is None and stored.shape[:2] == size:
            stored = Stored(item.planes, stored.shape)
        parts = {IMAGE: stored}
    if recipe.crop is not None or (recipe.target is not None and recipe.target != size):
        for name, field in small.items():
            if looks_like(field, size):
                with speaking_python(False):  # what is rejected is the same, whoever packs
                    raise DecodeError(BAD_FIELD, left_behind(name, field))
    kept: dict[str, NDArray[np.bool_]] = {}
    for name, field in fields.items():
        if field.kind == "mask":
            parts[name] = _mask(name, _value(item, name), size, recipe, field)
        if field.is_boxes:
            values[name], kept[name] = boxes_by_recipe(name, _value(item, name), size, recipe, field, notes)
    for name, field in small.items():
        if field.moves and not field.is_boxes:
            values[name] = follower_by_recipe(name, _value(item, name), kept[BOXES], size, recipe, field)
    return PreparedSample(parts, values, tuple(notes))


def _value(item: Item, name: str) -> Value:
    try:
        return item.fields[name]
    except KeyError:
        raise DecodeError(BAD_FIELD, f"the sample has no field {name!r}") from None


def _from_array(
    pixels: NDArray[Any], recipe: Recipe, field: Field, notes: list[str], values: dict[str, Any]
) -> tuple[Stored, tuple[int, int]]:
    """An image that is an array as it is stored, and its (height, width) before the recipe. values: gets its
    measures, where the recipe says so."""
    pixels = _native(pixels)
    if pixels.dtype != field.dtype:
        raise DecodeError(BAD_FIELD, f"the image is {pixels.dtype}; the first one, or the source, has {field.dtype}")
    image = pixels[..., None] if pixels.ndim == 2 and len(field.shape) == 3 else pixels
    if len(field.shape) != 3:
        _check_shape(image.shape, field)
        return Stored(encoded(image, field.encoding, recipe, notes), image.shape), (0, 0)
    if image.ndim != 3 or not image.size:
        raise DecodeError(BAD_FIELD, f"the image has shape {pixels.shape}; pixels are (H, W) or (H, W, C)")
    if image.shape[2] != field.shape[2] and image.dtype == np.uint8 and image.shape[2] in (1, 3):
        image = to_color(image, recipe.pixels)
    size = image.shape[0], image.shape[1]
    image = by_recipe(image, recipe, notes)
    _check_shape(image.shape, field)
    # Writers do not convert: another dtype would be read as wrong values.
    assert image.dtype == field.dtype, image.dtype
    if recipe.curate:
        values |= measures_of(image)
    return Stored(encoded(image, field.encoding, recipe, notes), image.shape), size


def _mask(name: str, value: object, size: tuple[int, int], recipe: Recipe, field: Field) -> Stored:
    """A mask as it is stored; its image had `size` before the recipe."""
    if isinstance(value, bytes):
        header = read_header(value)
        if header.format != "png":
            raise DecodeError(
                "unsupported", f"{name} is a {header.format} file: a mask is a PNG, whose values are exact"
            )
        if header.width * header.height > recipe.max_pixels:
            raise DecodeError("too_large", f"{name} has {header.width}x{header.height} pixels")
        mask = decode_values(value, header)
    else:
        mask = _native(np.asarray(value))
        mask = mask[..., None] if mask.ndim == 2 else mask
    if mask.dtype != field.dtype or mask.ndim != 3 or mask.shape[2] != field.shape[2]:
        raise DecodeError(BAD_FIELD, f"{name} is {mask.dtype} {mask.shape}; its field is {field.dtype} {field.shape}")
    if mask.shape[:2] != size:
        raise DecodeError(BAD_FIELD, f"{name} is {mask.shape[0]}x{mask.shape[1]}, its image {size[0]}x{size[1]}")
    if recipe.crop is not None:
        mask = cropped(mask, recipe.crop)
    if recipe.target is not None:
        mask = fit_nearest(mask, recipe.target, fit=recipe.fit)
    _check_shape(mask.shape, field)
    return Stored(encoded(mask, field.encoding, recipe, []), mask.shape)


def _native(values: NDArray[Any]) -> NDArray[Any]:
    """The array in this machine's byte order, which writers need: sources may use the other."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _check_shape(shape: tuple[int, ...], field: Field) -> None:
    if len(shape) != len(field.shape) or any(want not in (None, n) for want, n in zip(field.shape, shape, strict=True)):
        raise DecodeError(
            BAD_FIELD, f"its shape is {shape}, its field's {field.shape}: pass a size, or declare which lengths vary"
        )
