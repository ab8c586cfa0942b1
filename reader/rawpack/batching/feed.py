"""What is behind `Batches`, and behind the faces of other frameworks: epoch after epoch of batches."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.batching import dataloader
from rawpack.batching.bookmark import Bookmark, Place, is_count
from rawpack.batching.encoded import BOXES, EncodedFields
from rawpack.batching.fill import BatchFiller, WorkSpec
from rawpack.batching.iterator import IN_FLIGHT, Batch, BatchIterator, Setup, most_slices
from rawpack.batching.pool_cache import PoolCache, WorkerSet
from rawpack.batching.ragged import RaggedFields
from rawpack.batching.readahead import OwnReads, Readahead
from rawpack.batching.repeats import RepeatWatch
from rawpack.batching.settings import Settings, check_travels, sides, tiny
from rawpack.batching.slots import SlotField, SlotLayout, SlotPool
from rawpack.batching.stats import Stats
from rawpack.batching.steps import EpochStart, EpochStep, EpochSteps
from rawpack.disk.manifest import Field, dump
from rawpack.errors import UsageError
from rawpack.order import Order, Ranks, RankSplit, resolve_rank
from rawpack.order.keys import whole_number
from rawpack.store.concatenated import CLIP, INDEX, ConcatenatedStore

if TYPE_CHECKING:
    from rawpack.batching.prefetch import Prefetch
    from rawpack.clips.table import ClipTable

_WHOLE_BATCHES_BYTES = 1 << 30
"""If one worker makes each batch, there is one in flight for each worker, but no more than this many bytes together."""
STATE_VERSION = 1
_TOGETHER_BYTES = 1 << 21
"""Without workers, about this many bytes of small batches are read at once: finding 64 samples of 784 bytes takes
longer than copying them."""


@dataclass(frozen=True)
class BatchField:
    """What a batch has under one name."""

    kind: str
    """Of the field: "image", "mask", "number", "ragged", "text"."""
    dtype: str | None
    """numpy's name; None where it is a list."""
    channels_last: bool
    """Whether it is images (n, H, W, C), or clips of them."""
    shape: tuple[int, ...] | None = None
    """Of one sample; None where it is a list, or differs from batch to batch."""
    axes: tuple[int | None, ...] | None = None
    """As `shape`, with None for an axis that differs from batch to batch; for texts, those between samples and texts.
    None where it is a list of arrays."""


class Feed(Iterable[Batch]):
    """Batches of one reader, as `Batches` has them, with what faces and iterators need besides."""

    def __init__(
        self,
        library: ConcatenatedStore,
        selection: NDArray[np.int64] | None,
        order: Order,
        split: RankSplit,
        seed: int,
        settings: Settings,
        clips: ClipTable | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        """selection: the rows of the library, or the numbers of clips, that the order counts;
        None for all. clips: where samples are clips. ranks: those that were asked for; split has what they are now."""
        self._library, self._selection, self._order, self._split = library, selection, order, split
        self._seed, self.settings, self._clips, self._ranks = seed, settings, clips, ranks
        shown = [name for name in settings.fields if library.fields[name].in_slot and name not in settings.encoded]
        ragged_fields = [name for name in settings.fields if not library.fields[name].in_slot]
        self._ragged_fields = RaggedFields(library, ragged_fields, settings.ragged, settings.movers)
        clip = [] if clips is None else [SlotField(CLIP, "int64", ())]
        slot_fields, *others = (
            [*(self._slot_field(name, k) for name in shown), SlotField(INDEX, "int64", self._axes(INDEX, k)), *clip]
            for k in range(len(settings.pipelines))
        )
        self._together = self._read_together(slot_fields)
        layout = SlotLayout(slot_fields, settings.batch_size * self._together, *others)
        files = tuple(store.files.for_worker() for store in library.stores)
        memory = None if library.memory is None else library.memory.layout
        manifests = tuple(dump(store.manifest) for store in library.stores)
        once = () if clips is None else clips.once
        self._spec = WorkSpec(
            files, manifests, layout, settings.pipelines, settings.planes, settings.verify, memory, once, library.groups
        )
        if settings.workers and settings.backend == "process" and settings.pipeline is not None:
            check_travels(settings.pipelines)
        self._filler = BatchFiller(self._spec, library)
        # More workers than there are slices in flight would only wait.
        self._in_flight = IN_FLIGHT
        if self._filler.whole_batches:
            self._in_flight = max(IN_FLIGHT, min(settings.workers, _WHOLE_BATCHES_BYTES // layout.size))
        making = self._in_flight + 1 if settings.max_held is None else min(self._in_flight + 1, settings.max_held)
        useful = making * most_slices(layout.size, self._filler)
        self.settings = settings = replace(settings, workers=min(settings.workers, useful))
        self.counted = Stats(settings.workers)
        self._own_reads = OwnReads(library, settings.workers)
        self.besides_bytes = library.mean_bytes(settings.encoded)
        """Mean bytes of a sample's files, which are not in slots."""
        self._besides_slots: RaggedFields | EncodedFields | None = None
        if settings.encoded:
            self._besides_slots = EncodedFields(
                library, settings.encoded, *settings.crop, self._ragged_fields, self._filler.name, self.counted.times,
                verify=settings.verify,
            )  # fmt: skip
        elif ragged_fields:
            self._besides_slots = self._ragged_fields
        self.held = 1
        """Batches that the caller is expected to hold at a time: slots are reused for these."""
        self._bookmark = Bookmark()
        self._repeats = RepeatWatch(library, order, settings, clips, selection is not None)
        self.closed = False
        self._iterators: weakref.WeakSet[BatchIterator] = weakref.WeakSet()
        """Those that have begun."""
        self._own()
        library.ends_with(self)

    def close(self) -> None:
        """End the workers, and the iterators that use them. Arrays that were handed out stay valid; to read on is a
        UsageError."""
        self.closed = True
        if os.getpid() == self._process:
            for iterator in list(self._iterators):
                iterator.close()
            self._pool_cache.close()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {dtype} {shape}" for name, dtype, shape in self._table())
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
        order = settings.order_name if fixed else f"{settings.order_name}, seed={self._seed}"
        if settings.buckets is not None:
            order += f", {len(settings.buckets)} sizes, {settings.buckets.lost:.1%} of the pixels lost"
        ranks = f", rank {split.rank} of {split.world_size}" if split.world_size > 1 else ""
        kind = {"process": "worker processes", "thread": "worker threads"}[settings.backend]
        workers = f"{settings.workers} {kind}" if settings.workers else "no workers"
        return f"{count}batch{plural} of {settings.batch_size} an epoch, {order}{ranks}, {workers}"

    def shown(self) -> tuple[Any, ...]:
        """What a notebook shows of these batches: see `html_of`."""
        return self._table(), self._library, self._clips, self._selection

    def _table(self) -> list[tuple[str, str, str]]:
        """Name, dtype and shape of each field of a batch."""
        fields: dict[str, SlotField | Field] = {name: self._library.fields[name] for name in self.settings.fields}
        fields |= {name: Field(kind="image", dtype="uint8", shape=(None,)) for name in self.settings.encoded}
        fields |= {field.name: field for field in self._spec.layout.fields}
        shapes = {name: one.shape for name, one in fields.items()} | self._spec.layout.shapes
        return [(name, one.dtype, sides((self.settings.batch_size, *shapes[name]))) for name, one in fields.items()]

    def __len__(self) -> int:
        """The number of batches that this rank gets in the epoch that comes next, from its start."""
        return len(self._start(self._bookmark.epoch, 0))

    def set_epoch(self, epoch: int) -> None:
        """Epoch `epoch` comes next: from its start, or from the position that was loaded for this epoch."""
        self._bookmark.set_epoch(whole_number("epoch", epoch, 0))
        self._bookmark.choices += 1

    def stay(self) -> None:
        """The position that the latest iterator has reached does not count. The next epoch does."""
        self._bookmark.stay()

    def __iter__(self) -> BatchIterator:
        if os.getpid() != self._process:
            # A forked child needs its own workers.
            self._own()
        return BatchIterator(
            self,
            self._pool_cache,
            self._filler,
            self._besides_slots,
            seed=self._seed,
            in_flight=self._in_flight,
            together=self._together,
        )

    def begin(self, iterator: BatchIterator) -> Setup:
        """Called by an iterator at its first `next()`: it takes the next epoch."""
        self._library.look_at_files(now=True)
        self.check_open()
        self._iterators.add(iterator)
        with self._taking:
            start = self.next_start()
            if not start.position:
                # Again: ranks may be known by now, and samplers may have epochs of different lengths.
                start.split.check_not_empty()
            read_one = self._repeats.begins(start, self._bookmark.choices, lambda: [self._identity, self._split])
            steps: EpochSteps = self._steps(start)
            prefetch = None
            if self._library.fetcher is not None:
                steps = prefetch = self._prefetch(steps, start)
            try:
                if self._library.fetcher is not None:
                    self._library.fetcher.restore()  # new workers open what is in the cache
                worker_set = self._pool_cache.acquire(start) or self._new_worker_set()
            except BaseException:
                steps.close()
                raise
            try:
                setup = self._setup(start, steps, prefetch, worker_set, read_one)
            except BaseException:
                self._pool_cache.discard(worker_set)
                raise
            self._bookmark.taken(start, iterator)
        return setup

    def check_open(self) -> None:
        """Raise UsageError where these batches were closed."""
        if self.closed:
            raise UsageError("these batches were closed: make others, by `batches()` of an open reader")

    def _setup(
        self,
        start: EpochStart,
        steps: EpochSteps,
        prefetch: Prefetch | None,
        worker_set: WorkerSet,
        read_one: Callable[[], None] | None,
    ) -> Setup:
        readahead = Readahead(self._library, self.settings.fields, worker_set.pool, self._own_reads)
        if prefetch is None and readahead.useful:
            ranks = start.split.world_size
            region_end = partial(self._order.region_end, start.epoch, ranks=ranks)
            steps = readahead.by_region(steps, start.position, region_end, ranks)
        for _ in worker_set.begun:
            next(steps)
        return Setup(start, steps, worker_set, readahead, prefetch, self._bookmark, read_one)

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
        """The place after so many batches since the iterator of another place began; None: that place itself."""
        start, _ = place
        return place if batches is None else (start, start.reached(whole_number("after", batches, 0, len(start))))

    def state_at(self, start: EpochStart, position: int) -> dict[str, Any]:
        """The state at a place."""
        return {"version": STATE_VERSION, **start.state(position), **self._identity, **start.worker_identity}

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
        for name, value in expected.items():
            if state.get(name) != value:
                raise UsageError(
                    f"this state does not fit: its {name} is {state.get(name)!r}, here it is {value!r}; resume with "
                    f"the same {', '.join(['samples', 'seed', 'shuffle', *self._order.identity])} and rawpack's order "
                    "version"
                )
        if "worker" in state and state["worker"] != (here := self.next_start().worker_identity.get("worker")):
            raise UsageError(
                f"this state is from worker {state['worker']}, of a DataLoader; this is {here or 'no such worker'}: "
                "resume with the same num_workers, batch size and ranks, or take states with num_workers=0"
            )
        epoch, position = state.get("epoch"), state.get("position")
        if not isinstance(epoch, int) or not isinstance(position, int) or epoch < 0 or position < 0:
            raise UsageError(f"this state is damaged: epoch {epoch!r}, position {position!r}")
        if position > self._order.length(epoch):
            raise UsageError(f"this state is damaged: position {position} of {self._order.length(epoch)}")
        self._bookmark.load(epoch, position, self._order.consumed_of(state, epoch, position))

    def stats(self) -> dict[str, Any]:
        """See `Batches.stats`."""
        return self.counted.as_dict()

    def with_settings(self, *, together: bool = False, **changed: Any) -> Feed:
        """The same batches from the same position, with other settings. together: they share the
        position from then on: an iterator of either takes the next epoch of both."""
        settings = replace(self.settings, **changed)
        other = Feed(
            self._library, self._selection, self._order, self._split, self._seed, settings, self._clips, self._ranks
        )
        if together:
            other._bookmark, other._repeats, other._taking = self._bookmark, self._repeats, self._taking
        else:
            other._bookmark = self._bookmark.copy()
        return other

    def described(self) -> dict[str, BatchField]:
        """What a batch has, by name."""
        described = {}
        for field in self._spec.layout.fields:
            stored = self._library.fields.get(field.name)
            kind, channels_last = "number", False
            if stored is not None:
                made = None if self.settings.pipeline is None else self.settings.pipeline.results.get(field.name)
                layout = len(stored.shape) == 3 if made is None else made.layout == "HWC"
                kind = stored.kind
                channels_last = layout and stored.in_shards and field.name not in self.settings.planes
            axes: Any = self._spec.layout.shapes[field.name]
            shape = None if None in axes else axes
            described[field.name] = BatchField(kind, field.dtype, channels_last, shape, axes)
        for name in self.settings.encoded:
            described[name] = BatchField(self._library.fields[name].kind, None, False)
        if self.settings.crop[0] is not None:
            described[BOXES] = BatchField("number", "int64", False, (4,), (4,))
        for name in self._ragged_fields.names:
            stored, length = self._library.fields[name], self.settings.ragged
            axes = described[INDEX].axes if self._clips is not None else ()
            if stored.kind == "text" or length == "list":
                described[name] = BatchField(stored.kind, None, False, axes=axes if stored.kind == "text" else None)
                continue
            rest = tuple(n or 0 for n in stored.shape[1:])
            whole = (*axes, length, *rest) if isinstance(length, int | np.integer) else (*axes, None, *rest)
            described[name] = BatchField(stored.kind, stored.dtype, False, None if None in whole else whole, whole)
            described[f"{name}.length"] = BatchField("number", "int64", False, None if None in axes else axes, axes)
        return described

    def following(self, iterator: BatchIterator) -> Iterator[EpochStep]:
        """Called by an iterator: the steps of the next epoch, if the same workers will probably be asked for them."""
        bookmark = self._bookmark
        next_epoch = (bookmark.epoch, bookmark.position) == (iterator.start.epoch + 1, 0)
        # Threads use the caller's own transform, which may be changed between two epochs.
        foreseeable = self.foreseeable and (self.settings.backend == "process" or self.settings.pipeline is None)
        if bookmark.is_latest(iterator) and next_epoch and foreseeable and self._library.fetcher is None:
            return self._steps(iterator.start.next_epoch)
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
        return EpochStart(epoch, position, split, dataloader.worker_here())

    def _ranked(self) -> RankSplit:
        """The split for the rank that this process has by now: it may have got one since `Reader.batches`."""
        known = self._split.rank, self._split.world_size
        if (now := resolve_rank(self._ranks, known=known)) != known:
            self._split = replace(self._split, rank=now[0], world_size=now[1])
        return self._split

    def _steps(self, start: EpochStart) -> Generator[EpochStep]:
        order, epoch, repeats, look_at_files = (
            self._order,
            start.epoch,
            self._order.repeats,
            self._library.look_at_files,
        )
        for span, after in start.spans():
            look_at_files()
            samples = span.samples(order, epoch)
            if self._selection is not None:
                samples = self._selection[samples]
            # Positions are counted from 0 in each bucket, and random numbers must differ between buckets.
            first = span.start + (span.bucket << 48) if repeats else -1
            if self._clips is None:
                yield EpochStep(samples, after, None, span.bucket, first)
            else:
                rows = self._clips.rows(samples, self._seed, start.epoch, first)
                yield EpochStep(rows, after, samples, span.bucket, first)

    def _prefetch(self, steps: Iterator[EpochStep], start: EpochStart) -> Prefetch:
        """The same steps, each when its shards are in the cache. Those of the first are being fetched then."""
        from rawpack.batching.prefetch import Prefetch

        epoch, position = start.epoch, start.position

        def order(first: int, stop: int) -> NDArray[np.int64]:
            samples = self._order.samples(epoch, position + first, position + stop)
            if self._selection is not None:
                samples = self._selection[samples]
            # The first frames of clips: most clips are in the shard where they begin.
            return samples if self._clips is None else self._clips.first_rows(samples, self._seed, epoch)

        names = [name for name in self.settings.fields if self._library.fields[name].in_shards]
        left, batch = self._order.length(epoch) - position, self.settings.batch_size
        prefetch = Prefetch(steps, self._library, names, order, left, batch)
        prefetch.ready()
        return prefetch

    @cached_property
    def _identity(self) -> dict[str, Any]:
        """What must be equal for a state to mean the same samples."""
        selected = None if self._selection is None else xxhash.xxh3_64_hexdigest(self._selection.tobytes())
        return {
            "order": self.settings.order_name,
            "order_version": self._order.version,
            "seed": self._seed,
            "samples": len(self._library),
            "keys": self._library.key_digest,
            "selected": selected,
            "clips": None if self._clips is None else self._clips.identity,
            **self._order.identity,
        }

    def _own(self) -> None:
        self._process = os.getpid()
        self._taking = threading.RLock()
        """Held while an iterator takes its epoch, so that two threads take two different ones."""
        self._of_parent = getattr(self, "_pool_cache", None)
        """In a forked child: kept, because releasing it would end the parent's workers."""
        self._pool_cache = PoolCache()

    def _new_worker_set(self) -> WorkerSet:
        """New workers, and slots for them."""
        settings = self.settings
        shared = settings.workers > 0 and settings.backend == "process"
        slot_pool = SlotPool(self._spec.layout, self._in_flight + 1 + self.held, settings.max_held, shared=shared)
        if not settings.workers:
            return WorkerSet(None, slot_pool)
        from rawpack.batching.pool import WorkerPool

        pool = WorkerPool(self._spec, settings.workers, settings.backend, slot_pool, self._filler, settings.timeout)
        return WorkerSet(pool, slot_pool)

    def _read_together(self, fields: list[SlotField]) -> int:
        """How many batches are read at once, into one slot: more than one only where tiny samples are copied in this
        process, and the number of held batches is not limited. Batches of a remote store wait for their own shards."""
        settings, frames = self.settings, 1 if self._clips is None else self._clips.shape.lengths[-1]
        if self._clips is not None and len(self._clips.shape.lengths) > 1:
            return 1
        if settings.workers or settings.max_held is not None or settings.pipeline is not None or self._library.fetcher:
            return 1
        if not tiny(self._library, settings.fields, settings.planes, frames):
            return 1
        return max(1, _TOGETHER_BYTES // (sum(field.bytes for field in fields) * settings.batch_size))

    def _slot_field(self, name: str, bucket: int) -> SlotField:
        field, pipeline = self._library.fields[name], self.settings.pipelines[bucket]
        if name in self.settings.planes:
            return SlotField(name, field.dtype, (*self._axes(name, bucket), *field.stored_shape))
        if pipeline is not None and name in pipeline.results:
            made = pipeline.results[name]
            return SlotField(name, made.dtype, tuple(n for n in made.shape if n is not None))
        return SlotField(name, field.dtype, (*self._axes(name, bucket), *(n for n in field.shape if n is not None)))

    def _axes(self, name: str, bucket: int) -> tuple[int, ...]:
        """The axes between the batch's and those of a stored sample: for clips, the frames."""
        if self._clips is None or name in self._clips.once:
            return ()
        lengths = self._clips.shape.lengths
        return (lengths[bucket if len(lengths) > 1 else 0],)
