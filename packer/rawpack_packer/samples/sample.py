"""From an item of the source to what a store holds of a sample: its image, its masks, its small fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import DecodeError
from rawpack.pixels.resize import fit_nearest
from rawpack_packer.images import read_header
from rawpack_packer.images.pixels import to_color
from rawpack_packer.images.png import decode_values
from rawpack_packer.recipe.fields import IMAGE
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.samples.boxes import boxes_by_recipe
from rawpack_packer.samples.image import by_recipe, cropped, encoded, prepare
from rawpack_packer.samples.values import REASON as BAD_FIELD
from rawpack_packer.samples.values import as_stored
from rawpack_packer.sources import Item
from rawpack_packer.sources.fields import Value


@dataclass(frozen=True)
class Stored:
    """What is stored of one image or mask."""

    data: NDArray[Any]
    """Values, C order; or planes (n,); or the bytes (n,) of a JPEG or PNG file."""
    shape: tuple[int, ...]
    """Of the image, (H, W, C) or what else an array has."""


@dataclass(frozen=True)
class PreparedSample:
    """What is stored of one sample."""

    parts: Mapping[str, Stored]
    """Image and masks, by the field's name."""
    values: Mapping[str, str | NDArray[Any]]
    """The fields that are stored in columns, except the key."""
    notes: tuple[str, ...]
    """What happened to the image that a summary counts: "enlarged", "icc_ignored", ..."""


def prepare_sample(item: Item, recipe: Recipe, fields: Mapping[str, Field]) -> PreparedSample:
    """What a store with these fields, made by `recipe`, holds of one sample. DecodeError where it is to be rejected."""
    small = {name: field for name, field in fields.items() if not field.in_shards and name != "key"}
    values = {name: as_stored(name, _value(item, name), field) for name, field in small.items() if not field.is_boxes}
    notes: list[str] = []
    if isinstance(item.image, bytes):
        image = prepare(item.image, recipe)
        notes, size = list(image.notes), image.size
        _check_shape(image.shape, fields[IMAGE])
        parts = {IMAGE: Stored(image.image, image.shape)}
    else:
        stored, size = _from_array(item.image, recipe, fields[IMAGE], notes)
        if item.planes is not None and fields[IMAGE].planar and recipe.crop is None and stored.shape[:2] == size:
            stored = Stored(item.planes, stored.shape)
        parts = {IMAGE: stored}
    for name, field in fields.items():
        if field.kind == "mask":
            parts[name] = _mask(name, _value(item, name), size, recipe, field)
        if field.is_boxes:
            values[name] = boxes_by_recipe(name, _value(item, name), size, recipe, field, notes)
    return PreparedSample(parts, values, tuple(notes))


def _value(item: Item, name: str) -> Value:
    try:
        return item.fields[name]
    except KeyError:
        raise DecodeError(BAD_FIELD, f"it has no {name!r}") from None


def _from_array(pixels: NDArray[Any], recipe: Recipe, field: Field, notes: list[str]) -> tuple[Stored, tuple[int, int]]:
    """What is stored of an image that is an array, and the height and width that it has before the recipe."""
    pixels = _native(pixels)
    if pixels.dtype != field.dtype:
        raise DecodeError(BAD_FIELD, f"the image is {pixels.dtype}; the first one, or the source, says {field.dtype}")
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
    # Writers take values as they come: of another dtype, they would be read as something else.
    assert image.dtype == field.dtype, image.dtype
    return Stored(encoded(image, field.encoding, recipe, notes), image.shape), size


def _mask(name: str, value: object, size: tuple[int, int], recipe: Recipe, field: Field) -> Stored:
    """What is stored of a mask, whose image had `size` before the recipe."""
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
        raise DecodeError(BAD_FIELD, f"{name} is {mask.shape[0]}x{mask.shape[1]}, and its image {size[0]}x{size[1]}")
    if recipe.crop is not None:
        mask = cropped(mask, recipe.crop)
    if recipe.target is not None:
        mask = fit_nearest(mask, recipe.target, fit=recipe.fit)
    _check_shape(mask.shape, field)
    return Stored(encoded(mask, field.encoding, recipe, []), mask.shape)


def _native(values: NDArray[Any]) -> NDArray[Any]:
    """An array of a source in this machine's byte order, as writers take it: a source of one's own may have another."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _check_shape(shape: tuple[int, ...], field: Field) -> None:
    if len(shape) != len(field.shape) or any(want not in (None, n) for want, n in zip(field.shape, shape, strict=True)):
        raise DecodeError(
            BAD_FIELD, f"it has shape {shape}; {field.shape} is its field's: pass a size, or say which lengths differ"
        )
