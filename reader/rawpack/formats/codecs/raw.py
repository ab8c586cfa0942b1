"""The codec "raw": pixel values without any encoding, one sample after another."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import readahead
from rawpack.errors import DamagedStoreError
from rawpack.formats.codecs.file_rows import FileRows
from rawpack.formats.field_reader import Array, Box, FieldReader, Rows, check_row, check_rows, cut, deliver, places
from rawpack.formats.shard_field import ShardField
from rawpack.system.memory import is_cached


def open_rows(part: ShardField) -> FieldReader:
    """See `Codec.open`. Raises DamagedStoreError where the file ends before the last row."""
    if not part.uniform:
        return VariedRows(part)
    start, size = part.placement.offset, part.sample_bytes * part.rows
    if start + size > len(part.data):
        raise DamagedStoreError(f"{part.where} ends before its {part.rows} rows do")
    return UniformRows(part.data[start : start + size], part.rows, part.dtype, part.stored_shape)


class UniformRows:
    """Samples of one shape, one after another: any number of them is read by one gather."""

    def __init__(self, data: NDArray[np.uint8], rows: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
        """data: exactly the bytes of the samples."""
        self._flat = data.view(dtype).reshape(rows, -1)
        self._shape = shape
        self._begin, self._stride = data.ctypes.data, self._flat.strides[0]

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, len(self._flat))
        flat = out.reshape(len(out), self._flat.shape[1])
        if at is None:
            # mode="clip" writes into out directly; the default mode goes through a buffer, 3 times slower.
            self._flat.take(rows, axis=0, out=flat, mode="clip")
            return
        for i, row in places(rows, at):
            flat[i] = self._flat[row]

    def readahead(self, rows: Rows, /) -> None:
        readahead(self._flat, rows * self._stride, np.full(len(rows), self._stride, np.int64))

    def is_cached(self, row: int, /) -> bool:
        check_row(row, len(self._flat))
        # In the middle: the first page is shared with the sample before.
        return is_cached(self._begin + row * self._stride + self._stride // 2)

    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        check_row(row, len(self._flat))
        return deliver(cut(self._flat[row].reshape(self._shape), box, scale), out)

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, len(self._flat))
        return self._shape

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        check_row(row, len(self._flat))
        stored: NDArray[np.uint8] = self._flat[row].view(np.uint8)
        return stored


class VariedRows(FileRows):
    """Samples of different shapes."""

    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        image = as_image(self.stored(row), self._dtype, self.shape(row), row)
        return deliver(cut(image, box, scale), out)


def as_image(data: NDArray[np.uint8], dtype: np.dtype[np.generic], shape: tuple[int, ...], row: int) -> Array:
    """The bytes of one sample as an array. Raises DamagedStoreError where `shape` needs more bytes, or fewer."""
    if dtype.itemsize * math.prod(shape) != len(data) or min(shape, default=1) < 1:
        raise DamagedStoreError(f"row {row} of the shard has {len(data)} bytes; its shape {shape} does not fit")
    if data.ctypes.data % dtype.alignment:
        data = data.copy()
    return data.view(dtype).reshape(shape)
