"""A listing in memory: an array for each column, never an object for each row; and the source that it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.base import BaseSource, Item, SourceInfo
from rawpack_packer.sources.fields import Boxes, BoxForm, Value
from rawpack_packer.sources.files import read_file

ListingRows = NDArray[np.int64]
CLASS = 4
"""Where a box that is no yolo's has the number of its class."""


class Column(Protocol):
    """The values of one field. Plain data."""

    def value(self, i: int, /) -> Value:
        """That of sample i. Raises as `Samples.__getitem__` does."""

    def part(self, start: int, stop: int, /) -> Column:
        """Those of samples start <= i < stop, and no more."""

    def pick(self, rows: ListingRows, /) -> Column:
        """Those of samples `rows`, in their order."""


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts, one after another."""

    data: bytes
    """UTF-8."""
    ends: NDArray[np.int64]
    """(n + 1,): text i is data[ends[i]:ends[i + 1]]."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    def value(self, i: int, /) -> str:
        return self.raw(i).decode()

    def raw(self, i: int, /) -> bytes:
        """Text i in UTF-8."""
        return self.data[int(self.ends[i]) : int(self.ends[i + 1])]

    def part(self, start: int, stop: int, /) -> Texts:
        first, last = int(self.ends[start]), int(self.ends[stop])
        return Texts(self.data[first:last], self.ends[start : stop + 1] - first)

    def pick(self, rows: ListingRows, /) -> Texts:
        texts = [self.raw(i) for i in rows.tolist()]
        return Texts(b"".join(texts), np.cumsum([0, *map(len, texts)], dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Numbers, or arrays of one shape: (n, *shape)."""

    values: NDArray[Any]

    def value(self, i: int, /) -> NDArray[Any]:
        return np.array(self.values[i])

    def part(self, start: int, stop: int, /) -> Numbers:
        return Numbers(self.values[start:stop])

    def pick(self, rows: ListingRows, /) -> Numbers:
        return Numbers(self.values[rows])


@dataclass(frozen=True, slots=True, eq=False)
class RaggedColumn:
    """Arrays that differ in their first length, one after another."""

    values: NDArray[Any]
    ends: NDArray[np.int64]
    """(n + 1,): array i is values[ends[i]:ends[i + 1]]."""
    boxes: BoxForm | None = None
    sizes: NDArray[np.int64] | None = None
    """(n, 2): height and width of the image that boxes were drawn in; 0 where that is not known."""

    def value(self, i: int, /) -> NDArray[Any] | Boxes:
        rows = np.array(self.values[int(self.ends[i]) : int(self.ends[i + 1])])
        if self.boxes is None:
            return rows
        height, width = (0, 0) if self.sizes is None else self.sizes[i].tolist()
        return Boxes(rows, self.boxes, (height, width) if height and width else None)

    @property
    def have_classes(self) -> bool:
        """Whether they are boxes that say their class."""
        return self.boxes is not None and self.values.shape[1] > CLASS

    def classes(self) -> NDArray[Any]:
        """(m,): the number of each box's class, where they have classes."""
        return np.asarray(self.values[:, 0 if self.boxes == "yolo" else CLASS])

    def part(self, start: int, stop: int, /) -> RaggedColumn:
        first, last = int(self.ends[start]), int(self.ends[stop])
        sizes = None if self.sizes is None else self.sizes[start:stop]
        return replace(self, values=self.values[first:last], ends=self.ends[start : stop + 1] - first, sizes=sizes)

    def pick(self, rows: ListingRows, /) -> RaggedColumn:
        runs = [self.values[int(self.ends[i]) : int(self.ends[i + 1])] for i in rows.tolist()]
        sizes = None if self.sizes is None else self.sizes[rows]
        values, ends = np.concatenate([self.values[:0], *runs]), np.cumsum([0, *map(len, runs)], dtype=np.int64)
        return replace(self, values=values, ends=ends, sizes=sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Files:
    """Files: images, or masks."""

    root: str
    """The folder that relative paths begin at."""
    paths: Texts
    states: NDArray[np.int64]
    """(n, 2): size in bytes and mtime in ns."""

    def value(self, i: int, /) -> bytes:
        size, mtime = self.states[i].tolist()
        return read_file(self.path(i), self.paths.value(i), (size, mtime))

    def path(self, i: int, /) -> str:
        """The path by which file i is read."""
        return os.path.join(self.root, self.paths.value(i))  # noqa: PTH118 - as fast as can be

    def part(self, start: int, stop: int, /) -> Files:
        return Files(self.root, self.paths.part(start, stop), self.states[start:stop])

    def pick(self, rows: ListingRows, /) -> Files:
        return Files(self.root, self.paths.pick(rows), self.states[rows])


@dataclass(frozen=True, slots=True, eq=False)
class TablePart:
    """Some rows of a listing."""

    keys: Texts
    images: Files
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, i: int, /) -> Item:
        key = self.key(i)
        return Item(key, self.images.value(i), {name: _value(name, column, i) for name, column in self.columns.items()})

    def key(self, i: int, /) -> str:
        """The path as the listing has it, or what its column of keys says."""
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        return self.keys.value(i)

    def image_file(self, i: int, /) -> tuple[str, int]:
        """The path by which image i is read, and its bytes."""
        return self.images.path(i), int(self.images.states[i, 0])

    def part(self, start: int, stop: int, /) -> TablePart:
        """Rows start <= i < stop."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        columns = {name: column.part(start, stop) for name, column in self.columns.items()}
        return TablePart(self.keys.part(start, stop), self.images.part(start, stop), columns)

    def pick(self, rows: ListingRows, /) -> TablePart:
        """The rows at `rows`, in their order."""
        columns = {name: column.pick(rows) for name, column in self.columns.items()}
        return TablePart(self.keys.pick(rows), self.images.pick(rows), columns)


def _value(name: str, column: Column, i: int) -> Value:
    try:
        return column.value(i)
    except DecodeError as error:
        raise DecodeError(error.reason, f"{name}: {error.detail}") from None


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """All that was read of a listing."""

    info: SourceInfo
    rows: TablePart
    states: NDArray[np.int64]
    """(m, 2), of what is no image: see `Source.states`."""


class TableSource(BaseSource):
    """A table as a `Source`."""

    _all: TablePart

    def __init__(self, table: Table) -> None:
        self.info = table.info
        self._all, self._more = table.rows, table.states

    def pick(self, rows: ListingRows, /) -> TablePart:
        """Samples at `rows`, in their order."""
        return self._all.pick(rows)

    def labels(self) -> ListingRows | None:
        """(n,): the number of each sample's class; None where there are none."""
        label = self._all.columns.get("label")
        return label.values if self.info.classes is not None and isinstance(label, Numbers) else None

    def states(self) -> NDArray[np.int64]:
        """(n, 2): of the images, then of the masks column by column, then of what lists them; see `Source.states`."""
        masks = [column.states for column in self._all.columns.values() if isinstance(column, Files)]
        return np.concatenate([self._all.images.states, *masks, self._more])


def no_classes(numbers: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Which of some numbers are of none of `count` classes; -1 says that there is none."""
    some: NDArray[np.bool_] = (numbers >= -1) & (numbers < count) & (numbers == np.floor(numbers))
    return ~some


def texts_of(values: list[str]) -> Texts:
    """Texts of a list. UnicodeEncodeError where UTF-8 cannot hold one."""
    parts = [value.encode() for value in values]
    ends = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=ends[1:])
    return Texts(b"".join(parts), ends)
