"""The bare limit of compressed HDF5: processes that inflate chunks lying in their memory, and nothing else."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator

import numpy as np

import data
from contract import Epoch, Settings
from subjects.team import WorkerSet

_CHUNKS = 1000
"""That a process has: more than its caches hold, and little memory."""


class InflateLimit:
    """The chunks of the compressed hdf5 store, one a sample, each inflated whole by Python's zlib, as rawpack does."""

    needs: tuple[str, ...] = ("h5py",)

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, data.GZIP)

    def open(self, settings: Settings) -> None:
        self._seconds = settings.seconds
        self._team = WorkerSet(settings.workers or 1, inflate, settings)

    def epoch(self, n: int) -> Epoch:
        return self._team.run(self._seconds)


def inflate(number: int, of: int, settings: Settings) -> Iterator[int]:
    """Inflate one chunk after another: see `Share`."""
    chunks = data.chunks(settings, _CHUNKS * of)[number::of]
    order = np.random.default_rng(number).permutation(len(chunks)).tolist()
    size = math.prod(settings.shape)
    yield 0
    while True:
        for k in order:
            zlib.decompress(chunks[k], bufsize=size)
            yield 1
