"""One pass over one epoch: batches in order, made ahead of time."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.batching.crew import Crew, Pending
from rawpack.batching.slots import SlotRing
from rawpack.batching.work import INDEX, Filler, blame
from rawpack.errors import RawpackError

Batch = dict[str, Any]
_SLICE_BYTES = 1 << 18
"""A batch is cut into no more slices than have this many bytes: below, the messages cost more than the work."""


@dataclass(frozen=True)
class Step:
    """The next batch of an epoch, before anything is read."""

    rows: NDArray[np.int64]
    """int64 (n,): which samples, rows of the reader."""
    position: int
    """Samples of the epoch that all ranks together have consumed when this batch has been handed over."""


class BatchIterator(Iterator[Batch]):
    """Hands over the batches of one epoch. Used by one thread at a time, in the process that made it."""

    def __init__(
        self,
        steps: Iterator[Step],
        crew: Crew | None,
        ring: SlotRing,
        filler: Filler,
        texts: Callable[[NDArray[np.int64]], dict[str, list[str]]],
        *,
        seed: int,
        epoch: int,
        ahead: int,
        on_hand_over: Callable[[Step, float, float], None],
        on_end: Callable[[Crew | None, SlotRing, bool], None],
    ) -> None:
        """crew: None to do all in this process. on_end: told once, with whether workers and slots are in order."""
        self._steps, self._crew, self._ring, self._filler, self._texts = steps, crew, ring, filler, texts
        self._seed, self._epoch, self._ahead = seed, epoch, ahead
        self._on_hand_over, self._on_end = on_hand_over, on_end
        self._pending: deque[tuple[Step, Pending]] = deque()
        self._owner = os.getpid()
        self._ended = False
        self._busy = False

    def __next__(self) -> Batch:
        if self._ended:
            raise StopIteration
        if os.getpid() != self._owner:
            raise RawpackError("this iterator belongs to the process it was made in; call iter() again after a fork")
        if self._busy:
            raise RawpackError("two threads use one iterator at once; give each its own iter()")
        self._busy = True
        try:
            return self._here() if self._crew is None else self._from_crew(self._crew)
        except StopIteration:
            self.close()
            raise
        except BaseException:
            self._end(in_order=False)
            raise
        finally:
            self._busy = False

    def close(self) -> None:
        """End the iteration early: workers finish what they are at, and wait for the next epoch."""
        if not self._ended and os.getpid() == self._owner:
            self._end(in_order=self._crew is None or self._crew.drain())

    def __del__(self) -> None:
        # Never waits: a forgotten iterator's workers are ended rather than drained.
        if not getattr(self, "_ended", True) and os.getpid() == self._owner:
            self._end(in_order=not self._pending)

    def _here(self) -> Batch:
        step = next(self._steps)
        began = time.perf_counter()
        slot = self._ring.acquire()
        views = self._ring.layout.views(slot.memory, len(step.rows))
        views[INDEX][:] = step.rows
        try:
            self._filler.fill(views, 0, len(step.rows))
        except Exception as error:
            raise blame(self._filler, views, error) from error
        took = time.perf_counter() - began
        return self._hand_over(step, Pending(slot, len(step.rows), self._seed, self._epoch, read_s=took), took)

    def _from_crew(self, crew: Crew) -> Batch:
        self._submit(crew)
        if not self._pending:
            raise StopIteration
        step, pending = self._pending.popleft()
        self._submit(crew)
        began = time.perf_counter()
        crew.wait(pending)
        return self._hand_over(step, pending, time.perf_counter() - began)

    def _submit(self, crew: Crew) -> None:
        """Keep `ahead` batches in the making."""
        while len(self._pending) < self._ahead:
            step = next(self._steps, None)
            if step is None:
                return
            rows = len(step.rows)
            pending = Pending(self._ring.acquire(), rows, self._seed, self._epoch)
            views = self._ring.layout.views(pending.slot.memory, rows)
            views[INDEX][:] = step.rows
            size = self._ring.layout.size * rows // self._ring.layout.batch_size
            crew.submit(pending, max(1, min(len(crew), size // _SLICE_BYTES)))
            self._pending.append((step, pending))

    def _hand_over(self, step: Step, pending: Pending, waited_s: float) -> Batch:
        batch: Batch = self._ring.hand_over(pending.slot, pending.rows)
        batch.update(self._texts(step.rows))
        self._on_hand_over(step, waited_s, pending.read_s)
        return batch

    def _end(self, *, in_order: bool) -> None:
        self._ended = True
        if in_order:
            for _, pending in self._pending:
                self._ring.put_back(pending.slot)
        self._pending.clear()
        self._on_end(self._crew, self._ring, in_order)
