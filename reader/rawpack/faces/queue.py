"""A queue of batches for several threads: one thread fills it, epoch after epoch, and any number take from it."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import TracebackType
from typing import Any, NoReturn

from rawpack.batching.bookmark import Place, is_count
from rawpack.batching.feed import Feed
from rawpack.batching.iterator import Batch
from rawpack.errors import RawpackError, UsageError
from rawpack.order.keys import whole_number

_CLOSE_S = 10
"""How long `close()` waits for the batch in the making."""


class BatchQueue(Iterator[Batch]):
    """Batches in the order of their epochs, each for one of the threads that ask.

    Its own thread fills it from the start on, up to `depth` batches. Batches are the caller's, as ever: a thread that
    ends without a word holds nothing up but the batch that it had.
    """

    def __init__(self, batches: Feed, depth: int, epochs: int | None) -> None:
        """Made by `Batches.queue`, with its arguments."""
        depth = whole_number("depth", depth, 1)
        if epochs is not None:
            epochs = whole_number("epochs", epochs, 1)
        max_held = batches.settings.max_held
        if max_held is not None and max_held <= depth:
            raise UsageError(
                f"the queue holds depth={depth} batches, and whoever takes one holds it too: max_held={max_held} "
                f"must be {depth + 1} or more, one for each thread that takes batches"
            )
        batches.held = max(batches.held, depth + 1)
        self._batches, self._process, self._epochs = batches, os.getpid(), epochs
        self._begin(depth)

    def _begin(self, depth: int) -> None:
        # From here on, a position that another iterator has reached does not count.
        self._batches.stay()
        self._shared = _Shared(depth, self._batches.place())
        self._thread = threading.Thread(
            target=_fill, args=(self._shared, self._batches, self._epochs), name="rawpack batch queue", daemon=True
        )
        # The thread knows only what is shared, so that it ends with this object, and with Python. Weakly: an error that
        # was raised leads back to this object.
        weakref.finalize(self, _close, weakref.ref(self._shared), self._process)
        self._thread.start()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(depth={self._shared.depth}; {self._batches!r})"

    def __reduce__(self) -> NoReturn:
        raise UsageError("a queue owns a thread: pickle the reader instead, and call batches().queue() there")

    def __enter__(self) -> BatchQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> Batch:
        batch = self.dequeue()
        if batch is None:
            raise StopIteration
        return batch

    def dequeue(self) -> Batch | None:
        """The next batch, for any thread; None once all epochs were handed over, or the queue was closed.

        It waits for as long as a batch is being made. What the reader raises comes in its place, after the batches
        before it, to every thread that asks.
        """
        if os.getpid() != self._process:
            raise RawpackError("this queue belongs to the process it was made in; call queue() again after a fork")
        return self._shared.take()

    def state_dict(self, after: Mapping[str, Any] | int | None = None) -> dict[str, Any]:
        """The state after all batches that were taken, which those that wait in the queue are not; after this batch, as
        of `Batches.state_dict`; or after this number of batches of the epoch that the last one was of. Threads that are
        still working on a batch have taken it."""
        if after is not None and not is_count(after):
            return self._batches.state_dict(after)
        return self._batches.state_at(*self._batches.counted_from(self._shared.place(), after))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Empty the queue, and fill it from where `state` was taken. Raises UsageError where it belongs to another
        order."""
        self.close()
        self._batches.load_state_dict(state)
        self._begin(self._shared.depth)

    def stats(self) -> dict[str, Any]:
        """How full the queue is and was, and who waited: see the Python API page. Batches before the first was taken do
        not count."""
        return self._shared.stats()

    def close(self) -> None:
        """End the thread and empty the queue: who waits for a batch gets None. The epoch counts as taken."""
        if os.getpid() == self._process:
            self._shared.close()
            self._thread.join(_CLOSE_S)


class _Shared:
    """What the thread that fills a queue and those that take from it have in common."""

    def __init__(self, depth: int, place: Place) -> None:
        """place: before the first batch."""
        self.depth = depth
        self._changed = threading.Condition()
        self._batches: deque[tuple[Batch, Place, Callable[[], None]]] = deque()
        """With the place after each, and what notes that it was read."""
        self._note: Callable[[], None] | None = None
        """What notes that the end was reached: as for the last batch that was taken."""
        self._place = place
        self._ended = self.closed = False
        """Whether nothing more is put in; whether nobody wants more."""
        self._failure: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._taken = self._measured = self._filled = 0
        self._least: int | None = None
        self._waits, self._waited_s = {"consumer": 0, "producer": 0}, {"consumer": 0.0, "producer": 0.0}

    def has_room(self) -> bool:
        """Wait until a batch can be put in; False where none is wanted anymore."""
        with self._changed:
            self._wait("producer", lambda: self.closed or len(self._batches) < self.depth)
            return not self.closed

    def put(self, batch: Batch, place: Place, note: Callable[[], None]) -> None:
        with self._changed:
            if not self.closed:
                self._batches.append((batch, place, note))
                self._changed.notify_all()

    def end(self, failure: BaseException | None) -> None:
        """Nothing more is put in. failure: what to raise after the batches that are there."""
        with self._changed:
            self._ended, self._failure = True, failure
            self._traceback = None if failure is None else failure.__traceback__
            self._changed.notify_all()

    def take(self) -> Batch | None:
        with self._changed:
            if self._taken and not self._ended:
                fill = len(self._batches)
                self._measured, self._filled = self._measured + 1, self._filled + fill
                self._least = fill if self._least is None else min(self._least, fill)
            self._wait("consumer", lambda: bool(self._batches) or self._ended or self.closed)
            if self._batches:
                self._taken += 1
                self._changed.notify_all()
                batch, self._place, self._note = self._batches.popleft()
                self._note()
                return batch
            if self._failure is not None and not self.closed:
                # Each thread gets it as it was, without the frames of the others.
                raise self._failure.with_traceback(self._traceback)
            note, self._note = self._note, None
            if note is not None and not self.closed:
                note()
            return None

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._batches.clear()
            self._changed.notify_all()

    def place(self) -> Place:
        """After the batch that was taken last."""
        with self._changed:
            return self._place

    def stats(self) -> dict[str, Any]:
        with self._changed:
            return {
                "depth": self.depth,
                "taken": self._taken,
                "ready": len(self._batches),
                "mean_fill": self._filled / self._measured if self._measured else None,
                "min_fill": self._least,
                "consumer_waits": self._waits["consumer"],
                "consumer_waited_s": self._waited_s["consumer"],
                "producer_waits": self._waits["producer"],
                "producer_waited_s": self._waited_s["producer"],
            }

    def _wait(self, who: str, ready: Any) -> None:
        """Wait for `ready()`. Whoever changes something says so, also if it ends by an error: no wait is forever."""
        if ready():
            return
        began = time.perf_counter()
        self._changed.wait_for(ready)
        if self._taken:
            self._waits[who] += 1
            self._waited_s[who] += time.perf_counter() - began


def _close(shared: weakref.ref[_Shared], process: int) -> None:
    # Not in a forked child: a thread of the parent may have held the lock when it was copied.
    if os.getpid() == process and (alive := shared()) is not None:
        alive.close()


def _fill(shared: _Shared, batches: Feed, epochs: int | None) -> None:
    """What the queue's thread does."""
    failure: BaseException | None = None
    try:
        for _ in count() if epochs is None else range(epochs):
            iterator, empty = iter(batches), True
            iterator.counts_itself = False
            try:
                while shared.has_room() and (batch := next(iterator, None)) is not None:
                    shared.put(batch, _place_after(batches, batch), iterator.read_one)
                    empty = False
                    # Held by nobody here while this thread waits.
                    del batch
            finally:
                iterator.close()
            if shared.closed:
                return
            if empty and epochs is None and iterator.start.position == 0:
                raise UsageError("an epoch has no batches: a queue without epochs= would be filled forever")
    except BaseException as error:
        failure = error
    finally:
        shared.end(failure)


def _place_after(batches: Feed, batch: Batch) -> Place:
    try:
        return batches.place(batch)
    except UsageError as error:
        raise UsageError(
            "a state was loaded while a queue was being filled: load it before you call queue()"
        ) from error
