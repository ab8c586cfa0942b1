"""Rows of many shards in one call: all shards of a raw field, mapped side by side in one range of addresses.

`np.take` is as fast as memory, but it takes one array. Shards are many files, and a loop over rows costs more than the
copies, and makes threads queue for the GIL. So each shard is mapped, in whole pages, where its rows are a whole number
of rows away from those of the others: the rows of all shards are then in one array with one stride, with rows between
them that nobody asks for. Addresses are plenty: 128 TiB, of which this takes what the shards have, and the gaps.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.formats.field_reader import Array, Rows
from rawpack.system.memory import advise, put, reserve

_MAX_SPAN = 1 << 45


@dataclass(frozen=True)
class RawShard:
    """One shard of a raw field, as `Gather` needs to know it."""

    rows: int
    size: int
    """Bytes of its file."""
    offset: int
    """Of its first row in the file."""
    open: Callable[[], tuple[int, int]]
    """Checks the shard; gives a descriptor, for the caller to close, and where in it the file begins: whole pages."""


class Gather:
    """The rows of one field of one shape, over many shards, of one store or of several. Shards are mapped when a row of
    theirs is first asked for. Any number of threads may call at once."""

    def __init__(
        self, shards: Sequence[RawShard], dtype: np.dtype[np.generic], shape: tuple[int, ...], *, random_access: bool
    ) -> None:
        """random_access: see `map_file`.

        Raises OSError where the system does not give so many addresses, and where the first rows are at such offsets
        of their files that no pages bring them a whole number of rows apart.
        """
        row_bytes = dtype.itemsize * math.prod(shape)
        base, self._places = place(shards, row_bytes)
        span = self._places[-1] + shards[-1].size + mmap.PAGESIZE
        if span > _MAX_SPAN:
            raise OSError(f"a range of {span} addresses is too large")
        self._range = reserve(span)
        virtual = (span - base) // row_bytes
        flat: NDArray[Any] = np.frombuffer(self._range, dtype, virtual * math.prod(shape), base)
        flat.flags.writeable = False
        self._rows = flat.reshape(virtual, -1)
        self._shards, self._random_access = shards, random_access
        self._ends = np.cumsum([shard.rows for shard in shards], dtype=np.int64)
        firsts = np.concatenate([[0], self._ends[:-1]])
        virtual_firsts = [
            (start + shard.offset - base) // row_bytes for start, shard in zip(self._places, shards, strict=True)
        ]
        self._shifts = np.array(virtual_firsts, np.int64) - firsts
        self._mapped = np.zeros(len(shards), np.bool_)

    def read_into(self, rows: Rows, out: Array) -> None:
        """Fill out[i] with the sample at rows[i], counted through all shards; others raise IndexError. out: C order."""
        shards = np.searchsorted(self._ends, rows, side="right")
        if len(rows) and (rows.min() < 0 or shards.max() == len(self._shards)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {self._ends[-1]}")
        if not self._mapped[shards].all():
            for shard in np.unique(shards[~self._mapped[shards]]).tolist():
                self._map(shard)
        self._rows.take(
            rows + self._shifts[shards], axis=0, out=out.reshape(len(rows), self._rows.shape[1]), mode="clip"
        )

    def _map(self, number: int) -> None:
        """Put a shard at its place. Two threads may both do it: the second mapping replaces the first, of the same."""
        shard, start = self._shards[number], self._places[number]
        descriptor, begin = shard.open()
        try:
            put(descriptor, begin, shard.size, self._range, start)
        finally:
            os.close(descriptor)
        if self._random_access:
            advise(ctypes.addressof(self._range) + start, shard.size, mmap.MADV_RANDOM)
        self._mapped[number] = True


def place(shards: Sequence[RawShard], row_bytes: int) -> tuple[int, list[int]]:
    """(base, where each shard's file begins), in bytes of one range: files begin pages and do not overlap, and rows
    are whole numbers of rows after `base`. Raises OSError where that is impossible."""
    page = mmap.PAGESIZE
    # A file that begins at page t has its first row where page * t + offset = base, modulo the bytes of a row.
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
