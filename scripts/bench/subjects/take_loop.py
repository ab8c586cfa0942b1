"""The bare limit of small images: one process, one `np.take` a batch into a buffer that is used again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import data
from contract import Epoch, Pixels, Settings, consume


class TakeLoop:
    """A loop over a permutation, without an iterator of anybody's."""

    needs: tuple[str, ...] = ()

    def prepare(self, settings: Settings) -> None:
        data.make_array(settings)

    def open(self, settings: Settings) -> None:
        self._settings = settings
        self._images = np.asarray(np.load(data.array_path(settings), mmap_mode="r"))

    def epoch(self, n: int) -> Epoch:
        return consume(self._batches(n), self._settings.consumer)

    def _batches(self, n: int) -> Iterator[Pixels]:
        batch, flat = self._settings.batch, self._images.reshape(len(self._images), -1)
        out = np.empty((batch, *self._settings.shape), np.uint8)
        rows = np.random.default_rng(n).permutation(len(flat))
        for start in range(0, len(rows), batch):
            chosen = rows[start : start + batch]
            np.take(flat, chosen, axis=0, out=out[: len(chosen)].reshape(len(chosen), -1), mode="clip")
            yield out[: len(chosen)]
