"""What fields are by their first values, where nobody declares them; and what users are told of those that look like
something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from rawpack.disk.manifest import DTYPES
from rawpack.errors import DecodeError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.fields import (
    ARRAY,
    TEXTS,
    Displacement,
    FieldKind,
    ImageKind,
    PixelWord,
    are_texts,
    as_array,
)
from rawpack_packer.sources.times import TextOnly

_BOX_NAMES = ("box", "boxes", "bbox", "bboxes")
_TRIED = 16
"""Samples of which one shows what images or masks of a field are."""
_LEAST_SIDE = 16
"""Of an array that looks like a picture."""


def inferred_kind(name: str, value: Any) -> FieldKind:
    """A field by its first value. Raises UsageError where no store can hold that."""
    if isinstance(value, str):
        return FieldKind("str")
    if are_texts(value) and value:
        return TEXTS
    array = None if _is_pillow(value) else as_array(value)
    if array is None or array.dtype.kind == "c" or array.dtype.name not in DTYPES or 0 in array.shape:
        what = type(value).__name__ if array is None else f"{array.dtype} {array.shape}"
        if isinstance(value, int):
            what += " beyond 64 bits"
        raise UsageError(
            f"field {name}: its first value is {what}; a field is a bool, int, float, text, or an array of numbers"
            f"{_cure(name, value)}"
        )
    return FieldKind(array.dtype.name, array.shape)


def _is_pillow(value: Any) -> bool:
    from rawpack_packer.images.with_pillow import is_pillow

    return is_pillow(value)


def _cure(name: str, value: Any) -> str:
    if isinstance(value, TextOnly):
        return f": pass fields={{{name!r}: 'str'}} to store it as text"
    if isinstance(value, Mapping):
        return f": make fields of its entries, or store it as JSON text by fields={{{name!r}: 'str'}}"
    if isinstance(value, bytes):
        return (
            f": decode it to text; of an image file, pass fields={{{name!r}: 'image'}}, or 'mask' for labels of pixels"
        )
    if _is_pillow(value):
        return f": pass fields={{{name!r}: 'image'}}, or 'mask' where its pixels are labels"
    if value is None or isinstance(value, int):
        return ": give each sample a value, such as -1 for none, or a text"
    if isinstance(value, list | tuple) and as_array(value) is None:
        return f". Store it as JSON text by fields={{{name!r}: 'str'}}"
    texts = " or 'str[?]'" if isinstance(value, list) and not value else ""
    return f". Declare it, as by fields={{{name!r}: 'float32[?,5]'}}{texts}"


def missing_value(name: str, *, whole: bool) -> tuple[str, str]:
    """What is wrong where a column has no value that a field could have instead, and the cure. whole: whether it has
    whole numbers, rather than bools."""
    dtype, instead = ("float64", "NaN") if whole else ("str", "empty")
    what = f"column {name!r} of {'whole numbers' if whole else 'bool'} has no value"
    return what, f"declare {opt.fields(f'{name}:{dtype}')} ({instead})"


def inferred_pixels(word: PixelWord, name: str, value: Any, image: ImageKind | None) -> FieldKind:
    """An image or mask field by its first value: an image file (of a mask, a PNG), a PIL image, or an array. image:
    what the first images of samples are, if that is known."""
    header = None
    if isinstance(value, bytes):
        from rawpack_packer.images import npy, read_header

        try:
            if npy.is_npy(value):
                value = npy.array_of(value)
            else:
                header = read_header(value)
        except DecodeError as error:
            raise UsageError(f"field {name}: its first {word} cannot be read: {error}") from error
    if header is not None:
        channels = 3 if header.color == "rgb" else 1
        if word == "image":
            exact = header.format == "png" and header.bits == 16 and header.color == "gray"
            return FieldKind("uint16", (None, None, 1), image="values") if exact else PICTURES
        dtype = "uint16" if header.bits == 16 else "uint8"
        if word == "mask":
            return pixels_kind(word, name, dtype, (0, 0, channels), image)
        return _displaced(word, name, dtype, channels)
    array = as_array(value)
    if array is None or array.ndim not in (2, 3):
        what = {"image": "an image is a file", "mask": "a mask is a PNG file"}.get(word, f"a {word} is a PNG file")
        raise UsageError(f"field {name}: {what} or an array (height, width), not {type(value).__name__}")
    return pixels_kind(word, name, array.dtype.name, array.shape, image)


def first_pixels(
    word: PixelWord, name: str, read: Callable[[Any], Any], samples: Iterable[Any], image: ImageKind | None = None
) -> FieldKind:
    """An image or mask field by the first of a few values that can be read: see `inferred_pixels`. read: the value of
    a sample. Raises UsageError with what is wrong with the first one where none can be read."""
    first: UsageError | None = None
    for sample in islice(samples, _TRIED):
        try:
            return inferred_pixels(word, name, read(sample), image)
        except DecodeError as error:
            first = first or UsageError(f"field {name}: its first {word} cannot be read: {error}")
        except UsageError as error:
            first = first or error
    raise first or UsageError(f"field {name}: there is no sample")


PICTURES = FieldKind("uint8", (None, None, 3), image="picture")
"""Further images that are files: the recipe decides how many channels are stored."""


def pixels_kind(word: PixelWord, name: str, dtype: str, shape: Sequence[int], image: ImageKind | None) -> FieldKind:
    """An image or mask field by its first value, an array (height, width) or (height, width, channels). image: see
    `inferred_pixels`: where first images have one size, so have the others, and a mask has that of its image."""
    channels = 1 if len(shape) == 2 else shape[2]
    sizes = (None, None) if image is None or None in image.shape else (shape[0], shape[1])
    if word == "mask":
        fixed = image.shape[:2] if image is not None and sizes[0] is not None and len(image.shape) > 1 else (None, None)
        return FieldKind(dtype, (*fixed, channels), mask=True)
    if word != "image":
        return _displaced(word, name, dtype, channels, sizes)
    return FieldKind(
        dtype, (*sizes, channels), image="picture" if dtype == "uint8" and channels in (1, 3) else "values"
    )


def _displaced(
    word: Displacement, name: str, dtype: str, channels: int, sizes: tuple[int | None, int | None] = (None, None)
) -> FieldKind:
    """An image of distances. Raises UsageError where dtype and channels are not those of one."""
    try:
        return FieldKind(dtype, (*sizes, channels), image="values", displacement=word)
    except UsageError as error:
        raise UsageError(f"field {name}: {error}") from error


def hints(kinds: Mapping[str, FieldKind], declared: Iterable[str], image: ImageKind | None = None) -> list[str]:
    """What to tell the user of fields that look like boxes or images but were not declared. image: what the first
    images are, if that is known."""
    left = {name: kinds[name] for name in kinds if name not in {*declared}}
    found = (_box_hint(name, kind) or _image_hint(name, kind, image) for name, kind in left.items())
    return [one for one in found if one]


def _image_hint(name: str, kind: FieldKind, image: ImageKind | None) -> str | None:
    """See `hints`: it has the height and width of the first images, or is uint8 with 1, 3 or 4 channels, last or first,
    and sides as of a picture."""
    shape, size = kind.shape, image.shape[:2] if image is not None else ()
    if kind.array or kind.ragged or kind.is_pixels or kind.dtype == "str" or len(shape) not in (2, 3):
        return None
    sides = [n for n in shape if n is not None and n >= _LEAST_SIDE]
    picture = kind.dtype == "uint8" and len(shape) == 3 and len(sides) == 2 and {1, 3, 4} & {shape[0], shape[2]}
    if not picture and (None in size or len(size) != 2 or shape[:2] != size):
        return None
    distances = f"{name}:flow or {name}:disparity if its values are distances in pixels, "
    distances = distances if kind.dtype.startswith("float") else ""
    return (
        f"{name!r}, {kind.dtype} {shape}, looks like images and is stored as plain numbers, which do not move when "
        f"images are cropped and resized. Declare what it is: {opt.fields(f'{name}:image')}, {distances}"
        f"{name}:mask, or {name}:{ARRAY} if it is no image"
    )


def _box_hint(name: str, kind: FieldKind) -> str | None:
    """What to tell the user of a field that looks like boxes but was not declared."""
    rows_of_box = len(kind.shape) == 2 and kind.ragged and kind.shape[1] in (4, 5)
    if kind.array or (not rows_of_box and (name.lower() not in _BOX_NAMES or kind.dtype == "str")):
        return None
    shape = ",".join("?" if n is None else str(n) for n in kind.shape)
    return (
        f"{name!r} is stored as plain numbers, which do not move when images are cropped and resized. If it contains "
        f"boxes, declare their form: {opt.fields(f'{name}:xyxy')}, {name}:xywh or {name}:yolo; if not, "
        f"{opt.fields(f'{name}:{kind.dtype}[{shape}]')}"
    )
