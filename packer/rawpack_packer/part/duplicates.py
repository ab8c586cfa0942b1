"""Counts duplicate files by their checksums, in bounded memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_IN_MEMORY = 1 << 22
"""Checksums that are kept in memory before they are written to disk: 32 MiB."""
_BUCKETS = 256


class Duplicates:
    """Checksums, distributed over files by their first byte, so that equal ones end up in the same file."""

    def __init__(self, folder: Path) -> None:
        """folder: created for many checksums, after removing what an earlier run left there; removed by `count`."""
        self._folder, self._spilled = folder, 0
        self._held: list[NDArray[np.uint64]] = []
        self._count = 0

    def add(self, checksums: NDArray[np.uint64]) -> None:
        """checksums: uint64 (n,), one for each file. Raises OSError if the disk is full."""
        self._held.append(checksums)
        self._count += len(checksums)
        if self._count - self._spilled >= _IN_MEMORY:
            self._spill()

    def count(self) -> int:
        """The number of files with the same bytes as an earlier one."""
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
