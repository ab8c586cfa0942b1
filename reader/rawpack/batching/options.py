"""Checks the options of `Reader.batches`, and chooses those that the caller left open."""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rawpack.batching.ragged import Ragged
from rawpack.errors import UsageError
from rawpack.order.keys import whole_number
from rawpack.store.common import STORE
from rawpack.store.concatenated import INDEX, ConcatenatedStore
from rawpack.system import machine

if TYPE_CHECKING:
    from rawpack.batching.buckets import Buckets
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline
    from rawpack.transforms.step import CropStep

Backend = Literal["process", "thread"]
RESIZABLE = ("uint8", "uint16", "float32")
"""The dtypes that OpenCV resizes."""
_MANY_WORKERS, _MANY_A_CPU = 16, 4
"""More than both is worth a warning. Where workers wait for a disk, a few more than there are CPUs make sense."""
_TINY_BYTES = 4096
"""Copying a sample this small takes less time than a message to a worker."""


@dataclass(frozen=True)
class Options:
    """The options of `Reader.batches`, checked."""

    batch_size: int
    fields: tuple[str, ...]
    pipelines: tuple[Pipeline | None, ...]
    """What is done to samples; None where they are only copied or decoded. One, or one for each bucket."""
    movers: tuple[BoxMover | None, ...]
    """What that does to boxes; None where no boxes were chosen."""
    planes: tuple[str, ...]
    """Fields that come as planes, as they are stored."""
    encoded: tuple[str, ...]
    """Fields that come as files."""
    crop: tuple[CropStep | None, tuple[str, ...]]
    """What is cropped of these, and the fields that are cropped: see `first_crop`."""
    workers: int
    backend: Backend
    timeout: float
    max_slots: int | None
    ragged: Ragged
    order_name: str
    """The kind of order and its parameters: part of a state."""
    progress: bool
    verify: bool
    buckets: Buckets | None = None

    @property
    def pipeline(self) -> Pipeline | None:
        """That of the first bucket: None where there is none in any."""
        return self.pipelines[0]


def flag(name: str, value: object) -> bool:
    """`value` as a bool; UsageError where it is none."""
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name}={value!r} must be True or False")
    return bool(value)


def one_of(name: str, value: object, *words: str | None) -> None:
    """Raise UsageError unless `value` is one of these."""
    if not (value is None or isinstance(value, str)) or value not in words:
        raise UsageError(f"{name}={value!r} must be one of {', '.join(map(repr, words))}")


def names(name: str, value: object) -> list[str]:
    """`value` as a list of names; UsageError where it is none."""
    if not isinstance(value, str) and isinstance(value, Iterable):
        found = list(value)
        if all(isinstance(one, str) for one in found):
            return found
    example = f", such as [{value!r}]" if isinstance(value, str) else ""
    raise UsageError(f"{name}={reprlib.repr(value)} must be a list of names{example}")


def seconds(name: str, value: object) -> float:
    """`value` as a positive number of seconds; UsageError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value > 0:
        raise UsageError(f"{name}={value!r} must be more than 0 seconds")
    return float(value)


def sides(shape: Sequence[int | None]) -> str:
    """A shape to be shown: "48x48x3", "?x5", "scalar"."""
    return "x".join("?" if n is None else str(n) for n in shape) or "scalar"


def check_travels(pipelines: Sequence[Pipeline | None]) -> None:
    """Raise UsageError where a transform cannot be sent to worker processes."""
    import cloudpickle

    try:
        cloudpickle.dumps(pipelines)
    except Exception as error:
        raise UsageError(
            f"the transform cannot be sent to worker processes: {type(error).__name__}: {error}; functions must not "
            'hold open files, locks and the like; or pass backend="thread" or workers=0'
        ) from error


def choose_fields(
    library: ConcatenatedStore,
    fields: Sequence[str] | None,
    image_size: tuple[int, int] | None,
    transformed: bool,
    encoded: Sequence[str],
) -> tuple[str, ...]:
    """The fields of a batch: by default numbers, images and masks. transformed: by `transform=` or `image_size=`.
    encoded: those that come as files."""
    if fields is None:
        fields = [name for name, field in library.fields.items() if field.in_slot]
        for name, problem in library.problems.items():
            if all(name in store.fields and store.fields[name].in_slot for store in library.stores):
                raise UsageError(f"{problem}; else name the fields that you want with fields=, without {name!r}")
    given = () if library.groups is None else (STORE,)
    chosen = tuple(dict.fromkeys(name for name in (*names("fields", fields), *given) if name != INDEX))
    for name in chosen:
        if name not in library.fields:
            why = library.problems.get(name, f"there is no field {name!r}")
            raise UsageError(f"{why}; the store has {', '.join(library.fields)}")
        field = library.fields[name]
        if field.kind == "image" and image_size is not None and (field.dtype not in RESIZABLE or len(field.shape) != 3):
            raise UsageError(
                f"image_size= resizes (height, width, channels) of {', '.join(RESIZABLE)}; {name!r} is {field.dtype} "
                f"{field.shape}: leave it out with fields="
            )
        if field.in_shards and not (field.uniform or image_size or transformed or name in encoded):
            raise UsageError(
                f"the samples of {name!r} have different sizes, so they cannot form a batch: pass image_size=224 "
                "(resize and center-crop in the workers) or image_size=(height, width), or a transform= that makes one "
                "size; or leave the field out with fields=, or pack with --size"
            )
    return chosen


def choose_planes(
    library: ConcatenatedStore, fields: Sequence[str] | None, color: str | None, transformed: bool
) -> tuple[str, ...]:
    """The fields that come as planes, as they are stored. transformed: by `transform=` or `image_size=`."""
    one_of("color", color, "yuv420", None)
    if color is None:
        return ()
    if transformed:
        raise UsageError(
            f"color={color!r} gives planes as they are stored; transform= and image_size= work on pixels: leave "
            "out one of them"
        )
    planar = [
        name
        for name in library.fields
        if (fields is None or name in fields)
        and library.fields[name].in_shards
        and all(store.fields[name].planar for store in library.stores)
    ]
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
    """How many workers, and of which kind: see `Reader.batches`.

    planes: the fields that come as they are stored. transformed: whether workers do more than copy or decode samples.
    frames: in a clip, or 1.
    """
    one_of("backend", backend, "process", "thread", None)
    raw = _copied(library, fields, planes)
    if workers is None:
        workers = 0 if tiny(library, fields, planes, frames) and not transformed else machine.cpus()
    workers = whole_number("workers", workers, 0)
    if backend is None:
        # Copying rows releases the GIL, and threads share one page table: a row that one of them has touched costs the
        # others no page fault, which in another process takes as long as the copy.
        backend = "thread" if (raw and not transformed) or not hasattr(os, "fork") else "process"
    return workers, "process" if backend == "process" else "thread"


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
            f"workers={asked} on {cpus} {'CPU' if cpus == 1 else 'CPUs'}: each takes at least 5 MB of "
            "memory, and they take turns; workers=None starts one for each CPU"
        )
    return None


def check_ragged(library: ConcatenatedStore, fields: Sequence[str], ragged: object) -> None:
    """Raise UsageError where `ragged` is invalid, or too short for a sample."""
    if isinstance(ragged, str) and ragged in ("list", "pad"):
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
