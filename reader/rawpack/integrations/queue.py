"""A queue of batches for several threads: one thread fills it, epoch after epoch, and any number take from it."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from itertools import count
from typing import Any, NoReturn

from rawpack.checks import whole_number
from rawpack.epoch.bookmark import Place, is_count
from rawpack.epoch.epochs import Epochs
from rawpack.errors import RawpackError, UsageError
from rawpack.workers.source import Batch

_CLOSE_S = 10  # for the batch in the making


class BatchQueue(Iterator[Batch], AbstractContextManager[Any]):
    """Batches in the order of their epochs, each for one of the threads that ask.

    Its own thread fills it from the start on, up to `depth` batches. Batches are the caller's, as ever: a thread that
    ends without a word holds nothing up but the batch that it had.
    """

    def __init__(self, feed: Epochs, depth: int, epochs: int | None) -> None:
        self._depth = whole_number("depth", depth, 1)
        self._feed, self._epochs = feed, None if epochs is None else whole_number("epochs", epochs, 1)
        feed.held = max(feed.held, self._depth + 1)
        self._begin()

    def _begin(self) -> None:
        # From here on, a position that another iterator has reached does not count.
        self._feed.stay()
        self._shared = _Shared(self._depth, self._feed.place())
        # The thread knows only what is shared, so that it ends with this object, and with Python. Weakly: an error that
        # was raised leads back to this object.
        self._end = weakref.finalize(self, _close, weakref.ref(self._shared))
        self._thread = threading.Thread(
            target=_fill, args=(self._shared, self._feed, self._epochs), name="rawpack batch queue", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(depth={self._depth}; {self._feed!r})"

    def __reduce__(self) -> NoReturn:
        raise UsageError("a queue owns a thread: pickle the reader instead, and call batches().queue() there")

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> Batch:
        if (batch := self.dequeue()) is None:
            raise StopIteration
        return batch

    def dequeue(self) -> Batch | None:
        """The next batch, for any thread; None once all epochs were handed over, or the queue was closed.

        It waits for as long as a batch is being made. What the reader raises comes in its place, after the batches
        before it, to every thread that asks.
        """
        if os.getpid() != (shared := self._shared).process:
            raise RawpackError("this queue belongs to the process it was made in; call queue() again after a fork")
        with shared.changed:
            ready, began = len(shared.batches), time.perf_counter()
            shared.changed.wait_for(lambda: shared.batches or shared.ended)
            if shared.batches:
                if shared.taken:
                    shared.filled += ready
                    shared.waited_s += time.perf_counter() - began
                batch, shared.place, shared.note = shared.batches.popleft()
                shared.taken += 1
                shared.changed.notify_all()
                shared.note()
                return batch
            if shared.failure is not None:
                raise shared.failure.with_traceback(shared.traceback)
            shared.note()
            shared.place = shared.last or shared.place
            return None

    def state_dict(self, after: Mapping[str, Any] | int | None = None) -> dict[str, Any]:
        """The state after all batches that were taken, which those that wait in the queue are not; after this batch, as
        of `Batches.state_dict`; or after this number of batches of the epoch that the last one was of. Threads that are
        still working on a batch have taken it."""
        if after is not None and not is_count(after):
            return self._feed.state_dict(after)
        return self._feed.state_at(*self._feed.counted_from(self._shared.place, after))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Empty the queue, and fill it from where `state` was taken. Raises UsageError where it belongs to another
        order."""
        self.close()
        self._feed.load_state_dict(state)
        self._begin()

    def stats(self) -> dict[str, Any]:
        """How full the queue is and was, and who waited: see the Python API page. Batches before the first was taken do
        not count."""
        with (shared := self._shared).changed:
            mean = shared.filled / (shared.taken - 1) if shared.taken > 1 else None
            return {"taken": shared.taken, "ready": len(shared.batches), "mean_fill": mean, "waited_s": shared.waited_s}

    def close(self) -> None:
        """End the thread and empty the queue: who waits for a batch gets None. The epoch counts as taken."""
        self._end()
        self._thread.join(_CLOSE_S)


class _Shared:
    """What the thread that fills a queue and those that take from it have in common. All but `process` is read and
    written by whoever has `changed`."""

    def __init__(self, depth: int, place: Place) -> None:
        self.depth, self.process, self.changed = depth, os.getpid(), threading.Condition()
        self.place = place  # after the batch that was taken last
        self.batches: deque[tuple[Batch, Place, Callable[[], None]]] = deque()
        """With the place after each, and what notes that it, or the end, was read."""
        self.note: Callable[[], None] = lambda: None  # that of the batch that was taken last
        self.ended = False  # nothing more is put in
        self.failure: BaseException | None = None  # raised after the batches that are there
        self.last: Place | None = None  # the end of the last epoch, once it was reached
        self.taken = self.filled = 0
        """Batches that were taken; and how many were ready when each but the first was asked for."""
        self.waited_s = 0.0

    def has_room(self) -> bool:
        """Wait until a batch can be put in; False where none is wanted anymore."""
        with self.changed:
            self.changed.wait_for(lambda: self.ended or len(self.batches) < self.depth)
            return not self.ended

    def put(self, batch: Batch, place: Place, note: Callable[[], None]) -> None:
        with self.changed:
            if not self.ended:
                self.batches.append((batch, place, note))
                self.changed.notify_all()

    def end(self, failure: BaseException | None = None, last: Place | None = None) -> None:
        with self.changed:
            if not self.ended:
                self.ended, self.failure, self.last = True, failure, last
                # As it is, without the frames of those that raise it.
                self.traceback = None if failure is None else failure.__traceback__
                self.changed.notify_all()


def _close(reference: weakref.ref[_Shared]) -> None:
    """Nobody wants more. Not in a forked child: a thread of the parent may have held the lock at the fork."""
    shared = reference()
    if shared is not None and os.getpid() == shared.process:
        with shared.changed:
            shared.batches.clear()
            shared.ended, shared.failure, shared.note = True, None, lambda: None
            shared.changed.notify_all()


def _fill(shared: _Shared, feed: Epochs, epochs: int | None) -> None:
    try:
        for _ in count() if epochs is None else range(epochs):
            with closing(iter(feed)) as iterator:
                iterator._counts_itself = False
                while shared.has_room() and (batch := next(iterator, None)) is not None:
                    shared.put(batch, _place_after(feed, batch), iterator._read_one)
                    del batch  # nobody holds it here while this thread waits
            if shared.ended:
                return
            last = iterator._place
            if epochs is None and not len(last[0]) and not last[0].position:
                raise UsageError("an epoch has no batches: a queue without epochs= would be filled forever")
        shared.end(last=last)
    except BaseException as error:
        shared.end(error)


def _place_after(feed: Epochs, batch: Batch) -> Place:
    try:
        return feed.place(batch)
    except UsageError as error:
        raise UsageError(
            "a state was loaded while a queue was being filled: load it before you call queue()"
        ) from error
