"""What is behind `Batches`, and behind the adapters of other frameworks: epoch after epoch of batches."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any, NoReturn

from rawpack.choose.fields import extras_of
from rawpack.epoch.epochs import Epochs
from rawpack.epoch.iterator import Batch, BatchIterator
from rawpack.epoch.misuse import refuse
from rawpack.errors import UsageError
from rawpack.order.launcher import Ranks
from rawpack.order.ranks import RankSplit


class Feed(Epochs, Iterable[Batch]):
    """Batches of one reader, as `Batches` has them, with what adapters need besides."""

    def __iter__(self) -> BatchIterator:
        if os.getpid() != self._process:
            # A forked child needs its own workers.
            self._own()
        iterator = BatchIterator(self)
        self._made.add(iterator)
        return iterator

    def __len__(self) -> int:
        """The number of batches that this rank gets in the epoch that comes next, from its start."""
        return len(self._start(self._bookmark.epoch, 0))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {dtype} {shape}" for name, dtype, shape in self.making.table())
        left = [
            name
            for name, field in self._library.fields.items()
            if not field.in_slot and name not in self.settings.fields
        ]
        more = f"; not in it: {', '.join(left)}, which fields=[...] can name" if left else ""
        return f"Batches({self.title()}; {fields}{more})"

    @property
    def split(self) -> RankSplit:
        """How ranks share an epoch; its length, and the rank, may be others by the time that it begins."""
        return self._split

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

    def stored(self) -> list[str]:
        """The fields of the store, whether or not a batch has them."""
        return list(self._library.fields)

    def shown(self) -> tuple[Any, ...]:
        """What a notebook shows of these batches: see `html_of`."""
        return self.making.table(), self._samples

    def stats(self) -> dict[str, Any]:
        """See `Batches.stats`."""
        native = "none"
        if self.settings.pipeline is not None:
            from rawpack.transforms.fused import native_share

            native = native_share(self.settings.pipeline)
        return self.making.counted.as_dict() | {"native": native, "ranks": self.agreement.problem}

    def with_ranks(self, rank: int, world_size: int) -> Feed:
        """These batches where their ranks were given; else the same ones for a trainer, which knows them."""
        if self.settings.ranks is not None:
            return self
        ranks = Ranks(rank, world_size)
        extras = extras_of(self._library, self.settings.extras, ranks, self._split.drop_last)
        return self.with_settings(together=True, ranks=ranks, extras=extras)

    def with_settings(self, *, together: bool = False, **changed: Any) -> Feed:
        """The same batches from the same position, with other settings. together: they share the
        position from then on: an iterator of either takes the next epoch of both. They are closed with these."""
        settings = replace(self.settings, **changed)
        other = Feed(self.dataset, self._samples, settings, self._order, self._split)
        other.closed = self.closed
        self._made.add(other)
        if together:
            other._bookmark, other._repeats, other._taking = self._bookmark, self._repeats, self._taking
            other.agreement = self.agreement
        else:
            other._bookmark = self._bookmark.copy()
        return other


class Loader:
    """What the batches of every framework have, with the attributes that training scripts read of a DataLoader."""

    _feed: Feed
    sampler = None
    """Samples are drawn by `Reader.batches`."""

    def __len__(self) -> int:
        """The number of batches that this rank gets in the epoch that comes next, from its start."""
        return len(self._feed)

    def __reduce__(self) -> NoReturn:
        raise UsageError("batches own workers and memory: pickle the reader instead, and call batches() there")

    @property
    def dataset(self) -> Any:
        """The reader. Its length is the number of samples, whatever a `sampler` makes of them."""
        refuse("dataset", self)
        return self._feed.dataset

    @property
    def batch_size(self) -> int:
        """Samples in a batch of this rank."""
        return self._feed.split.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is left out."""
        return self._feed.split.drop_last

    @property
    def num_workers(self) -> int:
        """The workers that rawpack has for these batches; 0: this process does the work."""
        return self._feed.settings.workers

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` comes next: from its start, or from the position that was loaded for this epoch."""
        self._feed.set_epoch(epoch)

    def forever(self) -> Generator[Any]:
        """Epoch after epoch without end, for loops that count steps instead of epochs.

            for step, batch in zip(range(100_000), batches.forever()): ...

        Batches, positions and states are those of a loop for each epoch; what `set_epoch` and `load_state_dict` say
        holds from the epoch on that begins next. One thread at a time may use it. It ends with an error only: one of a
        batch, or UsageError where an epoch has no batches for this rank.
        """
        while True:
            start = self._feed.next_start()
            yield from self._epoch()
            if not len(start) and not start.position:
                raise UsageError(f"epoch {start.epoch} has no batches for this rank: forever() would wait without end")

    def _epoch(self) -> Iterator[Any]:
        """The batches of the next epoch."""
        return iter(self)  # type: ignore[call-overload, no-any-return] # those of every framework are iterable
