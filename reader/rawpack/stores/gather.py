"""Rows of many shards in one call: all shards of a raw field, mapped side by side in one range of addresses.

`np.take` is as fast as memory, but it takes one array. Shards are many files, and a loop over rows costs more than the
copies, and makes threads queue for the GIL. So each shard is mapped at a distance from the first that is a whole number
of rows *and* of pages (a multiple of their least common multiple): the rows of all shards then lie in one array with
one stride, with rows between them that nobody asks for. Addresses are plenty: 128 TiB, of which this takes what the
shards have, and the gaps.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.memory import advise, put, reserve
from rawpack.stores.contract import Array, Rows

_MAX_SPAN = 1 << 45


class Gather:
    """The rows of one field of one shape, over all shards of a store. Shards are mapped when a row of theirs is first
    asked for. Any number of threads may call at once."""

    def __init__(
        self,
        sizes: Sequence[int],
        ends: NDArray[np.int64],
        offset: int,
        dtype: np.dtype[np.generic],
        shape: tuple[int, ...],
        open_shard: Callable[[int], int],
        *,
        scattered: bool,
    ) -> None:
        """sizes: bytes of each shard's file; ends: the row after each shard's last; offset: of the first row in every
        file. open_shard: checks a shard and gives a descriptor of its file, to be closed by the caller. scattered: see
        `map_file`.

        Raises OSError where the system does not give so many addresses.
        """
        row_bytes = dtype.itemsize * math.prod(shape)
        step = math.lcm(row_bytes, mmap.PAGESIZE)
        starts = np.concatenate([[0], np.cumsum([-(-size // step) for size in sizes])])
        span = int(starts[-1]) * step + mmap.PAGESIZE
        if span > _MAX_SPAN:
            raise OSError(f"a range of {span} addresses is too long")
        self._range = reserve(span)
        virtual = (span - offset) // row_bytes
        flat: NDArray[Any] = np.frombuffer(self._range, dtype, virtual * math.prod(shape), offset)
        flat.flags.writeable = False
        self._rows = flat.reshape(virtual, -1)
        self._places = [int(start) * step for start in starts[:-1]]
        self._sizes, self._ends, self._open, self._scattered = sizes, ends, open_shard, scattered
        firsts = np.concatenate([[0], ends[:-1]])
        self._shifts = starts[:-1] * (step // row_bytes) - firsts
        self._mapped = np.zeros(len(sizes), np.bool_)

    def read_into(self, rows: Rows, out: Array) -> None:
        """Fill out[i] with the sample at rows[i], rows of the store; others raise IndexError. out: C order."""
        shards = np.searchsorted(self._ends, rows, side="right")
        if len(rows) and (rows.min() < 0 or shards.max() == len(self._sizes)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} in a store of {self._ends[-1]}")
        if not self._mapped[shards].all():
            for shard in np.unique(shards[~self._mapped[shards]]).tolist():
                self._map(shard)
        self._rows.take(rows + self._shifts[shards], axis=0, out=out.reshape(len(rows), -1), mode="clip")

    def _map(self, shard: int) -> None:
        """Put a shard at its place. Two threads may both do it: the second mapping replaces the first, of the same."""
        descriptor = self._open(shard)
        try:
            put(descriptor, self._sizes[shard], self._range, self._places[shard])
        finally:
            os.close(descriptor)
        if self._scattered:
            advise(ctypes.addressof(self._range) + self._places[shard], self._sizes[shard], mmap.MADV_RANDOM)
        self._mapped[shard] = True
