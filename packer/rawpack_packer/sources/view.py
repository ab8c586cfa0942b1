"""A view of a source: some of its samples, with other numbers for its classes and videos, or other keys. What a split
or an append packs is one; workers get the samples of their part and nothing else."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.base import Item, Samples, Source
from rawpack_packer.sources.fields import Boxes, Value
from rawpack_packer.sources.optional import CanPick, group_of, image_file_of, labels_of, unread_of

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
        """See `HasImageFiles`."""
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
        own, about = source.info.classes, source.info
        names = own if own is None or classes is None else tuple(classes)
        self._labels: Rows | None = None
        if own is not None and names is not None and names[: len(own)] != own:
            numbers = {name: label for label, name in enumerate(names)}
            self._labels = np.array([numbers[name] for name in own], np.int64)
        labels = None if names is None else self._present()
        if labels is None:
            others = set(names or ()) - set(own or ())
            empty = tuple(name for name in names or () if name in others | {*about.empty_classes})
        else:
            empty = tuple(name for label, name in enumerate(names or ()) if label not in labels)
        counted = dict(about.counts if counts is None else counts)
        if EMPTY in counted:
            counted[EMPTY] = len(empty)
        if labels is not None and "unlabelled" in counted:
            counted["unlabelled"] = labels.get(-1, 0)
        self.info = replace(about, classes=names, empty_classes=empty, counts=counted)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int, /) -> Item:
        return self.part(i, i + 1)[0]

    def key(self, i: int, /) -> str:
        return self._source.key(self._row(i)) if self._first is None else number(self._first + i)

    def labels(self) -> Rows | None:
        """See `HasLabels`."""
        labels = labels_of(self._source)
        if labels is None or not len(labels):
            return labels
        labels = labels[self._rows]
        if self._labels is None:
            return labels
        known = (labels >= 0) & (labels < len(self._labels))
        return np.where(known, self._labels[np.where(known, labels, 0)], labels)

    def unread(self) -> Rows:
        """See `HasUnread`."""
        return np.flatnonzero(np.isin(self._rows, unread_of(self._source)))

    def group(self, i: int, /) -> str:
        """See `HasGroups`."""
        return group_of(self._source, self._row(i))

    def part(self, start: int, stop: int, /) -> ViewPart:
        """Samples start <= i < stop."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        rows = self._rows[start:stop]
        first = None if self._first is None else self._first + start
        videos = None if self._videos is None else self._videos[start:stop]
        if isinstance(self._source, CanPick):
            return ViewPart((self._source.pick(rows),), (len(rows),), self._labels, first, videos)
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
        labels = self.labels()
        if labels is None:
            return None
        found, counts = np.unique(np.delete(labels, self.unread()), return_counts=True)
        return dict(zip(found.tolist(), counts.tolist(), strict=True))


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
