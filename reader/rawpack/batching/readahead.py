"""Asking the disk for what an epoch comes to, in the order in which it lies there.

An order goes through a store in regions: the windows of a block shuffle, which are blocks of neighbours, or so many
samples of any other order. Two regions are asked for ahead of the batches, the one that they are in and the next, each
from its first file to its last. So the disk reads long runs and its head moves one way, though batches jump about.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from rawpack.batching.iterator import EpochStep
from rawpack.errors import RawpackError

THREAD = "rawpack disk"
"""What the threads that ask are called."""
_LOOKS = 16
"""Batches of a region of which one sample is looked at, whether it lies in the page cache."""
_PIECE = 64
"""Samples that are asked for in one go: between two, it is seen whether somebody still wants them."""


class Readahead(Iterator[EpochStep]):
    """The steps of one epoch. Used by one thread at a time."""

    def __init__(
        self,
        steps: Iterator[EpochStep],
        position: int,
        region_end: Callable[[int], int],
        is_cached: Callable[[int], bool],
        need: Callable[[NDArray[np.int64]], None],
        most: int,
    ) -> None:
        """position: where the steps begin, in samples of all ranks. region_end: up to which position the region of one
        goes. is_cached: whether a row is in the page cache. need: asks the disk for rows, (n,), and may take as long as
        it reads. most: so many samples of a region are asked for at once; memory must hold twice as many."""
        self._steps, self._at, self._region_end, self._most = steps, position, region_end, max(1, most)
        self._is_cached, self._need = is_cached, need
        self._regions: deque[deque[EpochStep]] = deque()
        self._thread: threading.Thread | None = None
        self._unwanted = threading.Event()
        self._over = False

    def __next__(self) -> EpochStep:
        while len(self._regions) < 2 and not self._over:
            self._enter()
        if not self._regions:
            raise StopIteration
        step = self._regions[0].popleft()
        if not self._regions[0]:
            self._regions.popleft()
        return step

    def close(self) -> None:
        """Nothing is wanted any more. Does not wait."""
        self._unwanted.set()

    def _enter(self) -> None:
        """Find the steps of the next region, and have the disk asked for what they read."""
        first = next(self._steps, None)
        if first is None:
            self._over = True
            return
        region, samples, end = deque([first]), first.rows.size, self._region_end(self._at)
        self._at = first.position
        while self._at < end and samples < self._most:
            step = next(self._steps, None)
            if step is None:
                self._over = True
                break
            region.append(step)
            samples += step.rows.size
            self._at = step.position
        self._regions.append(region)
        if not self._all_cached(region):
            rows = np.unique(np.concatenate([step.rows.reshape(-1) for step in region]))
            # One after another: a thread ends by itself, whatever becomes of this object.
            arguments = self._need, rows, region, self._unwanted, self._thread
            thread = threading.Thread(target=_ask, args=arguments, name=THREAD, daemon=True)
            with contextlib.suppress(RuntimeError):  # where none can be had, workers read without it
                thread.start()
                self._thread = thread

    def _all_cached(self, region: deque[EpochStep]) -> bool:
        looked_at = list(region)[:: -(-len(region) // _LOOKS)]
        # What is damaged or gone is a matter for the worker that reads it, and names the sample.
        with contextlib.suppress(RawpackError, OSError):
            return all(self._is_cached(int(step.rows.flat[0])) for step in looked_at)
        return True


def _ask(
    need: Callable[[NDArray[np.int64]], None],
    rows: NDArray[np.int64],
    region: deque[EpochStep],
    unwanted: threading.Event,
    before: threading.Thread | None,
) -> None:
    """Ask for rows of a region, once the thread before has asked for its own; until all steps of the region are out."""
    if before is not None:
        before.join()
    for start in range(0, len(rows), _PIECE):
        if unwanted.is_set() or not region:
            return
        with contextlib.suppress(RawpackError, OSError):
            need(rows[start : start + _PIECE])
