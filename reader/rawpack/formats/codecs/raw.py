"""The codec "raw": values as they are, one sample after another; all of one shape, or each of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import readahead
from rawpack.errors import DamagedStoreError
from rawpack.formats.field_reader import (
    Array,
    Box,
    FieldReader,
    Rows,
    check_row,
    check_rows,
    cut,
    deliver,
    places,
)
from rawpack.formats.shard_field import ShardField
from rawpack.system.memory import is_cached


def open_rows(part: ShardField) -> FieldReader:
    """See `Codec.open`. Raises DamagedStoreError where the file does not hold all rows."""
    if not part.uniform:
        return VariedRows(part.data, part.offsets, part.sizes, part.shapes, part.dtype)
    start, size = part.placement.offset, part.sample_bytes * part.rows
    if start + size > len(part.data):
        raise DamagedStoreError(f"{part.where} ends before its {part.rows} rows do")
    return UniformRows(part.data[start : start + size], part.rows, part.dtype, part.stored_shape)


class UniformRows:
    """Samples of one shape, one after another: reading many is one gather."""

    def __init__(self, data: NDArray[np.uint8], rows: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
        """data: exactly the bytes of the samples."""
        # Rows as opaque records: numpy then copies whole rows, whatever their inner shape and dtype.
        self._flat = data.view(dtype).reshape(rows, -1)
        self._shape = shape

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, len(self._flat))
        flat = out.reshape(len(out), self._flat.shape[1])
        if at is None:
            # mode="clip" writes into out directly; the default mode goes through a buffer and takes 3 times as long.
            self._flat.take(rows, axis=0, out=flat, mode="clip")
            return
        for i, row in places(rows, at):
            flat[i] = self._flat[row]

    def readahead(self, rows: Rows, /) -> None:
        size = self._flat.strides[0]
        readahead(self._flat, rows * size, np.full(len(rows), size, np.int64))

    def is_cached(self, row: int, /) -> bool:
        check_row(row, len(self._flat))
        return is_cached(self._flat.ctypes.data + row * self._flat.strides[0])

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


class VariedRows:
    """Samples of different shapes, each at its offset."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: Rows,
        sizes: Rows,
        shapes: NDArray[np.int32],
        dtype: np.dtype[np.generic],
    ) -> None:
        """data: the mapped file; offsets and sizes in bytes, of each sample in it."""
        self._data, self._offsets, self._sizes, self._shapes, self._dtype = data, offsets, sizes, shapes, dtype

    def readahead(self, rows: Rows, /) -> None:
        readahead(self._data, self._offsets[rows], self._sizes[rows])

    def is_cached(self, row: int, /) -> bool:
        return is_cached(self.stored(row).ctypes.data)

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, len(self._offsets))
        return tuple(self._shapes[row].tolist())

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        check_row(row, len(self._offsets))
        return span(self._data, int(self._offsets[row]), int(self._sizes[row]), row)

    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        image = as_image(self.stored(row), self._dtype, self.shape(row), row)
        return deliver(cut(image, box, scale), out)

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, len(self._offsets))
        for i, row in places(rows, at):
            self.read(row, out=out[i])


def span(data: NDArray[np.uint8], offset: int, size: int, row: int) -> NDArray[np.uint8]:
    """`size` bytes at `offset`, refused where the file does not hold them."""
    if offset < 0 or size < 0 or offset + size > len(data):
        raise DamagedStoreError(f"row {row} of the shard lies outside its file: {size} bytes at {offset}")
    return data[offset : offset + size]


def as_image(data: NDArray[np.uint8], dtype: np.dtype[np.generic], shape: tuple[int, ...], row: int) -> Array:
    """The bytes of one sample as an array of `shape`, refused where they are not as many as the shape needs."""
    count = dtype.itemsize
    for n in shape:
        count *= n
    if count != len(data) or min(shape, default=1) < 1:
        raise DamagedStoreError(f"row {row} of the shard has {len(data)} bytes; its shape {shape} does not fit")
    if data.ctypes.data % dtype.alignment:
        data = data.copy()
    return data.view(dtype).reshape(shape)
