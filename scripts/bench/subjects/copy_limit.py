"""The bare limit of raw stores: processes that copy shuffled rows of a warm mapped file, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import data
from contract import Epoch, Settings
from subjects.team import WorkerSet


class CopyLimit:
    """One `np.take` a batch into a buffer that is used again: one that numpy places, or whole large pages, into which
    the same copy is faster on some machines."""

    needs: tuple[str, ...] = ()

    def __init__(self, *, large_pages: bool = False) -> None:
        self._large_pages = large_pages

    def prepare(self, settings: Settings) -> None:
        data.make_array(settings)

    def open(self, settings: Settings) -> None:
        self._seconds = settings.seconds
        path = str(data.array_path(settings))
        self._team = WorkerSet(settings.workers or 1, copy, path, settings.batch, self._large_pages)

    def epoch(self, n: int) -> Epoch:
        return self._team.run(self._seconds)


def copy(number: int, of: int, path: str, batch: int, large_pages: bool) -> Iterator[int]:
    """Copy rows by rows: see `Share`."""
    images = np.load(path, mmap_mode="r")
    flat = np.asarray(images).reshape(len(images), -1)
    out = np.ones((batch, flat.shape[1]), np.uint8)
    if large_pages:
        from rawpack.system.memory import prefer_huge_pages, private_memory

        memory = private_memory(out.nbytes)
        prefer_huge_pages(memory)
        out = np.frombuffer(memory, np.uint8).reshape(out.shape)
        out[...] = 1
    random = np.random.default_rng(number)
    # One byte of every page: afterwards the whole file is in this process's page table.
    int(flat.reshape(-1)[::4096].sum())
    yield 0
    while True:
        rows = random.permutation(len(flat))
        for start in range(0, max(1, len(rows) - batch + 1), batch):
            chosen = rows[start : start + batch]
            np.take(flat, chosen, axis=0, out=out[: len(chosen)], mode="clip")
            yield len(chosen)
