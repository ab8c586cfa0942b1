"""What all adapters share: the framework, batches with a position of the caller's, and which fields come in which
form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.checks import names
from rawpack.epoch.bookmark import Handed, Place, is_count
from rawpack.epoch.dataloader import not_indexed
from rawpack.epoch.epochs import Epochs
from rawpack.epoch.iterator import BatchIterator
from rawpack.epoch.loader import Loader
from rawpack.errors import MissingExtraError, UsageError
from rawpack.system.user import did_you_mean

Chosen = str | Sequence[str] | Mapping[str, str]
"""A field; or several: a tuple of them, or a dict with names of its own -> field."""
Form = Callable[[Mapping[str, Any]], Any]


class Adapter(Loader):
    """The base of what the methods of `Batches` return."""

    def __init__(self, feed: Epochs, title: str) -> None:
        super().__init__()  # Keras's, in classes that derive from that too
        self._feed, self._title = feed, title
        self._handed = Handed()
        self._iterator: BatchIterator | None = None
        """Of an adapter that is asked for one batch after another: the rest of its epoch."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._title}; {self._feed!r})"

    def __getitem__(self, index: Any) -> Any:
        raise not_indexed()

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
        self._end()

    def set_epoch(self, epoch: int) -> None:
        self._end()  # so that its workers are free for the epoch that comes
        super().set_epoch(epoch)

    def stats(self) -> dict[str, Any]:
        """As `Batches.stats`."""
        return self._feed.stats()

    def _reached(self) -> Place:
        return self._feed.place()

    def _end(self) -> None:
        iterator, self._iterator = self._iterator, None
        if iterator is not None:
            iterator.close()


def arrays_of(batch: Any) -> Iterator[Any]:
    """The arrays of a batch, whichever form it has: a dict, a TensorDict, a tuple, or tuples and dicts of them."""
    values = batch.values() if hasattr(batch, "keys") else batch if isinstance(batch, tuple | list) else (batch,)
    for value in values:
        if isinstance(value, tuple | dict):
            yield from arrays_of(value)
        else:
            yield value


def flat(values: Iterable[Any]) -> Iterator[NDArray[Any]]:
    """The arrays of a list, or for clips of a list of lists."""
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        else:
            yield from value


def imported(name: str, needs: str) -> Any:
    """A framework's module. Raises MissingExtraError without it. needs: what to install."""
    try:
        return import_module(name)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name
        raise MissingExtraError(needs if missing else f"{needs} ({error})") from error


def check_fields(feed: Epochs, parameter: str, fields: Iterable[Any]) -> None:
    described, stored = feed.making.described(), feed.stored()
    for field in fields:
        if isinstance(field, str) and field in described:
            continue
        which = f"{parameter}: there is no field {field!r} in a batch, only {', '.join(described)}"
        if field in stored:
            had = [name for name in stored if name in described]
            raise UsageError(f"{which}; the store has it: pass fields={[*had, field]} to batches()")
        raise UsageError(which + did_you_mean(str(field), [*described, *stored]))


def tuples(feed: Epochs, as_tuple: Sequence[str] | None) -> tuple[Form | None, str]:
    """The form of batches as tuples of these fields, and words to show it; (None, "") for dicts. UsageError for a field
    that no batch has."""
    if as_tuple is None:
        return None, ""
    form, fields = _picked(feed, "as_tuple", names("as_tuple", as_tuple))
    return form, f", tuples ({', '.join(fields)})"


def inputs_and_labels(
    feed: Epochs, x: Chosen, y: Chosen | None, sample_weight: str | None
) -> tuple[Callable[[Mapping[str, Any]], tuple[Any, ...]], list[str]]:
    """What makes Keras's (x,), (x, y) or (x, y, sample_weight) of a batch, and the fields that it takes. UsageError
    where that makes no sense."""
    if sample_weight is not None and y is None:
        raise UsageError(f"sample_weight={sample_weight!r} needs y=, the field that it weights")
    given = {"x": x, "y": y, "sample_weight": sample_weight}
    parts = [_picked(feed, name, value) for name, value in given.items() if value is not None or name == "x"]
    fields = list(dict.fromkeys(field for _, chosen in parts for field in chosen))
    return lambda batch: tuple(form(batch) for form, _ in parts), fields


def _picked(feed: Epochs, parameter: str, chosen: Any) -> tuple[Form, list[str]]:
    if isinstance(chosen, str):
        fields = [chosen]
    else:
        fields = list(chosen.values()) if isinstance(chosen, Mapping) else names(parameter, chosen)
    check_fields(feed, parameter, fields)
    if not fields:
        raise UsageError(f"{parameter}={chosen!r} names no field")
    if isinstance(chosen, str):
        return itemgetter(chosen), fields
    if isinstance(chosen, Mapping):
        shown = list(map(str, chosen))
        return lambda batch: {name: batch[field] for name, field in zip(shown, fields, strict=True)}, fields
    return lambda batch: tuple(batch[field] for field in fields), fields
