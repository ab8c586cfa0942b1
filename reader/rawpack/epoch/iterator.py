"""One pass over one epoch: batches in order, prepared in advance."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from rawpack.errors import RawpackError, UsageError
from rawpack.order.steps import EpochStep
from rawpack.workers.source import Batch, BatchSource

if TYPE_CHECKING:
    from rawpack.epoch.bookmark import Place
    from rawpack.epoch.epochs import Epochs


class BatchIterator(Iterator[Batch]):
    """The batches of one epoch, in the process that made it. It takes its epoch, and workers, at its first `next()`.
    Threads may share one, as they would a queue: each batch goes to one of them."""

    _place: Place
    """Where it began, and the position after the batch that it handed over last, whatever other iterators do."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._source: BatchSource | None = None
        self._counts_itself = True
        """Whether a batch that is handed over has been read. A queue says so when somebody takes it."""
        self._copies_small = True
        self._process, self._lock = os.getpid(), threading.RLock()
        self._ended = self._unwanted = False
        self._inside = False
        """Whether the thread that has the lock is in the middle of something."""
        self._last = 0.0
        """When it handed over the last batch."""

    def __repr__(self) -> str:
        where = "not begun" if self._source is None else f"epoch {self._start.epoch}"
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
            if self._inside:  # in a user's function or a signal handler
                raise RawpackError("this iterator is used from within its own next(); give each loop its own iter()")
            began, self._inside = time.perf_counter(), True
            try:
                if self._source is None:
                    begun = self._epochs.begin(copies_small=self._copies_small)
                    self._start, self._source, self._handed_over, self._mark = begun
                # Not where the steps are computed: that is long before their samples are read.
                self._epochs.look_at_files()
                step, batch = self._source.take()
                self._epochs.making.complete(batch, step, self._start.epoch)
                self._count(self._source, step, began)
                self._place = self._start, step.position
                self._handed_over(batch, step.position)
                if self._mark is not None and self._counts_itself:
                    self._mark()
                return batch
            except StopIteration:
                # Over now also where other ranks had a batch in the last step and this one had none.
                if self._source is not None:
                    self._place = self._start, self._start.split.length
                    self._handed_over(None, self._start.split.length)
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
                    self._end()

    def close(self) -> None:
        """End the iteration early, without waiting for workers: they finish their slices and serve the next epoch. A
        thread that is waiting for a batch gets it first, also where a signal handler in that thread calls this."""
        if os.getpid() == self._process:
            with self._lock:
                self._unwanted = True
                if not self._inside:
                    self._end()

    def __del__(self) -> None:
        # Without the lock: nobody else has the iterator anymore.
        if hasattr(self, "_last"):
            self._end()

    def _read_one(self) -> None:
        if self._mark is not None:
            self._mark()

    def _count(self, source: BatchSource, step: EpochStep, began: float) -> None:
        making, now, rows = self._epochs.making, time.perf_counter(), len(step.rows)
        stats = making.counted
        stats.samples += rows
        stats.batches += 1
        stats.slots_s += source.slots_s
        source.slots_s = 0.0
        if (prefetch := source.prefetch) is not None:
            stats.fetching_s += prefetch.waited_s if self._last else 0.0
            prefetch.waited_s = 0.0
            prefetch.release()
        if self._last:
            # The clock runs from one batch to the next, so that the start of workers does not count as waiting.
            stats.timed_samples += rows
            stats.timed_bytes += rows * (source.slot_pool.layout.sample_bytes[step.bucket] + making.besides_bytes)
            stats.elapsed_s += now - self._last
            stats.waited_s += now - began
        else:
            stats.first_batch_s = now - began
        self._last = now

    def _end(self, *, failed: bool = False) -> None:
        """End, once and in its own process. failed: nobody may use the workers again."""
        if self._ended or os.getpid() != self._process:
            return
        self._ended = True
        if self._source is not None:
            pool_cache = self._epochs.pool_cache
            (pool_cache.discard if failed else pool_cache.give_back)(self._source)
