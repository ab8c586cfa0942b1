"""The features of all records as columns."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.fields import EXACT, FieldKind, as_text
from rawpack_packer.sources.table.columns import (
    Column,
    Numbers,
    RaggedColumn,
    Rows,
    Spans,
    TextLists,
    Texts,
    ends_of,
    texts_of,
)
from rawpack_packer.sources.table.objects import all_faulty
from rawpack_packer.sources.tfrecord.example import BYTES, FLOATS, IMAGE, INTS, FoundFeature, data_of
from rawpack_packer.text import plain

_DTYPES: dict[int, np.dtype[Any]] = {FLOATS: np.dtype(np.float32), INTS: np.dtype(np.int64)}
_WORDS = {BYTES: "bytes", FLOATS: "float32", INTS: "int64"}


class FeatureValues:
    """A feature of all records: its values, or where its images are."""

    def __init__(self, name: str, where: str) -> None:
        """where: the source, printable."""
        self.name, self.kind, self._where = name, 0, where
        self.is_image = self._is_long = False
        """Whether some value is an image file; is too long to be a text."""
        self._data, self._lengths = bytearray(), array("q")
        """Numbers; or texts, and the length of each."""
        self._counts, self._spans = array("q"), array("q")
        """How many values each record has; where the first one begins and ends in it, if it is bytes."""

    def add(self, row: int, found: FoundFeature) -> None:
        """Add the values of a record. Raises UsageError where they are of another kind."""
        if len(self._counts) < row:
            self.pad(row)
        kind = BYTES if found.kind == IMAGE else found.kind
        if kind != self.kind and kind:
            if self.kind:
                raise self._wrong(row, f"contains {_WORDS[kind]}, and in the records before {_WORDS[self.kind]}")
            self.kind = kind
        self._data += found.values
        self._counts.append(found.number)
        if kind not in _DTYPES:
            self._lengths.extend(found.lengths)
            self._spans.extend((found.start, found.stop))
            self.is_image = self.is_image or found.kind == IMAGE
            self._is_long = self._is_long or (kind == found.kind and len(found.lengths) < found.number)

    def _wrong(self, row: int, what: str) -> UsageError:
        return UsageError(f"{self._where}: record {row}: {plain(self.name)} {what}")

    def pad(self, rows: int) -> None:
        """The first `rows` records have no values if nothing was added."""
        missing = rows - len(self._counts)
        self._counts.extend([0] * missing)
        self._spans.extend([0] * (2 * missing))

    @property
    def dtype(self) -> str:
        """Of its numbers."""
        return _DTYPES[self.kind].name

    @cached_property
    def counts(self) -> Rows:
        """(n,): the number of values of each record."""
        return np.array(self._counts, np.int64)

    @property
    def spans(self) -> Rows:
        """(n, 2): where the image of each record begins and ends in its data."""
        return np.array(self._spans, np.int64).reshape(-1, 2)

    @cached_property
    def numbers(self) -> NDArray[Any]:
        """All numbers, record after record."""
        return np.frombuffer(bytes(self._data) if self.kind in _DTYPES else b"", _DTYPES.get(self.kind))

    @cached_property
    def texts(self) -> list[str]:
        """All texts, record after record. Raises UnicodeDecodeError where they are none."""
        if self.kind != BYTES:
            return []
        texts = Texts(bytes(self._data), ends_of(self._lengths))
        return [texts.value(i) for i in range(len(texts))]

    @cached_property
    def is_text(self) -> bool:
        try:
            return self.kind == BYTES and not self.is_image and not self._is_long and len(self.texts) >= 0
        except UnicodeDecodeError:
            return False

    def of_record(self, row: int) -> Any:
        """The values of a record as a list."""
        start, stop = self._ends[row : row + 2].tolist()
        return self.texts[start:stop] if self.kind == BYTES else self.numbers[start:stop].tolist()

    @cached_property
    def _ends(self) -> Rows:
        return ends_of(self.counts)

    def singles(self) -> list[Any]:
        """The value of each record; None where there is none. Raises UsageError where there are several."""
        if len(several := np.flatnonzero(self.counts > 1)):
            raise self._wrong(several[0], "has several values: name a feature that has one in each record")
        if self.kind == BYTES and not self.is_text:
            raise self._wrong(int(np.flatnonzero(self.counts)[0]), "is not text: name another feature")
        values = iter(self.texts if self.is_text else self.numbers.tolist())
        return [next(values) if count else None for count in self.counts.tolist()]

    def field(self, short: str, sound: NDArray[np.bool_]) -> FieldKind | str:
        """What it is as a field `short`, or why it can be none. sound: (n,), whether each record can be read."""
        counts = self.counts[sound]
        least, most = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
        if self.is_image and most == 1:
            return (
                f"the images are in another feature; {opt.fields(f'{short}:image')} stores it as a further image, "
                f"{short}:mask as a mask"
            )
        if self.is_text and most > 1:
            lists, one = opt.fields(f"{short}:str[?]"), f"{short}:str"
            return f"a record has several texts; {lists} stores them as a list, {one} as JSON text"
        if self.is_text:
            return FieldKind("str")
        if self.kind not in _DTYPES:
            return "no field can store bytes" if self.kind else "it is empty"
        if most > 1:
            return FieldKind(self.dtype, (most if least == most else None,))
        if least or self.kind == FLOATS:
            return FieldKind(self.dtype)
        return f"some records have none: declare {opt.fields(f'{short}:float64')} (NaN) or {short}:int64[?]"

    def words(self, sound: NDArray[np.bool_]) -> str:
        """What it holds, for a person."""
        counts = self.counts[sound]
        what = "image" if self.is_image else "text" if self.is_text else _WORDS.get(self.kind, "empty")
        least, most = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
        if most < 2:
            return what if least or not self.kind else f"{what} or none"
        return f"{what} x {most}" if least == most else f"{what} x {least} to {most}"

    def column(self, kind: FieldKind, sound: NDArray[np.bool_]) -> Column:
        """Its values as a field. Raises UsageError where they are of another kind."""
        if (kind.is_texts and not self.is_text) or (kind.dtype != "str" and self.kind == BYTES):
            declared = "texts were" if kind.is_texts else f"{kind.dtype} was"
            raise UsageError(f"{self._where}: {plain(self.name)} contains {self.words(sound)}, and {declared} declared")
        if kind.is_texts:
            return TextLists.of(map(self.of_record, range(len(self.counts))))
        if kind.dtype == "str":
            rows = (self.of_record(row) for row in range(len(self.counts)))
            return texts_of([as_text(one[0] if len(one) == 1 else one or "") for one in rows], plain(self.name))
        values = self.numbers
        with np.errstate(all="ignore"):
            found = values.astype(kind.dtype)
        if len(lost := np.flatnonzero(_changed(found, values))):
            row = int(np.searchsorted(self._ends, lost[0], "right")) - 1
            raise self._wrong(row, f"is {values[lost[0]]}, which {kind.dtype} cannot represent")
        inner = kind.shape[1:]
        width = math.prod(n or 1 for n in inner)
        length = width * (kind.shape[0] or 1) if kind.shape else 1
        fits = self.counts % width == 0 if kind.ragged else self.counts == length
        nan = not kind.shape and found.dtype.kind == "f"
        if len(wrong := np.flatnonzero(~fits & sound & ~(nan & (self.counts == 0)))):
            raise self._wrong(wrong[0], f"has {self.counts[wrong[0]]} numbers, which is not {kind.dtype} {kind.shape}")
        if kind.ragged:
            return RaggedColumn(found.reshape(-1, *inner), ends_of(self.counts // width), kind.boxes)
        filled = np.full((len(self.counts), *(n or 1 for n in kind.shape)), np.nan if nan else 0, kind.dtype)
        filled[self.counts == length] = found.reshape(-1, *filled.shape[1:])
        return Numbers(filled)


def _changed(made: NDArray[Any], given: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers are others in `made` than they were. Floats may be rounded to shorter floats."""
    if made.dtype.kind == given.dtype.kind == "f":
        made, given = np.isfinite(made), np.isfinite(given)
    different: NDArray[np.bool_] = made != given
    if made.dtype.kind == "f":  # as which NumPy compares the large ones too, that float64 rounds
        for i in np.flatnonzero(~different & (abs(made.astype(np.float64)) >= EXACT)).tolist():
            different[i] = int(made[i]) != int(given[i])
    return different


@dataclass(frozen=True, eq=False)
class ExampleImages(Spans):
    """Image files in records: `offset` and `states` are those of the whole records, of which checksums are checked."""

    inside: Rows = field(default_factory=lambda: np.empty((0, 2), np.int64))
    """(n, 2): where each image begins and ends in the data of its record."""

    def value(self, i: int, /) -> bytes:
        record = super().value(i)
        start, stop = self.inside[i].tolist()
        if start == stop:
            raise DecodeError("empty", "there is no image")
        return data_of(record, f"the record at byte {int(self.offset[i]):,}")[start:stop]

    def pick(self, rows: Rows, /) -> Self:
        return replace(super().pick(rows), inside=self.inside[rows])


@dataclass(frozen=True)
class BoxFeatures:
    """The features that boxes are made of, as fractions of the image."""

    sides: tuple[str, ...]
    """Left, top, right and bottom; or one with top, left, bottom and right of each."""
    label: str
    text: str
    first: int
    """The number of the first class."""

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.sides, self.label, self.text)

    @property
    def prefix(self) -> str:
        """How the names of features of objects begin."""
        return f"{self.sides[0].partition('/bbox')[0]}/"

    def counts(self, found: Mapping[str, FeatureValues]) -> Rows:
        """(n,): the number of boxes of each record."""
        return found[self.sides[0]].counts * len(self.sides) // 4

    def column(self, found: Mapping[str, FeatureValues], classes: Rows, of_label: Rows, where: str) -> RaggedColumn:
        """The boxes; faulty where features differ in how many there are. classes: of all boxes. of_label: (n,): how
        many each record has. Raises UsageError where no record has boxes that can be read."""
        counts, faults = self.counts(found), dict[int, str]()
        for name in (*self.sides, self.label, self.text):
            expected = counts * 4 if self.sides == (name,) else counts
            for row in np.flatnonzero(found[name].counts != expected).tolist() if name in found else ():
                there = f"there are {counts[row]} boxes and {found[name].counts[row]} values of {plain(name)}"
                faults.setdefault(row, f"record {row}: {there}")
        if wrong := all_faulty(counts, faults):
            raise UsageError(f"{where}: {wrong}")
        sound = ~np.isin(np.arange(len(counts)), [*faults])
        of = [found[name].numbers[np.repeat(sound, found[name].counts)].astype(np.float64) for name in self.sides]
        left, top, right, bottom = of if len(of) == 4 else of[0].reshape(-1, 4)[:, [1, 0, 3, 2]].T
        classes = classes[np.repeat(sound, of_label)]
        middle = [classes, (left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        ends = ends_of(np.where(sound, counts, 0))
        return RaggedColumn(np.stack(middle, axis=1).astype(np.float32), ends, "yolo", faults=faults)


_SIDES = tuple(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
BOX_FEATURES = (
    BoxFeatures(_SIDES, "image/object/class/label", "image/object/class/text", 1),
    BoxFeatures(_SIDES, "image/object/bbox/label", "", 1),
    BoxFeatures(("objects/bbox",), "objects/label", "", 0),
)
"""Of TensorFlow's object detection, of its ImageNet, and of TensorFlow Datasets."""
