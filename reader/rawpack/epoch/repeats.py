"""A warning for loops that make new batches for each epoch: every new `Batches` begins at epoch 0, so all epochs of
such a loop are the same one."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Any

from rawpack.choose.settings import Settings
from rawpack.order.base import Order
from rawpack.order.steps import EpochStart
from rawpack.samples.sample_set import SampleSet
from rawpack.system.user import warn

_MOST = 256
"""Digests that are kept, of 32 characters each."""
_SOME = 2
"""Batches of an epoch that a loop has taken, where `next(iter(batches))` takes one to look at it."""
_ENOUGH = 2
"""Marks that make the next loop a repetition: an epoch that was read to its end gets two, one that was left one."""
_numbers = count()
"""Counts, in this process, the `Batches` that were made, and the marks."""
_read: OrderedDict[str, tuple[int, int]] = OrderedDict()
"""Digest of batches that were read in epoch 0 and no further -> marks, and when the last one came, by `_numbers`."""
_warned = False
"""Whether this process was warned."""


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
        self._digest: str | None = None

    def begins(self, start: EpochStart, choices: int, identity: Callable[[], Any]) -> Callable[[], None] | None:
        """Called when an iterator begins. Warns, once in a process, where it repeats what others have read.

        choices: how often the user said from where to read. identity: what makes batches equal, besides stores and
        settings. Returns what to call whenever a batch was handed over, or the end reached, if anything.
        """
        first, self._first = self._first, False
        if start.epoch:
            self._further = True
            if self._digest is not None:
                _read.pop(self._digest, None)
            return None
        # Batches of a parent do not say where they begin.
        elsewhere = os.getpid() != self._process
        if _warned or choices or start.position or elsewhere or not (random := self._random()):
            return None
        if self._digest is None:
            # With the process: a forked child begins without what its parent has read.
            self._digest = self._digest_of(start, [os.getpid(), identity()])
        marks, when = _read.get(self._digest, (0, 0))
        if first and marks >= _ENOUGH and when < self._number:
            self._warn(random, self._message(start.split.batch_size))
        return _counted(self._mark, len(start))

    def _mark(self) -> None:
        """Epoch 0 was read, in part or to its end, which for a queue may be when the next has begun."""
        if self._digest is not None and not self._further:
            _read[self._digest] = _read.get(self._digest, (0, 0))[0] + 1, next(_numbers)
            _read.move_to_end(self._digest)
            while len(_read) > _MOST:
                _read.popitem(last=False)

    def _digest_of(self, start: EpochStart, besides: list[Any]) -> str:
        from rawpack.epoch.fingerprint import fingerprint

        order, library = self._order, self._samples.library
        # A function of the epoch may answer in another way each time.
        drawn = None if order.foreseeable else order.samples(start.epoch, 0, order.length(start.epoch))
        stores = [store.digest for store in library.stores]
        return fingerprint([*besides, stores, library.groups, self._settings, drawn])

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
