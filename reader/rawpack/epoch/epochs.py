"""Epoch after epoch of batches: which one comes next, from where, and what makes it. Behind `Batches`, and the adapters
of other frameworks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.checks import whole_number
from rawpack.choose.fields import extras_of
from rawpack.choose.settings import Settings
from rawpack.epoch import dataloader
from rawpack.epoch.bookmark import Bookmark, HandedOver, Place, is_count
from rawpack.epoch.iterator import BatchIterator
from rawpack.epoch.making import Making
from rawpack.epoch.misuse import refuse
from rawpack.epoch.repeats import RepeatWatch
from rawpack.epoch.states import VERSIONS, check_state
from rawpack.errors import UsageError
from rawpack.order.agreement import Agreement
from rawpack.order.base import Order
from rawpack.order.launcher import Ranks, check_alone, resolve_rank
from rawpack.order.ranks import RankSplit
from rawpack.order.steps import EpochStart, EpochStep, EpochSteps
from rawpack.samples.sample_set import SampleSet, Scope
from rawpack.workers.pool_cache import PoolCache
from rawpack.workers.source import Batch, BatchSource

if TYPE_CHECKING:
    from rawpack.ahead.prefetch import Prefetch


Begun = tuple[EpochStart, BatchSource, HandedOver, Callable[[], None] | None]
"""Where an iterator begins, what makes its batches, what it calls with each, and when one, or the end, was read."""


class Epochs(Iterable[Batch]):
    """The epochs of one reader's batches, and the workers that are kept between them."""

    def __init__(self, dataset: Any, samples: SampleSet, settings: Settings, order: Order, split: RankSplit) -> None:
        """dataset: the reader. split: for the ranks that `settings.ranks` are now."""
        self.dataset = dataset
        self._samples, self._library = samples, samples.library
        self._order, self._split, self.seed = order, split, settings.seed
        self.look_at_files = self._library.look_at_files
        self.making = Making(samples, settings, repeats=order.repeats)
        self.settings = self.making.settings
        self.held = 1
        """Batches that the caller is expected to hold at a time: slots are reused for these."""
        self._bookmark = Bookmark()
        self._repeats = RepeatWatch(samples, order, self.settings)
        self.agreement = Agreement()
        self.closed = False
        self._made = Scope()
        """What is closed with these: their iterators, and the same batches with other settings."""
        samples.scope.add(self)
        self._own()

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
        stored = self._library.fields.items()
        left = [name for name, field in stored if not field.in_slot and name not in self.settings.fields]
        more = f"; not in it: {', '.join(left)}, which fields=[...] can name" if left else ""
        return f"Batches({self.title()}; {fields}{more})"

    @property
    def split(self) -> RankSplit:
        """How ranks share an epoch; its length, and the rank, may be others by the time that it begins."""
        return self._split

    @property
    def foreseeable(self) -> bool:
        """Whether all epochs have the same length, and none has to be drawn by the user's code."""
        return self._order.foreseeable

    def title(self) -> str:
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
        return self.making.table(), self._samples

    def stats(self) -> dict[str, Any]:
        native = "none"
        if self.settings.pipeline is not None:
            from rawpack.transforms.fused import native_share

            native = native_share(self.settings.pipeline)
        more = {"held": self.making.held, "native": native, "ranks": self.agreement.problem}
        return self.making.counted.as_dict() | more

    def with_ranks(self, rank: int, world_size: int) -> Epochs:
        """These batches where their ranks were given; else the same ones for a trainer, which knows them."""
        if self.settings.ranks is not None:
            return self
        ranks = Ranks(rank, world_size)
        extras = extras_of(self._library, self.settings.extras, ranks, self._split.drop_last)
        return self.with_settings(together=True, ranks=ranks, extras=extras)

    def with_settings(self, *, together: bool = False, **changed: Any) -> Epochs:
        """The same batches from the same position, with other settings. together: they share the position from then on:
        an iterator of either takes the next epoch of both. They are closed with these."""
        other = Epochs(
            self.dataset, self._samples, msgspec.structs.replace(self.settings, **changed), self._order, self._split
        )
        other.closed = self.closed
        self._made.add(other)
        if together:
            other._bookmark, other._repeats, other._taking = self._bookmark, self._repeats, self._taking
            other.agreement = self.agreement
        else:
            other._bookmark = self._bookmark.copy()
        return other

    def close(self) -> None:
        self.closed = True
        if os.getpid() == self._process:
            self._made.close()
            self.pool_cache.close()

    def check_open(self) -> None:
        if self.closed:
            raise UsageError("these batches were closed: call batches() of an open reader again")

    # ------------------------------------------------------------------------------------------------ one epoch

    def begin(self, *, copies_small: bool) -> Begun:
        """Called by an iterator at its first `next()`: it takes the next epoch. copies_small: as of
        `BatchSource.want`."""
        self._samples.look_at_files()
        self.check_open()
        with self._taking:
            dataloader.check_no_worker()
            if self.settings.ranks is None:
                check_alone()
            start = self.next_start()
            self._check(start)
            read_one = self._repeats.begins(start, self._bookmark.choices, self._asked)
            source, prefetch, steps = None, None, self._steps(start)
            wanted: EpochSteps = steps
            try:
                if self._library.fetcher is not None:
                    wanted = prefetch = self._prefetch(steps, start)
                    self._library.fetcher.restore()  # new workers open what is in the cache
                source = self.pool_cache.acquire(start, partial(self.making.source, self.held), self.making.outdated)
                readahead = self.making.readahead(source)
                if prefetch is None and readahead.useful:
                    ranks = start.split.world_size
                    region_end = partial(self._order.region_end, start.epoch, ranks=ranks)
                    wanted = readahead.by_region(steps, start.position, region_end, ranks)
                source.want(
                    start, wanted, readahead, prefetch, partial(self._following, start), copies_small=copies_small
                )
            except BaseException:
                wanted.close()
                if source is not None:
                    self.pool_cache.discard(source)
                raise
            return start, source, self._bookmark.taken(start), read_one

    def _check(self, start: EpochStart) -> None:
        """Raise UsageError where this process must not read an epoch, or has nothing to read in it."""
        if start.split.world_size > 1:
            refuse("rank", self)
        if not start.position:
            # Again: ranks may be known by now, and samplers may have epochs of different lengths.
            start.split.check_not_empty()
        self.agreement.check(self.settings.ranks, start.split, self._order, start.epoch, self._identity)

    def _asked(self) -> list[Any]:
        """What makes batches equal, besides stores and settings."""
        return [self._identity, self._split, self._samples.asked.verify]

    def _following(self, start: EpochStart) -> Iterator[EpochStep]:
        """The steps of the epoch after the one that began here, if the same workers will probably be asked for them."""
        bookmark = self._bookmark
        next_epoch = (bookmark.epoch, bookmark.position) == (start.epoch + 1, 0)
        # Threads use the caller's own transform, which may be changed between two epochs.
        foreseeable = self.foreseeable and (self.settings.backend == "process" or self.settings.pipeline is None)
        if bookmark.is_latest(start) and next_epoch and foreseeable and self._library.fetcher is None:
            return self._steps(start.next_epoch)
        return iter(())

    def _steps(self, start: EpochStart) -> Generator[EpochStep]:
        selection, clips = self._samples.selection, self._samples.clips
        if clips is None:
            return start.steps(self._order, selection)
        return start.steps(
            self._order, selection, lambda numbers, first: clips.rows(numbers, self.seed, start.epoch, first)
        )

    def _prefetch(self, steps: Iterator[EpochStep], start: EpochStart) -> Prefetch:
        """The same steps, each when its shards are in the cache. Those of the first are being fetched then."""
        from rawpack.ahead.prefetch import Prefetch

        epoch, position = start.epoch, start.position

        def order(first: int, stop: int) -> NDArray[np.int64]:
            samples = self._samples.numbers(self._order.samples(epoch, position + first, position + stop))
            # The first frames of clips: most clips are in the shard where they begin.
            clips = self._samples.clips
            return samples if clips is None else clips.first_rows(samples, self.seed, epoch)

        names = [name for name in self.settings.fields if self._library.fields[name].in_shards]
        left = self._order.length(epoch) - position
        warns = start.split.rank == 0  # all ranks would say the same
        prefetch = Prefetch(steps, self._library, names, order, left, self._samples.field_rows, warns=warns)
        prefetch.ready()
        return prefetch

    # ------------------------------------------------------------------------------------------------ positions

    def next_start(self) -> EpochStart:
        return self._start(self._bookmark.epoch, self._bookmark.position, self._bookmark.consumed)

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` comes next: from its start, or from the position that was loaded for this epoch."""
        self._bookmark.set_epoch(whole_number("epoch", epoch, 0))

    @property
    def choices(self) -> int:
        """How many times `set_epoch` or `load_state_dict` was called."""
        return self._bookmark.choices

    def stay(self) -> None:
        """States are of the next epoch again, not of the latest iterator."""
        self._bookmark.stay()

    def state_dict(self, after: Mapping[str, Any] | int | None = None) -> dict[str, Any]:
        return self.state_at(*self.place(after))

    def place(self, after: Mapping[str, Any] | int | None = None) -> Place:
        """Where the iterator of a batch began, and the position after it: for `state_at`. after: as of
        `Batches.state_dict`."""
        counted = is_count(after)
        reached = self._bookmark.reached(None if counted else after)
        if reached is None:
            start = self.next_start()
            reached = start, start.position
        return self.counted_from(reached, after if counted else None)

    @staticmethod
    def counted_from(place: Place, batches: Any) -> Place:
        """The place that is reached `batches` batches after the iterator of another place began; None: that place."""
        start, _ = place
        if batches is None:
            return place
        most = start.split.steps_left(start.position)
        return start, start.reached(whole_number("after", batches, 0, most))

    def state_at(self, start: EpochStart, position: int) -> dict[str, Any]:
        return {**VERSIONS, **start.state(position), **self._identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The iterator that begins next resumes where `state` was taken. Raises UsageError where it belongs to another
        order."""
        self.move_to(state)
        self._bookmark.choices += 1

    def move_to(self, state: Mapping[str, Any]) -> None:
        """As `load_state_dict`, where it is not the user who says from where to read."""
        epoch, position = check_state(state, self._identity, self._order, self.settings)
        self._bookmark.load(epoch, position, self._order.consumed_of(state, epoch, position))

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """What must be equal for a state to mean the same samples."""
        selection, framing = self._samples.selection, self._samples.framing
        return {
            "order": self.settings.order_name,
            "order_version": self._order.version,
            "seed": self.seed,
            "samples": len(self._library),
            "keys": self._library.key_digest,
            "selected": None if selection is None else xxhash.xxh3_64_hexdigest(selection.tobytes()),
            "clips": None if framing is None else framing.identity,
            **self._order.identity,
        }

    def _start(self, epoch: int, position: int, consumed: tuple[int, ...] = ()) -> EpochStart:
        return EpochStart(epoch, position, self._order.split(self._ranked(), epoch, consumed))

    def _ranked(self) -> RankSplit:
        """The split for the rank that this process has by now: it may have got one since `Reader.batches`."""
        known = self._split.rank, self._split.world_size
        if (now := resolve_rank(self.settings.ranks, known=known)) != known:
            self._split = replace(self._split, rank=now[0], world_size=now[1])
        return self._split

    def _own(self) -> None:
        self._process = os.getpid()
        self._taking = threading.RLock()
        """Held while an iterator takes its epoch, so that two threads take two different ones."""
        self._of_parent = getattr(self, "pool_cache", None)
        """In a forked child: kept, because releasing it would end the parent's workers."""
        self.pool_cache = PoolCache()
