"""Reading rows of many shards in one call, by mapping all shards of a raw field into one range of addresses.

`np.take` is as fast as memory, but it works on one array, and shards are many files. A Python loop over rows takes
longer than copying them, and makes threads wait for the GIL. So all shards are mapped into one range of addresses, each
at a page where the distance to the rows of the others is a whole number of rows. All rows are then in one array; the
gaps are rows of that array which nobody requests. A process has 128 TiB of addresses, so gaps cost nothing.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.formats.field_reader import Array, Rows, check_rows
from rawpack.system.memory import advise, put, reserve

_MAX_SPAN = 1 << 45


class RawShard(msgspec.Struct, frozen=True):
    """One shard of a raw field: what `Gather` needs to know."""

    rows: int
    size: int
    offset: int
    """Of the first row in the file, in bytes."""
    open: Callable[[], tuple[int, int]]
    """Checks the shard. Returns a descriptor, which the caller closes, and the offset at which the file begins there, a
    multiple of the page size."""


class Gather:
    """All rows of a uniform field, over many shards of one or more stores. A shard is mapped when one of its rows is
    first read. Any number of threads may use one."""

    def __init__(
        self, shards: Sequence[RawShard], dtype: np.dtype[np.generic], shape: tuple[int, ...], *, random_access: bool
    ) -> None:
        """random_access: see `map_file`.

        Raises OSError where the system cannot reserve the range, and where the rows of all shards cannot be aligned.
        """
        row_bytes = dtype.itemsize * math.prod(shape)
        base, self._starts = place(shards, row_bytes)
        span = self._starts[-1] + shards[-1].size + mmap.PAGESIZE
        if span > _MAX_SPAN:
            raise OSError(f"a range of {span} addresses is too large")
        self._range = reserve(span)
        virtual = (span - base) // row_bytes
        # As bytes: an HDF5 file may begin a dataset anywhere, and of an array that is not aligned, `take` first makes a
        # copy, with all the gaps, which ends the process.
        flat: NDArray[np.uint8] = np.frombuffer(self._range, np.uint8, virtual * row_bytes, base)
        flat.flags.writeable = False
        self._rows = flat.reshape(virtual, row_bytes)
        self._shards, self._random_access = shards, random_access
        self._ends = np.cumsum([shard.rows for shard in shards], dtype=np.int64)
        begin = ctypes.addressof(self._range)
        ends = [begin + at + shard.size for at, shard in zip(self._starts, shards, strict=True)]
        self._shard_ends = np.array(ends, np.uint64)
        self._count = int(self._ends[-1])
        firsts = np.concatenate([[0], self._ends[:-1]])
        virtual_firsts = [
            (start + shard.offset - base) // row_bytes for start, shard in zip(self._starts, shards, strict=True)
        ]
        self._shifts = np.array(virtual_firsts, np.int64) - firsts
        self._mapped = np.zeros(len(shards), np.bool_)

    def read_into(self, rows: Rows, out: Array) -> None:
        """Fill out[i], in C order, with the sample at rows[i], counted through all shards. Raises IndexError."""
        places, _ = self._places_of(rows)
        row_bytes = self._rows.shape[1]
        parts = out.reshape(len(rows), row_bytes // out.itemsize).view(np.uint8)
        self._rows.take(places, axis=0, out=parts, mode="clip")

    def addresses(self, rows: Rows) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """(n,), (n,): where each of these samples begins in memory, and where the mapping of its shard ends. Valid
        while this object lives. Raises IndexError."""
        places, shards = self._places_of(rows)
        begin = self._rows.ctypes.data
        addresses = (begin + places * self._rows.shape[1]).astype(np.uint64)
        return addresses, self._shard_ends[shards]

    def _places_of(self, rows: Rows) -> tuple[Rows, NDArray[np.int64] | int]:
        """Where these samples are in `_rows`, and the number of the shard of each, or of all. Maps what is not."""
        check_rows(rows, self._count)
        if len(self._shards) == 1:
            if not self._mapped[0]:
                self._map(0)
            return rows + self._shifts[0], 0
        shards = self._ends.searchsorted(rows, "right")
        if False in self._mapped[shards]:
            for shard in np.unique(shards[~self._mapped[shards]]).tolist():
                self._map(shard)
        return rows + self._shifts[shards], shards

    def _map(self, number: int) -> None:
        """Map a shard. Two threads may both do so: the second mapping replaces the first one with the same bytes."""
        shard, start = self._shards[number], self._starts[number]
        descriptor, begin = shard.open()
        try:
            put(descriptor, begin, shard.size, self._range, start)
        finally:
            os.close(descriptor)
        if self._random_access:
            advise(ctypes.addressof(self._range) + start, shard.size, mmap.MADV_RANDOM)
        self._mapped[number] = True


def place(shards: Sequence[RawShard], row_bytes: int) -> tuple[int, list[int]]:
    """(base, start of each shard's file), in bytes of one range: each file starts at a page, files do not overlap, and
    every row is a whole number of rows after `base`. Raises OSError where that is impossible."""
    page = mmap.PAGESIZE
    # Page t is a start for a file if page * t + offset equals base modulo row_bytes.
    common = math.gcd(page, row_bytes)
    step = math.lcm(page, row_bytes)
    inverse = pow(page // common, -1, row_bytes // common)
    base = min(shard.offset for shard in shards) % row_bytes
    starts: list[int] = []
    end = 0
    for shard in shards:
        apart, rest = divmod(base - shard.offset, common)
        if rest:
            raise OSError(f"rows of {row_bytes} bytes at offset {shard.offset} do not align with those at {base}")
        first = page * (apart * inverse % (row_bytes // common))
        starts.append(first + max(0, -(-(end - first) // step)) * step)
        end = starts[-1] + shard.size
    return base, starts
