"""Keeps the workers and slots that no iterator is using for the next one."""

from __future__ import annotations

import os
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rawpack.ahead.steps import EpochStart, EpochStep
from rawpack.workers.slots import SlotPool

if TYPE_CHECKING:
    from rawpack.workers.pool import Pending, WorkerPool

Begun = deque[tuple[EpochStep, "Pending"]]
"""Batches in the making, in order."""


@dataclass(frozen=True)
class WorkerSet:
    """Workers and slots, and what an iterator left in them."""

    pool: WorkerPool | None
    """None where this process does the work."""
    slot_pool: SlotPool
    begun: Begun = field(default_factory=deque)
    """Batches in the making."""
    start: EpochStart | None = None
    """They are the first ones of an iterator with this start; None where nobody wants them."""

    def close(self) -> None:
        """End the workers, and let go of the slots."""
        if self.pool is not None:
            self.pool.close()
        self.slot_pool.close()


class PoolCache:
    """The idle workers and slots of one `Batches`. They end with this object, in the process that made it."""

    def __init__(self) -> None:
        self._idle: list[WorkerSet] = []
        self._closed = False
        self._process = os.getpid()
        weakref.finalize(self, _close, self._idle, self._process)

    def acquire(self, start: EpochStart) -> WorkerSet | None:
        """An idle set for an iterator with this start; None where there is none. `begun` has the iterator's first
        batches that the set is making already; whatever else it was making is finished first."""
        while self._idle:
            try:
                # Stable: the last of those that fit, else the last of all.
                last = max(range(len(self._idle)), key=lambda k: (self._idle[k].start == start, k))
                worker_set = self._idle.pop(last)
            except (IndexError, ValueError):
                continue  # another thread took one
            if worker_set.start == start:
                return worker_set
            if worker_set.pool is None or worker_set.pool.drain():
                for _, pending in worker_set.begun:
                    worker_set.slot_pool.put_back(pending.slot)
                return WorkerSet(worker_set.pool, worker_set.slot_pool)
            self.discard(worker_set)
        return None

    def give_back(self, worker_set: WorkerSet) -> None:
        """An iterator is done with a set."""
        if self._closed:
            self.discard(worker_set)
        else:
            self._idle.append(worker_set)

    def close(self) -> None:
        """End the idle sets now, and each other one when it is given back."""
        self._closed = True
        _close(self._idle, self._process)

    def discard(self, worker_set: WorkerSet) -> None:
        """Something went wrong in a set: nobody may use it again."""
        _close([worker_set], self._process)


def _close(worker_sets: list[WorkerSet], process: int) -> None:
    """In the process that started them."""
    if os.getpid() == process:
        for worker_set in worker_sets:
            worker_set.close()
        worker_sets.clear()
