"""What is behind `Batches`, and behind the faces of other frameworks: epoch after epoch of batches."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.choose.options import Options
from rawpack.choose.settings import Settings
from rawpack.epoch.epochs import Epochs
from rawpack.epoch.iterator import Batch, BatchIterator
from rawpack.order.base import Order
from rawpack.order.ranks import RankSplit
from rawpack.store.stores import Stores

if TYPE_CHECKING:
    from rawpack.clips.table import ClipTable


class Feed(Epochs, Iterable[Batch]):
    """Batches of one reader, as `Batches` has them, with what faces need besides."""

    def __init__(
        self,
        library: Stores,
        selection: NDArray[np.int64] | None,
        clips: ClipTable | None,
        options: Options,
        settings: Settings,
        order: Order,
        split: RankSplit,
    ) -> None:
        """As `Epochs`."""
        super().__init__(library, selection, clips, options, settings, order, split)
        self._iterators: weakref.WeakSet[BatchIterator] = weakref.WeakSet()
        self._library.ends_with(self)

    def __iter__(self) -> BatchIterator:
        if os.getpid() != self._process:
            # A forked child needs its own workers.
            self._own()
        iterator = BatchIterator(self)
        self._iterators.add(iterator)
        return iterator

    def __len__(self) -> int:
        """The number of batches that this rank gets in the epoch that comes next, from its start."""
        return len(self._start(self._bookmark.epoch, 0))

    def close(self) -> None:
        """End the workers, and the iterators that use them. Arrays that were handed out stay valid; to read on is a
        UsageError."""
        self.closed = True
        if os.getpid() == self._process:
            for iterator in list(self._iterators):
                iterator.close()
            self.pool_cache.close()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {dtype} {shape}" for name, dtype, shape in self.making.table())
        left = [
            name
            for name, field in self._library.fields.items()
            if not field.in_slot and name not in self.settings.fields
        ]
        more = f"; not in it: {', '.join(left)}, which fields=[...] can name" if left else ""
        return f"Batches({self.title()}; {fields}{more})"

    def title(self) -> str:
        """The options, in one line."""
        settings, split = self.settings, self._ranked()
        # A sampler is not asked: it may draw, and may raise.
        count = f"{len(self)} " if self.foreseeable else ""
        plural = "" if count == "1 " else "es"
        fixed = settings.order_name.startswith("sequential")
        order = settings.order_name if fixed else f"{settings.order_name}, seed={self.seed}"
        if settings.buckets is not None:
            order += f", {len(settings.buckets)} sizes, {settings.buckets.lost:.1%} of the pixels lost"
        ranks = f", rank {split.rank} of {split.world_size}" if split.world_size > 1 else ""
        kind = {"process": "worker processes", "thread": "worker threads"}[settings.backend]
        workers = f"{settings.workers} {kind}" if settings.workers else "no workers"
        return f"{count}batch{plural} of {settings.batch_size} an epoch, {order}{ranks}, {workers}"

    def shown(self) -> tuple[Any, ...]:
        """What a notebook shows of these batches: see `html_of`."""
        return self.making.table(), self._library, self._clips, self._selection

    def stats(self) -> dict[str, Any]:
        """See `Batches.stats`."""
        return self.making.counted.as_dict()

    def with_settings(self, *, together: bool = False, **changed: Any) -> Feed:
        """The same batches from the same position, with other settings. together: they share the
        position from then on: an iterator of either takes the next epoch of both."""
        settings = replace(self.settings, **changed)
        other = Feed(self._library, self._selection, self._clips, self.options, settings, self._order, self._split)
        if together:
            other._bookmark, other._repeats, other._taking = self._bookmark, self._repeats, self._taking
        else:
            other._bookmark = self._bookmark.copy()
        return other
