"""What codecs share whose samples each have bytes of their own: JPEG, PNG."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import readahead
from rawpack.formats.codecs.raw import span
from rawpack.formats.field_reader import (
    Array,
    Box,
    Rows,
    check_row,
    check_rows,
    places,
)
from rawpack.formats.shard_field import ShardField
from rawpack.system.memory import is_cached


class FileRows(ABC):
    """One file per sample, each at its offset. See `FieldReader`."""

    def __init__(self, part: ShardField) -> None:
        self._data, self._offsets, self._sizes = part.data, part.offsets, part.sizes
        self._shape = part.shape
        self._shapes = None if part.uniform else part.shapes

    def readahead(self, rows: Rows, /) -> None:
        readahead(self._data, self._offsets[rows], self._sizes[rows])

    def is_cached(self, row: int, /) -> bool:
        return is_cached(self.stored(row).ctypes.data)

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, len(self._offsets))
        return self._shape if self._shapes is None else tuple(self._shapes[row].tolist())

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        check_row(row, len(self._offsets))
        return span(self._data, int(self._offsets[row]), int(self._sizes[row]), row)

    @abstractmethod
    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array: ...

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, len(self._offsets))
        for i, row in places(rows, at):
            self.read(row, out=out[i])
