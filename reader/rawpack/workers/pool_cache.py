"""What is kept between the epochs of one `Batches`: workers and slots, idle or in use."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable

from rawpack.order.steps import EpochStart
from rawpack.workers.source import BatchSource


class PoolCache:
    """The sources of one `Batches`, idle or not. They end with this object, in the process that made it."""

    def __init__(self) -> None:
        self._idle: list[BatchSource] = []
        self._taken = set[BatchSource]()
        """Those that iterators have."""
        self._closed = False
        self._process = os.getpid()
        weakref.finalize(self, _close, self._idle, self._process)
        # Where an iterator is garbage together with this object, its `__del__` may come too late to close them. Not at
        # exit, when another thread may still wait for a batch.
        weakref.finalize(self, _close, self._taken, self._process).atexit = False

    def acquire(
        self, start: EpochStart, make: Callable[[], BatchSource], outdated: Callable[[BatchSource], bool]
    ) -> BatchSource:
        """A source for an iterator with this start: an idle one, best one that has begun its first batches, else what
        `make` returns. Idle ones that are `outdated` are ended."""
        for source in tuple(self._idle):
            if outdated(source):
                try:
                    self._idle.remove(source)
                except ValueError:
                    continue  # another thread took or closed it
                self.discard(source)
        source = self._idle_one(start) or make()
        self._taken.add(source)
        return source

    def _idle_one(self, start: EpochStart) -> BatchSource | None:
        while self._idle:
            try:
                # Stable: the last of those that fit, else the last of all.
                last = max(range(len(self._idle)), key=lambda k: (self._idle[k].start == start, k))
                source = self._idle.pop(last)
            except (IndexError, ValueError):
                continue  # another thread took one
            if source.start == start or source.free():
                return source
            self.discard(source)
        return None

    def give_back(self, source: BatchSource) -> None:
        self._taken.discard(source)
        source.give_back()
        self._idle.append(source)
        if self._closed:  # asked last, as another thread may be closing
            self.close()

    def close(self) -> None:
        """End the idle sources now, and each other one when it is given back."""
        self._closed = True
        _close(self._idle, self._process)

    def discard(self, source: BatchSource) -> None:
        """Something went wrong in a source: nobody may use it again."""
        self._taken.discard(source)
        _close([source], self._process)


def _close(sources: list[BatchSource] | set[BatchSource], process: int) -> None:
    """In the process that started them. Several threads may do so at once: each source is closed by one of them."""
    while os.getpid() == process and sources:
        try:
            source = sources.pop()
        except (IndexError, KeyError):
            return  # another thread took the last one
        source.close()
