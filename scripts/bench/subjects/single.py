"""Samples by their indices, in this process, by this project's reader and by numpy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import data
from contract import Epoch, Settings

_SAMPLES = 4096
"""In one epoch."""


class Single:
    """Random samples of the memmap store, one after another or a batch at a time."""

    needs: tuple[str, ...] = ()

    def __init__(self, how: Callable[[Any], Callable[[Any], Any]], batch: int = 1) -> None:
        """how: given the settings, returns what reads one sample by its row, or several by theirs."""
        self._how, self._batch = how, batch

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, "memmap")

    def open(self, settings: Settings) -> None:
        self._read = self._how(settings)
        self._samples = sum(map(len, data.shards(settings)))

    def epoch(self, n: int) -> Epoch:
        rows = np.random.default_rng(n).integers(0, self._samples, _SAMPLES)
        chosen = rows.tolist() if self._batch == 1 else rows.reshape(-1, self._batch)
        began = time.perf_counter()
        for one in chosen:
            self._read(one)
        return Epoch(_SAMPLES, time.perf_counter() - began)


def by_numpy(settings: Settings) -> Callable[[Any], Any]:
    """A new array of a row of the shard that it is in."""
    shards = data.shards(settings)
    size = len(shards[0])
    return lambda row: np.array(shards[row // size][row % size])


def by_reader(settings: Settings) -> Callable[[Any], Any]:
    """All fields of samples, as `Reader[...]` gives them."""
    from rawpack import Reader

    return Reader(data.store_path(settings, "memmap")).__getitem__


def by_batches(settings: Settings) -> Callable[[Any], Any]:
    """As many samples, all fields of them, as a batch that this process makes; which ones is up to the order."""
    from rawpack import Reader

    reader = Reader(data.store_path(settings, "memmap"))
    batches = reader.batches(
        min(settings.batch, len(reader)), shuffle=True, workers=0, fields=list(reader.fields), drop_last=True
    )

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            yield from batches

    read = endless()
    return lambda rows: next(read)
