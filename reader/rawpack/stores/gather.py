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
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.stores.contract import Array, Rows

_MAX_SPAN = 1 << 45
_PROT_NONE, _PROT_READ = 0, 1
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED = 0x01, 0x02, 0x10
_MAP_ANONYMOUS, _MAP_NORESERVE = 0x20, 0x4000
_FAILED = ctypes.c_void_p(-1).value


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
        if not sys.platform.startswith("linux") or span > _MAX_SPAN:
            raise OSError(f"no range of {span} addresses here")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self._libc.munmap.argtypes = self._libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._base = self._mmap(None, span, _PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE, -1)
        whole: Any = (ctypes.c_char * span).from_address(self._base)
        weakref.finalize(whole, self._libc.munmap, self._base, span)
        virtual = (span - offset) // row_bytes
        self._rows: NDArray[Any] = np.frombuffer(whole, dtype, virtual * math.prod(shape), offset).reshape(virtual, -1)
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
            place, size = self._base + self._places[shard], self._sizes[shard]
            self._mmap(place, size, _PROT_READ, _MAP_SHARED | _MAP_FIXED, descriptor)
            if self._scattered:
                self._libc.madvise(place, size, mmap.MADV_RANDOM)
        finally:
            os.close(descriptor)
        self._mapped[shard] = True

    def _mmap(self, place: int | None, size: int, protection: int, flags: int, descriptor: int) -> int:
        address = self._libc.mmap(place, size, protection, flags, descriptor, 0)
        if address is None or address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return int(address)
