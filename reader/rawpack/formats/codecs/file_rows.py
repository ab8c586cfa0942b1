"""Samples that are stored at offsets of their own: shared by the codecs whose samples differ in size."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import readahead
from rawpack.errors import DamagedStoreError
from rawpack.formats.field_reader import Array, Box, Rows, check_row, check_rows, no_row, places
from rawpack.formats.shard_field import ShardField
from rawpack.system.memory import is_cached


class FileRows(ABC):
    """Each sample at its own offset. See `FieldReader`."""

    def __init__(self, part: ShardField) -> None:
        self._data, self._offsets, self._sizes = part.data, part.index["offset"], part.index["bytes"]
        self._dtype, self._shape = part.dtype, part.shape
        self._shapes = None if part.uniform else part.index["shape"]

    def readahead(self, rows: Rows, /) -> None:
        readahead(self._data, self._offsets[rows], self._sizes[rows])

    def is_cached(self, row: int, /) -> bool:
        stored = self.stored(row)
        # In the middle: the first page may be shared with the sample before.
        return is_cached(stored.ctypes.data + len(stored) // 2)

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, len(self._offsets))
        return self._shape if self._shapes is None else tuple(self._shapes[row].tolist())

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        if not 0 <= row < len(self._offsets):
            raise no_row(row, len(self._offsets))
        start, size = self._offsets.item(row), self._sizes.item(row)
        if start < 0 or size < 0 or start + size > len(self._data):
            raise _outside(start, size, row)
        return self._data[start : start + size]

    def files(self, rows: Rows) -> list[memoryview]:
        """`stored` of several samples, without an array of each."""
        check_rows(rows, len(self._offsets))
        starts, sizes = self._offsets[rows], self._sizes[rows]
        outside = (starts < 0) | (sizes < 0) | (sizes > len(self._data) - starts)
        for row in rows[outside].tolist():
            self.stored(row)  # raises
        data = self._data.data
        return [data[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]

    @abstractmethod
    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array: ...

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, len(self._offsets))
        for i, row in places(rows, at):
            self.read(row, out=out[i])


def span(data: NDArray[np.uint8], offset: int, size: int, row: int) -> NDArray[np.uint8]:
    """`size` bytes at `offset`. Raises DamagedStoreError where `data` does not have them."""
    if offset < 0 or size < 0 or offset + size > len(data):
        raise _outside(offset, size, row)
    return data[offset : offset + size]


def _outside(offset: int, size: int, row: int) -> DamagedStoreError:
    return DamagedStoreError(f"row {row} of the shard is outside its file: {size} bytes at {offset}")
