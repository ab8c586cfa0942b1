"""The bare limit of JPEG stores: processes that decode JPEG files lying in their memory, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import data
from contract import Epoch, Settings
from subjects.team import WorkerSet


class DecodeLimit:
    """The files of the lmdb store, each decoded whole into a buffer that is used again."""

    needs: tuple[str, ...] = ("lmdb", "simplejpeg")

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, "lmdb")

    def open(self, settings: Settings) -> None:
        self._seconds = settings.seconds
        self._team = WorkerSet(settings.workers or 1, decode, settings)

    def epoch(self, n: int) -> Epoch:
        return self._team.run(self._seconds)


def decode(number: int, of: int, settings: Settings) -> Iterator[int]:
    """Decode one file after another: see `Share`."""
    import simplejpeg

    files = data.jpegs(settings)[number::of]
    order = np.random.default_rng(number).permutation(len(files)).tolist()
    out = np.ones(settings.shape, np.uint8)
    yield 0
    while True:
        for k in order:
            simplejpeg.decode_jpeg(files[k], "RGB", buffer=out)
            yield 1
