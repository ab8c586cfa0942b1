"""`Reader.batches()`: an iterable of batches, epoch after epoch."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rawpack import machine
from rawpack.batching.crew import Crew
from rawpack.batching.iterator import Batch, BatchIterator, Step
from rawpack.batching.slots import SlotField, SlotLayout, SlotRing
from rawpack.batching.work import INDEX, Filler, WorkSpec
from rawpack.errors import UsageError
from rawpack.library import Library
from rawpack.order import Order, RankSplit

Backend = Literal["process", "thread"]
_AHEAD = 3
"""Batches in the making while the caller holds one."""
_TINY_SAMPLE_BYTES = 4096
"""Samples this small are gathered faster in this process than a worker can be told to."""


@dataclass(frozen=True)
class Options:
    """What `Reader.batches` was asked for, checked."""

    batch_size: int
    fields: tuple[str, ...]
    image_size: tuple[int, int] | None
    workers: int
    backend: Backend
    timeout: float
    max_slots: int | None


class Batches(Iterable[Batch]):
    """Batches of one reader: `iter()` takes the next epoch, from 0 on; after `set_epoch(n)`, n, then n + 1.

    Each iterator stands on its own: nested loops and two at a time work. Workers and slots are kept from epoch to epoch
    and end with this object.
    """

    def __init__(self, library: Library, order: Order, split: RankSplit, seed: int, options: Options) -> None:
        self._library, self._order, self._split, self._seed = library, order, split, seed
        self.options = options
        images = [name for name in options.fields if library.fields[name].kind == "image"]
        shown = [name for name in options.fields if library.fields[name].kind != "text"]
        self._texts = [name for name in options.fields if library.fields[name].kind == "text"]
        layout = SlotLayout(
            [*(self._slot_field(name) for name in shown), SlotField(INDEX, "int64", ())], options.batch_size
        )
        stores = tuple(str(store.path.resolve()) for store in library.stores)
        self._spec = WorkSpec(stores, layout, options.image_size if images else None)
        self._filler = Filler(self._spec, library)
        self._epoch = 0
        self._position = 0
        self._own()

    def __len__(self) -> int:
        """The number of batches that this rank gets in a whole epoch: in the one that `iter()` takes next."""
        return len(self._split_of(self._epoch))

    def set_epoch(self, epoch: int) -> None:
        """The next `iter()` takes epoch `epoch`."""
        if epoch < 0:
            raise UsageError(f"epoch {epoch}: epochs are counted from 0")
        self._epoch, self._position = epoch, 0

    def __iter__(self) -> Iterator[Batch]:
        if os.getpid() != self._owner:
            # A forked child has its own workers; those of its parent are not its business.
            self._own()
        epoch, position = self._epoch, self._position
        self._epoch, self._position = epoch + 1, 0
        crew, ring = self._idle.pop() if self._idle else self._hire()
        return BatchIterator(
            self._steps(epoch, position),
            crew,
            ring,
            self._filler,
            self._text,
            seed=self._seed,
            epoch=epoch,
            ahead=_AHEAD,
            on_hand_over=lambda step, waited_s, read_s: None,
            on_end=self._end,
        )

    def _steps(self, epoch: int, position: int) -> Iterator[Step]:
        split = self._split_of(epoch)
        for step in range(split.count(position)):
            rows = split.batch(step, position).samples(self._order, epoch)
            yield Step(rows, split.reached(step + 1, position))

    def _split_of(self, epoch: int) -> RankSplit:
        return replace(self._split, length=self._order.length(epoch))

    def _own(self) -> None:
        self._idle: list[tuple[Crew | None, SlotRing]] = []
        self._owner = os.getpid()
        weakref.finalize(self, _dismiss, self._idle, self._owner)

    def _hire(self) -> tuple[Crew | None, SlotRing]:
        options = self.options
        ring = SlotRing(self._spec.layout, _AHEAD + 2 if options.workers else 2, options.max_slots)
        if not options.workers:
            return None, ring
        return Crew(self._spec, options.workers, options.backend, ring, self._filler, options.timeout), ring

    def _end(self, crew: Crew | None, ring: SlotRing, in_order: bool) -> None:
        if in_order:
            self._idle.append((crew, ring))
            return
        if crew is not None:
            crew.close()
        ring.close()

    def _text(self, rows: NDArray[np.int64]) -> dict[str, list[str]]:
        return {name: self._library.text(name, rows) for name in self._texts}

    def _slot_field(self, name: str) -> SlotField:
        field = self._library.fields[name]
        shape = field.shape
        if field.kind == "image" and self.options.image_size is not None:
            shape = (*self.options.image_size, shape[2])
        return SlotField(name, field.dtype, tuple(n for n in shape if n is not None))


def _dismiss(idle: list[tuple[Crew | None, SlotRing]], owner: int) -> None:
    """End the workers that no iterator uses; in the process that started them."""
    if os.getpid() == owner:
        for crew, ring in idle:
            if crew is not None:
                crew.close()
            ring.close()
        idle.clear()


def choose_fields(library: Library, fields: Sequence[str] | None, sized: bool) -> tuple[str, ...]:
    """The fields of a batch: all numbers and images by default. `sized`: images will be brought to one size."""
    if fields is None:
        fields = [name for name, field in library.fields.items() if field.kind != "text"]
    chosen = tuple(dict.fromkeys(name for name in fields if name != INDEX))
    for name in chosen:
        if name not in library.fields:
            raise UsageError(f"there is no field {name!r}; the store has {', '.join(library.fields)}")
        field = library.fields[name]
        if field.kind == "image" and not field.uniform and not sized:
            raise UsageError(
                f"the samples of {name!r} have different sizes, so they make no batch: pass image_size=224 (resize and "
                "centre crop in the workers) or image_size=(height, width), leave the field out with fields=, "
                "or pack with --size"
            )
    return chosen


def choose_workers(
    library: Library, fields: Sequence[str], workers: int | None, backend: str | None
) -> tuple[int, Backend]:
    """How many workers and of which kind, where the caller leaves it open: see `Reader.batches`."""
    if backend not in (None, "process", "thread"):
        raise UsageError(f"backend={backend!r}: 'process', 'thread' or None")
    if workers is not None and workers < 0:
        raise UsageError(f"workers={workers}: 0 (in this process), more, or None to choose")
    if workers is None:
        sizes = [_sample_bytes(library, name) for name in fields]
        raw = all(library.fields[name].encoding == "raw" for name in fields)
        workers = 0 if raw and sum(sizes) <= _TINY_SAMPLE_BYTES else machine.cpus()
    if backend is None:
        backend = "process" if hasattr(os, "fork") else "thread"
    return workers, "process" if backend == "process" else "thread"


def image_size_of(value: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """(height, width) of `image_size=`."""
    if value is None:
        return None
    pair: Any = (value, value) if isinstance(value, int) else value
    if len(pair) != 2 or not all(isinstance(n, int) and 0 < n <= 65535 for n in pair):
        raise UsageError(f"image_size={value!r}: a side in pixels, or (height, width)")
    return int(pair[0]), int(pair[1])


def _sample_bytes(library: Library, name: str) -> int:
    field = library.fields[name]
    if field.kind == "text" or not field.uniform:
        return _TINY_SAMPLE_BYTES + 1
    return int(np.dtype(field.dtype).itemsize * np.prod([n or 1 for n in field.shape]))
