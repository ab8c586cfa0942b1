"""How many files have the bytes of another one, by their checksums, in memory that does not grow with their number."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_IN_MEMORY = 1 << 22
"""Checksums that are kept before they go to the disk: 32 MiB."""
_BUCKETS = 256


class Duplicates:
    """Checksums, spread over files by their first byte as they come; equal ones meet in one file."""

    def __init__(self, folder: Path) -> None:
        """folder: made where the checksums are many; removed by `count`, and first, if it was left there."""
        self._folder, self._spilled = folder, 0
        self._held: list[NDArray[np.uint64]] = []
        self._count = 0

    def add(self, checksums: NDArray[np.uint64]) -> None:
        """checksums: uint64 (n,), one for each file. OSError where the disk is full."""
        self._held.append(checksums)
        self._count += len(checksums)
        if self._count - self._spilled >= _IN_MEMORY:
            self._spill()

    def count(self) -> int:
        """Files whose bytes are those of an earlier one."""
        if not self._spilled:
            return _repeated(self._taken())
        self._spill()
        found = sum(_repeated(np.fromfile(path, "<u8")) for path in self._folder.iterdir())
        shutil.rmtree(self._folder)
        return found

    def _spill(self) -> None:
        if not self._spilled:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir()
        checksums = np.sort(self._taken())
        self._spilled = self._count
        edges = np.searchsorted(checksums >> np.uint64(56), np.arange(_BUCKETS + 1, dtype=np.uint64)).tolist()
        for bucket in range(_BUCKETS):
            if edges[bucket] < edges[bucket + 1]:
                with (self._folder / f"{bucket:03d}").open("ab") as file:
                    file.write(checksums[edges[bucket] : edges[bucket + 1]].astype("<u8").tobytes())

    def _taken(self) -> NDArray[np.uint64]:
        held, self._held = self._held, []
        return np.concatenate([np.empty(0, np.uint64), *held])


def _repeated(checksums: NDArray[np.uint64]) -> int:
    ordered = np.sort(checksums)
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))
