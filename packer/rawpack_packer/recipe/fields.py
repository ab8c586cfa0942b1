"""Decides the fields of a store and the number of samples in a part, from the recipe and the source."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from rawpack.disk.manifest import CURATED, Field
from rawpack.disk.tables import codec_of
from rawpack.errors import DecodeError, UsageError
from rawpack.transforms.fields import looks_like
from rawpack.transforms.followers import BOXES
from rawpack_packer.options import opt
from rawpack_packer.options.option import as_text
from rawpack_packer.recipe import Recipe, libraries
from rawpack_packer.recipe.tables import encoder_of
from rawpack_packer.sources import FieldKind, ImageKind, Source, SourceInfo
from rawpack_packer.sources.fields import check_names
from rawpack_packer.text import either

IMAGE = "image"
Size = tuple[int, int]
_RESIZABLE = ("uint8", "uint16", "float32")
"""Dtypes that OpenCV resizes."""
_MIN_SIDE = 16
"""Pixels: arrays (C, H, W) with sides from this on look like images whose channels come first."""


def store_fields(recipe: Recipe, source: Source) -> dict[str, Field]:
    """The fields of the store that `recipe` makes of a source, in their order.

    Raises UsageError where the format cannot hold one, or the recipe does not apply to the source's arrays.
    """
    info = source.info
    check_names(info.fields)
    label = info.fields.get("label")
    if info.classes is not None and label is not None and label != FieldKind("int64"):
        raise UsageError(f"with classes, the field label is int64, not {label.dtype} {label.shape}")
    if recipe.depth and (info.video or not _is_deep(info)):
        raise UsageError(
            f"{opt.depth(recipe.depth)} applies to image files: arrays, and images of stores, keep their dtype, and "
            "videos have 8 bits; leave it out"
        )
    image = picture_field(recipe) if info.image is None else _array(recipe, info.image)
    if recipe.chunk is not None and not image.uniform:
        sized = opt.size("keep") if recipe.target is None else opt.fit("whole")
        raise UsageError(f"{opt.chunk} counts images of one size; with {sized} chunks have 1 MiB")
    for name, kind in info.fields.items():
        if kind.boxes is not None and len(image.shape) != 3:
            raise UsageError(f"{name!r} contains boxes, which need pictures, not {image.dtype} {image.shape}")
        if kind.follows is not None and (BOXES not in info.fields or info.fields[BOXES].boxes is None):
            raise UsageError(f"{name!r} follows the field {BOXES!r}, and there is no such field of boxes")
    others = {name: _field(recipe, name, kind) for name, kind in info.fields.items()}
    _check_sizes(recipe, info)
    _check_left_behind(recipe, info, others)
    if recipe.curate:
        _check_curated(image, others)
        others |= CURATED
    return {IMAGE: image, **others, "key": Field(kind="text", dtype="str")}


def _is_deep(info: SourceInfo) -> bool:
    """Whether a source may have images of 16 bits, as far as it knows: files, or a store that has them."""
    if info.image is None:
        return True
    return info.image.dtype == "uint16" if info.kind == "store" else info.image.pictures


def _check_sizes(recipe: Recipe, info: SourceInfo) -> None:
    """Raise UsageError where sizes by field name other fields than the images of a sample."""
    images = [name for name, kind in info.fields.items() if kind.image]
    if recipe.sizes and {IMAGE, *recipe.sizes} != {IMAGE, *images}:
        raise UsageError(
            f"there are sizes for {', '.join(dict.fromkeys([IMAGE, *recipe.sizes]))}, and the images of a sample are "
            f"{', '.join([IMAGE, *images])}: give one {opt.size} for all, or one for each; further images come with "
            f"{opt.fields('NAME:image')}, or of a folder {opt.images('NAME=FOLDER')}"
        )


def check_first(recipe: Recipe, source: Source) -> None:
    """Raise UsageError where one size is for all images of a sample, and those of the first sample differ in size: all
    samples would be rejected. What cannot be read is not looked at."""
    names = [name for name, kind in source.info.fields.items() if kind.image]
    if not names or recipe.sizes or (recipe.crop is None and recipe.target is None):
        return
    try:
        item = source[0]
        size = size_of(item.image)
        for name in names:
            was = size_of(item.fields[name])
            if was != size:
                raise UsageError(unlike(name, was, size, recipe))
    except (DecodeError, KeyError):
        return


def size_of(value: object) -> tuple[int, int]:
    """(height, width) of an image file or an array. Raises DecodeError."""
    from rawpack_packer.images import npy, read_header

    if isinstance(value, bytes) and not npy.is_npy(value):
        return read_header(value).upright_size
    array = npy.array_of(value) if isinstance(value, bytes) else np.asarray(value)
    if array.ndim < 2:
        raise DecodeError("bad_field", "no image")
    return array.shape[0], array.shape[1]


def times_of(recipe: Recipe, sizes: Mapping[str, Size]) -> dict[str, int]:
    """Which images of a sample are a whole number of times as large as its smallest one, before and after the recipe,
    and how many: what is cut out of them is that many times what is cut out of the smallest, see `covering`. sizes:
    (height, width) of each image."""
    targets = {name: recipe.target if name == IMAGE else recipe.of(name, None).target for name in sizes}
    smallest = min(sizes, key=lambda name: sizes[name])
    size, target, found = sizes[smallest], targets[smallest], dict[str, int]()
    for name, own in sizes.items():
        times = own[0] // size[0]
        if target is not None and own == _scaled(size, times) and targets[name] == _scaled(target, times):
            found[name] = times
    return found


def _scaled(size: Size, times: int) -> Size:
    return size[0] * times, size[1] * times


def unlike(name: str, was: tuple[int, int], size: tuple[int, int], recipe: Recipe) -> str:
    """Why images of different sizes, (height, width), are not made one size by one option."""
    both = f"{name} is {was[0]}x{was[1]} and image {size[0]}x{size[1]} (height x width)"
    if recipe.crop is not None:
        return f"{both}, so {opt.crop} would cut different parts out of them: crop them before packing"
    sizes = {one: n[0] if n[0] == n[1] else n for one, n in ((IMAGE, size), (name, was))}
    each = either(" ".join(f"--size {one}={as_text(n, 'x')}" for one, n in sizes.items()), f"size={sizes}")
    return f"{both}; one {opt.size} would make them equal: {each} gives each its own, and {opt.size('keep')} keeps them"


def _check_curated(image: Field, others: Mapping[str, Field]) -> None:
    if image.dtype != "uint8" or len(image.shape) != 3 or image.shape[2] not in (1, 3):
        raise UsageError(
            f"{opt.curate} measures pictures, not images that are {image.dtype} {image.shape}: leave it out"
        )
    for name in CURATED:
        if name in others:
            raise UsageError(
                f"{opt.curate} adds a field {name!r}, and the source has one: leave it out, or rename that"
            )


def part_rows(recipe: Recipe, fields: Mapping[str, Field]) -> int:
    """See `Recipe.rows_for`."""
    return recipe.rows_for(exact_bytes(fields, encoded=True))


def exact_bytes(fields: Mapping[str, Field], *, encoded: bool = False) -> int:
    """Bytes of the images and masks of every sample, where the fields alone decide them, else 0. encoded: of encoded
    fields too, as raw pixels."""
    large = [field for field in fields.values() if field.in_shards]
    if not all(field.uniform and (encoded or field.codec.in_place) for field in large):
        return 0
    values = [math.prod(n or 0 for n in (field.shape if encoded else field.stored_shape)) for field in large]
    return sum(np.dtype(field.dtype).itemsize * count for field, count in zip(large, values, strict=True))


def picture_field(recipe: Recipe) -> Field:
    """The field of images that are pictures."""
    height, width = recipe.shape or (None, None)
    dtype = "uint16" if recipe.depth else "uint8"
    field = Field(kind="image", dtype=dtype, shape=(height, width, recipe.channels), encoding=recipe.encoding)
    return _checked(field, f"pictures of {opt.depth(16)}") if recipe.depth else field


def made_here(recipe: Recipe, source: Source) -> Recipe:
    """The recipe with the libraries that it and the source use, in the versions installed here."""
    return msgspec.structs.replace(recipe, libraries=libraries(recipe, video=source.info.video))


def _array(recipe: Recipe, kind: ImageKind) -> Field:
    """The field of images that are arrays."""
    shape = (*kind.shape, 1) if kind.dtype == "uint8" and len(kind.shape) == 2 else kind.shape
    what = f"images that are {kind.dtype} arrays {kind.shape}"
    if kind.pictures:
        shape = (*shape[:2], recipe.channels)
        if recipe.depth:
            kind = replace(kind, dtype="uint16", shape=shape)
    elif recipe.color == "gray" and (kind.dtype != "uint8" or shape[2:] != (1,)):
        raise UsageError(f"{opt.color(recipe.color)} is for pictures; {what} keep their channels")
    if codec_of(recipe.encoding).planar:  # whatever the size, it is the color that does not fit
        _checked(Field(kind="image", dtype=kind.dtype, shape=shape, encoding=recipe.encoding), what)
    if kind.resized and recipe.target and kind.dtype not in _RESIZABLE:
        raise UsageError(
            f"images are {kind.dtype} arrays that differ in size, and only {', '.join(_RESIZABLE)} can be resized: "
            f"convert them, or keep the size of each with {opt.size('keep')}{_as_bytes(kind.dtype)}"
        )
    if (recipe.target or recipe.crop) and (len(shape) != 3 or (recipe.target and kind.dtype not in _RESIZABLE)):
        raise UsageError(
            f"{opt.size} and {opt.crop} are for (height, width, channels) of {', '.join(_RESIZABLE)}; {what} are "
            "stored as they are: leave the options out"
        )
    if _is_channels_first(recipe, shape):
        raise UsageError(
            f"{opt.size} and {opt.crop} are for (height, width, channels), and {what} look like (channels, height, "
            "width): transpose each to height, width, channels, as by np.moveaxis(image, 0, -1), or leave the options "
            "out"
        )
    return _checked(Field(kind="image", dtype=kind.dtype, shape=_sized(recipe, shape), encoding=recipe.encoding), what)


def _check_left_behind(recipe: Recipe, info: SourceInfo, fields: Mapping[str, Field]) -> None:
    """Raise UsageError where the recipe changes images of a known size, and a field looks like them."""
    height, width = (*info.image.shape, None, None)[:2] if info.image is not None else (None, None)
    if height is None or width is None or (recipe.crop is None and recipe.shape_of((height, width)) == (height, width)):
        return
    for name, field in fields.items():
        if looks_like(field, (height, width)):
            where = "; a store is packed again with it from its source" if info.kind == "store" else ""
            raise UsageError(f"{left_behind(name, field)}{where}")


def left_behind(name: str, field: Field) -> str:
    """Why a field that looks like its image cannot be stored where the recipe crops or resizes that."""
    return (
        f"{name!r}, {field.dtype} {field.shape}, has the height and width of its image, and {opt.size} and {opt.crop} "
        f"change the image alone: {opt.fields(f'{name}:image')} changes it too, as a further image, {name}:flow or "
        f"{name}:disparity as one whose values are distances in pixels, and {opt.fields(f'{name}:mask')} as a mask; "
        f"{opt.fields(f'{name}:array')} says that it is no image"
    )


def _checked(field: Field, what: str) -> Field:
    """The field. Raises UsageError where its encoding cannot hold it."""
    if not field.codec.holds(field):
        formats = f"{opt.format('memmap')} or {opt.format('hdf5')}"
        cure = _as_bytes(field.dtype) if field.displacement is msgspec.UNSET else ""
        raise UsageError(encoder_of(field.encoding).refusal.format(what=what, formats=formats) + cure)
    return field


def _as_bytes(dtype: str) -> str:
    """What to do with floats that are pictures, as the end of a message."""
    if not dtype.startswith("float"):
        return ""
    return "; or make floats from 0 to 1 bytes, as by (image * 255).round().astype('uint8')"


def _is_channels_first(recipe: Recipe, shape: tuple[int | None, ...]) -> bool:
    """Whether images of this shape are surely (channels, height, width).

    As (height, width, channels) they would be 1, 3 or 4 pixels high with 16 channels or more, and the recipe would crop
    rows that they do not have, or enlarge them to more than four times their height.
    """
    if len(shape) != 3 or shape[0] not in (1, 3, 4) or any(n is None or n < _MIN_SIDE for n in shape[1:]):
        return False
    if recipe.crop is not None:
        return recipe.crop[1] + recipe.crop[3] > shape[0]
    return recipe.target is not None and recipe.target[0] > 4 * shape[0]


def _field(recipe: Recipe, name: str, kind: FieldKind) -> Field:
    if kind.dtype == "str":
        return Field(kind="text", dtype="str", shape=kind.shape)
    if kind.boxes is not None:
        return Field(kind="ragged", dtype=kind.dtype, shape=kind.shape, boxes="xyxy")
    if kind.follows is not None:
        mirror = kind.mirror or msgspec.UNSET
        return Field(kind="ragged", dtype=kind.dtype, shape=kind.shape, follows=kind.follows, mirror=mirror)
    if not kind.is_pixels:
        array = kind.array or msgspec.UNSET
        return Field(kind="ragged" if kind.ragged else "number", dtype=kind.dtype, shape=kind.shape, array=array)
    what = f"{name!r}, which is {kind.dtype} {kind.shape}"
    if kind.mask:
        shape = _sized(recipe, kind.shape)
        return _checked(Field(kind="mask", dtype=kind.dtype, shape=shape, encoding=recipe.mask_encoding), what)
    if kind.image == "picture":
        own = recipe.of(name, kind.shape[2])
        return _array(own, ImageKind(kind.dtype, kind.shape, pictures=True, resized=True))
    shape = _sized(recipe.of(name, None), kind.shape)
    return _checked(
        Field(
            kind="image",
            dtype=kind.dtype,
            shape=shape,
            encoding=recipe.mask_encoding,
            nearest=True,
            displacement=kind.displacement or msgspec.UNSET,
        ),
        what,
    )


def _sized(recipe: Recipe, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The shape that images of this shape have after the recipe's crop and resize."""
    if recipe.shape is not None:
        return (*recipe.shape, *shape[2:])
    if recipe.crop is not None and None not in shape:
        shape = (recipe.crop[3], recipe.crop[2], *shape[2:])
    if len(shape) < 2 or recipe.target is None:
        return shape
    height, width = shape[:2]
    sides = (None, None) if height is None or width is None else recipe.shape_of((height, width))
    return (*sides, *shape[2:])
