"""What fields and images of a source are: their dtypes, shapes and names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from rawpack.disk.manifest import DTYPES, FIELD_NAME
from rawpack.errors import UsageError

BoxForm = Literal["xyxy", "xywh", "yolo"]
"""How a source writes boxes, one a row. "xyxy": left, top, right, bottom; "xywh": left, top, width, height; both in
pixels of the whole upright image, counted from its corner, and other numbers after them. "yolo": class, centre x,
centre y, width, height, all but the class as shares of the image."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of one sample."""

    rows: NDArray[Any]
    """(n, k): one box a row, in the source's form; or one box alone, (k,)."""
    form: BoxForm
    size: tuple[int, int] | None = None
    """(height, width) of the image that they were drawn in, where the source says it: an image of another size is not
    the one that they belong to."""


Value = int | float | str | bytes | NDArray[Any] | Boxes
"""What a field of one sample can be, beside its image."""

PLAIN = "bool, int8 to int64, uint8 to uint64, float16 to float64"
"""The dtypes of a store that fields and images can have, as errors name them."""
_MOST_AXES = 16
"""Of one sample, in any store."""


@dataclass(frozen=True)
class FieldKind:
    """What a source says of one field, before any sample was read."""

    dtype: str
    """numpy's name of a bool, integer or float type: "int64", "float32", ...; of text: "str"."""
    shape: tuple[int | None, ...] = ()
    """Of one sample. None, only in first place, where samples differ in length: (None, 5) for boxes.

    Of a mask (H, W, C), H and W being None where samples differ."""
    mask: bool = False
    """A second image of the sample's height and width: cropped and resized alike, but by the nearest pixel, and stored
    without loss. A value is a whole PNG file, or an array (H, W) or (H, W, C)."""
    boxes: BoxForm | None = None
    """Boxes in the image, written in this form: they move with it, and are stored as left, top, right, bottom, in
    pixels of the stored image, and what else a row has. A value is `Boxes`."""

    def __post_init__(self) -> None:
        if self.mask:
            channels = self.shape[2] if len(self.shape) == 3 else None
            if channels is None or (self.shape[0] is None) != (self.shape[1] is None) or self.dtype == "str":
                raise UsageError(f"a mask is (height, width, channels), not {self.dtype} {self.shape}")
        if self.dtype == "str":
            if self.shape:
                raise UsageError(f"a text field holds one text per sample, not shape {self.shape}: join the texts")
            return
        if self.dtype not in DTYPES or self.dtype[0] == "c":
            raise UsageError(f'{self.dtype!r} is no dtype of a field: use "str", or {PLAIN}')
        if self.boxes and (self.mask or self.dtype[0] != "f" or len(self.shape) != 2 or (self.shape[1] or 0) < 4):
            raise UsageError(f"boxes are floats, (n, 4) or more, not {self.dtype} {self.shape}")
        if self.boxes == "yolo" and self.shape[1] != 5:
            raise UsageError(f"a box of yolo is class, x, y, width, height: (n, 5), not {self.shape}")
        if any(n is not None and n < 1 for n in self.shape):
            raise UsageError(f"shape {self.shape}: lengths are from 1 on, or None where samples differ")
        if len(self.shape) > _MOST_AXES:
            raise UsageError(f"shape {self.shape}: a field has at most {_MOST_AXES} axes")
        if None in self.shape[1:] and not self.mask:
            raise UsageError(f"shape {self.shape}: only the first length of a field may differ between samples")

    @property
    def ragged(self) -> bool:
        """Whether samples differ in length."""
        return None in self.shape and not self.mask


@dataclass(frozen=True)
class ImageKind:
    """What a source says of images whose dtype and shape it knows: arrays, or image files of such pixels."""

    dtype: str
    """numpy's name of a bool, integer, float or complex type."""
    shape: tuple[int | None, ...]
    """Of one image; (None, None, C) where they differ in height and width. Of two axes and uint8, (H, W), it is a grey
    image, and stored as (H, W, 1)."""
    pictures: bool = False
    """Grey or RGB: the recipe says how many channels are stored."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"images of dtype {self.dtype}: use {PLAIN}, complex64 or complex128")
        differing = None in self.shape
        if differing and (len(self.shape) != 3 or self.shape[2] is None or self.shape[:2] != (None, None)):
            raise UsageError(f"images of shape {self.shape}: only height and width of (H, W, C) may differ")
        if any(n is not None and n < 1 for n in self.shape) or len(self.shape) > 15:
            raise UsageError(f"images of shape {self.shape}: from 1 to 15 axes of lengths from 1 on")


RESERVED = {"index": "row", "image": "picture", "key": "name"}
"""Names that every sample has already -> what a field of that name could be called instead."""
_BESIDE = ("start", "shape", "length")
"""HDF5 shards have datasets of a field's name and one of these."""


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError where a source's fields cannot have these names; it says which to take instead."""
    seen: dict[str, str] = {name: name for name in RESERVED}
    for name in names:
        if not FIELD_NAME.fullmatch(name):
            better = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("0123456789")[:64] or "field"
            raise UsageError(f"{name!r} cannot be a field's name ({FIELD_NAME.pattern}): rename it, to {better!r} say")
        if name in RESERVED:
            raise UsageError(f"{name!r} is a name that every sample has already: rename it, to {RESERVED[name]!r} say")
        # Columns are files, and some file systems do not tell case apart.
        if name.lower() in seen:
            raise UsageError(
                f"{name!r} and {seen[name.lower()]!r} differ by case alone: rename one, to {name + '_2'!r} say"
            )
        seen[name.lower()] = name
    for name in seen.values():
        field, _, end = name.rpartition("_")
        if end in _BESIDE and field in seen:
            raise UsageError(
                f"{name!r} is what an hdf5 store calls a part of {field!r}: rename it, to {field + end!r} say"
            )
