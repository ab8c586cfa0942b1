"""The two ways in which batches are made, by this process or by workers, each in slots of its own."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from rawpack.ahead.readahead import Readahead
from rawpack.errors import RawpackError, WorkerError
from rawpack.order.steps import EpochStart, EpochStep, EpochSteps, samples, write
from rawpack.system.memory import major_faults
from rawpack.system.times import Times
from rawpack.words import ROWS
from rawpack.workers.fill import BatchFiller, blame, most_copied_slices, most_slices
from rawpack.workers.slots import Slot, SlotPool

if TYPE_CHECKING:
    from rawpack.ahead.prefetch import Prefetch
    from rawpack.workers.pool import Pending, WorkerPool
    from rawpack.workers.sent import SentSteps

Batch = dict[str, Any]


class BatchSource(ABC):
    """Makes the batches that one iterator after another wants. Used by one thread at a time."""

    pool: WorkerPool | None = None
    sent: SentSteps | None = None
    """The steps of the transform as worker processes got them; None where there are none, or they are the caller's
    own."""

    def __init__(self, filler: BatchFiller, slot_pool: SlotPool, together: int, seed: int, times: Times) -> None:
        """together: how many batches are made at once, in one slot. times: what making them took is added."""
        self.slot_pool, self._filler, self._most_together, self._seed, self._times = (
            slot_pool, filler, together, seed, times,
        )  # fmt: skip
        self.slots_s = 0.0
        """How long it has waited for memory; whoever reads it may reset it."""
        self.start: EpochStart | None = None
        """Of the iterator that has it, or whose first batches are begun; None where nobody wants these."""
        self._made = deque[tuple[EpochStep, Batch]]()

    def want(
        self,
        start: EpochStart,
        steps: EpochSteps,
        readahead: Readahead,
        prefetch: Prefetch | None,
        follow: Callable[[], Iterator[EpochStep]],
        *,
        copies_small: bool = True,
    ) -> None:
        """From now on, these batches, in this order: all of an iterator with this start, also those that are begun.

        prefetch: `steps`, where files must be fetched first. follow: the steps of the next epoch, asked for when all of
            this one are begun. copies_small: whether small arrays are copied out of their slot: not where all are sent
            to a device.
        """
        self.start = start
        self._steps, self._close_steps, self.prefetch = steps, steps.close, prefetch
        self._readahead, self._follow, self._copies_small = readahead, follow, copies_small
        self._together = self._most_together

    def take(self) -> tuple[EpochStep, Batch]:
        """The next batch, without what comes besides its slot. Raises StopIteration at the end of the epoch, and errors
        with the sample's name; after an error, the source can only be closed."""
        if not self._made:
            self._make()
        return self._made.popleft()

    def give_back(self) -> None:
        """No more is wanted of this epoch. What is begun of the next one stays for whoever wants that."""
        assert self.start is not None
        self.start = self.start.next_epoch
        self._forget()

    def free(self) -> bool:
        """Stop making what is begun, so that something else can be wanted; False where that cannot be."""
        self.start = None
        return True

    def close(self) -> None:
        """End the workers, and let go of the slots."""
        self._forget()
        self.slot_pool.close()

    def _forget(self) -> None:
        self._made.clear()
        if hasattr(self, "_steps"):
            self._close_steps()
            # They refer to the batches that end this source when they are garbage.
            del self._steps, self._close_steps, self.prefetch, self._follow, self._readahead

    @abstractmethod
    def _make(self) -> None:
        """Put the next batches into `_made`, those of one slot. Raises StopIteration where there are none."""

    def _slot(self) -> Slot:
        began = time.perf_counter()
        slot = self.slot_pool.acquire()
        self.slots_s += time.perf_counter() - began
        return slot

    def _divide(self, steps: Sequence[EpochStep], whole: Batch) -> None:
        """Batches that are in one slot are there; `whole` is all of them as one."""
        del whole[ROWS]
        end, layout = 0, self.slot_pool.layout
        for step in steps:
            start, end = end, end + len(step.rows)
            most, batch = layout.own_bytes(end - start, step.bucket) if self._copies_small else -1, dict[str, Any]()
            for name, array in whole.items():
                part = array[start:end]
                batch[name] = part.copy() if part.nbytes <= most else part
            self._made.append((step, batch))


class Here(BatchSource):
    """Makes batches in this process, each when it is taken."""

    def _make(self) -> None:
        steps = list(islice(self._steps, self._together))
        if not steps:
            raise StopIteration
        assert self.start is not None
        # Where several are read at once, all buckets are alike.
        bucket = steps[0].bucket
        filler = self._filler.of_bucket(bucket)
        whole: Batch = self.slot_pool.hand_over(self._slot(), samples(steps), bucket)
        write(steps, whole)
        rows, seeds, times = whole[ROWS], (self._seed, self.start.epoch, steps[0].first), self._times
        try:
            self._readahead.ask_if_cold(rows)
            targets, faults = filler.targets(whole), major_faults()
            filler.fill(targets, 0, len(rows), times, seeds)
            self._readahead.own_reads.note(faults)
            filler.finish(targets, whole, times, seeds)
        except Exception as error:
            if len(steps) == 1:
                raise blame(filler, whole, seeds, error) from error
            # One by one, so that the batches before the one that fails are handed over.
            self._steps, self._together = chain(steps, self._steps), 1  # type: ignore[assignment]
            self._make()
            return
        self._divide(steps, whole)


class Pooled(BatchSource):
    """Has workers make batches, some in advance; at the end of an epoch the first ones of the next."""

    pool: WorkerPool

    def __init__(self, *args: Any, pool: WorkerPool, sent: SentSteps | None, in_flight: int) -> None:
        """in_flight: slots that are in the making while the caller holds a batch."""
        super().__init__(*args)
        self.pool, self.sent, self._in_flight = pool, sent, in_flight
        self._begun: deque[tuple[list[EpochStep], Pending]] = deque()
        """In order, those of one slot after another; the last ones may be of the next epoch."""
        self._following: Iterator[EpochStep] | None = None

    def want(self, start: EpochStart, steps: EpochSteps, *args: Any, **options: Any) -> None:
        super().want(start, steps, *args, **options)
        self._following = None
        for begun, _ in self._begun:
            for _ in begun:
                next(steps)

    def give_back(self) -> None:
        assert self.start is not None
        unwanted = bool(self._begun) and self._begun[0][1].epoch == self.start.epoch
        super().give_back()
        if unwanted:
            self.start = None

    def free(self) -> bool:
        if not self.pool.drain():
            return False
        self._put_back()
        return super().free()

    def close(self) -> None:
        self.pool.close()
        super().close()

    def _forget(self) -> None:
        self._following = None
        super()._forget()

    def _put_back(self) -> None:
        for _, pending in self._begun:
            self.slot_pool.put_back(pending.slot)
        self._begun.clear()

    def _make(self) -> None:
        """Wait for the next batches; others are begun in their place."""
        assert self.start is not None
        self._submit(self.start.epoch)
        if not self._begun or self._begun[0][1].epoch != self.start.epoch:
            raise StopIteration
        steps, pending = self._begun[0]
        try:
            self.pool.wait(pending)
        except WorkerError:
            if len(steps) == 1 or not pending.failed or not self.pool.drain():
                raise
            # Begin all again, one batch in a slot, so that those before the one that fails are handed over. No worker
            # has any of it.
            mine = [begun for begun, pending in self._begun if pending.epoch == self.start.epoch]
            self._put_back()
            self._steps, self._following, self._together = chain(*mine, self._steps), None, 1  # type: ignore[assignment]
            self._make()
            return
        self._begun.popleft()
        self._times.add(pending.times)
        self._divide(steps, self.slot_pool.hand_over(pending.slot, pending.rows, pending.bucket))

    def _submit(self, epoch: int) -> None:
        """Have `in_flight` slots in the making besides the next one."""
        while len(self._begun) <= self._in_flight:
            if self._begun and self.prefetch is not None and not self.prefetch.ready():
                return
            if not self._submit_next(self._steps, epoch):
                break
        else:
            return
        # All of this epoch is in the making: begin the next, so that its first batch is ready when it is asked for.
        if self._following is None:
            self._following = self._follow()
        try:
            while len(self._begun) <= self._in_flight and self.slot_pool.spare:
                if not self._submit_next(self._following, epoch + 1):
                    return
        except RawpackError:
            # Raised again when that epoch is asked for. What is begun must be its first batches, without a gap.
            self._following = iter(())

    def _submit_next(self, left: Iterator[EpochStep], epoch: int) -> bool:
        """Give out the next batches, as many as a slot holds, to the workers; False where there are none."""
        steps = list(islice(left, self._together))
        if not steps:
            return False
        rows, slot, layout, bucket = samples(steps), self._slot(), self.slot_pool.layout, steps[0].bucket
        views = layout.views(slot.memory, rows, bucket)
        write(steps, views)
        self._readahead.before_batch(views[ROWS])
        size, seeds = layout.size * rows // layout.batch_size, (self._seed, epoch, steps[0].first)
        if self._filler.only_copies and not self._readahead.workers_wait:
            slices = most_copied_slices(size, -(-len(self.pool) // (self._in_flight + 1)))
        else:
            slices = most_slices(size, self._filler)
        self._begun.append((steps, self.pool.submit(slot, rows, seeds, slices, bucket)))
        return True
