"""Decides whether, when and for which samples the system is asked to read ahead from the disk.

Asking takes time, so the system is not asked for what is in the page cache. There are two methods, and both may be in
use:

- By region. An order goes through a store in regions: the windows of a block shuffle, which are blocks of neighbors, or
  a number of samples of any other order. The disk is asked for two regions in advance, the one that the batches are in
  and the next, each from its first file to its last. So the disk reads long runs, though batches jump about.
- By batch, when a batch is given out, or is about to be read here. The disk is asked if whoever reads had to wait for
  it recently, or if one of the batch's samples is not cached: without workers each batch is checked, otherwise one now
  and then.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import RawpackError
from rawpack.order.launcher import ranks_here
from rawpack.order.steps import EpochStep
from rawpack.samples.field_rows import OWN_ROWS, FieldRows
from rawpack.store.stores import Stores
from rawpack.system import machine
from rawpack.system.memory import major_faults

THREAD = "rawpack disk"
_WARM_TASKS = 32
"""After this many tasks in which no worker waited for the disk, everything is assumed to be cached."""
_LOOK_EVERY = 8
"""One of this many batches is checked for being in the page cache: that costs a hundredth of a batch of raw images, and
a worker that waits for the disk reports it anyway."""
_MEMORY_SHARE = 1 / 8
"""The share of free memory for one region; as much again is for the next."""
_MOST_SAMPLES = 1 << 16
_LOOKS = 16
"""Batches of a region of which one sample is checked for being in the page cache."""
_PIECE = 64
"""Samples that are asked for at once; then it is checked whether the rest are still wanted."""


class Readers(Protocol):
    """Workers, as a `WorkerPool` counts what they read."""

    tasks_since_disk_wait: int


class OwnReads:
    """What this process reads itself: all fields if there are no workers."""

    def __init__(self, library: Stores, workers: int) -> None:
        # Where it cannot be checked whether samples are cached, the first batches are taken for cold.
        self.since_disk_wait = _WARM_TASKS if workers or library.tells_cached else 0
        """Batches that were read since this process waited for the disk."""

    def note(self, faults: int) -> None:
        """Samples of one batch were read. faults: `major_faults` before."""
        self.since_disk_wait = 0 if major_faults() > faults else self.since_disk_wait + 1


class Readahead:
    """The policy of one iterator. Used by one thread at a time."""

    def __init__(
        self,
        library: Stores,
        names: Sequence[str],
        pool: Readers | None,
        own_reads: OwnReads,
        field_rows: FieldRows = OWN_ROWS,
    ) -> None:
        """names: the fields of a batch. pool: the workers that read them; None where this process reads. field_rows:
        which rows each field is read from."""
        self._library, self._pool, self.own_reads, self._field_rows = library, pool, own_reads, field_rows
        self._images = [name for name in names if library.fields[name].in_shards and name in library.random_access]
        self._unseen = _LOOK_EVERY
        """Batches since one was checked."""

    @property
    def useful(self) -> bool:
        return bool(self._images)

    def ask(self, rows: NDArray[np.int64]) -> None:
        for name in self._images:
            self._library.readahead(name, self._field_rows.of(name, rows))

    def ask_if_cold(self, rows: NDArray[np.int64]) -> None:
        """The same, unless the first of the samples is in the page cache and nobody had to wait recently.

        One is enough: whoever reads the rest reports what it misses. No page is touched: if the file was cut short,
        that would end this process.
        """
        if self._images and (self.readers_wait or not all(map(self._is_cached, rows.flat[:1].tolist()))):
            self.ask(rows)

    def before_batch(self, rows: NDArray[np.int64]) -> None:
        if not self._images:
            return
        try:
            if self.readers_wait:
                self.ask(rows)
                return
            self._unseen += 1
            if self._unseen >= _LOOK_EVERY:
                self._unseen = 0
                self.ask_if_cold(rows)
        except RawpackError:
            pass  # a damaged shard is reported by the worker that reads it, with the sample's name

    def by_region(
        self, steps: Iterator[EpochStep], position: int, region_end: Callable[[int], int], world_size: int
    ) -> RegionSteps:
        """The same steps; the disk is asked for them by region. position, region_end: see `RegionSteps`."""
        free, most = machine.available_memory_bytes(), _MOST_SAMPLES
        if free is not None:
            # Ranks on one machine share its memory.
            share = free * _MEMORY_SHARE / ranks_here(world_size)
            stored = self._library.shard_bytes / max(1, len(self._library))
            most = min(most, int(share / max(1.0, stored)))
        # Where the system does not tell, all that is known is whether somebody had to wait.
        is_cached = self._is_cached if self._library.tells_cached else lambda row: not self.readers_wait
        return RegionSteps(steps, position, region_end, is_cached, self.ask, most)

    @property
    def workers_wait(self) -> bool:
        """Whether a worker has waited for the disk recently."""
        return self._pool is not None and self._pool.tasks_since_disk_wait < _WARM_TASKS

    @property
    def readers_wait(self) -> bool:
        """Whether a worker, or this process, has waited for the disk recently."""
        return self.workers_wait or self.own_reads.since_disk_wait < _WARM_TASKS

    def _is_cached(self, row: int) -> bool:
        return all(self._library.is_cached(name, row) for name in self._images)


class RegionSteps(Iterator[EpochStep]):
    """The steps of one epoch; the disk is asked for them by region. Used by one thread at a time."""

    def __init__(
        self,
        steps: Iterator[EpochStep],
        position: int,
        region_end: Callable[[int], int],
        is_cached: Callable[[int], bool],
        ask: Callable[[NDArray[np.int64]], None],
        most: int,
    ) -> None:
        """position: where the steps begin, in samples of all ranks. region_end: where the region of a position
        ends. is_cached: whether a row is in the page cache. ask: asks the disk for rows, (n,), and may take as long as
        it reads. most: the most samples of a region; memory must hold twice as many."""
        self._steps, self._at, self._region_end, self._most = steps, position, region_end, max(1, most)
        self._is_cached, self._ask = is_cached, ask
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
            # A thread waits for the one before it, and does not refer to this object.
            arguments = self._ask, rows, region, self._unwanted, self._thread
            thread = threading.Thread(target=_ask_all, args=arguments, name=THREAD, daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: workers read without readahead
                thread.start()
                self._thread = thread

    def _all_cached(self, region: deque[EpochStep]) -> bool:
        looked_at = list(region)[:: -(-len(region) // _LOOKS)]
        # A worker reports what is damaged or gone, with the sample's name.
        with contextlib.suppress(RawpackError, OSError):
            return all(self._is_cached(int(step.rows.flat[0])) for step in looked_at)
        return True


def _ask_all(
    ask: Callable[[NDArray[np.int64]], None],
    rows: NDArray[np.int64],
    region: deque[EpochStep],
    unwanted: threading.Event,
    before: threading.Thread | None,
) -> None:
    """Ask for rows of a region when the thread before has asked for its own, while steps of the region are left."""
    if before is not None:
        before.join()
    for start in range(0, len(rows), _PIECE):
        if unwanted.is_set() or not region:
            return
        with contextlib.suppress(RawpackError, OSError):
            ask(rows[start : start + _PIECE])
