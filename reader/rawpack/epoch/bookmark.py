"""Where the iterators of `Batches` are: where the next one begins, and how far the latest one is."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from rawpack.errors import UsageError
from rawpack.order.steps import EpochStart
from rawpack.words import INDEX

Place = tuple[EpochStart, int]
"""Where an iterator began, and a position in its epoch."""


HandedOver = Callable[[Mapping[str, Any] | None, int], None]
"""Called with each batch that is handed over, or None at the end of the epoch, and the position after it."""


def is_count(after: object) -> bool:
    """Whether `after=` of a state is a number of batches, and not one of them."""
    return isinstance(after, int | np.integer) and not isinstance(after, bool)


class Handed:
    """What was handed over: what is known of each batch that somebody holds, by its arrays."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Place]] = {}
        """By the id of an array: the same array, and the place after its batch."""

    def note(self, arrays: Iterable[Any], place: Place) -> None:
        """A batch with these arrays is handed over. Called before another array can have the id of one of them;
        whichever thread that is in, it waits for nothing."""
        known = self._known
        for array in arrays:
            key = id(array)
            try:  # noqa: SIM105 - `suppress` would be three calls more for each batch
                known[key] = weakref.ref(array, lambda _, key=key: known.pop(key, None)), place  # type: ignore[misc]
            except TypeError:
                pass  # lists, and numbers, which nothing can refer to

    def place(self, arrays: Iterable[Any]) -> Place:
        """The place after the batch that one of these arrays is of. Raises UsageError where it is of none."""
        for array in arrays:
            reference, place = self._known.get(id(array), (None, None))
            if place is not None and reference is not None and reference() is array:
                return place
        raise UsageError(
            "after= must be a batch of these batches, handed over since the last load_state_dict(), with the arrays "
            "that it came with (of a dict of numpy arrays, `index`), not copies or views of them; where no batch is at "
            "hand, pass the number of batches since the iterator began"
        )

    def clear(self) -> None:
        self._known = {}


class Bookmark:
    """The place of the next iterator, of the latest one, and of each batch that somebody holds."""

    def __init__(self) -> None:
        self._begin_at(0)
        self.choices = 0
        """How often the user has said where the next iterator begins."""
        self._latest: EpochStart | None = None
        self._reached: Place | None = None
        """Where the latest iterator began, and the position that it has reached; None: where the next one begins."""
        self._handed = Handed()
        """Batches from before a place was loaded are forgotten."""

    def copy(self) -> Bookmark:
        """Another one, for iterators that begin at the same place."""
        other = Bookmark()
        other._begin_at(self.epoch, self.position, self.consumed)
        other._loaded, other.choices = self._loaded, self.choices
        return other

    def set_epoch(self, epoch: int) -> None:
        """The user says that this epoch comes next: from its start, or from the position that was loaded for it."""
        if epoch != self.epoch or not self._loaded:
            self._begin_at(epoch)
        self._reached = None
        self.choices += 1

    def stay(self) -> None:
        """The position that the latest iterator has reached does not count: where the next one begins does."""
        self._reached = None

    def load(self, epoch: int, position: int, consumed: tuple[int, ...]) -> None:
        """The next iterator begins there. consumed: what its order says besides the position: `Order.consumed_of`."""
        self._begin_at(epoch, position, consumed)
        self._loaded, self._reached, self._handed = True, None, Handed()

    def taken(self, start: EpochStart) -> HandedOver:
        """An iterator begins here: it is the latest one, and the next one begins with the epoch after it."""
        self._begin_at(start.epoch + 1)
        self._reached, self._latest = (start, start.position), start
        return partial(self._handed_over, start, self._handed)

    def _begin_at(self, epoch: int, position: int = 0, consumed: tuple[int, ...] = ()) -> None:
        self.epoch, self.position, self.consumed = epoch, position, consumed
        self._loaded = False
        """Whether the position was loaded, for this epoch."""

    def _handed_over(self, start: EpochStart, handed: Handed, batch: Mapping[str, Any] | None, position: int) -> None:
        if self._latest is start:
            self._reached = (start, position)
        if batch is not None:
            handed.note((batch[INDEX],), (start, position))

    def is_latest(self, start: EpochStart) -> bool:
        """Whether the latest iterator is the one that was given this very object."""
        return self._latest is start

    def reached(self, after: Any) -> Place | None:
        """Where the iterator of this batch began, and the position after it; None for the batch: those of the latest
        iterator, if it is further on than where the next one begins. UsageError for a batch that is not known."""
        if after is None:
            return self._reached
        return self._handed.place([after.get(INDEX)] if isinstance(after, Mapping) else [])
