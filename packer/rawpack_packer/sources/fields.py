"""The fields and images of a source: their names, dtypes and shapes.

A field is inferred from a value, or declared by a word: "float32", "float32[?,5]", "image", "mask", "xyxy". "array"
says of a field that it is no image, so that it stays as it is where the image moves. What it holds is inferred, or
follows: "array:float32[4,4]".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import DTYPES, FIELD_NAME
from rawpack.errors import DecodeError, UsageError
from rawpack_packer.options import opt

BoxForm = Literal["xyxy", "xywh", "yolo"]
"""How a source writes boxes, one per row. "xyxy": left, top, right, bottom; "xywh": left, top, width, height; both in
pixels of the whole upright image, counted from its upper left corner, then other numbers. "yolo": class, center x,
center y, width, height, all but the class as fractions of the image."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of one sample."""

    rows: NDArray[Any]
    """(n, k): one box per row, in the source's form; or a single box, (k,)."""
    form: BoxForm
    size: tuple[int, int] | None = None
    """(height, width) of the image that they were drawn in, if the source knows it: they do not belong to an image of
    another size."""


Follows = Literal["rows", "keypoints", "polygons"]
"""How a field follows the rows of `boxes`: see `rawpack.disk.manifest.Field.follows`."""


@dataclass(frozen=True, eq=False)
class Fractions:
    """Keypoints or polygons of one sample whose x and y are fractions of the image, from 0 to 1."""

    rows: NDArray[Any]


Value = int | float | str | list[str] | bytes | NDArray[Any] | Boxes | Fractions
"""What a field of one sample can be, apart from its image."""

PLAIN = "bool, int8 to int64, uint8 to uint64, float16 to float64"
"""The dtypes that fields and images can have, as errors name them."""
_MOST_AXES = 16
"""Of one sample, in any store."""


@dataclass(frozen=True)
class FieldKind:
    """What a source knows of one field before any sample is read."""

    dtype: str
    """numpy's name of a bool, integer or float type, such as "float32"; "str" for text."""
    shape: tuple[int | None, ...] = ()
    """Of one sample. The first length is None if samples differ in it: (None, 5) for boxes, (None,) for a list of
    texts.

    An image or mask has (H, W, C); H and W are None if samples differ in them."""
    image: Literal["picture", "values"] | None = None
    """A further image of the sample, of a size of its own. "picture": gray or RGB, uint8, decoded, resized and stored
    as the first one is. "values": any other, such as depths: resized by the nearest pixel and stored without loss. A
    value is the bytes of an image file (of "values": PNG), or an array (H, W) or (H, W, C)."""
    mask: bool = False
    """A second image of the same height and width: cropped and resized like the first, but by the nearest pixel, and
    stored without loss. A value is the bytes of a PNG file, or an array (H, W) or (H, W, C)."""
    boxes: BoxForm | None = None
    """The form of boxes. They move with the image, and are stored as left, top, right, bottom, in pixels of the stored
    image, and then what else a row has. A value is `Boxes`."""
    follows: Follows | None = None
    """How it belongs to the rows of the field `boxes`, which are left out together with what follows them. Points are
    in pixels of the whole upright image, unless a value is `Fractions`."""
    mirror: tuple[int, ...] = ()
    """For keypoints, which one takes the place of each when the image is mirrored; empty where that is unknown."""
    array: bool = False
    """Whether the user says that it is no image, though it may have the image's height and width: it does not move with
    the image."""

    def __post_init__(self) -> None:
        if self.array and (self.is_pixels or self.boxes or self.follows or self.dtype == "str"):
            raise UsageError("an array is numbers that do not move with the image: no text, image, mask or boxes")
        if self.is_pixels:
            what = "a mask" if self.mask else "an image"
            channels = self.shape[2] if len(self.shape) == 3 else None
            if channels is None or (self.shape[0] is None) != (self.shape[1] is None) or self.dtype == "str":
                raise UsageError(f"{what} is (height, width, channels), not {self.dtype} {self.shape}")
            if self.mask and self.image:
                raise UsageError("a field is an image or a mask, not both")
            if self.image == "picture" and (self.dtype != "uint8" or channels not in (1, 3)):
                raise UsageError(f"a picture is gray or RGB, uint8, not {self.dtype} {self.shape}")
        if self.dtype == "str":
            if self.shape not in ((), (None,)):
                raise UsageError(f"a sample has one text, str, or a list of texts, str[?], not shape {self.shape}")
            return
        if self.dtype not in DTYPES or self.dtype[0] == "c":
            raise UsageError(f'{self.dtype!r} is not a field dtype: use "str", or {PLAIN}')
        if self.boxes and (self.is_pixels or self.dtype[0] != "f" or len(self.shape) != 2 or (self.shape[1] or 0) < 4):
            raise UsageError(f"boxes are floats of shape (n, 4) or wider, not {self.dtype} {self.shape}")
        if self.boxes == "yolo" and self.shape[1] != 5:
            raise UsageError(f"yolo boxes are class, x, y, width, height: (n, 5), not {self.shape}")
        if self.follows and not self._can_follow():
            raise UsageError(
                f"{self.dtype} {self.shape} cannot follow boxes as {self.follows}: keypoints are floats (n, k, 3), "
                "polygons floats (n, 4), and rows (n, ...)"
            )
        if self.mirror and (self.follows != "keypoints" or sorted(self.mirror) != list(range(self.shape[1] or 0))):
            raise UsageError(f"{self.mirror} is no order of the keypoints of {self.shape}")
        if any(n is not None and n < 1 for n in self.shape):
            raise UsageError(f"shape {self.shape}: lengths must be 1 or more, or None where samples differ")
        if len(self.shape) > _MOST_AXES:
            raise UsageError(f"shape {self.shape}: a field has at most {_MOST_AXES} axes")
        if None in self.shape[1:] and not self.is_pixels:
            raise UsageError(f"shape {self.shape}: only the first length of a field may differ between samples")

    def _can_follow(self) -> bool:
        points = self.dtype[0] == "f"
        if self.follows == "keypoints":
            return points and len(self.shape) == 3 and self.shape[0] is None and self.shape[2] == 3
        if self.boxes or self.is_pixels or self.shape[:1] != (None,):
            return False
        return self.follows == "rows" or (points and self.shape == (None, 4))

    @property
    def is_texts(self) -> bool:
        """Whether each sample has a list of texts, of any number."""
        return self.dtype == "str" and bool(self.shape)

    @property
    def is_pixels(self) -> bool:
        """Whether it is an image or a mask."""
        return self.mask or self.image is not None

    @property
    def ragged(self) -> bool:
        """Whether samples differ in their first length."""
        return None in self.shape and not self.is_pixels


@dataclass(frozen=True)
class ImageKind:
    """Images whose dtype and shape a source knows: arrays, or image files with such pixels."""

    dtype: str
    """numpy's name of a bool, integer, float or complex type."""
    shape: tuple[int | None, ...]
    """Of one image; (None, None, C) if they differ in height and width. uint8 of two axes, (H, W), is a gray image, and
    stored as (H, W, 1)."""
    pictures: bool = False
    """Whether images are gray or RGB, so that the recipe decides how many channels are stored."""
    resized: bool = False
    """Whether images differ in size and nobody said that they keep it: unless the recipe says so, they are resized as
    pictures are."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"images of dtype {self.dtype}: use {PLAIN}, complex64 or complex128")
        differing = None in self.shape
        if differing and (len(self.shape) != 3 or self.shape[2] is None or self.shape[:2] != (None, None)):
            raise UsageError(f"images of shape {self.shape}: only height and width of (H, W, C) may differ")
        if any(n is not None and n < 1 for n in self.shape) or len(self.shape) > 15:
            raise UsageError(f"images of shape {self.shape}: they need 1 to 15 axes, each of length 1 or more")


def as_text(value: Any) -> str:
    """A value of a field of texts: a text as it is, None as the empty text, and all else as JSON text, of which
    `json.loads` makes the same value again. Raises TypeError for bytes, which JSON cannot hold."""
    if value is None or isinstance(value, str):
        return value or ""
    text = json.dumps(value, ensure_ascii=False, default=_for_json)
    # Half of a surrogate pair is no UTF-8; JSON has an escape for it.
    return text if text.isascii() or not _HALVES.search(text) else json.dumps(value, default=_for_json)


def _for_json(value: Any) -> Any:
    """What JSON has instead: lists for arrays, infinity for what no float can hold, texts for dates and decimals."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes cannot be stored as text")
    if hasattr(value, "tolist"):  # numpy's and torch's
        return value.tolist()
    return float(value) if hasattr(value, "__float__") and not isinstance(value, Decimal) else str(value)


_HALVES = re.compile("[\ud800-\udfff]")

TEXTS = FieldKind("str", (None,))
"""Lists of texts."""


def are_texts(value: Any) -> bool:
    """Whether a value is a list of texts, which may be empty."""
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


RESERVED = {"index": "row", "image": "picture", "key": "name"}
"""Fields that every sample has already -> a name that a source's field could have instead."""
_BESIDE = ("start", "shape", "length")
"""HDF5 shards have datasets whose names are that of a field and one of these."""


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError if a source's fields cannot have these names; it suggests another name."""
    seen: dict[str, str] = {name: name for name in RESERVED}
    for name in names:
        if not FIELD_NAME.fullmatch(name):
            better = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("0123456789")[:64] or "field"
            raise UsageError(
                f"{name!r} cannot be a field's name ({FIELD_NAME.pattern}): rename it, for example to {better!r}"
            )
        if name in RESERVED:
            better = RESERVED[name]
            raise UsageError(f"every sample has a field {name!r} already: rename it, for example to {better!r}")
        # Columns are files, and some file systems ignore case.
        if name.lower() in seen:
            raise UsageError(
                f"{name!r} and {seen[name.lower()]!r} differ only in case: rename one, for example to {name + '_2'!r}"
            )
        seen[name.lower()] = name
    for name in seen.values():
        field, _, end = name.rpartition("_")
        if end in _BESIDE and field in seen:
            raise UsageError(
                f"an hdf5 store needs the name {name!r} for {field!r}: rename it, for example to {field + end!r}"
            )


_WORD = re.compile(r"([a-z]+\d*)(?:\[([\d?,\s]*)\])?")
_BOX_LENGTH = 5
"""Numbers of a box by default: four sides and a class."""
Declared = str | tuple[str, tuple[int | None, ...]] | FieldKind
"""How a caller declares a field: a word; dtype and shape; or all of it."""
Fields = Mapping[str, Declared] | Sequence[str]
"""How a caller declares several: by name, or as the command has them, "NAME:DTYPE"."""
ARRAY = "array"
PixelWord = Literal["image", "mask"]
DeclaredKind = FieldKind | PixelWord
"""What a declaration says: see `declared_kind`."""
PIXEL_WORDS: tuple[PixelWord, ...] = get_args(PixelWord)
"""Declarations of fields of which the first value shows dtype and channels."""
_BOX_NAMES = ("box", "boxes", "bbox", "bboxes")
_TRIED = 16
"""Samples of which one shows what images or masks of a field are."""
_LEAST_SIDE = 16
"""Of an array that looks like a picture."""


def declared_kind(name: str, declared: Declared) -> DeclaredKind:
    """A field as it was declared; of images and masks, which the first one shows, the word. UsageError for nonsense."""
    if isinstance(declared, FieldKind):
        return declared
    for word in PIXEL_WORDS:
        if declared == word:
            return word
    if array_of(declared)[0]:
        raise UsageError(f"field {name}: {ARRAY!r} is for fields of arrays that are packed with their images")
    if isinstance(declared, tuple):
        dtype, shape = declared
        return FieldKind(plain_dtype(dtype), tuple(shape))
    match = _WORD.fullmatch(declared.strip()) if isinstance(declared, str) else None
    if not match:
        raise UsageError(
            f"field {name}: {declared!r} is not a field dtype; write float32, float32[4], float32[?,5], str, str[?], "
            f"image, image[1], mask, array, or for boxes {', '.join(get_args(BoxForm))}; the dtypes are {PLAIN}"
        )
    lengths = [length.strip() for length in (match[2] or "").split(",") if length.strip()]
    shape = tuple(None if length == "?" else int(length) for length in lengths)
    if match[1] == "image":  # of files, which do not say whether the gray ones are only some
        return FieldKind("uint8", (None, None, *shape), image="picture")
    for form in get_args(BoxForm):
        if match[1] == form:
            return FieldKind("float32", (None, *(shape[-1:] or (_BOX_LENGTH,))), boxes=form)
    dtype = {"int": "int64", "float": "float64", "text": "str"}.get(match[1], match[1])
    if plain_dtype(dtype) not in DTYPES and dtype != "str":
        raise UsageError(
            f'field {name}: {match[1]!r} is not a field dtype: use "image", "mask", "str", a form of boxes '
            f"({', '.join(get_args(BoxForm))}), or {PLAIN}"
        )
    return FieldKind(plain_dtype(dtype), shape)


def are_pixels(kind: DeclaredKind | None) -> bool:
    """Whether a declaration is that of an image or a mask."""
    return isinstance(kind, str) or (kind is not None and kind.is_pixels)


def declared_fields(fields: Mapping[str, Declared] | Sequence[str]) -> dict[str, DeclaredKind]:
    """The declared kinds of fields, see `declared_kind`. Raises UsageError."""
    if isinstance(fields, Mapping):
        return {name: declared_kind(name, declared) for name, declared in fields.items()}
    declared: dict[str, DeclaredKind] = {}
    for text in fields:
        name, colon, word = text.partition(":")
        if not colon or not name:
            raise UsageError(f"{opt.fields(repr(text))}: write NAME:DTYPE, such as score:float32 or boxes:xyxy")
        if name in declared:
            raise UsageError(f"{opt.fields(name)} is given twice")
        declared[name] = declared_kind(name, word)
    return declared


def plain_dtype(declared: Any) -> str:
    """A dtype by its name in stores: "float64" for "double", "d", "<f8". Nonsense stays as it is."""
    try:
        return str(np.dtype(declared).name)
    except TypeError:
        return str(declared)


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
            raise UsageError(f"field {name}: its first {word} cannot be read: {error}") from None
    if header is not None:
        channels = 3 if header.color == "rgb" else 1
        if word == "image":
            exact = header.format == "png" and header.bits == 16 and header.color == "gray"
            return FieldKind("uint16", (None, None, 1), image="values") if exact else PICTURES
        return mask_kind("uint16" if header.bits == 16 else "uint8", (0, 0, channels), image)
    array = as_array(value)
    if array is None or array.ndim not in (2, 3):
        what = "an image is a file" if word == "image" else "a mask is a PNG file"
        raise UsageError(f"field {name}: {what} or an array (height, width), not {type(value).__name__}")
    return pixels_kind(word, array.dtype.name, array.shape, image)


def first_pixels(
    word: PixelWord, name: str, reads: Iterable[Callable[[], Any]], image: ImageKind | None = None
) -> FieldKind:
    """An image or mask field by the first of a few values that can be read: see `inferred_pixels`. reads: return the
    values of samples. Raises UsageError with what is wrong with the first one where none can be read."""
    first: UsageError | None = None
    for read in islice(reads, _TRIED):
        try:
            return inferred_pixels(word, name, read(), image)
        except DecodeError as error:
            first = first or UsageError(f"field {name}: its first {word} cannot be read: {error}")
        except UsageError as error:
            first = first or error
    raise first or UsageError(f"field {name}: there is no sample")


PICTURES = FieldKind("uint8", (None, None, 3), image="picture")
"""Further images that are files: the recipe decides how many channels are stored."""


def pixels_kind(word: PixelWord, dtype: str, shape: Sequence[int], image: ImageKind | None) -> FieldKind:
    """An image or mask field by its first value, an array (height, width) or (height, width, channels). image: see
    `inferred_pixels`: where first images have one size, so have the others."""
    if word == "mask":
        return mask_kind(dtype, shape, image)
    channels = 1 if len(shape) == 2 else shape[2]
    sizes = (None, None) if image is None or None in image.shape else (shape[0], shape[1])
    return FieldKind(
        dtype, (*sizes, channels), image="picture" if dtype == "uint8" and channels in (1, 3) else "values"
    )


def mask_kind(dtype: str, shape: Sequence[int], image: ImageKind | None) -> FieldKind:
    """A mask field by the first mask, (height, width) or (height, width, channels). image: what all images are, if that
    is known: a mask has the size of its image."""
    sizes: tuple[int | None, int | None] = (None, None)
    if image is not None and len(image.shape) >= 2 and None not in image.shape:
        sizes = (image.shape[0], image.shape[1])
    return FieldKind(dtype, (*sizes, 1 if len(shape) == 2 else shape[2]), mask=True)


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
    return (
        f"{name!r}, {kind.dtype} {shape}, looks like images and is stored as plain numbers, which do not move when "
        f"images are cropped and resized. Declare what it is: {opt.fields(f'{name}:image')}, {name}:mask, or "
        f"{name}:{ARRAY} if it is no image"
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


def words_of(fields: Fields) -> tuple[str, ...]:
    """Declarations as the command has them."""
    return tuple(":".join(map(str, pair)) for pair in fields.items()) if isinstance(fields, Mapping) else tuple(fields)


def array_of(declared: Any) -> tuple[bool, str | None]:
    """Whether a declaration says that a field is no image: "array"; and what else it says: "array:float32[4,4]"."""
    word, _, rest = declared.partition(":") if isinstance(declared, str) else ("", "", "")
    return word == ARRAY, rest or None


def split_arrays(fields: Fields) -> tuple[dict[str, Declared] | list[str], tuple[str, ...]]:
    """The declarations of fields without the word "array", and the names of those that had it."""
    pairs: list[tuple[str, Any]]
    named = isinstance(fields, Mapping)
    pairs = list(fields.items()) if isinstance(fields, Mapping) else [one.partition(":")[::2] for one in fields]
    arrays = tuple(name for name, declared in pairs if array_of(declared)[0])
    rest = [(name, array_of(declared)[1] if name in arrays else declared) for name, declared in pairs]
    left = [(name, declared) for name, declared in rest if declared is not None]
    if named:
        return dict(left), arrays
    return [f"{name}:{declared}" if declared else name for name, declared in left], arrays


def with_arrays(kinds: Mapping[str, FieldKind], names: Iterable[str], where: str) -> dict[str, FieldKind]:
    """Fields, of which those named are no images. Raises UsageError where there is no such field, or it holds none."""
    marked = dict(kinds)
    for name in names:
        if name not in kinds:
            raise UsageError(
                f"{opt.fields(f'{name}:{ARRAY}')}: {where} has no such field: it has {', '.join(kinds) or 'none'}"
            )
        try:
            marked[name] = replace(kinds[name], array=True)
        except UsageError as error:
            raise UsageError(f"{opt.fields(f'{name}:{ARRAY}')}: {error}") from None
    return marked


def with_roles(
    kinds: Mapping[str, FieldKind], fields: Fields, image: ImageKind | None, where: str
) -> dict[str, FieldKind]:
    """Fields whose dtype and shape a file of arrays knows: those that are declared as images, masks, or no images.
    image: what the first images are, if that is known. Raises UsageError."""
    found = dict(kinds)
    for name, _, role in (word.partition(":") for word in words_of(fields)):
        if role == ARRAY:
            found = with_arrays(found, [name], where)
            continue
        if role not in PIXEL_WORDS:
            raise UsageError(
                f"{opt.fields(name)}: the arrays of {where} say what they contain; for a field, write {name}:image "
                f"where it is a further image, {name}:mask where it is a mask of the image, or {name}:{ARRAY} where it "
                "is no image"
            )
        said = opt.fields(f"{name}:{role}")
        if name not in kinds:
            raise UsageError(f"{said}: {where} has no such field: it has {', '.join(kinds) or 'none'}")
        one = kinds[name]
        if one.is_pixels:  # by its first value
            continue
        lengths = [n for n in one.shape if n is not None]
        if len(lengths) not in (2, 3) or one.ragged or one.dtype == "str":
            raise UsageError(f"{said}: it is (height, width, channels) or (height, width), not {one.dtype} {one.shape}")
        found[name] = pixels_kind(role, one.dtype, lengths, image)
    return found


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """A number, list, array or tensor as an array in this machine's byte order; None for anything else.

    A masked array with masked values is refused too: what is under the mask is no value.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    if array.dtype.kind not in "biufc":
        return None
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
