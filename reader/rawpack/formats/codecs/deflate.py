"""The codec "deflate": samples in compressed chunks, as HDF5's gzip filter writes them.

They are read without HDF5, and therefore without its global lock.
"""

from __future__ import annotations

import threading
import weakref
import zlib

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import readahead
from rawpack.errors import DamagedStoreError
from rawpack.formats.codecs.file_rows import FileRows, outside
from rawpack.formats.field_reader import Rows, ShardField, check_row
from rawpack.system.memory import is_cached

_recent = threading.local()
"""The chunks of each thread's latest sample: a sample that was checked is then read, and the next one often shares a
chunk with it."""


class DeflatedRows(FileRows):
    """The samples' bytes, one sample after another, cut into chunks of `chunk_bytes` that are deflated separately."""

    def __init__(self, part: ShardField) -> None:
        """Raises DamagedStoreError where the chunks cannot hold all rows."""
        super().__init__(part)
        if part.field.uniform and part.sample_bytes * part.rows > part.placement.chunks * part.placement.chunk_bytes:
            raise DamagedStoreError(f"{part.where} has too few chunks for {part.rows} rows")
        self._chunks, self._chunk_bytes = part.index["chunk"], part.placement.chunk_bytes
        self._row_bytes = part.sample_bytes if part.field.uniform else None

    def readahead(self, rows: Rows, /) -> None:
        most = len(self._chunks)
        needed = {k for row in rows.tolist() for k in self._chunks_of(*self._where(row))[:most] if k < most}
        chunks = self._chunks[sorted(needed)]
        readahead(self._data, chunks[:, 0], chunks[:, 1])

    def is_cached(self, row: int, /) -> bool:
        # The last chunk, and its middle: the first one, and pages at its ends, may be shared with the sample before.
        k = self._chunks_of(*self._where(row))[-1]
        if k >= len(self._chunks):
            return True
        start, size = self._chunks[k].tolist()
        return is_cached(self._data.ctypes.data + start + size // 2)

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        start, size = self._where(row)
        numbers = self._chunks_of(start, size)
        self._check(numbers.stop - 1)  # before all that the shard does have are inflated
        chunks = self._inflated(numbers)
        joined = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
        return _span(joined, start - numbers[0] * self._chunk_bytes, size, f"row {row}")

    def _where(self, row: int) -> tuple[int, int]:
        check_row(row, self._rows)
        if self._row_bytes is not None:
            return row * self._row_bytes, self._row_bytes
        # Offsets count in the decompressed bytes.
        offset, size = self._index["offset"].item(row), self._index["bytes"].item(row)
        if offset < 0 or size < 0:
            raise DamagedStoreError(f"row {row} of the shard has {size} bytes at {offset}")
        return offset, size

    def _chunks_of(self, start: int, size: int) -> range:
        """The chunks that hold these bytes, one or more."""
        return range(start // self._chunk_bytes, max(start, start + size - 1) // self._chunk_bytes + 1)

    def _inflated(self, numbers: range) -> list[NDArray[np.uint8]]:
        latest = getattr(_recent, "reader", None)
        known: dict[int, NDArray[np.uint8]] = _recent.chunks if latest is not None and latest() is self else {}
        chunks = {k: known[k] if k in known else self._inflate(k) for k in numbers}
        # Not the reader itself, which would keep its file mapped as long as the thread lives.
        _recent.reader, _recent.chunks = weakref.ref(self), chunks
        return list(chunks.values())

    def _check(self, k: int) -> None:
        if k >= len(self._chunks):
            raise DamagedStoreError(f"the shard has {len(self._chunks)} compressed chunks; number {k} is needed")

    def _inflate(self, k: int) -> NDArray[np.uint8]:
        self._check(k)
        offset, size = self._chunks[k].tolist()
        packed = _span(self._data, offset, size, f"compressed chunk {k}")
        inflate = zlib.decompressobj()
        try:
            inflated = inflate.decompress(packed.data, self._chunk_bytes)
            if not inflate.eof:
                # zlib reads the checksum behind the data only when more is requested.
                inflated += inflate.decompress(inflate.unconsumed_tail, 1)
        except zlib.error as error:
            raise DamagedStoreError(f"compressed chunk {k} of the shard is damaged: {error}") from error
        if len(inflated) != self._chunk_bytes or not inflate.eof:
            more = "" if inflate.eof else " and more, or is cut off"
            raise DamagedStoreError(
                f"compressed chunk {k} of the shard contains {len(inflated)} bytes{more}, not {self._chunk_bytes}"
            )
        return np.frombuffer(inflated, np.uint8)


def _span(data: NDArray[np.uint8], offset: int, size: int, what: str) -> NDArray[np.uint8]:
    """`size` bytes at `offset`. Raises DamagedStoreError where `data` does not have them."""
    if offset < 0 or size < 0 or offset + size > len(data):
        raise outside(what, offset, size)
    return data[offset : offset + size]
