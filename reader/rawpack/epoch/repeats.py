"""A warning for loops that make new batches for each epoch: every new `Batches` begins at epoch 0, so all epochs of
such a loop are the same one."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.choose.settings import Settings
from rawpack.order.base import Order
from rawpack.order.steps import EpochStart
from rawpack.samples.sample_set import SampleSet
from rawpack.system.user import warn

_SOME = 2
"""Batches of an epoch that a loop has taken, where `next(iter(batches))` takes one to look at it."""
_ENOUGH = 2
"""Marks that make the next loop a repetition: an epoch that was read to its end gets two, one that was left one."""
_numbers = count()
"""Counts, in this process, the `Batches` that were made, and the marks."""


@dataclass(eq=False)
class _Read:
    """Equal batches, of which some were read in epoch 0."""

    key: list[Any]
    marks: int = 0
    """None of those that went on to epoch 1."""
    when: int = 0
    """When the last mark came, by `_numbers`."""


_read: deque[_Read] = deque(maxlen=256)
_warned = False


class RepeatWatch:
    """Of one `Batches`: whether it repeats epoch 0 of equal ones that were read before it was made: once to the end, or
    twice in part.

    It is no repetition where equal batches take turns, where the others went on to epoch 1, or where the user said from
    where to read. Threads may share a watch, and a forked child may have a copy: it has no lock.
    """

    def __init__(self, samples: SampleSet, order: Order, settings: Settings) -> None:
        self._samples, self._order, self._settings = samples, order, settings
        self._number, self._process = next(_numbers), os.getpid()
        self._first, self._further = True, False
        self._read: _Read | None = None

    def begins(self, start: EpochStart, choices: int, identity: Callable[[], Any]) -> Callable[[], None] | None:
        """Called when an iterator begins. Warns, once in a process, where it repeats what others have read.

        choices: how often the user said from where to read. identity: what makes batches equal, besides stores and
        settings. Returns what to call whenever a batch was handed over, or the end reached, if anything.
        """
        first, self._first = self._first, False
        if start.epoch:
            self._further = True
            if self._read is not None:
                self._read.marks = 0
            return None
        # Batches of a parent do not say where they begin.
        elsewhere = os.getpid() != self._process
        if _warned or choices or start.position or elsewhere or not (random := self._random()):
            return None
        if self._read is None:
            # With the process: a forked child begins without what its parent has read.
            key = self._key_of(start, [os.getpid(), identity()])
            self._read = next((read for read in tuple(_read) if read.key == key), None) or _Read(key)
            if self._read not in _read:
                _read.append(self._read)
        if first and self._read.marks >= _ENOUGH and self._read.when < self._number:
            self._warn(random, self._message(start.split.batch_size))
        return _counted(self._mark, len(start))

    def _mark(self) -> None:
        """Epoch 0 was read, in part or to its end, which for a queue may be when the next has begun."""
        if (read := self._read) is not None and not self._further:
            read.marks, read.when = read.marks + 1, next(_numbers)

    def _key_of(self, start: EpochStart, besides: list[Any]) -> list[Any]:
        order, library, settings = self._order, self._samples.library, self._settings
        # A function of the epoch may answer in another way each time.
        drawn = None if order.foreseeable else _digest(order.samples(start.epoch, 0, order.length(start.epoch)))
        steps = [(*made.plans, *map(_weakly, made.steps)) for made in settings.pipelines if made is not None]
        steps.append((_weakly(settings.crop[0]), _weakly(settings.texts)))
        plain = msgspec.structs.replace(
            settings, pipelines=(), movers=(), crop=(None, settings.crop[1]), buckets=None, texts={}
        )
        stores = [store.digest for store in library.stores]
        return [*besides, stores, library.groups, plain, steps, drawn]

    @staticmethod
    def _warn(random: list[str], message: str) -> None:
        global _warned
        _warned = True
        *most, last = random
        what = f"{', '.join(most)} and {last}" if most else last
        warn(f"epoch 0 is read again, with the same {what}: {message}", UserWarning)

    def _random(self) -> list[str]:
        """What differs from epoch to epoch, in words."""
        pipelines, crop = [one for one in self._settings.pipelines if one is not None], self._settings.crop[0]
        texts = self._settings.texts.values()
        transform = any(one.random for one in pipelines) or any(one.random for one in texts)
        if crop is not None:
            from rawpack.transforms.images import draws_at_random

            transform = transform or draws_at_random(crop)
        found = {
            "order": self._order.follows_epoch,
            "random clips": self._samples.clips is not None and self._samples.clips.shape.per_video is not None,
            "random numbers for transform=": transform,
        }
        return [name for name, differs in found.items() if differs]

    def _message(self, batch_size: int) -> str:
        samples, words = self._samples, {"shuffled": ", shuffle=True", "block": ', shuffle="block"'}
        whole = len(samples.library.stores) == 1 and samples.framing is None and samples.selection is None
        reader = f'Reader("{samples.library.stores[0].where}")' if whole else "reader"
        shuffle = words.get(self._settings.order_name.partition(" ")[0], "")
        return (
            "each call of batches() begins at epoch 0. Call it once, before the loop over epochs; each loop over the "
            "result is then the next epoch (if this is another run, such as the next trial of a sweep or a cell that "
            "is run again, call set_epoch(0) on the new batches, and there is no warning):\n"
            f"    batches = {reader}.batches({batch_size}{shuffle}, ...)"
        )


def _digest(values: NDArray[Any]) -> str:
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(values).data)


def _weakly(value: Any) -> Any:
    """What is equal where arguments are, and keeps none of the user's functions and objects alive, besides steps that
    say what they equal."""
    from rawpack.transforms.step import BatchStep, Spec, Step, arguments, is_own

    if isinstance(value, Step | BatchStep):
        if is_own(type(value)):
            return type(value), _weakly(arguments(value))
        if type(value).__eq__ is not Step.__eq__:
            return value
    if isinstance(value, Mapping):
        return [(name, _weakly(part)) for name, part in value.items()]
    if isinstance(value, list | tuple):
        return [*map(_weakly, value)]
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, _digest(value)
    if value is None or isinstance(value, bool | int | float | str | Spec):
        return value
    try:
        return weakref.ref(value)
    except TypeError:
        return value if callable(value) else object()


def _counted(mark: Callable[[], None], batches: int) -> Callable[[], None]:
    """What to call for each batch that is read of an epoch: it calls `mark` after some of them, and once more after all
    of them."""
    # Who looks at the only batch of an epoch, by next(iter(batches)), has not looped over it: that takes the end.
    limits, numbers = (_SOME, max(2, batches)), count(1)

    def read_one() -> None:
        number = next(numbers)
        for limit in limits:
            if number == limit:
                mark()

    return read_one
