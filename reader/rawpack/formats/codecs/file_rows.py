"""Samples that are read one at a time: what all codecs share but those of rows that are copied as they are."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import readahead
from rawpack.errors import DamagedStoreError
from rawpack.formats.field_reader import Array, Box, Rows, ShardField, check_row, check_rows, cut, no_row, places
from rawpack.system.memory import is_cached


class FileRows:
    """See `FieldReader`. Each sample at its own offset, as the values of its pixels: where something else is stored,
    override `image`."""

    def __init__(self, part: ShardField) -> None:
        self._data, self._index, self._rows = part.data, part.index, part.rows
        self._dtype, self._shape = part.dtype, part.shape
        self._shapes = None if part.field.uniform else part.index["shape"]

    def readahead(self, rows: Rows, /) -> None:
        readahead(self._data, self._index["offset"][rows], self._index["bytes"][rows])

    def is_cached(self, row: int, /) -> bool:
        stored = self.stored(row)
        # In the middle: the first page may be shared with the sample before.
        return is_cached(stored.ctypes.data + len(stored) // 2)

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, self._rows)
        return self._shape if self._shapes is None else tuple(self._shapes[row].tolist())

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        if not 0 <= row < self._rows:
            raise no_row(row, self._rows)
        start, size = self._index["offset"].item(row), self._index["bytes"].item(row)
        if start < 0 or size < 0 or start + size > len(self._data):
            raise outside(f"row {row}", start, size)
        return self._data[start : start + size]

    def image(self, row: int) -> Array:
        return as_image(self.stored(row), self._dtype, self.shape(row), row)

    def read(self, row: int, /, box: Box | None = None, scale: int = 1) -> Array:
        return cut(self.image(row), box, scale)

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, self._rows)
        for i, row in places(rows, at):
            out[i] = self.image(row)


def as_image(data: NDArray[np.uint8], dtype: np.dtype[np.generic], shape: tuple[int, ...], row: int) -> Array:
    """The bytes of one sample as an array. Raises DamagedStoreError where `shape` needs more bytes, or fewer."""
    if dtype.itemsize * math.prod(shape) != len(data) or min(shape, default=1) < 1:
        raise DamagedStoreError(f"row {row} of the shard has {len(data)} bytes; its shape {shape} does not fit")
    if data.ctypes.data % dtype.alignment:
        data = data.copy()
    return data.view(dtype).reshape(shape)


def outside(what: str, offset: int, size: int) -> DamagedStoreError:
    return DamagedStoreError(f"{what} of the shard is outside its file: {size} bytes at {offset}")
