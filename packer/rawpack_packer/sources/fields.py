"""The fields and images of a source: their names, dtypes and shapes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import DTYPES, FIELD_NAME, Field, can_displace
from rawpack.errors import UsageError
from rawpack_packer.sources.times import TextOnly, plain_text
from rawpack_packer.text import count

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
_MOST_VALUES = 1 << 40
"""Values of one sample. No machine has the memory for more."""

SHARE_SLACK = 0.01
"""How far outside of 0 to 1 shares of the image may be, as for Ultralytics: tools round. Others are probably pixels."""


def clipped_line(boxes: int) -> list[str]:
    """A line for the boxes that had such a share, which was clipped."""
    what = f"{count(boxes, 'box', 'boxes')} with a number up to {SHARE_SLACK} outside of 0 to 1, clipped to it"
    return [what] if boxes else []


Displacement = Literal["flow", "disparity"]
_DISPLACEMENTS: Mapping[Displacement, str] = {
    "flow": "a flow is floats (height, width, 2), the distances along x and y in pixels",
    "disparity": "a disparity is numbers (height, width) or (height, width, 1), the distances along x in pixels",
}


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
    displacement: Displacement | None = None
    """What the values of an image are, if they are distances in its own pixels: see
    `rawpack.disk.manifest.Field.displacement`."""
    array: bool = False
    """Whether the user says that it is no image, though it may have the image's height and width: it does not move with
    the image."""

    @classmethod
    def of(cls, field: Field) -> FieldKind:
        """What a field of a store is."""
        return cls(
            field.dtype,
            field.shape,
            image=None if field.kind != "image" else "values" if field.exact else "picture",
            mask=field.kind == "mask",
            boxes="xyxy" if field.is_boxes else None,
            follows=None if field.follows is msgspec.UNSET else field.follows,
            mirror=() if field.mirror is msgspec.UNSET else field.mirror,
            displacement=None if field.displacement is msgspec.UNSET else field.displacement,
            array=field.is_array,
        )

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
            if self.displacement and not can_displace(self.displacement, self.dtype, self.shape):
                raise UsageError(
                    f"{_DISPLACEMENTS[self.displacement]}, not {self.dtype} {self.shape}: convert it before packing"
                )
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
        if math.prod(n or 1 for n in self.shape) > _MOST_VALUES:
            raise UsageError(f"shape {self.shape}: a sample has at most {_MOST_VALUES:,} values")
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
        if math.prod(n or 1 for n in self.shape) > _MOST_VALUES:
            raise UsageError(f"images of shape {self.shape}: an image has at most {_MOST_VALUES:,} values")


def as_text(value: Any) -> str:
    """A value of a field of texts: a text as it is, None as the empty text, times and decimals by `plain_text`, and all
    else as JSON text, of which `json.loads` makes the same value again. Raises TypeError for bytes, which JSON cannot
    hold."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, TextOnly):
        return plain_text(value)
    text = json.dumps(value, ensure_ascii=False, default=_for_json)
    # Half of a surrogate pair is no UTF-8; JSON has an escape for it.
    return text if text.isascii() or not _HALVES.search(text) else json.dumps(value, default=_for_json)


def _for_json(value: Any) -> Any:
    """What JSON has instead: lists for arrays, infinity for what no float can hold, texts for dates and decimals."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes cannot be stored as text")
    if isinstance(value, TextOnly):
        return plain_text(value)
    if hasattr(value, "tolist"):  # numpy's and torch's
        return value.tolist()
    return float(value) if hasattr(value, "__float__") else str(value)


_HALVES = re.compile("[\ud800-\udfff]")

TEXTS = FieldKind("str", (None,))
"""Lists of texts."""


def are_texts(value: Any) -> bool:
    """Whether a value is a list of texts, which may be empty."""
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


RESERVED = {"index": "index_", "store_row": "store_row_", "image": "picture", "key": "name"}
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


Declared = str | tuple[str, tuple[int | None, ...]] | FieldKind
"""How a caller declares a field: a word; dtype and shape; or all of it."""
Fields = Mapping[str, Declared] | Sequence[str]
"""How a caller declares several: by name, or as the command has them, "NAME:DTYPE"."""
ARRAY = "array"
PixelWord = Literal["image", "mask", "flow", "disparity"]
DeclaredKind = FieldKind | PixelWord
"""What a declaration says: see `declared_kind`."""
PIXEL_WORDS: tuple[PixelWord, ...] = get_args(PixelWord)
"""Declarations of fields of which the first value shows dtype and channels."""


def are_pixels(kind: DeclaredKind | None) -> bool:
    """Whether a declaration is that of an image or a mask."""
    return isinstance(kind, str) or (kind is not None and kind.is_pixels)


EXACT = 1 << 53
"""float64 holds every whole number below this one."""


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """A number, list, array or tensor as an array in this machine's byte order; None for anything else.

    Refused too are a masked array with masked values, since what is under the mask is no value, and a list with a whole
    number that NumPy would round, since another number makes all of them floats.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    if array.dtype.kind not in "biufc" or is_rounded(value, array):
        return None
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def is_rounded(value: Any, array: np.ndarray[Any, Any]) -> bool:
    """Whether a list has a whole number that is another one in the array that was made of it."""
    if array.dtype.kind != "f" or not isinstance(value, list | tuple) or not (abs(array) >= EXACT).any():
        return False
    pairs = zip(np.array(value, object).reshape(-1).tolist(), array.reshape(-1).tolist(), strict=True)
    return any(isinstance(one, Integral) and int(one) != made for one, made in pairs)
