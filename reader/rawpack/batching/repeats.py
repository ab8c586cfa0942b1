"""A warning for loops that make new batches for each epoch: every new `Batches` begins at epoch 0, so all epochs of
such a loop are the same one."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from rawpack.batching.options import Options
from rawpack.batching.steps import EpochStart
from rawpack.order import Order
from rawpack.store.concatenated import ConcatenatedStore
from rawpack.system.warning import warn

if TYPE_CHECKING:
    from rawpack.clips.table import ClipTable

_MOST = 256
"""Digests that are kept, of 32 characters each."""
_numbers = count()
"""Counts, in this process, the `Batches` that were made, and the times that one of them was read through."""
_read: OrderedDict[str, int] = OrderedDict()
"""Digest of batches that were read through epoch 0 and no further -> when that was, by `_numbers`."""
_warned = False
"""Whether this process was warned."""


class RepeatWatch:
    """Of one `Batches`: whether it repeats epoch 0 of equal ones that were read through before it was made.

    It is no repetition where equal batches take turns, where the others went on to epoch 1, or where the user said from
    where to read. Threads may share a watch, and a forked child may have a copy: it has no lock.
    """

    def __init__(
        self, library: ConcatenatedStore, order: Order, options: Options, clips: ClipTable | None, selected: bool
    ) -> None:
        """As of `Batches`. selected: whether it has some of the samples only."""
        self._library, self._order, self._options, self._clips = library, order, options, clips
        self._selected = selected
        self._number, self._process = next(_numbers), os.getpid()
        self._first, self._further = True, False
        self._digest: str | None = None

    def begins(self, start: EpochStart, chosen: bool, identity: Callable[[], Any]) -> int:
        """Called when an iterator begins. Warns, once in a process, where it repeats what others have read.

        chosen: whether the user said from where to read. identity: what makes batches equal, besides stores and
        options. Returns 0, or how often a batch must be handed over, or the end be reached, until `read_through`.
        """
        global _warned
        first, self._first = self._first, False
        if start.epoch:
            self._further = True
            if self._digest is not None:
                _read.pop(self._digest, None)
            return 0
        # Batches of a parent, and workers of a DataLoader, do not say where they begin.
        elsewhere = start.worker is not None or os.getpid() != self._process
        if _warned or chosen or start.position or elsewhere or not (random := self._random()):
            return 0
        if self._digest is None:
            from rawpack.batching.fingerprint import fingerprint

            # With the process: a forked child begins without what its parent has read.
            self._digest = fingerprint([os.getpid(), self._asked_for(start), identity()])
        if first and _read.get(self._digest, self._number) < self._number:
            _warned = True
            warn(self._message(random, start.split.batch_size), UserWarning)
        # Who looks at the only batch of an epoch, by next(iter(batches)), has not looped over it: that takes the end.
        return max(2, len(start))

    def read_through(self) -> None:
        """Called when epoch 0 was read from its start to its end, which for a queue may be when the next has begun."""
        if self._digest is not None and not self._further:
            _read[self._digest] = next(_numbers)
            _read.move_to_end(self._digest)
            while len(_read) > _MOST:
                _read.popitem(last=False)

    def _random(self) -> list[str]:
        """What differs from epoch to epoch, in words."""
        pipelines, crop = [one for one in self._options.pipelines if one is not None], self._options.crop[0]
        transform = any(one.random for one in pipelines)
        if crop is not None:
            from rawpack.transforms.images import draws_at_random

            transform = transform or draws_at_random(crop)
        found = {
            "order": self._order.follows_epoch,
            "random clips": self._clips is not None and self._clips.shape.per_video is not None,
            "random numbers for transform=": transform,
        }
        return [name for name, differs in found.items() if differs]

    def _asked_for(self, start: EpochStart) -> list[Any]:
        order, library = self._order, self._library
        # A function of the epoch may answer in another way each time.
        drawn = None if order.foreseeable else order.samples(start.epoch, 0, order.length(start.epoch))
        return [[store.digest for store in library.stores], library.groups, self._options, drawn]

    def _message(self, random: list[str], batch_size: int) -> str:
        *most, last = random
        what = f"{', '.join(most)} and {last}" if most else last
        library, words = self._library, {"shuffled": ", shuffle=True", "block": ', shuffle="block"'}
        whole = len(library.stores) == 1 and self._clips is None and not self._selected
        reader = f'Reader("{library.stores[0].where}")' if whole else "reader"
        shuffle = words.get(self._options.order_name.partition(" ")[0], "")
        return (
            f"epoch 0 is read again, with the same {what}: each call of batches() begins at epoch 0. To train for "
            "several epochs, call it once, with .torch() or the like if you use that, before the loop:\n"
            f"    batches = {reader}.batches({batch_size}{shuffle}, ...)     # once, before the loop\n"
            "    for epoch in range(90):\n"
            "        for batch in batches: ...\n"
            "Each loop over them is then the next epoch. If you mean epoch 0 again, call batches.set_epoch(0) before "
            "the loop."
        )
