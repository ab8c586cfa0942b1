"""A view of a source: some of its samples, with other numbers for its classes and videos, or other keys. What a split
or an append packs is one; workers get the samples of their part and nothing else."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.base import Boxes, FieldKind, ImageKind, Item, Samples, Source, Value

Rows = NDArray[np.int64]
EMPTY = "empty_classes"
"""What a source's `counts` call classes without a sample."""


@dataclass(frozen=True, eq=False)
class ViewPart:
    """Some samples of a view. Travels to a worker as its pieces do."""

    pieces: tuple[Samples, ...]
    """Of the source, one after another."""
    ends: tuple[int, ...]
    """Of each piece: samples up to its end."""
    labels: Rows | None
    """The class's number here, by its number in the source; None where they are the same."""
    first: int | None
    """The key of sample 0, where keys are numbers that were counted on; None where keys are the source's."""
    videos: Rows | None
    """The number of each sample's video here; None where `video` is the source's."""

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, i: int, /) -> Item:
        piece, at = self._at(i)
        item = piece[at]
        if self.labels is not None and "label" in item.fields:
            item = replace(item, fields={**item.fields, "label": relabelled(item.fields["label"], self.labels)})
        elif self.labels is not None:
            item = replace(item, fields={name: in_boxes(value, self.labels) for name, value in item.fields.items()})
        if self.videos is not None:
            item = replace(item, fields={**item.fields, "video": int(self.videos[i])})
        return item if self.first is None else replace(item, key=number(self.first + i))

    def key(self, i: int, /) -> str:
        piece, at = self._at(i)
        return piece.key(at) if self.first is None else number(self.first + i)

    def image_file(self, i: int, /) -> tuple[str, int] | None:
        """See `image_file_of`."""
        return image_file_of(*self._at(i))

    def _at(self, i: int) -> tuple[Samples, int]:
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        k = bisect_right(self.ends, i)
        return self.pieces[k], i - (self.ends[k - 1] if k else 0)


class View:
    """See the module. Beside what is changed, all is as in the source."""

    def __init__(
        self,
        source: Source,
        rows: Rows | None = None,
        *,
        classes: Sequence[str] | None = None,
        first: int | None = None,
        videos: Rows | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """rows: numbers of samples, ascending; None for all. classes: those of the source and maybe others, in the
        order of the numbers that they are to have. first: keys are numbers, counted from this one on. videos: the
        number that each sample's video is to have. counts: instead of the source's."""
        self._source, self._first, self._videos = source, first, videos
        self._rows = np.arange(len(source), dtype=np.int64) if rows is None else np.asarray(rows, np.int64)
        self.kind, self.root, self.noun = source.kind, source.root, noun_of(source)
        self.options = options_of(source)
        self.unread = np.flatnonzero(np.isin(self._rows, unread_of(source)))
        self.image: ImageKind | None = source.image
        self.fields: Mapping[str, FieldKind] = source.fields
        self.problems = source.problems
        own = source.classes
        self.classes = own if own is None or classes is None else tuple(classes)
        self._labels: Rows | None = None
        if own is not None and self.classes is not None and self.classes[: len(own)] != own:
            numbers = {name: label for label, name in enumerate(self.classes)}
            self._labels = np.array([numbers[name] for name in own], np.int64)
        labels = self._present()
        if labels is None:
            others = set(self.classes or ()) - set(own or ())
            self.empty_classes = tuple(name for name in self.classes or () if name in others | {*source.empty_classes})
        else:
            self.empty_classes = tuple(name for label, name in enumerate(self.classes or ()) if label not in labels)
        self.counts = dict(source.counts if counts is None else counts)
        if EMPTY in self.counts:
            self.counts[EMPTY] = len(self.empty_classes)
        if labels is not None and "unlabelled" in self.counts:
            self.counts["unlabelled"] = labels.get(-1, 0)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int, /) -> Item:
        return self.part(i, i + 1)[0]

    def key(self, i: int, /) -> str:
        return self._source.key(self._row(i)) if self._first is None else number(self._first + i)

    def labels(self) -> Rows | None:
        """See `labels_of`."""
        labels = labels_of(self._source)
        if labels is None or not len(labels):
            return labels
        labels = labels[self._rows]
        if self._labels is None:
            return labels
        known = (labels >= 0) & (labels < len(self._labels))
        return np.where(known, self._labels[np.where(known, labels, 0)], labels)

    def group(self, i: int, /) -> str:
        """See `group_of`."""
        return group_of(self._source, self._row(i))

    def part(self, start: int, stop: int, /) -> ViewPart:
        """Samples start <= i < stop."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        rows = self._rows[start:stop]
        first = None if self._first is None else self._first + start
        videos = None if self._videos is None else self._videos[start:stop]
        pick = getattr(self._source, "pick", None)
        if pick is not None:
            return ViewPart((pick(rows),), (len(rows),), self._labels, first, videos)
        runs = [
            (int(run[0]), int(run[-1]) + 1)
            for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
            if len(run)
        ]
        ends = np.cumsum([high - low for low, high in runs], dtype=np.int64)
        pieces = tuple(self._source.part(low, high) for low, high in runs)
        return ViewPart(pieces, tuple(ends.tolist()), self._labels, first, videos)

    def states(self) -> Rows:
        states = self._source.states()
        samples = len(self._source)
        if len(states) < samples:
            return states  # they are not of single samples, and any of them matters to all
        return np.concatenate([states[self._rows], states[samples:]])

    def _row(self, i: int) -> int:
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        return int(self._rows[i])

    def _present(self) -> dict[int, int] | None:
        """Label here -> samples; None where that is not known before they are read."""
        labels = None if self.classes is None else labels_of(self)
        if labels is None:
            return None
        found, counts = np.unique(np.delete(labels, self.unread), return_counts=True)
        return dict(zip(found.tolist(), counts.tolist(), strict=True))


def labels_of(source: Source) -> Rows | None:
    """The label of each sample, (n,); None where they are not known before the samples are read.

    A source that knows them has a method `labels()`, which may return None as well.
    """
    labels = getattr(source, "labels", None)
    found = None if labels is None else labels()
    return None if found is None else np.asarray(found, np.int64)


def noun_of(source: Source) -> str:
    """What one of its samples is called: "image". A source of other things, such as frames, has a `noun`."""
    noun: str = getattr(source, "noun", "image")
    return noun


def options_of(source: Source) -> dict[str, str]:
    """The options of a command that chose its samples, as a user writes them: "--fps" -> "5".

    A source that takes options has a mapping `options` of those that were given.
    """
    return dict(getattr(source, "options", {}))


def unread_of(source: Source) -> Rows:
    """The numbers, ascending, of samples that stand for a folder or file that could not be looked into.

    A source that skips such has an array `unread`.
    """
    return np.asarray(getattr(source, "unread", ()), np.int64)


def is_flat(source: Source) -> bool:
    """Whether a source is a folder that could have classes and has no folders for them."""
    return source.kind in ("folder", "video") and source.classes is None and os.path.isdir(source.root)  # noqa: PTH112


def image_file_of(samples: Samples, i: int) -> tuple[str, int] | None:
    """The path by which the image of sample i is read, and its size in bytes; None where it is no file of its own.

    Samples that are files have a method `image_file(i)`: a packer asks the disk for what it reads soon.
    """
    file = getattr(samples, "image_file", None)
    return None if file is None else file(i)


def group_of(source: Source, i: int) -> str:
    """What sample i must not be parted from: samples of one group go into one split. Its key, where there is no more.

    A source of groups, such as the frames of videos, has a method `group(i)`.
    """
    group = getattr(source, "group", None)
    return source.key(i) if group is None else group(i)


def number(i: int) -> str:
    """The key of sample i of a source whose samples have no names. Such a source has a true attribute `numbered`."""
    return f"{i:08d}"


def in_boxes(value: Value, labels: Rows) -> Value:
    """Boxes with the numbers of their classes as they are here; where there is no label, the classes are theirs.

    labels: the class's number here, by its number in the source.
    """
    if not isinstance(value, Boxes):
        return value
    at = 0 if value.form == "yolo" else 4
    rows = np.array(value.rows)
    if rows.ndim != 2 or rows.shape[1] <= at:
        return value
    numbers = rows[:, at].astype(np.int64)
    known = (numbers == rows[:, at]) & (numbers >= 0) & (numbers < len(labels))
    rows[known, at] = labels[numbers[known]]
    return replace(value, rows=rows)


def relabelled(label: Any, labels: Rows) -> Any:
    """A label of the source as it is here. Those that no class has stay what they are."""
    value = np.asarray(label)
    known = value.ndim == 0 and value.dtype.kind in "iu" and 0 <= int(value) < len(labels)
    return int(labels[int(value)]) if known else label
