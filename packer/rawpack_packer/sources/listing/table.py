"""A listing in memory, and the source made of it: an array for each column, without an object for each row."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.base import BaseSource, Item, SourceInfo
from rawpack_packer.sources.fields import Boxes, BoxForm, Value
from rawpack_packer.sources.files import read_file
from rawpack_packer.sources.optional import Column as Column
from rawpack_packer.sources.optional import Images

Rows = NDArray[np.int64]
CLASS = 4
"""The position of the class number in a box that is not yolo's."""


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts, one after another."""

    data: bytes
    """UTF-8."""
    ends: Rows
    """(n + 1,): text i is data[ends[i]:ends[i + 1]]."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    def value(self, i: int, /) -> str:
        return self.raw(i).decode()

    def raw(self, i: int, /) -> bytes:
        """Text i in UTF-8."""
        return self.data[int(self.ends[i]) : int(self.ends[i + 1])]

    def pick(self, rows: Rows, /) -> Texts:
        at, ends = _gathered(self.ends, rows)
        return Texts(np.frombuffer(self.data, np.uint8)[at].tobytes(), ends)


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Numbers, or arrays of one shape: (n, *shape)."""

    values: NDArray[Any]

    def value(self, i: int, /) -> NDArray[Any]:
        return np.array(self.values[i])

    def pick(self, rows: Rows, /) -> Numbers:
        return Numbers(self.values[rows])


@dataclass(frozen=True, slots=True, eq=False)
class RaggedColumn:
    """Arrays that differ in their first length, one after another."""

    values: NDArray[Any]
    ends: Rows
    """(n + 1,): array i is values[ends[i]:ends[i + 1]]."""
    boxes: BoxForm | None = None
    sizes: Rows | None = None
    """(n, 2): height and width of the image that boxes were drawn in; 0 where unknown."""

    def value(self, i: int, /) -> NDArray[Any] | Boxes:
        rows = np.array(self.values[int(self.ends[i]) : int(self.ends[i + 1])])
        if self.boxes is None:
            return rows
        height, width = (0, 0) if self.sizes is None else self.sizes[i].tolist()
        return Boxes(rows, self.boxes, (height, width) if height and width else None)

    @property
    def have_classes(self) -> bool:
        """Whether they are boxes with class numbers."""
        return self.boxes is not None and self.values.shape[1] > CLASS

    def classes(self) -> NDArray[Any]:
        """(m,): the class number of each box, where boxes have them."""
        return np.asarray(self.values[:, 0 if self.boxes == "yolo" else CLASS])

    def pick(self, rows: Rows, /) -> RaggedColumn:
        at, ends = _gathered(self.ends, rows)
        return replace(self, values=self.values[at], ends=ends, sizes=None if self.sizes is None else self.sizes[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Files:
    """Files: images, or masks."""

    root: str
    """The folder that relative paths start from."""
    paths: Texts
    states: Rows
    """(n, 2): size in bytes and mtime in ns."""

    def value(self, i: int, /) -> bytes:
        size, mtime = self.states[i].tolist()
        return read_file(self.path(i), self.paths.value(i), (size, mtime))

    def path(self, i: int, /) -> str:
        """The path by which file i is read."""
        return os.path.join(self.root, self.paths.value(i))  # noqa: PTH118 - faster, and called for each image

    def image_file(self, i: int, /) -> tuple[str, int, int]:
        """See `HasImageFiles`."""
        return self.path(i), 0, int(self.states[i, 0])

    def all_states(self) -> Rows:
        """(m, 2): see `Source.states`."""
        return self.states

    def pick(self, rows: Rows, /) -> Files:
        return Files(self.root, self.paths.pick(rows), self.states[rows])


@dataclass(frozen=True, slots=True, eq=False)
class TablePart:
    """Some rows of a listing."""

    keys: Texts
    images: Images
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, i: int, /) -> Item:
        key = self.key(i)
        return Item(key, self.images.value(i), {name: _value(name, column, i) for name, column in self.columns.items()})

    def key(self, i: int, /) -> str:
        """The path as the listing has it, or the value of its key column."""
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        return self.keys.value(i)

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `HasImageFiles`."""
        return self.images.image_file(i)

    def part(self, start: int, stop: int, /) -> TablePart:
        """See `Source.part`."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        return self.pick(np.arange(start, stop))

    def pick(self, rows: Rows, /) -> TablePart:
        """See `CanPick`."""
        columns = {name: column.pick(rows) for name, column in self.columns.items()}
        return TablePart(self.keys.pick(rows), self.images.pick(rows), columns)


class TableSource(BaseSource):
    """A listing that was read, as a `Source`."""

    _all: TablePart

    def __init__(
        self, info: SourceInfo, keys: Texts, images: Images, columns: Mapping[str, Column], states: Rows
    ) -> None:
        """states: (m, 2), of the files that are neither images nor masks: see `Source.states`."""
        self.info, self._all, self._more = info, TablePart(keys, images, columns), states

    def pick(self, rows: Rows, /) -> TablePart:
        """See `CanPick`."""
        return self._all.pick(rows)

    def column(self, name: str, /) -> Column | None:
        """See `HasColumns`."""
        return self._all.columns.get(name)

    def line(self, i: int, /) -> int:
        """See `HasColumns`."""
        return 0

    def path(self, i: int, /) -> str:
        """See `HasPaths`."""
        images = self._all.images
        return images.paths.value(i) if isinstance(images, Files) else self.key(i)

    def labels(self) -> Rows | None:
        """See `HasLabels`."""
        label = self._all.columns.get("label")
        return label.values if self.info.classes is not None and isinstance(label, Numbers) else None

    def states(self) -> Rows:
        """(n, 2): of the images, then of the masks column by column, then of what lists them; see `Source.states`."""
        masks = [column.states for column in self._all.columns.values() if isinstance(column, Files)]
        return np.concatenate([self._all.images.all_states(), *masks, self._more])


def ends_of(lengths: ArrayLike) -> Rows:
    """(n + 1,): where each of n values begins, and the last one ends, if they are stored one after another."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def texts_of(values: Sequence[str]) -> Texts:
    parts = [value.encode() for value in values]
    return Texts(b"".join(parts), ends_of([len(part) for part in parts]))


def joined(blocks: Sequence[Texts]) -> Texts:
    """Blocks of texts, one after another."""
    return Texts(b"".join(block.data for block in blocks), ends_of(np.concatenate([np.diff(b.ends) for b in blocks])))


def no_classes(numbers: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Which numbers belong to none of `count` classes. -1, for no class, is fine."""
    some: NDArray[np.bool_] = (numbers >= -1) & (numbers < count) & (numbers == np.floor(numbers))
    return ~some


def empty_classes(classes: Sequence[str] | None, numbers: NDArray[Any]) -> tuple[str, ...]:
    """The classes whose number does not occur."""
    used = set(np.unique(numbers).tolist())
    return tuple(name for number, name in enumerate(classes or ()) if number not in used)


def _gathered(ends: Rows, rows: Rows) -> tuple[Rows, Rows]:
    """Where all entries of some values of different lengths are, and the `ends` of these values alone."""
    starts = ends[rows]
    lengths = ends[rows + 1] - starts
    new = ends_of(lengths)
    return np.arange(new[-1]) + np.repeat(starts - new[:-1], lengths), new


def _value(name: str, column: Column, i: int) -> Value:
    try:
        return column.value(i)
    except DecodeError as error:
        raise DecodeError(error.reason, f"{name}: {error.detail}") from None
