"""`Reader.batches()`: an iterable of batches, epoch after epoch."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack import machine
from rawpack.batching.crew import Crew, Pending
from rawpack.batching.iterator import Batch, BatchIterator, Step
from rawpack.batching.loose import IN_NO_SLOT, Loose, Ragged
from rawpack.batching.slots import SlotField, SlotLayout, SlotRing
from rawpack.batching.work import CLIP, INDEX, Filler, WorkSpec
from rawpack.errors import UsageError
from rawpack.library import Library
from rawpack.manifest import dump
from rawpack.order import Order, RankSplit
from rawpack.stats import Stats

if TYPE_CHECKING:
    from rawpack.clips.table import ClipTable
    from rawpack.remote.supply import Supply
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline

Backend = Literal["process", "thread"]
AHEAD = 2
"""Batches in the making while the caller holds one."""
RESIZABLE = ("uint8", "uint16", "float32")
"""What OpenCV resizes."""
STATE_VERSION = 1
Idle = tuple[Crew | None, SlotRing, list[Pending]]
"""Workers, their slots, and the batches that they are still making for an iterator that has ended."""
_TINY_SAMPLE_BYTES = 4096
"""Samples this small are gathered faster in this process than a worker can be told to."""
_TOGETHER_BYTES = 1 << 19
"""Without workers, so many bytes of small batches are read at once: to find and to ask for 64 samples of 784 bytes
takes longer than to copy them. No more than a core's cache holds."""


@dataclass(frozen=True)
class Options:
    """What `Reader.batches` was asked for, checked."""

    batch_size: int
    fields: tuple[str, ...]
    pipeline: Pipeline | None
    """What is done to samples; None where they are only copied or decoded."""
    mover: BoxMover | None
    """What that does to boxes; None where no boxes were chosen."""
    planes: tuple[str, ...]
    """Fields that come as planes, as they are stored."""
    workers: int
    backend: Backend
    timeout: float
    max_slots: int | None
    ragged: Ragged
    order_name: str
    """What kind of order, with what shapes it: part of a state."""
    progress: bool
    verify: bool


class Batches(Iterable[Batch]):
    """Batches of one reader: `iter()` takes the next epoch, from 0 on; after `set_epoch(n)`, n, then n + 1.

    Each iterator stands on its own: nested loops and two at a time work. Workers and slots are kept from epoch to epoch
    and end with this object.
    """

    def __init__(
        self,
        library: Library,
        selection: NDArray[np.int64] | None,
        order: Order,
        split: RankSplit,
        seed: int,
        options: Options,
        clips: ClipTable | None = None,
    ) -> None:
        """Made by `Reader.batches`. selection: the library's rows that the order counts, or the numbers of clips; None
        for all. clips: where samples are clips."""
        self._library, self._selection, self._order, self._split = library, selection, order, split
        self._seed, self.options, self._clips = seed, options, clips
        shown = [name for name in options.fields if library.fields[name].kind not in IN_NO_SLOT]
        loose = [name for name in options.fields if name not in shown]
        self._loose = Loose(library, loose, options.ragged, options.mover)
        slot_fields = [*(self._slot_field(name) for name in shown), SlotField(INDEX, "int64", self._axes(INDEX))]
        if clips is not None:
            slot_fields.append(SlotField(CLIP, "int64", ()))
        self._together = self._read_together(slot_fields)
        layout = SlotLayout(slot_fields, options.batch_size * self._together)
        stores = tuple(str(store.path) for store in library.stores)
        memory = None if library.memory is None else library.memory.layout
        manifests = tuple(dump(store.manifest) for store in library.stores)
        once = () if clips is None else clips.once
        fleeting = tuple(store.fleeting for store in library.stores)
        self._spec = WorkSpec(
            stores, manifests, layout, options.pipeline, options.planes, options.verify, memory, once, fleeting
        )
        if options.workers and options.backend == "process" and options.pipeline is not None:
            _check_travels(options.pipeline)
        self._filler = Filler(self._spec, library)
        self.counted = Stats(options.workers, layout.sample_bytes)
        self._epoch = self._position = 0
        self._latest: weakref.ref[BatchIterator] | None = None
        self._state: tuple[int, int] = (0, 0)
        self._own()

    def __reduce__(self) -> NoReturn:
        raise UsageError("batches have workers and memory of their own: pickle the reader, and call batches() there")

    def __len__(self) -> int:
        """The number of batches that this rank gets in a whole epoch: the one that `iter()` takes next."""
        return len(self._split_of(self._epoch))

    def set_epoch(self, epoch: int) -> None:
        """The next `iter()` takes epoch `epoch`, from its start."""
        if isinstance(epoch, bool) or not isinstance(epoch, int | np.integer) or epoch < 0:
            raise UsageError(f"epoch {epoch!r}: epochs are whole numbers from 0 on")
        self._begin_at(int(epoch), 0)

    def __iter__(self) -> BatchIterator:
        if os.getpid() != self._process:
            # A forked child has its own workers; those of its parent are not its business.
            self._own()
        with self._taking:
            epoch, position = self._epoch, self._position
            self._begin_at(epoch + 1, 0)
            self._state, self._latest = (epoch, position), None
        crew, ring = self._rehire() or self._hire()
        steps, supply = self._steps(epoch, position), None
        if self._library.fetcher is not None:
            steps = supply = self._supply(steps, epoch, position)
        iterator = BatchIterator(
            self,
            steps,
            crew,
            ring,
            self._filler,
            self._loose if self._loose.names else None,
            supply,
            seed=self._seed,
            epoch=epoch,
            ahead=AHEAD,
            together=self._together,
        )
        self._latest = weakref.ref(iterator)
        if self.options.progress:
            iterator.show_progress(self._split_of(epoch).count(position), f"epoch {epoch}")
        return iterator

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iterator is, to go on from by `load_state_dict`: plain values, good for JSON.

        The position counts samples over all ranks that were handed to the caller; what workers have prefetched does not
        count. The rest of the epoch is the same for other workers, another format of the same set, another world size.
        """
        epoch, position = self._state
        if not self._split_of(epoch).count(position):
            # Nothing is left of it, also where uneven="keep" gave this rank no batch in the last step.
            epoch, position = epoch + 1, 0
        return {"version": STATE_VERSION, "epoch": epoch, "position": position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next `iter()` goes on where `state` was taken. Raises UsageError where it speaks of another order."""
        expected = {"version": STATE_VERSION, **self._identity()}
        if not isinstance(state, Mapping):
            raise UsageError(f"this is no state of batches, but {type(state).__name__}; pass what state_dict() gave")
        for name, value in expected.items():
            if state.get(name) != value:
                raise UsageError(
                    f"this state does not fit: its {name} is {state.get(name)!r}, and {value!r} here; resume with the "
                    "same samples, seed, shuffle and rawpack's order version"
                )
        epoch, position = state.get("epoch"), state.get("position")
        if not isinstance(epoch, int) or not isinstance(position, int) or epoch < 0 or position < 0:
            raise UsageError(f"this state is damaged: epoch {epoch!r}, position {position!r}")
        if position > self._order.length(epoch):
            raise UsageError(f"this state is damaged: position {position} of {self._order.length(epoch)}")
        self._begin_at(epoch, position)

    def stats(self) -> dict[str, Any]:
        """Where the time goes, over all iterators so far: samples/s, bytes/s, the share of time that the loop waited,
        the workers' seconds in reading, decoding and transforming, and a verdict in words."""
        return self.counted.as_dict()

    def handed_over(self, iterator: BatchIterator, step: Step) -> None:
        """Told by an iterator: see `Owner`."""
        if self._latest is not None and self._latest() is iterator:
            self._state = (iterator.epoch, step.position)

    def ended(self, crew: Crew | None, ring: SlotRing, left: list[Pending] | None) -> None:
        """Told by an iterator: see `Owner`."""
        if left is None:
            _dismiss([(crew, ring, [])], self._process)
        else:
            self._idle.append((crew, ring, left))

    def _begin_at(self, epoch: int, position: int) -> None:
        self._epoch, self._position = epoch, position
        self._state = (epoch, position)

    def _steps(self, epoch: int, position: int) -> Iterator[Step]:
        split = self._split_of(epoch)
        for step in range(split.count(position)):
            span, after = split.batch(step, position), split.reached(step + 1, position)
            samples = span.samples(self._order, epoch)
            if self._selection is not None:
                samples = self._selection[samples]
            if self._clips is None:
                yield Step(samples, after)
            else:
                yield Step(self._clips.rows(samples, self._seed, epoch), after, samples)

    def _supply(self, steps: Iterator[Step], epoch: int, position: int) -> Supply:
        """The same steps, each when its shards have come."""
        from rawpack.remote.supply import Supply

        def order(start: int, stop: int) -> NDArray[np.int64]:
            samples = self._order.samples(epoch, position + start, position + stop)
            if self._selection is not None:
                samples = self._selection[samples]
            # Of clips, the first frames: most clips lie in the shard where they begin.
            return samples if self._clips is None else self._clips.rows(samples, self._seed, epoch)[:, 0]

        names = [name for name in self.options.fields if self._library.fields[name].in_shards]
        return Supply(steps, self._library, names, order, self._order.length(epoch) - position)

    def _split_of(self, epoch: int) -> RankSplit:
        return replace(self._split, length=self._order.length(epoch))

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a state to mean the same samples."""
        selected = None if self._selection is None else xxhash.xxh3_64_hexdigest(self._selection.tobytes())
        return {
            "order": self.options.order_name,
            "order_version": self._order.version,
            "seed": self._seed,
            "samples": len(self._library),
            "keys": self._library.key_digest,
            "selected": selected,
            "clips": None if self._clips is None else self._clips.identity,
        }

    def _own(self) -> None:
        self._idle: list[Idle] = []
        self._process = os.getpid()
        self._taking = threading.Lock()
        """Held while an iterator takes its epoch, so that two threads take two."""
        weakref.finalize(self, _dismiss, self._idle, self._process)

    def _rehire(self) -> tuple[Crew | None, SlotRing] | None:
        """Workers and slots of an iterator that has ended, once they have finished what it had begun."""
        while True:
            try:
                crew, ring, left = self._idle.pop()
            except IndexError:
                return None
            if crew is None or crew.drain():
                for pending in left:
                    ring.put_back(pending.slot)
                return crew, ring
            _dismiss([(crew, ring, [])], self._process)

    def _hire(self) -> tuple[Crew | None, SlotRing]:
        options = self.options
        shared = options.workers > 0 and options.backend == "process"
        ring = SlotRing(self._spec.layout, AHEAD + 2, options.max_slots, shared=shared)
        if not options.workers:
            return None, ring
        return Crew(self._spec, options.workers, options.backend, ring, self._filler, options.timeout), ring

    def _read_together(self, fields: list[SlotField]) -> int:
        """How many batches are read at once, and lie in one slot: more than one only where tiny samples are copied in
        this process, and nobody counts the batches that are held."""
        options = self.options
        if options.workers or options.max_slots is not None or options.pipeline is not None:
            return 1
        if self._library.fetcher is not None:
            return 1  # each batch when its shards are there
        frames = 1 if self._clips is None else self._clips.shape.frames
        if not _tiny(self._library, options.fields, options.planes, frames):
            return 1
        return max(1, _TOGETHER_BYTES // (sum(field.bytes for field in fields) * options.batch_size))

    def _slot_field(self, name: str) -> SlotField:
        field = self._library.fields[name]
        if name in self.options.planes:
            return SlotField(name, field.dtype, (*self._axes(name), *field.stored_shape))
        if self.options.pipeline is not None and name in self.options.pipeline.makes:
            made = self.options.pipeline.makes[name]
            return SlotField(name, made.dtype, tuple(n for n in made.shape if n is not None))
        return SlotField(name, field.dtype, (*self._axes(name), *(n for n in field.shape if n is not None)))

    def _axes(self, name: str) -> tuple[int, ...]:
        """The axes of a field between the batch's and those of a sample in the store: of clips, the frames."""
        return () if self._clips is None or name in self._clips.once else (self._clips.shape.frames,)


def _dismiss(idle: list[Idle], process: int) -> None:
    """End workers and let go of slots; in the process that started them."""
    if os.getpid() == process:
        for crew, ring, _ in idle:
            if crew is not None:
                crew.close()
            ring.close()
        idle.clear()


def _check_travels(pipeline: Pipeline) -> None:
    """Raise UsageError where a transform cannot be sent to worker processes."""
    import cloudpickle

    try:
        cloudpickle.dumps(pipeline)
    except Exception as error:
        raise UsageError(
            f"the transform cannot be sent to worker processes: {type(error).__name__}: {error}; functions must not "
            'hold open files, locks and the like; or pass backend="thread" or workers=0'
        ) from error


def choose_fields(
    library: Library, fields: Sequence[str] | None, image_size: tuple[int, int] | None, transformed: bool
) -> tuple[str, ...]:
    """The fields of a batch: numbers, images and masks by default. transformed: by what `Reader.batches` was given."""
    if isinstance(fields, str):
        raise UsageError(f"fields={fields!r}: a list of names, such as [{fields!r}]")
    if fields is None:
        fields = [name for name, field in library.fields.items() if field.kind not in IN_NO_SLOT]
    chosen = tuple(dict.fromkeys(name for name in fields if name != INDEX))
    for name in chosen:
        if name not in library.fields:
            raise UsageError(f"there is no field {name!r}; the store has {', '.join(library.fields)}")
        field = library.fields[name]
        if field.kind == "image" and image_size is not None and (field.dtype not in RESIZABLE or len(field.shape) != 3):
            raise UsageError(
                f"image_size= resizes (height, width, channels) of {', '.join(RESIZABLE)}; {name!r} is {field.dtype} "
                f"{field.shape}: leave it out with fields="
            )
        if field.in_shards and not field.uniform and image_size is None and not transformed:
            raise UsageError(
                f"the samples of {name!r} have different sizes, so they make no batch: pass image_size=224 (resize and "
                "centre crop in the workers) or image_size=(height, width), a transform= that makes one size, leave "
                "the field out with fields=, or pack with --size"
            )
    return chosen


def choose_planes(
    library: Library, fields: Sequence[str] | None, color: str | None, transformed: bool
) -> tuple[str, ...]:
    """The fields that come as planes. transformed: by what `Reader.batches` was given."""
    if color is None:
        return ()
    if color != "yuv420":
        raise UsageError(f"color={color!r}: 'yuv420' for the planes as they are stored, or None for pixels")
    if transformed:
        raise UsageError(
            f"color={color!r} gives planes as they are stored; transform= and image_size= work on pixels: leave "
            "out the one or the other"
        )
    names = [name for name in library.fields if fields is None or name in fields]
    planar = [name for name in names if all(store.fields[name].planar for store in library.stores)]
    if not planar:
        raise UsageError(f"color={color!r}: no field of the batch is stored so; pack with --color {color}")
    for name in planar:
        if not library.fields[name].uniform:
            raise UsageError(
                f"the planes of {name!r} have different sizes, so they make no batch: leave color= out and pass "
                "image_size=, or pack with --size"
            )
    return tuple(planar)


def choose_workers(
    library: Library,
    fields: Sequence[str],
    planes: Sequence[str],
    workers: int | None,
    backend: str | None,
    transformed: bool,
    frames: int,
) -> tuple[int, Backend]:
    """How many workers and of which kind, where the caller leaves it open: see `Reader.batches`.

    planes: those of the fields that come as they are stored. transformed: whether workers do more with samples than
    copying them. frames: of a clip, or 1.
    """
    if backend not in (None, "process", "thread"):
        raise UsageError(f"backend={backend!r}: 'process', 'thread' or None")
    if workers is not None and (not isinstance(workers, int | np.integer) or isinstance(workers, bool) or workers < 0):
        raise UsageError(f"workers={workers!r}: 0 (in this process), more, or None to choose")
    raw = _copied(library, fields, planes)
    if workers is None:
        workers = 0 if _tiny(library, fields, planes, frames) and not transformed else machine.cpus()
    if backend is None:
        # Copying rows releases the GIL, and threads share one page table: a row that one of them has touched costs the
        # others no page fault, which in another process takes as long as the copy.
        backend = "thread" if (raw and not transformed) or not hasattr(os, "fork") else "process"
    return int(workers), "process" if backend == "process" else "thread"


def check_ragged(library: Library, fields: Sequence[str], ragged: object) -> None:
    """Raise UsageError where `ragged=` is none of what `Reader.batches` takes, or too short for a sample."""
    if ragged in ("list", "pad"):
        return
    if isinstance(ragged, bool) or not isinstance(ragged, int | np.integer) or ragged < 1:
        raise UsageError(f"ragged={ragged!r}: 'list', 'pad', or a length to pad to")
    for name in fields:
        longest = library.longest(name) if library.fields[name].kind == "ragged" else 0
        if longest > ragged:
            raise UsageError(f"ragged={ragged}: a sample has {longest} of {name!r}; pad to that, or pass 'pad'")


def image_size_of(value: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """(height, width) of `image_size=`."""
    if value is None:
        return None
    pair: Any = (value, value) if isinstance(value, int | np.integer) else value
    whole = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(n, int | np.integer) for n in pair)
    if isinstance(value, bool) or not whole or not all(0 < n <= 65535 for n in pair):
        raise UsageError(f"image_size={value!r}: a side in pixels, or (height, width)")
    return int(pair[0]), int(pair[1])


def _copied(library: Library, fields: Sequence[str], planes: Sequence[str]) -> bool:
    """Whether samples of these fields come as they lie in the files."""
    return all(library.fields[name].encoding == ("yuv420" if name in planes else "raw") for name in fields)


def _tiny(library: Library, fields: Sequence[str], planes: Sequence[str], frames: int) -> bool:
    """Whether samples of these fields are so small that copying them costs less than arranging for it."""
    size = sum(_sample_bytes(library, name) for name in fields) * frames
    return _copied(library, fields, planes) and size <= _TINY_SAMPLE_BYTES


def _sample_bytes(library: Library, name: str) -> int:
    field = library.fields[name]
    if field.kind in IN_NO_SLOT or not field.uniform:
        return _TINY_SAMPLE_BYTES + 1
    return np.dtype(field.dtype).itemsize * math.prod(field.stored_shape)
