"""The features of all records as columns."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.fields import EXACT, FieldKind, as_text
from rawpack_packer.sources.table.choose import Classes, Labels, further_image, number_labels
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
from rawpack_packer.sources.table.objects import BOXES, all_faulty
from rawpack_packer.sources.tfrecord.example import BYTES, FLOATS, IMAGE, INTS, FoundFeature, data_of
from rawpack_packer.text import plain

_DTYPES: dict[int, np.dtype[Any]] = {FLOATS: np.dtype(np.float32), INTS: np.dtype(np.int64)}
_WORDS = {BYTES: "bytes", FLOATS: "float32", INTS: "int64"}
_MOST_CLASSES = 1 << 16


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
            self._pad(row)
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

    def finish(self, sound: NDArray[np.bool_]) -> None:
        """After the last record. sound: (n,), whether each record can be read, of which some can."""
        self._pad(len(sound))
        self.counts = np.array(self._counts, np.int64)
        """(n,): the number of values of each record."""
        self._ends, self._sound = ends_of(self.counts), sound
        self.least, self.most = int(self.counts[sound].min()), int(self.counts[sound].max())

    def _pad(self, rows: int) -> None:
        """The first `rows` records have no values if nothing was added."""
        missing = rows - len(self._counts)
        self._counts.extend([0] * missing)
        self._spans.extend([0] * (2 * missing))

    @property
    def dtype(self) -> str:
        """The dtype of its numbers."""
        return _DTYPES[self.kind].name

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
        texts = Texts(bytes(self._data), ends_of(self._lengths))
        return [texts.value(i) for i in range(len(texts))]

    @cached_property
    def is_text(self) -> bool:
        try:
            return self.kind == BYTES and not self.is_image and not self._is_long and len(self.texts) >= 0
        except UnicodeDecodeError:
            return False

    @property
    def is_key(self) -> bool:
        """Whether it has a text for each record, or for some of them."""
        return self.is_text and self.most == 1

    def lists(self) -> Iterator[list[Any]]:
        """The values of each record."""
        values: list[Any] = self.texts if self.kind == BYTES else self.numbers.tolist()
        return (values[start:stop] for start, stop in pairwise(self._ends.tolist()))

    def singles(self) -> list[Any]:
        """The value of each record; None where there is none. Raises UsageError where there are several."""
        if self.most > 1:
            several = int(np.argmax(self.counts > 1))
            raise self._wrong(several, "has several values: name a feature that has one in each record")
        if self.kind == BYTES and not self.is_text:
            raise self._wrong(int(np.argmax(self.counts > 0)), "is not text: name another feature")
        return [next(iter(values), None) for values in self.lists()]

    def field(self, short: str) -> FieldKind | str:
        """What it is as a field `short`, or why it can be none."""
        if self.is_image and self.most == 1:
            return further_image(short, "feature")
        if self.is_text and self.most > 1:
            lists, text = opt.fields(f"{short}:str[?]"), f"{short}:str"
            return f"a record has several texts; {lists} stores them as a list, {text} as JSON text"
        if self.is_text:
            return FieldKind("str")
        if self.kind not in _DTYPES:
            return "no field can store bytes" if self.kind else "it is empty"
        if self.most > 1:
            return FieldKind(self.dtype, (self.most if self.least == self.most else None,))
        if self.least or self.kind == FLOATS:
            return FieldKind(self.dtype)
        return f"some records have none: declare {opt.fields(f'{short}:float64')} (NaN) or {short}:int64[?]"

    @property
    def words(self) -> str:
        """What it holds, for a person."""
        what = "image" if self.is_image else "text" if self.is_text else _WORDS.get(self.kind, "empty")
        if self.most < 2:
            return what if self.least or not self.kind else f"{what} or none"
        return f"{what} x {self.most}" if self.least == self.most else f"{what} x {self.least} to {self.most}"

    def column(self, kind: FieldKind) -> Column:
        """Its values as a field. Raises UsageError where they are of another kind."""
        if (kind.is_texts and not self.is_text) or (kind.dtype != "str" and self.kind == BYTES):
            declared = "texts were" if kind.is_texts else f"{kind.dtype} was"
            raise UsageError(f"{self._where}: {plain(self.name)} contains {self.words}, and {declared} declared")
        if kind.is_texts:
            return TextLists.of(self.lists())
        if kind.dtype == "str":
            texts = [as_text(values[0] if len(values) == 1 else values or "") for values in self.lists()]
            return texts_of(texts, plain(self.name))
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
        if len(wrong := np.flatnonzero(~fits & self._sound & ~(nan & (self.counts == 0)))):
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


class BoxFeatures(NamedTuple):
    """The names of the features that boxes are made of, as fractions of the image."""

    sides: tuple[str, ...]
    """Left, top, right and bottom; or one with top, left, bottom and right of each."""
    label: str
    text: str
    first: int
    """The number of the first class."""

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.sides, self.label, self.text)


_SIDES = tuple(f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
_BOX_FEATURES = (
    BoxFeatures(_SIDES, "image/object/class/label", "image/object/class/text", 1),
    BoxFeatures(_SIDES, "image/object/bbox/label", "", 1),
    BoxFeatures(("objects/bbox",), "objects/label", "", 0),
)
"""The names in sets of TensorFlow's object detection, of its ImageNet, and of TensorFlow Datasets."""


class ExampleBoxes:
    """The boxes of all records."""

    def __init__(self, names: BoxFeatures, features: Mapping[str, FeatureValues], where: str) -> None:
        """where: the source, printable."""
        self.names, self._where = names, where
        self._features = {name: features[name] for name in names.all if name in features}
        self.counts = features[names.sides[0]].counts * len(names.sides) // 4
        """(n,): the number of boxes of each record."""
        label, text = features.get(names.label), features.get(names.text)
        self._texts = text if text is not None and text.is_text and text.texts else None
        self._classes = label if label is not None and label.kind == INTS else self._texts
        """Numbers, or else texts, if there are any."""

    def followed_by(self, feature: FeatureValues) -> bool:
        """Whether a feature of objects has a number for each box."""
        of_objects = feature.name.startswith(f"{self.names.sides[0].partition('/bbox')[0]}/")
        return of_objects and feature.kind in _DTYPES and bool((feature.counts == self.counts).all())

    def labels(self, classes: Classes | None, known: tuple[str, ...] | None) -> tuple[Labels, list[str]]:
        """The label of each box, and lines for the summary. known: the names of their classes. Raises UsageError."""
        if self._classes is None:
            return Labels(np.full(int(self.counts.sum()), -1), None), []
        texts = [] if self._texts is None else self._texts.texts
        if self._classes is self._texts:
            return number_labels(texts, classes, where=self._where), []
        first, names = first_class(self._classes.numbers, texts, self.names.first)
        notes = [f"classes are counted from {first} in {plain(self.names.label)}, and from 0 in the store"]
        labels = number_labels(self._classes.numbers - first, classes, where=self._where, known=known or names)
        return labels, notes if first and not (classes or known or names) else []

    def column(self, classes: Rows) -> RaggedColumn:
        """The boxes; faulty where features differ in how many there are. classes: of all boxes. Raises UsageError where
        no record has boxes that can be read."""
        counts, sides, features = self.counts, self.names.sides, self._features
        faults = dict[int, str]()
        for name, feature in features.items():
            expected = counts * 4 if sides == (name,) else counts
            for row in np.flatnonzero(feature.counts != expected).tolist():
                differ = f"there are {counts[row]} boxes and {feature.counts[row]} values of {plain(name)}"
                faults.setdefault(row, f"record {row}: {differ}")
        if wrong := all_faulty(counts, faults):
            raise UsageError(f"{self._where}: {wrong}")
        sound = ~np.isin(np.arange(len(counts)), [*faults])
        values = [features[name].numbers[np.repeat(sound, features[name].counts)].astype(np.float64) for name in sides]
        left, top, right, bottom = values if len(values) == 4 else values[0].reshape(-1, 4)[:, [1, 0, 3, 2]].T
        classes = classes[np.repeat(sound, counts if self._classes is None else self._classes.counts)]
        middle = [classes, (left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        ends = ends_of(np.where(sound, counts, 0))
        return RaggedColumn(np.stack(middle, axis=1).astype(np.float32), ends, "yolo", faults=faults)


def boxes_of(features: Mapping[str, FeatureValues], where: str) -> ExampleBoxes | None:
    """The boxes in features, by the names of which most have values; None where there are none."""
    filled = {name for name, feature in features.items() if feature.most}
    fitting = [names for names in _BOX_FEATURES if {*names.sides} <= filled and BOXES not in features]
    names = max(fitting, key=lambda names: len(filled & {*names.all}), default=None)
    return None if names is None else ExampleBoxes(names, features, where)


def first_class(numbers: Rows, texts: Sequence[str], first: int) -> tuple[int, tuple[str, ...] | None]:
    """The number of the first class, `first` unless 0 occurs; and the names of classes from that on, None where not
    each number has one name. numbers, texts: of all labels. Numbers that do not occur are their own names."""
    first = 0 if not len(numbers) or numbers.min() < first else first
    pairs = {*zip(numbers.tolist(), texts, strict=True)} if len(texts) == len(numbers) else ()
    name_of = dict(pairs)
    if not name_of or len(name_of) < len(pairs) or min(name_of) < 0 or max(name_of) > _MOST_CLASSES:
        return first, None
    names = dict[str, None]()
    for number in range(first, max(name_of) + 1):
        name = name_of.get(number) or str(number)
        names[f"{name} {number}" if name in names else name] = None
    return first, tuple(names)
