"""Stores of very many samples, opened and read here and there."""

from __future__ import annotations

import time
from itertools import islice

import data
from contract import Epoch, Settings
from rawpack import Workers

_BATCHES = 20


class Zeros:
    """The first batches of a shuffled epoch of a sparse store."""

    needs: tuple[str, ...] = ()

    def __init__(self, form: str) -> None:
        self._form = form

    def prepare(self, settings: Settings) -> None:
        data.make_zeros(settings, self._form)

    def open(self, settings: Settings) -> None:
        from rawpack import Reader

        self._settings, self._reader = settings, Reader(data.zeros_path(settings, self._form))
        if len(self._reader) < settings.samples:
            raise ValueError(f"{len(self._reader)} samples in place of {settings.samples}")

    def epoch(self, n: int) -> Epoch:
        settings = self._settings
        batches = self._reader.batches(
            settings.batch, shuffle=True, workers=Workers(settings.workers, backend=settings.backend)
        )
        batches.set_epoch(n)
        began = time.perf_counter()
        first, images = 0.0, 0
        for batch in islice(batches, _BATCHES):
            first = first or time.perf_counter() - began
            images += len(batch["image"])
        took = time.perf_counter() - began
        # Its workers stay, to be measured.
        self._batches = batches
        return Epoch(images, took, first)
