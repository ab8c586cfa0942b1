"""Which epoch comes next, from where, and with which workers: what the iterators of one `Feed` share."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.ahead.readahead import Readahead
from rawpack.ahead.steps import EpochStart, EpochStep, EpochSteps
from rawpack.choose.settings import Settings
from rawpack.clips.sample_set import SampleSet, Scope
from rawpack.epoch import dataloader
from rawpack.epoch.bookmark import Bookmark, Place, is_count
from rawpack.epoch.making import Making, PoolCache, WorkerSet
from rawpack.epoch.misuse import refuse
from rawpack.epoch.repeats import RepeatWatch
from rawpack.errors import UsageError
from rawpack.order.agreement import Agreement
from rawpack.order.base import Order
from rawpack.order.keys import whole_number
from rawpack.order.launcher import check_alone, resolve_rank
from rawpack.order.ranks import RankSplit
from rawpack.system.user import warn

if TYPE_CHECKING:
    from rawpack.ahead.prefetch import Prefetch

STATE_VERSION = 1
PIXELS_VERSION = 2
"""Changes where transforms make other pixels of the same random numbers. States of version 1 do not say it."""


@dataclass(frozen=True, slots=True)
class EpochPass:
    """One pass over an epoch, which an iterator takes when it begins."""

    start: EpochStart
    steps: EpochSteps
    """Those that are left after what `worker_set` has begun."""
    worker_set: WorkerSet
    readahead: Readahead
    prefetch: Prefetch | None
    """The steps, where their files must be fetched first."""
    handed_over: Callable[[Mapping[str, Any], int], None]
    """To be called with each batch, and the position after it."""
    read_one: Callable[[], None] | None
    """See `RepeatWatch.begins`."""


class Epochs:
    """The epochs of one reader's batches, one after another, and the workers that are kept between them."""

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

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` comes next: from its start, or from the position that was loaded for this epoch."""
        self._bookmark.set_epoch(whole_number("epoch", epoch, 0))

    @property
    def choices(self) -> int:
        """How often the user has said where the next iterator begins."""
        return self._bookmark.choices

    def stay(self) -> None:
        """The position that the latest iterator has reached does not count. The next epoch does."""
        self._bookmark.stay()

    def begin(self) -> EpochPass:
        """Called by an iterator at its first `next()`: it takes the next epoch."""
        self._samples.look_at_files()
        self.check_open()
        with self._taking:
            dataloader.check_no_worker()
            if self.settings.ranks is None:
                check_alone()
            start = self.next_start()
            if start.split.world_size > 1:
                refuse("rank", self)
            if not start.position:
                # Again: ranks may be known by now, and samplers may have epochs of different lengths.
                start.split.check_not_empty()
            self.agreement.check(self.settings.ranks, start.split, self._order, start.epoch, self._identity)
            read_one = self._repeats.begins(start, self._bookmark.choices, self._asked)
            steps: EpochSteps = self._steps(start)
            prefetch = worker_set = None
            try:
                if self._library.fetcher is not None:
                    steps = prefetch = self._prefetch(steps, start)
                    self._library.fetcher.restore()  # new workers open what is in the cache
                make = partial(self.making.worker_set, self.held)
                worker_set = self.pool_cache.acquire(start, make, self.making.outdated)
                readahead = Readahead(
                    self._library, self.settings.fields, worker_set.pool, self.making.own_reads,
                    self._samples.field_rows,
                )  # fmt: skip
                if prefetch is None and readahead.useful:
                    ranks = start.split.world_size
                    region_end = partial(self._order.region_end, start.epoch, ranks=ranks)
                    steps = readahead.by_region(steps, start.position, region_end, ranks)
                for begun, _ in worker_set.begun:
                    for _ in begun:
                        next(steps)
            except BaseException:
                steps.close()
                if worker_set is not None:
                    self.pool_cache.discard(worker_set)
                raise
            handed_over = self._bookmark.taken(start)
        return EpochPass(start, steps, worker_set, readahead, prefetch, handed_over, read_one)

    def _asked(self) -> list[Any]:
        """What makes batches equal, besides stores and settings."""
        return [self._identity, self._split, self._samples.asked.verify]

    def close(self) -> None:
        """See `Batches.close`."""
        self.closed = True
        if os.getpid() == self._process:
            self._made.close()
            self.pool_cache.close()

    def check_open(self) -> None:
        """Raise UsageError where these batches were closed."""
        if self.closed:
            raise UsageError("these batches were closed: make others, by `batches()` of an open reader")

    def state_dict(self, after: Mapping[str, Any] | int | None = None) -> dict[str, Any]:
        """See `Batches.state_dict`."""
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
        return place if batches is None else (start, start.reached(whole_number("after", batches, 0, len(start))))

    def state_at(self, start: EpochStart, position: int) -> dict[str, Any]:
        """The state at a place."""
        versions = {"version": STATE_VERSION, "pixels": PIXELS_VERSION}
        return {**versions, **start.state(position), **self._identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The iterator that begins next resumes where `state` was taken. Raises UsageError where it belongs to another
        order."""
        self.move_to(state)
        self._bookmark.choices += 1

    def move_to(self, state: Mapping[str, Any]) -> None:
        """As `load_state_dict`, where it is not the user who says from where to read."""
        expected = {"version": STATE_VERSION, **self._identity}
        if not isinstance(state, Mapping):
            raise UsageError(f"a state is what state_dict() returned, not a {type(state).__name__}")
        if not state.keys() & expected.keys():
            raise UsageError(f"this is no state of batches: it has none of {', '.join(expected)}")
        for name, value in expected.items():
            if (its := state.get(name)) != value:
                what = {
                    "samples": f"it is of another store or split: {its} samples, here {value}",
                    "keys": "it is of another store or split: the names of its samples are others",
                    "selected": "it is of another selection of these samples",
                }.get(name, f"its {name} is {its!r}, here it is {value!r}")
                same = ", ".join(["samples", "seed", "shuffle", *self._order.identity])
                raise UsageError(
                    f"this state does not fit: {what}; resume with the same {same} and rawpack's order version"
                )
        if state.get("pixels", 1) != PIXELS_VERSION and self.settings.pipeline is not None:
            from rawpack.transforms.fused import resizes

            if resizes(self.settings.pipeline):
                warn(
                    "this state is from a version of rawpack that made slightly other pixels of images that are "
                    "shrunk; samples, their order and random numbers are the same"
                )
        epoch, position = state.get("epoch"), state.get("position")
        if not isinstance(epoch, int) or not isinstance(position, int) or epoch < 0 or position < 0:
            raise UsageError(f"this state is damaged: epoch {epoch!r}, position {position!r}")
        if position > self._order.length(epoch):
            raise UsageError(f"this state is damaged: position {position} of {self._order.length(epoch)}")
        self._bookmark.load(epoch, position, self._order.consumed_of(state, epoch, position))

    def following(self, taken: EpochPass) -> Iterator[EpochStep]:
        """Called by an iterator: the steps of the next epoch, if the same workers will probably be asked for them."""
        bookmark = self._bookmark
        next_epoch = (bookmark.epoch, bookmark.position) == (taken.start.epoch + 1, 0)
        # Threads use the caller's own transform, which may be changed between two epochs.
        foreseeable = self.foreseeable and (self.settings.backend == "process" or self.settings.pipeline is None)
        if bookmark.is_latest(taken.start) and next_epoch and foreseeable and self._library.fetcher is None:
            return self._steps(taken.start.next_epoch)
        return iter(())

    @property
    def foreseeable(self) -> bool:
        """Whether all epochs have the same length, and none has to be drawn by the user's code."""
        return self._order.foreseeable

    def next_start(self) -> EpochStart:
        """Where the next iterator begins."""
        return self._start(self._bookmark.epoch, self._bookmark.position, self._bookmark.consumed)

    def _start(self, epoch: int, position: int, consumed: tuple[int, ...] = ()) -> EpochStart:
        split = self._order.split(self._ranked(), epoch, consumed)
        return EpochStart(epoch, position, split)

    def _ranked(self) -> RankSplit:
        """The split for the rank that this process has by now: it may have got one since `Reader.batches`."""
        known = self._split.rank, self._split.world_size
        if (now := resolve_rank(self.settings.ranks, known=known)) != known:
            self._split = replace(self._split, rank=now[0], world_size=now[1])
        return self._split

    def _steps(self, start: EpochStart) -> Generator[EpochStep]:
        order, epoch = self._order, start.epoch
        selection, clips = self._samples.selection, self._samples.clips
        for span, after in start.spans():
            index = span.samples(order, epoch)
            samples = index if selection is None else selection[index]
            # Positions are counted from 0 in each bucket, and random numbers must differ between buckets.
            first = span.start + (span.bucket << 48) if order.repeats else -1
            if clips is None:
                yield EpochStep(samples, index, after, None, span.bucket, first, span.repeated)
            else:
                rows = clips.rows(samples, self.seed, epoch, first)
                yield EpochStep(rows, index, after, samples, span.bucket, first, span.repeated)

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

    def _own(self) -> None:
        self._process = os.getpid()
        self._taking = threading.RLock()
        """Held while an iterator takes its epoch, so that two threads take two different ones."""
        self._of_parent = getattr(self, "pool_cache", None)
        """In a forked child: kept, because releasing it would end the parent's workers."""
        self.pool_cache = PoolCache()
