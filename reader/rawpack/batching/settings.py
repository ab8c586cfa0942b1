"""What follows from the options of `Reader.batches` for a store and this machine: what must fit is checked, and what
the caller left open is chosen."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rawpack.batching.options import Backend, Options, Workers, by_field, is_word
from rawpack.batching.ragged import Ragged
from rawpack.errors import UsageError
from rawpack.store.common import STORE
from rawpack.store.stores import INDEX, Stores
from rawpack.system import machine

if TYPE_CHECKING:
    from rawpack.batching.buckets import FoundBuckets
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline
    from rawpack.transforms.step import CropStep

RESIZABLE = ("uint8", "uint16", "float32")
"""The dtypes that OpenCV resizes."""
_MANY_WORKERS, _MANY_A_CPU = 16, 4
"""More than both is worth a warning. Where workers wait for a disk, a few more than there are CPUs make sense."""
_TIMEOUT_S = 120.0
_TINY_BYTES = 4096
"""Copying a sample this small takes less time than a message to a worker."""


@dataclass(frozen=True)
class Settings:
    """What follows from the options, for a store and this machine."""

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
    max_held: int | None
    ragged: Ragged
    order_name: str
    """The kind of order and its parameters: part of a state."""
    verify: bool
    buckets: FoundBuckets | None = None

    @property
    def pipeline(self) -> Pipeline | None:
        """That of the first bucket: None where there is none in any."""
        return self.pipelines[0]


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
            'hold open files, locks and the like; or pass workers=Workers(backend="thread") or workers=0'
        ) from error


def choose_fields(
    library: Stores,
    fields: Sequence[str] | None,
    size: tuple[int, int] | None,
    transformed: bool,
    encoded: Sequence[str],
) -> tuple[str, ...]:
    """The fields of a batch: by default numbers, images and masks. size: as `image_size=` says. transformed: by
    `transform=` or `image_size=`. encoded: those that come as files."""
    if fields is None:
        fields = [name for name, field in library.fields.items() if field.in_slot]
        for name, problem in library.problems.items():
            if all(name in store.fields and store.fields[name].in_slot for store in library.stores):
                raise UsageError(f"{problem}; else name the fields that you want with fields=, without {name!r}")
    given = () if library.groups is None else (STORE,)
    chosen = tuple(dict.fromkeys(name for name in (*fields, *given) if name != INDEX))
    for name in chosen:
        if name not in library.fields:
            why = library.problems.get(name, f"there is no field {name!r}")
            raise UsageError(f"{why}; the store has {', '.join(library.fields)}")
        field = library.fields[name]
        if field.kind == "image" and size is not None and (field.dtype not in RESIZABLE or len(field.shape) != 3):
            raise UsageError(
                f"image_size= resizes (height, width, channels) of {', '.join(RESIZABLE)}; {name!r} is {field.dtype} "
                f"{field.shape}: leave it out with fields="
            )
        if field.in_shards and not (field.uniform or size or transformed or name in encoded):
            raise UsageError(
                f"the samples of {name!r} have different sizes, so they cannot form a batch: pass image_size=224 "
                "(resize and center-crop in the workers) or image_size=(height, width), or a transform= that makes one "
                "size; or leave the field out with fields=, or pack with --size"
            )
    return chosen


def choose_form(library: Stores, options: Options, transformed: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields that come as planes, and those that come as files, both as they are stored. transformed: by
    `transform=` or `image_size=`."""
    chosen = library.fields if options.fields is None else options.fields
    pixels = [name for name, field in library.fields.items() if field.in_shards and name in chosen]
    forms = by_field("decode", options.decode, pixels, True)
    for form in (options.decode, *forms.values()):
        if not isinstance(form, Mapping | bool | np.bool_) and not is_word(form, "planes"):
            raise UsageError(
                f"decode={options.decode!r} must be True, False or 'planes', or a dict: field -> one of these"
            )
    planes = tuple(name for name, form in forms.items() if is_word(form, "planes"))
    files = tuple(name for name, form in forms.items() if not isinstance(form, str) and not form)
    if not isinstance(options.decode, Mapping):
        planes = tuple(name for name in planes if all(store.fields[name].planar for store in library.stores))
        if is_word(options.decode, "planes") and not planes:
            raise UsageError("decode='planes': no field of the batch is stored that way; pack with --color ycgco420")
        if options.decode is False and not files:
            raise UsageError("decode=False: the batch has no images or masks; name some with fields=")
    for name in planes:
        _check_planes(library, name, transformed)
    for name in files:
        _check_files(library, name)
    return planes, files


def _check_planes(library: Stores, name: str, transformed: bool) -> None:
    if not all(store.fields[name].planar for store in library.stores):
        raise UsageError(f"decode= asks for the planes of {name!r}, which are not stored: pack with --color ycgco420")
    if transformed:
        raise UsageError(
            "decode='planes' gives planes as they are stored; transform= and image_size= work on pixels: leave out one "
            "of them"
        )
    if not library.fields[name].uniform:
        raise UsageError(
            f"the planes of {name!r} have different sizes, so they cannot form a batch: leave decode= out and pass "
            "image_size=, or pack with --size"
        )


def _check_files(library: Stores, name: str) -> None:
    for store in library.stores:
        field = store.fields[name]
        if not field.codec.suffix:
            raise UsageError(
                f"decode=False: {name!r} is stored as {field.encoding}, not as image files, in {store.where}: pack or "
                "convert with --format lmdb, name other fields as decode={...: False}, or leave decode= out"
            )


def choose_workers(
    library: Stores,
    fields: Sequence[str],
    planes: Sequence[str],
    asked: Workers,
    transformed: bool,
    frames: int,
) -> dict[str, Any]:
    """How many workers, and of which kind: see `Workers`. By their names in `Settings`.

    planes: the fields that come as they are stored. transformed: whether workers do more than copy or decode samples.
    frames: in a clip, or 1.
    """
    raw = _copied(library, fields, planes)
    workers, backend = asked.number, asked.backend
    if workers is None:
        workers = 0 if tiny(library, fields, planes, frames) and not transformed else machine.cpus()
    if backend is None:
        # Copying rows releases the GIL, and threads share one page table: a row that one of them has touched costs the
        # others no page fault, which in another process takes as long as the copy.
        backend = "thread" if (raw and not transformed) or not hasattr(os, "fork") else "process"
    timeout = _TIMEOUT_S if asked.timeout is None else asked.timeout
    return {"workers": workers, "backend": backend, "timeout": timeout, "max_held": asked.max_held}


def doubtful_workers(asked: int, settings: Settings) -> str | None:
    """Why the number of workers is probably a mistake; None where it may be right. settings: what it became."""
    if settings.workers < asked:
        return (
            f"workers={asked}: batches of {settings.batch_size} samples of this size keep {settings.workers} busy, so "
            f"only {settings.workers} are started; larger batches can use more"
        )
    cpus = machine.cpus()
    if settings.backend == "process" and asked > max(_MANY_WORKERS, _MANY_A_CPU * cpus):
        return (
            f"workers={asked} on {cpus} {'CPU' if cpus == 1 else 'CPUs'}: each takes at least 5 MB of "
            "memory, and they take turns; workers=None starts one for each CPU"
        )
    return None


def check_ragged(library: Stores, fields: Sequence[str], ragged: Ragged) -> None:
    """Raise UsageError where a length is too short for a sample."""
    if isinstance(ragged, str):
        return
    for name in fields:
        longest = library.columns.longest(name) if library.fields[name].kind == "ragged" else 0
        if longest > ragged:
            raise UsageError(
                f"ragged={ragged} is too short: a sample has {longest} of {name!r}; pass that length, or 'pad'"
            )


def tiny(library: Stores, fields: Sequence[str], planes: Sequence[str], frames: int) -> bool:
    """Whether samples of these fields are so small that copying them costs less than handing them to workers."""
    size = sum(_sample_bytes(library, name) for name in fields) * frames
    return _copied(library, fields, planes) and size <= _TINY_BYTES


def _copied(library: Stores, fields: Sequence[str], planes: Sequence[str]) -> bool:
    """Whether samples of these fields are copied from the files as they are."""
    return all(
        library.fields[name].codec.in_place and library.fields[name].planar == (name in planes) for name in fields
    )


def _sample_bytes(library: Stores, name: str) -> int:
    field = library.fields[name]
    if not field.in_slot or not field.uniform:
        return _TINY_BYTES + 1
    return np.dtype(field.dtype).itemsize * math.prod(field.stored_shape)
