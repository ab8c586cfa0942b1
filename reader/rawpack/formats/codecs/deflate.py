"""The codec "deflate": samples in compressed chunks, as HDF5's gzip filter makes them.

They are read without HDF5, so without its global lock.
"""

from __future__ import annotations

import math
import threading
import zlib

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import readahead
from rawpack.errors import DamagedStoreError
from rawpack.formats.codecs.raw import as_image, span
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

_recent = threading.local()
"""The chunks of each thread's latest sample: what is checked is then read, and the next sample is often in them."""


def open_rows(part: ShardField) -> FieldReader:
    """See `Codec.open`. Raises DamagedStoreError where the chunks do not hold all rows."""
    placement = part.placement
    index = None if part.uniform else (part.offsets, part.sizes, part.shapes)
    if part.uniform and part.sample_bytes * part.rows > placement.chunks * placement.chunk_bytes:
        raise DamagedStoreError(f"{part.where} has too few chunks for {part.rows} rows")
    shape = part.stored_shape if part.uniform else ()
    return DeflatedRows(part.data, part.chunks, placement.chunk_bytes, part.dtype, part.rows, shape, index)


class DeflatedRows:
    """The samples' bytes, one after another, cut into pieces of `chunk_bytes`, each deflated on its own."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        chunks: NDArray[np.int64],
        chunk_bytes: int,
        dtype: np.dtype[np.generic],
        rows: int,
        shape: tuple[int, ...],
        index: tuple[Rows, Rows, NDArray[np.int32]] | None,
    ) -> None:
        """data: the mapped file. chunks: (n, 2), offset and bytes of each piece in it.

        shape: of every sample, unless `index` gives offset, bytes and shape of each; offsets count in the
        decompressed bytes.
        """
        self._data, self._chunks, self._chunk_bytes, self._dtype = data, chunks, chunk_bytes, dtype
        self._rows, self._shape, self._index = rows, shape, index
        self._row_bytes = dtype.itemsize * math.prod(shape)

    def readahead(self, rows: Rows, /) -> None:
        pieces = np.unique([self._where(row)[0] // self._chunk_bytes for row in rows.tolist()])
        chunks = self._chunks[pieces[pieces < len(self._chunks)]]
        readahead(self._data, chunks[:, 0], chunks[:, 1])

    def is_cached(self, row: int, /) -> bool:
        k = self._where(row)[0] // self._chunk_bytes
        return k >= len(self._chunks) or is_cached(self._data.ctypes.data + int(self._chunks[k, 0]))

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, self._rows)
        return tuple(self._index[2][row].tolist()) if self._index else self._shape

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        start, size = self._where(row)
        first, last = start // self._chunk_bytes, max(start, start + size - 1) // self._chunk_bytes
        pieces = self._pieces(range(first, last + 1))
        whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return span(whole, start - first * self._chunk_bytes, size, row)

    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        return deliver(cut(as_image(self.stored(row), self._dtype, self.shape(row), row), box, scale), out)

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, self._rows)
        target = out.reshape(len(out), self._row_bytes // self._dtype.itemsize).view(np.uint8)
        for i, row in places(rows, at):
            target[i] = self.stored(row)

    def _where(self, row: int) -> tuple[int, int]:
        check_row(row, self._rows)
        if self._index is None:
            return row * self._row_bytes, self._row_bytes
        offset, size = int(self._index[0][row]), int(self._index[1][row])
        if offset < 0 or size < 0:
            raise DamagedStoreError(f"row {row} of the shard has {size} bytes at {offset}")
        return offset, size

    def _pieces(self, numbers: range) -> list[NDArray[np.uint8]]:
        known: dict[int, NDArray[np.uint8]] = _recent.pieces if getattr(_recent, "data", None) is self._data else {}
        pieces = {k: known[k] if k in known else self._inflated(k) for k in numbers}
        _recent.data, _recent.pieces = self._data, pieces
        return list(pieces.values())

    def _inflated(self, k: int) -> NDArray[np.uint8]:
        if k >= len(self._chunks):
            raise DamagedStoreError(f"the shard has {len(self._chunks)} compressed pieces; number {k} is needed")
        offset, size = self._chunks[k].tolist()
        packed = span(self._data, offset, size, k)
        inflate = zlib.decompressobj()
        try:
            inflated = inflate.decompress(packed.data, self._chunk_bytes)
            if not inflate.eof:
                # All bytes may be there: the checksum behind them is read only when more is asked for.
                inflated += inflate.decompress(inflate.unconsumed_tail, 1)
        except zlib.error as error:
            raise DamagedStoreError(f"compressed piece {k} of the shard is damaged: {error}") from None
        if len(inflated) != self._chunk_bytes or not inflate.eof:
            more = "" if inflate.eof else " and more, or breaks off"
            raise DamagedStoreError(
                f"compressed piece {k} of the shard holds {len(inflated)} bytes{more}, and not {self._chunk_bytes}"
            )
        return np.frombuffer(inflated, np.uint8)
