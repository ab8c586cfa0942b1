"""One pass over one epoch: batches in order, prepared in advance."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NoReturn

from rawpack.ahead.readahead import Readahead
from rawpack.ahead.steps import EpochStart, EpochStep, samples, write
from rawpack.epoch.bookmark import Place
from rawpack.epoch.epochs import EpochPass, Epochs
from rawpack.epoch.making import Begun
from rawpack.errors import RawpackError, UsageError, WorkerError
from rawpack.store.stores import ROWS
from rawpack.workers.fill import blame, major_faults, most_copied_slices, most_slices

if TYPE_CHECKING:
    from rawpack.ahead.prefetch import Prefetch
    from rawpack.workers.pool import WorkerPool
    from rawpack.workers.slots import SlotPool

Batch = dict[str, Any]


class BatchIterator(Iterator[Batch]):
    """The batches of one epoch, in the process that made it. It takes its epoch, and workers, at its first `next()`.
    Threads may share one, as they would a queue: each batch goes to one of them."""

    _start: EpochStart
    """Where it began."""
    _place: Place
    """The same, and the position after the batch that it handed over last, whatever other iterators do."""
    _steps: Iterator[EpochStep]
    _close_steps: Callable[[], None]
    _slot_pool: SlotPool
    _readahead: Readahead

    def __init__(self, epochs: Epochs) -> None:
        making = epochs.making
        self._epochs, self._making, self._pool_cache = epochs, making, epochs.pool_cache
        self._filler, self._seed = making.filler, epochs.seed
        self._in_flight, self._together = making.in_flight, making.together
        self._pass: EpochPass | None = None
        """What it has taken."""
        self._counts_itself = True
        """Whether a batch that is handed over has been read. A queue says so when somebody takes it."""
        self._copies_small = True
        """Whether small arrays are copied out of their slot. Not where all arrays are sent to a device."""
        self._pool: WorkerPool | None = None
        self._prefetch: Prefetch | None = None
        self._pending: Begun = deque()
        """Batches in the making; the last ones may be of the next epoch."""
        self._following: Iterator[EpochStep] | None = None
        """The steps of the next epoch."""
        self._made: deque[tuple[EpochStep, Batch]] = deque()
        self._process = os.getpid()
        self._ended = False
        self._lock = threading.RLock()
        self._inside = False
        """Whether the thread that has the lock is in the middle of something."""
        self._unwanted = False
        """Whether it was closed."""
        self._last = 0.0

    def __repr__(self) -> str:
        where = "not begun" if self._pass is None else f"epoch {self._start.epoch}"
        return f"{type(self).__name__}({where}, of {self._epochs!r})"

    def __reduce__(self) -> NoReturn:
        raise UsageError("an iterator owns workers: pickle the reader and a state_dict() instead")

    def __next__(self) -> Batch:
        # Before taking the lock, which in a forked child a thread of the parent may hold forever.
        if os.getpid() != self._process:
            if self._ended:
                raise StopIteration
            raise RawpackError("this iterator belongs to the process it was made in; call iter() again after a fork")
        with self._lock:
            if self._ended or self._epochs.closed:  # whoever is closing may still wait for the lock
                self._epochs.check_open()
                raise StopIteration
            began = time.perf_counter()
            self._enter()
            try:
                taken = self._pass or self._begin()
                # Not where the steps are computed: that is long before their samples are read.
                self._epochs.look_at_files()
                if not self._made:
                    if self._pool is None:
                        self._make()
                    else:
                        self._from_pool(self._pool)
                step, batch = self._made.popleft()
                self._making.trim(batch)
                if self._making.besides_slots is not None:
                    seeds, faults = (self._seed, self._start.epoch, step.first), major_faults()
                    batch.update(self._making.besides_slots(step.rows, seeds, step.clips, step.bucket))
                    self._readahead.own_reads.note(faults)
                batch.update(self._making.extras(step))
                self._count(step, began)
                self._place = self._start, step.position
                taken.handed_over(batch, step.position)
                if self._counts_itself and taken.read_one is not None:
                    taken.read_one()
                return batch
            except StopIteration:
                if self._counts_itself:
                    self._read_one()
                self._end()
                raise
            except BaseException:
                self._end(failed=True)
                raise
            finally:
                self._inside = False
                if self._unwanted:
                    self._leave()

    def close(self) -> None:
        """End the iteration early, without waiting for workers: they finish their slices and serve the next epoch. A
        thread that is waiting for a batch gets it first, also where a signal handler in that thread calls this."""
        if os.getpid() == self._process:
            with self._lock:
                self._unwanted = True
                if not self._inside:
                    self._leave()

    def _enter(self) -> None:
        """With the lock: raise where its thread is inside already, in a user's function or a signal handler."""
        if self._inside:
            raise RawpackError("this iterator is used from within its own next(); give each loop its own iter()")
        self._inside = True

    def __del__(self) -> None:
        # Without the lock: nobody else has the iterator anymore.
        if hasattr(self, "_last"):
            self._leave()

    def _begin(self) -> EpochPass:
        """Take an epoch, and what makes its batches."""
        taken = self._epochs.begin()
        self._start, worker_set = taken.start, taken.worker_set
        self._steps, self._close_steps = taken.steps, taken.steps.close
        self._pool, self._slot_pool, self._pending = worker_set.pool, worker_set.slot_pool, worker_set.begun
        self._readahead, self._prefetch = taken.readahead, taken.prefetch
        self._pass = taken
        return taken

    def _read_one(self) -> None:
        """A batch was read, or the end was reached."""
        if self._pass is not None and self._pass.read_one is not None:
            self._pass.read_one()

    def _make(self) -> None:
        """Read the next batches in this process, as many as a slot holds, as if they were one."""
        steps = list(islice(self._steps, self._together))
        if not steps:
            raise StopIteration
        # Where several are read at once, all buckets are alike.
        bucket = steps[0].bucket
        filler = self._filler.of_bucket(bucket)
        whole: Batch = self._slot_pool.hand_over(self._slot(), samples(steps), bucket)
        write(steps, whole)
        rows = whole[ROWS]
        seeds, times = (self._seed, self._start.epoch, steps[0].first), self._making.counted.times
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
            self._steps, self._together = chain(steps, self._steps), 1
            self._make()
            return
        self._divide(steps, whole)

    def _divide(self, steps: Sequence[EpochStep], whole: Batch) -> None:
        """Batches that are in one slot are there; `whole` is all of them as one."""
        del whole[ROWS]
        end, layout = 0, self._slot_pool.layout
        for step in steps:
            start, end = end, end + len(step.rows)
            most, batch = layout.own_bytes(end - start, step.bucket) if self._copies_small else -1, dict[str, Any]()
            for name, array in whole.items():
                part = array[start:end]
                batch[name] = part.copy() if part.nbytes <= most else part
            self._made.append((step, batch))

    def _from_pool(self, pool: WorkerPool) -> None:
        """Wait for the next batches that workers make, those of one slot; others are begun in their place."""
        self._submit(pool)
        if not self._pending or self._pending[0][1].epoch != self._start.epoch:
            raise StopIteration
        steps, pending = self._pending[0]
        try:
            pool.wait(pending)
        except WorkerError:
            if len(steps) == 1 or not pending.failed or not pool.drain():
                raise
            self._separate()
            self._from_pool(pool)
            return
        self._pending.popleft()
        self._making.counted.times.add(pending.times)
        self._divide(steps, self._slot_pool.hand_over(pending.slot, pending.rows, pending.bucket))

    def _separate(self) -> None:
        """Begin what is in the making again, one batch in a slot, so that those before one that fails are handed
        over. No worker has any of it."""
        mine = [steps for steps, pending in self._pending if pending.epoch == self._start.epoch]
        for _, pending in self._pending:
            self._slot_pool.put_back(pending.slot)
        self._pending.clear()
        self._steps, self._following, self._together = chain(*mine, self._steps), None, 1

    def _submit(self, pool: WorkerPool) -> None:
        """Have `in_flight` slots in the making besides the next one."""
        while len(self._pending) <= self._in_flight:
            if self._pending and self._prefetch is not None and not self._prefetch.ready():
                return
            if not self._submit_next(pool, self._steps, self._start.epoch):
                self._submit_beyond(pool)
                return

    def _submit_beyond(self, pool: WorkerPool) -> None:
        """All of this epoch is in the making: begin the next, so that its first batch is ready when it is asked for."""
        if self._following is None:
            assert self._pass is not None
            self._following = self._epochs.following(self._pass)
        try:
            while len(self._pending) <= self._in_flight and self._slot_pool.spare:
                if not self._submit_next(pool, self._following, self._start.epoch + 1):
                    return
        except RawpackError:
            # Raised again when that epoch is asked for. What is begun must be its first batches, without a gap.
            self._following = iter(())

    def _submit_next(self, pool: WorkerPool, left: Iterator[EpochStep], epoch: int) -> bool:
        """Give out the next batches, as many as a slot holds, to the workers; False where there are none."""
        steps = list(islice(left, self._together))
        if not steps:
            return False
        rows, slot, layout, bucket = samples(steps), self._slot(), self._slot_pool.layout, steps[0].bucket
        views = layout.views(slot.memory, rows, bucket)
        write(steps, views)
        self._readahead.before_batch(views[ROWS])
        size, seeds = layout.size * rows // layout.batch_size, (self._seed, epoch, steps[0].first)
        if self._filler.only_copies and not self._readahead.workers_wait:
            slices = most_copied_slices(size, -(-len(pool) // (self._in_flight + 1)))
        else:
            slices = most_slices(size, self._filler)
        self._pending.append((steps, pool.submit(slot, rows, seeds, slices, bucket)))
        return True

    def _slot(self) -> Any:
        began = time.perf_counter()
        slot = self._slot_pool.acquire()
        self._making.counted.slots_s += time.perf_counter() - began
        return slot

    def _count(self, step: EpochStep, began: float) -> None:
        stats, now, rows = self._making.counted, time.perf_counter(), len(step.rows)
        stats.samples += rows
        stats.batches += 1
        if self._prefetch is not None:
            fetching, self._prefetch.waited_s = self._prefetch.waited_s, 0.0
            stats.fetching_s += fetching if self._last else 0.0
            self._prefetch.release()
        if self._last:
            # The clock runs from one batch to the next, so that the start of workers does not count as waiting.
            stats.timed_samples += rows
            in_slot = self._slot_pool.layout.sample_bytes[step.bucket]
            stats.timed_bytes += rows * (in_slot + self._making.besides_bytes)
            stats.elapsed_s += now - self._last
            stats.waited_s += now - began
        else:
            stats.first_batch_s = now - began
        self._last = now

    def _leave(self) -> None:
        """End, with batches in the making."""
        if not self._ended and os.getpid() == self._process:
            self._end()

    def _end(self, *, failed: bool = False) -> None:
        """failed: nobody may use the workers again."""
        self._ended = True
        if self._pass is None:
            return
        self._made.clear()
        self._close_steps()
        begun, self._pending = self._pending, deque()
        # What is left behind the last batch of this epoch is of the next.
        unwanted = bool(begun) and begun[0][1].epoch == self._start.epoch
        start = None if unwanted else self._start.next_epoch
        worker_set = replace(self._pass.worker_set, begun=begun, start=start)
        if failed:
            self._pool_cache.discard(worker_set)
        else:
            self._pool_cache.give_back(worker_set)
