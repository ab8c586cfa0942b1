"""Turns an item of the source into a sample as it is stored: its image, which is checked, decoded, cropped, resized and
encoded; masks; small fields."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from dataclasses import field as dataclass_field
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import CURATED, Field, Range
from rawpack.disk.tables import resolve
from rawpack.errors import DecodeError
from rawpack.pixels.geometry import cover_size, covering
from rawpack.pixels.resize import fit, fit_nearest
from rawpack.transforms.fields import displaced, looks_like, range_of
from rawpack.transforms.followers import BOXES
from rawpack_packer.images import ImageHeader, by_pillow, decode_image, read_header
from rawpack_packer.images.header import to_color
from rawpack_packer.images.jpeg import is_whole
from rawpack_packer.images.png import decode_values
from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.fields import IMAGE, left_behind, size_of, times_of, unlike
from rawpack_packer.recipe.tables import encoder_of, is_jpeg
from rawpack_packer.samples.fields import BAD_FIELD, as_stored, boxes_by_recipe, follower_by_recipe
from rawpack_packer.sources import Item
from rawpack_packer.sources.fields import Value
from rawpack_packer.text import speaking_python

P = ParamSpec("P")
T = TypeVar("T")
_DECODING_BYTES = 16
"""Per pixel: four 16-bit samples, twice because they are reordered."""


class PreparedImage(msgspec.Struct, frozen=True):
    """One image as it is stored."""

    image: NDArray[np.uint8]
    """Pixels (H, W, C), or planes (n,), or the bytes (n,) of a JPEG file."""
    shape: tuple[int, int, int]
    """(height, width, channels) of the stored image."""
    notes: tuple[str, ...]
    """Keys of `counts.COUNTS` that apply."""
    size: tuple[int, int] = (0, 0)
    """(height, width) of the upright image before the recipe."""
    measures: Mapping[str, NDArray[Any]] = dataclass_field(default_factory=dict)
    """The fields of `CURATED`, where the recipe says so."""


class Stored(msgspec.Struct, frozen=True):
    """One image or mask as it is stored."""

    data: NDArray[Any]
    """The values in C order, or planes (n,), or the bytes (n,) of a JPEG or PNG file."""
    shape: tuple[int, ...]
    """The shape of the values: (H, W, C), or any other for arrays."""
    range: Range | None = None
    """Range of the values, where the field is `ranged` and any is finite."""


class PreparedSample(msgspec.Struct, frozen=True):
    """One sample as it is stored."""

    parts: Mapping[str, Stored]
    """Images and masks, by the field's name."""
    values: Mapping[str, str | NDArray[Any]]
    """The fields in columns, except the key."""
    notes: tuple[str, ...]
    """Keys of `counts.COUNTS` that apply."""
    unchanged: bool = False
    """Whether the first image is stored as it was read."""


def prepare_sample(item: Item, recipe: Recipe, fields: Mapping[str, Field]) -> PreparedSample:
    """One sample as `recipe` stores it with these fields. Raises DecodeError if it is to be rejected."""
    made = CURATED if recipe.curate else {}
    small = {name: field for name, field in fields.items() if not field.in_shards and name not in ("key", *made)}
    values = {name: as_stored(name, _value(item, name), field) for name, field in small.items() if not field.moves}
    notes: list[str] = []
    times = dict[str, int]()
    if recipe.sizes and recipe.fit == "cover":
        further = [name for name, field in fields.items() if field.kind == "image" and name != IMAGE]
        times = times_of(
            recipe, {IMAGE: size_of(item.image), **{name: size_of(_value(item, name)) for name in further}}
        )
    k = times.get(IMAGE, 1)
    stored, size, measures = _picture(item, IMAGE, item.image, recipe, fields[IMAGE], notes, k)
    values |= measures
    unchanged, parts = "passed_through" in notes, {IMAGE: stored}
    if recipe.crop is not None or recipe.shape_of(size) != size:
        for name, field in small.items():
            if looks_like(field, size):
                with speaking_python(False):  # what is rejected is the same, whoever packs
                    raise DecodeError(BAD_FIELD, left_behind(name, field))
    kept: dict[str, NDArray[np.bool_]] = {}
    for name, field in fields.items():
        if field.in_shards and name != IMAGE:
            parts[name] = _further(item, name, size, recipe, field, notes, times.get(name, 1), k)
        if field.is_boxes:
            values[name], kept[name] = boxes_by_recipe(name, _value(item, name), size, recipe, field, notes, k)
    for name, field in small.items():
        if field.moves and not field.is_boxes:
            values[name] = follower_by_recipe(name, _value(item, name), kept[BOXES], size, recipe, field, k)
    return PreparedSample(parts, values, tuple(notes), unchanged)


def _further(
    item: Item,
    name: str,
    size: tuple[int, int],
    recipe: Recipe,
    field: Field,
    notes: list[str],
    times: int,
    of_image: int,
) -> Stored:
    """A mask or a further image as it is stored. size: the (height, width) of the first image before the recipe. times,
    of_image: see `times_of`, of this image and of the first."""
    from rawpack_packer.images import npy  # most stores have one image

    value = _value(item, name)
    if isinstance(value, bytes) and npy.is_npy(value):
        try:
            value = npy.array_of(value)
        except DecodeError as error:
            raise DecodeError(error.reason, f"{name}: {error.detail}") from error
    if field.kind == "mask":
        return _exact(name, value, recipe, field, size, of_image)[0]
    own, own_notes = recipe.of(name, field.shape[2]), list[str]()
    if field.exact:
        stored, was = _exact(name, value, own, field, times=times)
    else:
        if own.pixels != recipe.pixels and _named(name, _has_colors, value):
            raise DecodeError(BAD_FIELD, f"{name}: it is in color, and the first one is gray")
        stored, was, _ = _named(name, _picture, item, name, value, own, field, own_notes, times)
    if was != size and (recipe.crop is not None or (own.target is not None and not recipe.sizes)):
        with speaking_python(False):  # what is rejected is the same, whoever packs
            raise DecodeError(BAD_FIELD, unlike(name, was, size, recipe))
    notes += [note for note in own_notes if note not in notes]  # counts are of samples
    return stored


def _has_colors(value: Value) -> bool:
    if isinstance(value, bytes):
        return read_header(value).color != "gray"
    array = np.asarray(value)
    return array.ndim == 3 and array.shape[2] != 1


def _picture(
    item: Item, name: str, value: object, recipe: Recipe, field: Field, notes: list[str], times: int
) -> tuple[Stored, tuple[int, int], Mapping[str, NDArray[Any]]]:
    """An image as it is stored, its (height, width) before the recipe, and its measures, where the recipe says so."""
    if isinstance(value, bytes):
        image = prepare(value, recipe, times)
        notes += image.notes
        _check_shape(image.shape, field)
        # Only images of 8 bits are encoded here.
        return _stored(image.image, image.image, image.shape, field), image.size, image.measures
    stored, size, measures = _from_array(np.asarray(value), recipe, field, notes, times)
    planes = None if item.planes is None else item.planes.get(name)
    if planes is not None and field.planar and recipe.crop is None and stored.shape[:2] == size:
        pack = encoder_of(field.encoding).planes
        stored = Stored(resolve(pack)(planes, size) if pack else planes, stored.shape)
    return stored, size, measures


def _value(item: Item, name: str) -> Value:
    try:
        return item.fields[name]
    except KeyError:
        raise DecodeError(BAD_FIELD, f"the sample has no field {name!r}") from None


def _from_array(
    pixels: NDArray[Any], recipe: Recipe, field: Field, notes: list[str], times: int
) -> tuple[Stored, tuple[int, int], Mapping[str, NDArray[Any]]]:
    """The same for an image that is an array."""
    pixels = _native(pixels)
    if pixels.dtype != field.dtype:
        raise DecodeError(BAD_FIELD, f"the image is {pixels.dtype}; the first one, or the source, has {field.dtype}")
    image = pixels[..., None] if pixels.ndim == 2 and len(field.shape) == 3 else pixels
    if len(field.shape) != 3:
        _check_shape(image.shape, field)
        return _stored(image, encoded(image, field.encoding, recipe, notes), image.shape, field), (0, 0), {}
    if image.ndim != 3 or not image.size:
        raise DecodeError(BAD_FIELD, f"the image has shape {pixels.shape}; pixels are (H, W) or (H, W, C)")
    if image.shape[2] != field.shape[2] and image.dtype == np.uint8 and image.shape[2] in (1, 3):
        image = to_color(image, recipe.pixels)
    size = image.shape[0], image.shape[1]
    image = by_recipe(image, recipe, notes, times=times)
    _check_shape(image.shape, field)
    # Writers do not convert: another dtype would be read as wrong values.
    assert image.dtype == field.dtype, image.dtype
    measures = _measures(image, recipe)
    return _stored(image, encoded(image, field.encoding, recipe, notes), image.shape, field), size, measures


def _exact(
    name: str, value: object, recipe: Recipe, field: Field, size: tuple[int, int] | None = None, times: int = 1
) -> tuple[Stored, tuple[int, int]]:
    """A mask, or an image whose values are kept, as it is stored, and its (height, width) before the recipe. size: what
    that must be, because its image had it."""
    if isinstance(value, bytes):
        header = _named(name, read_header, value)
        if header.format != "png":
            what = "a mask is a PNG, whose values are exact" if size else f"the first one is {field.dtype}, as in a PNG"
            raise DecodeError("unsupported", f"{name} is a {header.format} file: {what}")
        if header.width * header.height > recipe.max_pixels:
            raise DecodeError("too_large", f"{name} has {header.width}x{header.height} pixels")
        mask = _named(name, decode_values, value, header)
    else:
        mask = _native(np.asarray(value))
        mask = mask[..., None] if mask.ndim == 2 else mask
    if mask.dtype != field.dtype or mask.ndim != 3 or mask.shape[2] != field.shape[2]:
        raise DecodeError(BAD_FIELD, f"{name} is {mask.dtype} {mask.shape}; its field is {field.dtype} {field.shape}")
    was = mask.shape[0], mask.shape[1]
    if size is not None and was != size:
        raise DecodeError(BAD_FIELD, f"{name} is {was[0]}x{was[1]}, its image {size[0]}x{size[1]}")
    if recipe.crop is not None:
        mask = cropped(mask, recipe.crop)
    if recipe.target is not None:
        sides = mask.shape[0], mask.shape[1]
        target, how = _fitted(recipe, sides)
        mask = fit_nearest(mask, target, fit=how, times=times)
        if field.displacement is not msgspec.UNSET:
            scaled = target if how != "cover" else covering(sides, target, times)[0]
            mask = _named(name, displaced, mask, field, scaled[0] / sides[0], scaled[1] / sides[1])
    _check_shape(mask.shape, field)
    return _stored(mask, encoded(mask, field.encoding, recipe, []), mask.shape, field), was


def _stored(values: NDArray[Any], data: NDArray[Any], shape: tuple[int, ...], field: Field) -> Stored:
    return Stored(data, shape, range_of(values) if field.ranged else None)


def _named(name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What a call returns. A DecodeError names the field."""
    try:
        return call(*args, **kwargs)
    except DecodeError as error:
        raise DecodeError(error.reason, f"{name}: {error.detail}") from error


def _native(values: NDArray[Any]) -> NDArray[Any]:
    """The array in this machine's byte order, which writers need: sources may use the other."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _check_shape(shape: tuple[int, ...], field: Field) -> None:
    if len(shape) != len(field.shape) or any(want not in (None, n) for want, n in zip(field.shape, shape, strict=True)):
        raise DecodeError(
            BAD_FIELD, f"its shape is {shape}, its field's {field.shape}: pass a size, or declare which lengths vary"
        )


def prepare(data: bytes | NDArray[Any], recipe: Recipe, times: int = 1) -> PreparedImage:
    """An image file as `recipe` stores it. times: see `times_of`. Raises DecodeError if it is to be rejected."""
    if not isinstance(data, bytes):
        raise DecodeError("unsupported", "only encoded image files can be packed")
    header = read_header(data)
    if header.width * header.height > recipe.max_pixels:
        raise DecodeError(
            "too_large", f"{header.width}x{header.height} pixels; --max-pixels allows {recipe.max_pixels}"
        )
    notes = []
    if header.icc:
        notes.append("icc_ignored")
    if by_pillow(header):
        notes.append("by_pillow")
    if header.several:
        notes.append("first_frame_of_several")
    if recipe.passes_through and _can_pass(header, recipe):
        return _pass_through(data, header, recipe, notes)
    warnings: list[str] = []
    scale = reduction(header, recipe) if recipe.fast else 1
    try:
        image = decode_image(
            data, header, color=recipe.pixels, scale=scale, warnings=warnings, notes=notes, deep=bool(recipe.depth)
        )
    except DecodeError:
        _check_memory(header)
        raise
    if warnings:
        notes.append("decoder_warnings")
    if scale > 1:
        image = _without_padding(image, header, scale)
    image = by_recipe(image, recipe, notes, header.upright_size if scale > 1 else None, times)
    height, width, channels = image.shape
    measures = _measures(image, recipe)
    stored = encoded(image, recipe.encoding, recipe, notes)
    return PreparedImage(stored, (height, width, channels), tuple(notes), header.upright_size, measures)


def by_recipe(
    image: NDArray[Any], recipe: Recipe, notes: list[str], full: tuple[int, int] | None = None, times: int = 1
) -> NDArray[Any]:
    """An upright image (H, W, C), cropped and resized. full: its (height, width) if it was decoded reduced."""
    if recipe.crop is not None:
        image = cropped(image, recipe.crop)
    if recipe.target is not None:
        target, how = _fitted(recipe, full or (image.shape[0], image.shape[1]))
        image, enlarged = fit(image, target, fit=how, interpolation=recipe.interpolation, full=full, times=times)
        if enlarged:
            notes.append("enlarged")
    return image


def _fitted(recipe: Recipe, size: tuple[int, int]) -> tuple[tuple[int, int], Literal["cover", "stretch"]]:
    """The (height, width) that an image of this size gets, and how. Raises DecodeError where it would have too many
    pixels: a line, of which nothing is cut, and which is as many times longer as it is higher."""
    target = recipe.shape_of(size)
    if recipe.fit == "whole" and target[0] * target[1] > recipe.max_pixels:
        raise DecodeError(
            "too_large",
            f"{size[1]}x{size[0]} pixels become {target[1]}x{target[0]}; --max-pixels allows {recipe.max_pixels}",
        )
    return target, "cover" if recipe.fit == "cover" else "stretch"


def encoded(image: NDArray[Any], encoding: str, recipe: Recipe, notes: list[str]) -> NDArray[Any]:
    """An image or mask as it is stored: the values, or planes (n,), or an image file (n,)."""
    if recipe.quality == "keep" and is_jpeg(encoding):
        notes.append("reencoded")
    stored: NDArray[Any] = resolve(encoder_of(encoding).encode)(image, recipe)
    return stored


def _check_memory(header: ImageHeader) -> None:
    """Raise MemoryError if there is too little memory to decode: decoders report that as a corrupt file."""
    try:
        mmap.mmap(-1, max(1, header.width * header.height * _DECODING_BYTES)).close()
    except (OSError, ValueError):
        raise MemoryError(f"no memory to decode {header.width}x{header.height} pixels") from None


def reduction(header: ImageHeader, recipe: Recipe) -> int:
    """The largest scale at which a JPEG is decoded to no less than its target size; 1 for full size."""
    if header.jpeg is None or recipe.target is None:
        return 1
    size = header.upright_size
    need = recipe.target if recipe.fit == "stretch" else cover_size(size, recipe.target)
    return next((scale for scale in (8, 4, 2) if size[0] // scale >= need[0] and size[1] // scale >= need[1]), 1)


def _without_padding(image: NDArray[np.uint8], header: ImageHeader, scale: int) -> NDArray[np.uint8]:
    """A reduced image without a last row or column that is mostly padding: libjpeg rounds its sides up."""
    if header.orientation != 1:
        return image
    return image[: (header.height + scale // 2) // scale, : (header.width + scale // 2) // scale]


def _can_pass(header: ImageHeader, recipe: Recipe) -> bool:
    """Whether any decoder gets the pixels that the recipe asks for from the file as it is."""
    colors = ("gray",) if recipe.pixels == "gray" else ("gray", "ycbcr")
    return (
        header.jpeg is not None
        and header.jpeg.sof in ("baseline", "extended", "progressive")
        and header.bits == 8
        and header.color in colors
        and header.orientation == 1
    )


def _pass_through(data: bytes, header: ImageHeader, recipe: Recipe, notes: list[str]) -> PreparedImage:
    if recipe.check == "decode" or not is_whole(data):
        # To see that it decodes: at an eighth, all entropy-coded data is decoded too.
        decode_image(data, header, color="gray", scale=8)
    shape = (header.height, header.width, recipe.channels)
    measures = _measures(decode_image(data, header, color="gray"), recipe) if recipe.curate else {}
    stored = np.frombuffer(data, np.uint8)
    return PreparedImage(stored, shape, (*notes, "passed_through"), header.upright_size, measures)


def cropped(image: NDArray[Any], crop: tuple[int, int, int, int]) -> NDArray[Any]:
    """The box x, y, width, height of an image or mask. Raises DecodeError if it reaches outside."""
    x, y, width, height = crop
    if x + width > image.shape[1] or y + height > image.shape[0]:
        raise DecodeError(
            "crop_outside",
            f"the image has {image.shape[1]}x{image.shape[0]} pixels; --crop needs {x + width}x{y + height}",
        )
    return image[y : y + height, x : x + width]


def _measures(image: NDArray[Any], recipe: Recipe) -> dict[str, Any]:
    """What `--curate` adds."""
    if not recipe.curate:
        return {}
    from rawpack_packer.samples.curation import measures_of

    return measures_of(image)
