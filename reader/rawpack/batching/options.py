"""The options of `Reader.batches`: checked, and chosen where the caller leaves them open."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rawpack.batching.ragged import Ragged
from rawpack.errors import UsageError
from rawpack.store.concatenated import INDEX, ConcatenatedStore
from rawpack.system import machine

if TYPE_CHECKING:
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline

Backend = Literal["process", "thread"]
RESIZABLE = ("uint8", "uint16", "float32")
"""What OpenCV resizes."""
_MANY_WORKERS, _MANY_A_CPU = 16, 4
"""More than both is worth a warning: where workers wait for a disk, a few more than there are CPUs make sense."""
_TINY_BYTES = 4096
"""Samples this small are copied faster in this process than a message reaches a worker."""


@dataclass(frozen=True)
class Options:
    """The options of `Reader.batches`, checked."""

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
    """The kind of order and its parameters: part of a state."""
    progress: bool
    verify: bool


def check_travels(pipeline: Pipeline) -> None:
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
    library: ConcatenatedStore, fields: Sequence[str] | None, image_size: tuple[int, int] | None, transformed: bool
) -> tuple[str, ...]:
    """The fields of a batch: numbers, images and masks by default. transformed: by what `Reader.batches` was given."""
    if isinstance(fields, str):
        raise UsageError(f"fields={fields!r} must be a list of names, such as [{fields!r}]")
    if fields is None:
        fields = [name for name, field in library.fields.items() if field.in_slot]
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
                f"the samples of {name!r} have different sizes, so they cannot form a batch: pass image_size=224 "
                "(resize and center-crop in the workers) or image_size=(height, width), or a transform= that makes one "
                "size; or leave the field out with fields=, or pack with --size"
            )
    return chosen


def choose_planes(
    library: ConcatenatedStore, fields: Sequence[str] | None, color: str | None, transformed: bool
) -> tuple[str, ...]:
    """The fields that come as planes. transformed: by what `Reader.batches` was given."""
    if color is None:
        return ()
    if color != "yuv420":
        raise UsageError(f"color={color!r} must be 'yuv420' (the planes as they are stored) or None (pixels)")
    if transformed:
        raise UsageError(
            f"color={color!r} gives planes as they are stored; transform= and image_size= work on pixels: leave "
            "out one of them"
        )
    names = [name for name in library.fields if fields is None or name in fields]
    planar = [name for name in names if all(store.fields[name].planar for store in library.stores)]
    if not planar:
        raise UsageError(f"color={color!r}: no field of the batch is stored that way; pack with --color {color}")
    for name in planar:
        if not library.fields[name].uniform:
            raise UsageError(
                f"the planes of {name!r} have different sizes, so they cannot form a batch: leave color= out and pass "
                "image_size=, or pack with --size"
            )
    return tuple(planar)


def choose_workers(
    library: ConcatenatedStore,
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
        raise UsageError(f"backend={backend!r} must be 'process', 'thread' or None")
    if workers is not None and (not isinstance(workers, int | np.integer) or isinstance(workers, bool) or workers < 0):
        raise UsageError(
            f"workers={workers!r} must be a whole number from 0 (0: this process does the work), or None to choose"
        )
    raw = _copied(library, fields, planes)
    if workers is None:
        workers = 0 if tiny(library, fields, planes, frames) and not transformed else machine.cpus()
    if backend is None:
        # Copying rows releases the GIL, and threads share one page table: a row that one of them has touched costs the
        # others no page fault, which in another process takes as long as the copy.
        backend = "thread" if (raw and not transformed) or not hasattr(os, "fork") else "process"
    return int(workers), "process" if backend == "process" else "thread"


def doubtful_workers(asked: int, options: Options) -> str | None:
    """Why the number of workers is probably a mistake; None where it may be right. options: what it became."""
    if options.workers < asked:
        return (
            f"workers={asked}: batches of {options.batch_size} samples of this size keep {options.workers} busy, so "
            f"only {options.workers} are started; larger batches can use more"
        )
    cpus = machine.cpus()
    if options.backend == "process" and asked > max(_MANY_WORKERS, _MANY_A_CPU * cpus):
        return (
            f"workers={asked} on {cpus} {'CPU' if cpus == 1 else 'CPUs'}: each takes about 0.3 s of CPU time and 20 MB "
            "to start, and they take turns; workers=None starts one for each CPU"
        )
    return None


def check_ragged(library: ConcatenatedStore, fields: Sequence[str], ragged: object) -> None:
    """Raise UsageError where `ragged=` is invalid, or too short for a sample."""
    if ragged in ("list", "pad"):
        return
    if isinstance(ragged, bool) or not isinstance(ragged, int | np.integer) or ragged < 1:
        raise UsageError(f"ragged={ragged!r} must be 'list', 'pad', or a length to pad to")
    for name in fields:
        longest = library.longest(name) if library.fields[name].kind == "ragged" else 0
        if longest > ragged:
            raise UsageError(
                f"ragged={ragged} is too short: a sample has {longest} of {name!r}; pass that length, or 'pad'"
            )


def image_size_of(value: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """(height, width) of `image_size=`."""
    if value is None:
        return None
    pair: Any = (value, value) if isinstance(value, int | np.integer) else value
    whole = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(n, int | np.integer) for n in pair)
    if isinstance(value, bool) or not whole or not all(0 < n <= 65535 for n in pair):
        raise UsageError(f"image_size={value!r} must be a side in pixels, or (height, width)")
    return int(pair[0]), int(pair[1])


def tiny(library: ConcatenatedStore, fields: Sequence[str], planes: Sequence[str], frames: int) -> bool:
    """Whether samples of these fields are so small that copying them costs less than handing them to workers."""
    size = sum(_sample_bytes(library, name) for name in fields) * frames
    return _copied(library, fields, planes) and size <= _TINY_BYTES


def _copied(library: ConcatenatedStore, fields: Sequence[str], planes: Sequence[str]) -> bool:
    """Whether samples of these fields are copied from the files as they are."""
    return all(
        library.fields[name].codec.in_place and library.fields[name].planar == (name in planes) for name in fields
    )


def _sample_bytes(library: ConcatenatedStore, name: str) -> int:
    field = library.fields[name]
    if not field.in_slot or not field.uniform:
        return _TINY_BYTES + 1
    return np.dtype(field.dtype).itemsize * math.prod(field.stored_shape)
