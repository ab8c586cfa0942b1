"""What the faces of frameworks share: batches that go to a device, and a position that is the caller's."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.epoch.bookmark import Handed, Place, is_count
from rawpack.epoch.feed import Feed
from rawpack.epoch.iterator import Batch, BatchIterator
from rawpack.errors import UsageError
from rawpack.faces.fields import Form, arrays_of


class BatchCopies(Protocol):
    """How the arrays of a batch get to a device."""

    counts: dict[str, int]
    """What `PlacedBatches.stats` adds."""

    def begin(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Begin to copy them."""

    def finish(self, begun: Any) -> dict[str, Any]:
        """What is handed over for the arrays of a batch."""

    def close(self) -> None:
        """Let go of everything."""


class PlacedBatches(Iterable[Any]):
    """Batches of one reader whose arrays are on a device: each iterator is the next epoch, as with `Batches`.

    An iterator takes its epoch, and starts workers, at its first `next()`. It is used by one thread at a time.
    """

    def __init__(self, batches: Feed, copies: BatchCopies, depth: int, form: Form | None, title: str) -> None:
        """Made by a method of `Batches`. depth: how many batches are begun in advance. form: of a batch; None for a
        dict. title: the device and what else there is to be shown."""
        self._batches, self._copies, self._depth = batches, copies, depth
        self._form, self._title = form, title
        self._latest: weakref.ref[PlacedIterator] | None = None
        self._place: Place | None = None
        """Where the caller is; None where it is where the numpy batches are."""
        self._handed = Handed()
        weakref.finalize(self, copies.close).atexit = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._title}; {self._batches!r})"

    def __reduce__(self) -> NoReturn:
        raise UsageError("batches own workers and memory: pickle the reader instead, and call batches() there")

    def __len__(self) -> int:
        """The number of batches that this rank gets in the epoch that comes next, from its start."""
        return len(self._batches)

    def __iter__(self) -> PlacedIterator:
        return PlacedIterator(self, self._batches, self._copies, self._depth, self._form)

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` comes next: from its start, or from the position that was loaded for this epoch."""
        self._batches.set_epoch(epoch)
        self._place = self._batches.place()

    def state_dict(self, after: Any = None) -> dict[str, Any]:
        """Where the caller of the latest iterator is, for `load_state_dict`: plain values that JSON can hold.

        after: the batch that was trained on last, with the arrays that it came with, or how many batches of the latest
            iterator were. None: all that were handed over; those that are being copied in advance do not count.

        States of `Batches` and of this object are the same. Raises UsageError as `Batches.state_dict`.
        """
        if after is not None and not is_count(after):
            return self._batches.state_at(*self._handed.place(arrays_of(after)))
        return self._batches.state_at(*self._batches.counted_from(self._place or self._batches.place(), after))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The iterator that begins next resumes where `state` was taken. Raises UsageError where it belongs to another
        order."""
        self._batches.load_state_dict(state)
        self._place = self._batches.place()
        self._handed.clear()

    def stats(self) -> dict[str, Any]:
        """As `Batches.stats`. For torch on CUDA also `registered_slots`, the slots that CUDA reads directly, and
        `staged_batches`, the batches that went through other memory first."""
        return self._batches.stats() | self._copies.counts

    def close(self) -> None:
        """End the latest iterator, wait for copies, and give page-locked memory back. Another `iter()` may follow."""
        latest = None if self._latest is None else self._latest()
        if latest is not None:
            latest.close()
        self._copies.close()

    def begun(self, iterator: PlacedIterator) -> None:
        """Called by an iterator at its first `next()`."""
        # Until it has handed over a batch: that more may have been prepared must not count.
        self._place = self._batches.place() if self._place is None else self._place
        self._latest = weakref.ref(iterator)

    def handed_over(self, iterator: PlacedIterator, place: Place, batch: Any) -> None:
        """Called by an iterator that hands over a batch. place: after it."""
        if self._latest is not None and self._latest() is iterator:
            self._place = place
        self._handed.note(arrays_of(batch), place)


@dataclass(frozen=True)
class _BegunBatch:
    """A batch on its way to the caller."""

    copying: Any
    batch: Batch
    """Arrays as None: what holds a slot is not held here."""
    place: Place
    """After it."""


class PlacedIterator(Iterator[Any]):
    """One pass over one epoch."""

    def __init__(self, owner: PlacedBatches, batches: Feed, copies: BatchCopies, depth: int, form: Form | None) -> None:
        self._owner, self._batches, self._copies, self._depth, self._form = owner, batches, copies, depth, form
        self._source: BatchIterator | None = None
        self._begun: deque[_BegunBatch] = deque()
        self._handed = 0
        self._ended = False
        """Whether no more batches are begun."""
        self._failure: Exception | None = None
        """What to raise after the batches that are begun."""

    def __next__(self) -> Any:
        if self._source is None and not self._ended:
            self._owner.begun(self)
            self._source = iter(self._batches)
        # The first batches are handed over as soon as they are there; those in advance become more from step to step.
        while not self._ended and len(self._begun) <= min(self._depth, self._handed):
            self._begin()
        if not self._begun:
            failure, self._failure = self._failure, None
            raise StopIteration if failure is None else failure
        begun = self._begun.popleft()
        batch = begun.batch | self._copies.finish(begun.copying)
        self._handed += 1
        formed = batch if self._form is None else self._form(batch)
        self._owner.handed_over(self, begun.place, formed)
        return formed

    def close(self) -> None:
        """End the iteration early."""
        self._ended = True
        self._begun.clear()
        if self._source is not None:
            self._source.close()

    def _begin(self) -> None:
        """Begin the next batch; what fails is raised in its place."""
        assert self._source is not None
        try:
            batch = next(self._source)
            place = self._batches.place()
            arrays = {name: value for name, value in batch.items() if isinstance(value, np.ndarray)}
            copying = self._copies.begin(arrays)
        except StopIteration:
            self._ended = True
        except Exception as error:
            self._ended, self._failure = True, error
            self._source.close()
        else:
            self._begun.append(_BegunBatch(copying, batch | dict.fromkeys(arrays), place))
