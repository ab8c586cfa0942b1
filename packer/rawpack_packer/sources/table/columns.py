"""Columns of a table: one array for all rows, without an object for each; files; arrays that stay in their file.

A kind of source may have columns of its own: see `base.Column`. What travels to a worker is plain data; a file is
open only there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack_packer.sources.axes import channels_last
from rawpack_packer.sources.base import Column as Column
from rawpack_packer.sources.base import numbered
from rawpack_packer.sources.fields import Boxes, BoxForm
from rawpack_packer.sources.files import changed, read_file

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
class RowNumbers:
    """Keys of samples without names: the numbers of their rows."""

    rows: range | Rows

    def __len__(self) -> int:
        return len(self.rows)

    def value(self, i: int, /) -> str:
        return numbered(int(self.rows[i]))

    def pick(self, rows: Rows, /) -> RowNumbers:
        return RowNumbers(rows_at(self.rows, rows))


@dataclass(frozen=True, eq=False)
class Mapped:
    """Rows of an array in a file. Only its location travels to a worker, which maps the file at the first read."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    """Of the whole array."""
    offset: int
    order: Literal["C", "F"]
    state: tuple[int, int]
    """Size in bytes and mtime in ns of the file when the source was opened."""
    rows: range | Rows

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "values"}

    @cached_property
    def values(self) -> NDArray[Any]:
        """The whole array."""
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)

    def value(self, i: int, /) -> NDArray[Any]:
        found = os.stat(self.path)  # noqa: PTH116 - called for each sample
        if (found.st_size, found.st_mtime_ns) != self.state:
            raise changed(self.path, "it was written to")
        return np.array(self.values[self.rows[i]])

    def pick(self, rows: Rows, /) -> Mapped:
        return replace(self, rows=rows_at(self.rows, rows))


@dataclass(frozen=True, slots=True, eq=False)
class ImageArrays:
    """Images that are rows of another column, in this machine's byte order, with their channels last."""

    column: Column
    chw: bool = False
    """Whether channels come first in the column."""

    def value(self, i: int, /) -> NDArray[Any]:
        image = np.asarray(self.column.value(i))
        if not image.dtype.isnative:
            image = image.astype(image.dtype.newbyteorder("="))
        return channels_last(image) if self.chw else image

    def pick(self, rows: Rows, /) -> ImageArrays:
        return ImageArrays(self.column.pick(rows), self.chw)


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


def rows_at(rows: range | Rows, at: Rows) -> range | Rows:
    """Those of `rows` at the positions `at`, which ascend. Consecutive ones stay a range, which takes no space."""
    if not isinstance(rows, range):
        return rows[at]
    if len(at) and at[-1] - at[0] == len(at) - 1:
        return rows[int(at[0]) : int(at[-1]) + 1]
    return at + rows.start


def ends_of(lengths: ArrayLike) -> Rows:
    """(n + 1,): where each of n values begins, and the last one ends, if they are stored one after another."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def texts_of(values: Sequence[str]) -> Texts:
    parts = [value.encode() for value in values]
    return Texts(b"".join(parts), ends_of([len(part) for part in parts]))


def joined(blocks: Sequence[Texts]) -> Texts:
    """Blocks of texts, one after another."""
    return Texts(b"".join(block.data for block in blocks), ends_of(np.concatenate([np.diff(b.ends) for b in blocks])))


def _gathered(ends: Rows, rows: Rows) -> tuple[Rows, Rows]:
    """Where all entries of some values of different lengths are, and the `ends` of these values alone."""
    starts = ends[rows]
    lengths = ends[rows + 1] - starts
    new = ends_of(lengths)
    return np.arange(new[-1]) + np.repeat(starts - new[:-1], lengths), new
