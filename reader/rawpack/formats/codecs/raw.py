"""The codec "raw": pixel values without any encoding, one sample after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import readahead
from rawpack.errors import DamagedStoreError
from rawpack.formats.codecs.file_rows import FileRows
from rawpack.formats.field_reader import Array, Box, FieldReader, Rows, ShardField, check_row, check_rows, cut
from rawpack.system.memory import is_cached


def open_rows(part: ShardField) -> FieldReader:
    """See `Codec.open`. Raises DamagedStoreError where the file ends before the last row."""
    if not part.field.uniform:
        return FileRows(part)
    start, size = part.placement.offset, part.sample_bytes * part.rows
    if start + size > len(part.data):
        raise DamagedStoreError(f"{part.where} ends before its {part.rows} rows do")
    return UniformRows(part.data[start : start + size], part.rows, part.dtype, part.field.stored_shape)


class UniformRows:
    """Samples of one shape, one after another. Where the system allows it, `Gather` reads them from all shards."""

    def __init__(self, data: NDArray[np.uint8], rows: int, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> None:
        self._images = data.view(dtype).reshape(rows, *shape)
        self._begin, self._stride = data.ctypes.data, self._images.strides[0]

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, len(self._images))
        out[slice(len(rows)) if at is None else at] = self._images[rows]

    def readahead(self, rows: Rows, /) -> None:
        readahead(self._images, rows * self._stride, np.full(len(rows), self._stride, np.int64))

    def is_cached(self, row: int, /) -> bool:
        check_row(row, len(self._images))
        # In the middle: the first page is shared with the sample before.
        return is_cached(self._begin + row * self._stride + self._stride // 2)

    def read(self, row: int, /, box: Box | None = None, scale: int = 1) -> Array:
        check_row(row, len(self._images))
        return cut(self._images[row], box, scale)

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, len(self._images))
        return self._images.shape[1:]

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        check_row(row, len(self._images))
        stored: NDArray[np.uint8] = self._images[row].reshape(-1).view(np.uint8)
        return stored
