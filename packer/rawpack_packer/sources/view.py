"""Some samples of a source, packed as if they were a source, perhaps with other keys, classes or video numbers.

Splits, subsets, merges and appends pack views. A worker gets only the samples of its part.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.base import (
    Containers,
    Item,
    Rows,
    Samples,
    Source,
    at_hand_of,
    check_part,
    check_sample,
    containers_of,
    group_of,
    image_file_of,
    is_able,
    labels_of,
    numbered,
    unread_of,
)
from rawpack_packer.sources.fields import Boxes, Value
from rawpack_packer.sources.table.choose import EMPTY, UNLABELLED, empty_classes


@dataclass(frozen=True, eq=False)
class ViewPart:
    """Some samples of a view."""

    pieces: tuple[Samples, ...]
    """Runs of samples of the source, one after another."""
    ends: tuple[int, ...]
    """Samples up to the end of each piece."""
    classes: Rows | None
    """Number of a class in the source -> its number here; None where they are the same."""
    first: int | None
    """Sample 0 has this number as its key; None where keys are those of the source."""
    videos: Rows | None
    """The number of each sample's video; None where it is that of the source."""

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, i: int, /) -> Item:
        piece, at = self._at(i)
        item = piece[at]
        fields = dict(item.fields)
        if self.classes is not None and "label" in fields:
            label = fields["label"]
            value = label[()] if isinstance(label, np.ndarray) else label
            if isinstance(value, int | np.integer) and 0 <= value < len(self.classes):
                fields["label"] = int(self.classes[value])
        elif self.classes is not None:  # the classes are those of boxes
            fields = {name: with_classes(value, self.classes) for name, value in fields.items()}
        if self.videos is not None:
            fields["video"] = int(self.videos[i])
        key = item.key if self.first is None else numbered(self.first + i)
        return Item(key, item.image, fields, item.planes, item.file_bytes)  # dataclasses.replace takes twice as long

    def key(self, i: int, /) -> str:
        piece, at = self._at(i)
        return piece.key(at) if self.first is None else numbered(self.first + i)

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        return image_file_of(*self._at(i))

    def _at(self, i: int) -> tuple[Samples, int]:
        check_sample(self, i)
        k = bisect_right(self.ends, i)
        return self.pieces[k], i - (self.ends[k - 1] if k else 0)


class View:
    """Some samples of a source. Whatever the arguments do not change is as in the source."""

    def __init__(
        self,
        source: Source,
        rows: Rows | None = None,
        *,
        classes: Sequence[str] | None = None,
        first: int | None = None,
        videos: Rows | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """rows: numbers of samples, strictly increasing; None for all. classes: in the order of the numbers that they
        get; they may be fewer or more than those of the source, and samples of a class that is left out get label -1.
        first: keys are numbers from this one on. videos: (m,), the number of each sample's video. options: by which
        the samples were chosen, see `SourceInfo.options`."""
        self._source, self._first, self._videos = source, first, videos
        self._rows = np.arange(len(source), dtype=np.int64) if rows is None else np.asarray(rows, np.int64)
        info, known = source.info, source.info.classes
        names = known if known is None or classes is None else tuple(classes)
        self._classes = None
        if known is not None and names is not None and names[: len(known)] != known:
            self._classes = positions(known, names)
        labels = None if names is None else self.labels()
        counts = dict(info.counts)
        if labels is None:
            filled = {*(known or ())} - {*info.empty_classes}
            empty = tuple(name for name in names or () if name not in filled)
        else:
            labels = np.delete(labels, self.unread())
            empty = empty_classes(names or (), labels)
            if UNLABELLED in counts:
                counts[UNLABELLED] = int((labels == -1).sum())
        if EMPTY in counts:
            counts[EMPTY] = len(empty)
        chosen_by = info.options if options is None else dict(options)
        self.info = replace(info, classes=names, empty_classes=empty, counts=counts, options=chosen_by)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int, /) -> Item:
        return self.part(i, i + 1)[0]

    def key(self, i: int, /) -> str:
        check_sample(self, i)
        return self._source.key(int(self._rows[i])) if self._first is None else numbered(self._first + i)

    def labels(self) -> Rows | None:
        labels = labels_of(self._source)
        if labels is None or not len(labels):
            return labels
        labels = labels[self._rows]
        return labels if self._classes is None else renumbered(labels, self._classes)

    def unread(self) -> Rows:
        return np.flatnonzero(np.isin(self._rows, unread_of(self._source)))

    def containers(self) -> Containers | None:
        found = containers_of(self._source)
        return None if found is None else found.holding(self._rows)

    def at_hand(self) -> Rows | None:
        found = at_hand_of(self._source)
        return None if found is None else np.flatnonzero(np.isin(self._rows, found))

    def probes(self, rows: Rows, /) -> Rows:
        if is_able(self._source, "probes"):
            return np.searchsorted(self._rows, self._source.probes(self._rows[rows])).astype(np.int64)
        return rows[:0]

    def group(self, i: int, /) -> str:
        check_sample(self, i)
        return group_of(self._source, int(self._rows[i]))

    def part(self, start: int, stop: int, /) -> ViewPart:
        """Samples start <= i < stop."""
        check_part(self, start, stop)
        first = None if self._first is None else self._first + start
        videos = None if self._videos is None else self._videos[start:stop]
        part = picked(self._source, self._rows[start:stop])
        return replace(part, classes=self._classes, first=first, videos=videos)

    def states(self) -> Rows:
        states = self._source.states()
        samples = len(self._source)
        if len(states) < samples:
            return states  # files hold several samples, and any of them matters to all
        return np.concatenate([states[self._rows], states[samples:]])


def picked(source: Source, rows: Rows) -> ViewPart:
    """Samples at `rows`, ascending, as one part."""
    if is_able(source, "pick"):
        pieces: tuple[Samples, ...] = (source.pick(rows),)
    else:
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        pieces = tuple(source.part(int(run[0]), int(run[-1]) + 1) for run in runs if len(run))
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    return ViewPart(pieces, tuple(ends.tolist()), None, None, None)


def positions(names: Sequence[str], among: Sequence[str]) -> Rows:
    """The position of each name in `among`, (n,); -1 of a name that is not there."""
    known = {name: number for number, name in enumerate(among)}
    return np.array([known.get(name, -1) for name in names], np.int64)


def renumbered(labels: NDArray[Any], classes: Rows) -> NDArray[Any]:
    """Labels, (n,), by `classes`: number of a class -> its new number. What is the number of no class stays."""
    numbers = labels.astype(np.int64)
    known = (numbers == labels) & (numbers >= 0) & (numbers < len(classes))
    return np.where(known, np.append(classes, -1)[np.where(known, numbers, -1)], labels)


def with_classes(value: Value, classes: Rows) -> Value:
    """Boxes whose classes are renumbered; other values as they are. classes: see `renumbered`."""
    if not isinstance(value, Boxes):
        return value
    rows, at = np.array(value.rows), 0 if value.form == "yolo" else 4
    if rows.ndim == 2 and rows.shape[1] > at:
        rows[:, at] = renumbered(rows[:, at], classes)
    return replace(value, rows=rows)
