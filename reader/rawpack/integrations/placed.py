"""Batches whose arrays go to a device, some of them in advance, and a position that is the caller's."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rawpack.epoch.bookmark import Place
from rawpack.epoch.epochs import Epochs
from rawpack.epoch.iterator import BatchIterator
from rawpack.integrations.adapter import Adapter, Form, arrays_of
from rawpack.workers.source import Batch


class Copies(ABC):
    shares_memory = True
    """Whether results may share the memory of the arrays. If not, arrays are sent from their slot, small ones too."""

    def __init__(self) -> None:
        self.counts = dict[str, int]()
        """What `PlacedBatches.stats` adds."""
        self.lists = frozenset[str]()
        """The fields whose lists of arrays are copied too."""

    @abstractmethod
    def begin(self, arrays: Mapping[str, Any]) -> Any:
        """Begin to copy them: an array of each field; lists of arrays, or for clips lists of these, of `lists`."""

    def finish(self, begun: Any) -> dict[str, Any]:
        return begun  # type: ignore[no-any-return]

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of everything."""


class PlacedBatches(Adapter):
    """Batches of one reader whose arrays are on a device: each iterator is the next epoch, as with `Batches`.

    An iterator takes its epoch, and starts workers, at its first `next()`. It is used by one thread at a time.
    """

    def __init__(self, feed: Epochs, copies: Copies, depth: int, form: Form | None, title: str) -> None:
        """Made by a method of `Batches`. depth: how many batches are begun in advance. form: of a batch; None for a
        dict. title: the device and what else there is to be shown."""
        super().__init__(feed, title)
        self._copies, self._depth, self._form = copies, depth, form
        self._latest: weakref.ref[PlacedIterator] | None = None
        self._place: Place | None = None
        """Where the caller is; None where it is where the numpy batches are."""
        weakref.finalize(self, copies.close).atexit = False

    def __iter__(self) -> PlacedIterator:
        return PlacedIterator(self, self._feed, self._copies, self._depth, self._form)

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self._place = self._feed.place()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._place = self._feed.place()

    def stats(self) -> dict[str, Any]:
        """As `Batches.stats`. For torch on CUDA also `registered_slots`, the slots that CUDA reads directly, and
        `staged_batches`, the batches that went through other memory first."""
        return super().stats() | self._copies.counts

    def close(self) -> None:
        """End the latest iterator, wait for copies, and give page-locked memory back. Another `iter()` may follow."""
        latest = None if self._latest is None else self._latest()
        if latest is not None:
            latest.close()
        self._copies.close()

    def _begun(self, iterator: PlacedIterator) -> None:
        # Until it has handed over a batch: that more may have been prepared must not count.
        self._place = self._reached()
        self._latest = weakref.ref(iterator)

    def _handed_over(self, iterator: PlacedIterator, place: Place, batch: Any) -> None:
        """Called by an iterator that hands over a batch. place: after it."""
        self._moved_to(iterator, place)
        self._handed.note(arrays_of(batch), place)

    def _moved_to(self, iterator: PlacedIterator, place: Place) -> None:
        if self._latest is not None and self._latest() is iterator:
            self._place = place

    def _reached(self) -> Place:
        return self._place or self._feed.place()


class PlacedIterator(Iterator[Any]):
    def __init__(self, owner: PlacedBatches, feed: Epochs, copies: Copies, depth: int, form: Form | None) -> None:
        self._owner, self._feed, self._copies, self._depth, self._form = owner, feed, copies, depth, form
        self._source: BatchIterator | None = None
        self._begun: deque[tuple[Any, Batch, Place]] = deque()
        """Batches on their way: what is being copied, the batch with None for that, so that no slot is held here, and
        the place after it."""
        self._handed = 0
        self._ended = False
        """Whether no more batches are begun."""
        self._end: Place | None = None
        """The end of the epoch, where that was reached."""
        self._failure: Exception | None = None
        """What to raise after the batches that are begun."""

    def __next__(self) -> Any:
        if self._source is None and not self._ended:
            self._owner._begun(self)
            self._source = iter(self._feed)
            if not self._copies.shares_memory:
                self._source._copies_small = False
        # The first batches are handed over as soon as they are there; those in advance become more from step to step.
        while not self._ended and len(self._begun) <= min(self._depth, self._handed):
            self._begin()
        if not self._begun:
            failure, self._failure = self._failure, None
            if self._end is not None:
                self._owner._moved_to(self, self._end)
            raise StopIteration if failure is None else failure
        copying, batch, place = self._begun.popleft()
        batch |= self._copies.finish(copying)
        self._handed += 1
        formed = batch if self._form is None else self._form(batch)
        self._owner._handed_over(self, place, formed)
        return formed

    def close(self) -> None:
        self._ended = True
        self._begun.clear()
        if self._source is not None:
            self._source.close()

    def _begin(self) -> None:
        """Begin the next batch; what fails is raised in its place."""
        assert self._source is not None
        try:
            batch = next(self._source)
            place = self._source._place
            lists = self._copies.lists
            arrays = {name: value for name, value in batch.items() if isinstance(value, np.ndarray) or name in lists}
            copying = self._copies.begin(arrays)
        except StopIteration:
            self._ended, self._end = True, self._source._place
        except Exception as error:
            self._ended, self._failure = True, error
            self._source.close()
        else:
            self._begun.append((copying, batch | dict.fromkeys(arrays), place))
