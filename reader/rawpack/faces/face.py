"""What all faces are: batches of a feed in the form of a framework, with a position of the caller's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from rawpack.epoch.bookmark import Handed, Place, is_count
from rawpack.epoch.feed import Feed
from rawpack.errors import UsageError


class Face:
    """The base of what the methods of `Batches` return."""

    def __init__(self, feed: Feed, title: str) -> None:
        """title: what else there is to be shown."""
        super().__init__()  # Keras's, in classes that derive from that too
        self._feed, self._title = feed, title
        self._handed = Handed()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._title}; {self._feed!r})"

    def __reduce__(self) -> NoReturn:
        raise UsageError("batches own workers and memory: pickle the reader instead, and call batches() there")

    def __len__(self) -> int:
        """The number of batches that this rank gets in the epoch that comes next, from its start."""
        return len(self._feed)

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` comes next: from its start, or from the position that was loaded for this epoch."""
        self._feed.set_epoch(epoch)

    def state_dict(self, after: Any = None) -> dict[str, Any]:
        """The state to resume from with `load_state_dict`: plain values that JSON can hold. See `Batches.state_dict`,
        whose states are the same.

        after: the batch that was trained on last, with the arrays that it came with, or how many batches were, counted
            from where the epoch began. None: all that were handed over; those that are prepared in advance do not
            count.
        """
        if after is None or is_count(after):
            return self._feed.state_at(*self._feed.counted_from(self._reached(), after))
        return self._feed.state_at(*self._handed.place(arrays_of(after)))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The batch that comes next is the one after `state`. Raises UsageError where it belongs to another order."""
        self._feed.load_state_dict(state)
        self._handed.clear()

    def stats(self) -> dict[str, Any]:
        """As `Batches.stats`."""
        return self._feed.stats()

    def _reached(self) -> Place:
        """Where the caller is."""
        return self._feed.place()


def arrays_of(batch: Any) -> Iterator[Any]:
    """The arrays of a batch, whichever form it has: a dict, a TensorDict, a tuple, or tuples and dicts of them."""
    values = batch.values() if hasattr(batch, "keys") else batch if isinstance(batch, tuple | list) else (batch,)
    for value in values:
        if isinstance(value, tuple | dict):
            yield from arrays_of(value)
        else:
            yield value
