"""From the options of `Reader.batches` to what follows from them for a store, these ranks and this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.choose.fields import check_ragged, choose_fields, choose_form, first_crop
from rawpack.choose.options import Options, Workers
from rawpack.choose.ordering import in_buckets, make_order
from rawpack.choose.settings import Settings, copied, tiny
from rawpack.choose.sizes import size_or_buckets
from rawpack.clips.reading import samples_in
from rawpack.errors import UsageError
from rawpack.order.base import Order
from rawpack.order.launcher import ranks_of, resolve_rank
from rawpack.order.ranks import RankSplit
from rawpack.store.opening import Mix
from rawpack.store.stores import Stores
from rawpack.system import machine
from rawpack.system.user import warn

if TYPE_CHECKING:
    from rawpack.clips.table import ClipTable
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline
    from rawpack.transforms.plan import Transform

_MANY_WORKERS, _MANY_A_CPU = 16, 4
"""More than both is worth a warning. Where workers wait for a disk, a few more than there are CPUs make sense."""
_TIMEOUT_S = 120.0


def choose(
    library: Stores,
    selection: NDArray[np.int64] | None,
    clips: ClipTable | None,
    mix: Mix | None,
    column: Callable[[str], Any],
    options: Options,
) -> tuple[Settings, Order, RankSplit]:
    """What `Feed` needs besides what it is made of here. column: gives a field of all samples."""
    if samples_in(library, selection, clips) == 0:
        raise UsageError("there are no samples to read: the store or the selection is empty")
    size, found = size_or_buckets(library, selection, clips, options)
    sizes = [size] if found is None else found.sizes
    transformed = bool(options.transform) or sizes[0] is not None
    planes, files = choose_form(library, options, transformed)
    if files and (sizes[0] is not None or clips is not None):
        raise UsageError(
            "decode=False gives files, which cannot be resized, nor be frames of clips: leave out image_size= and "
            "clips(); transform= may begin with a crop"
        )
    chosen = choose_fields(library, options.fields, sizes[0], transformed, files)
    check_ragged(library, chosen, options.ragged)
    crop = first_crop(options.transform, library, chosen, files) if files else (None, ())
    lengths = clips.shape.lengths if clips is not None else (None,)
    made = [_pipeline(library, clips, options.transform, chosen, one, files, n) for one in sizes for n in lengths]
    pipelines, movers = zip(*made, strict=True)
    worked = [name for name in chosen if not files or (name not in files and library.fields[name].in_slot)]
    asked, mixed = options.workers, mix is not None
    assert isinstance(asked, Workers)
    workers = choose_workers(library, worked, planes, asked, pipelines[0] is not None, lengths[-1] or 1)
    order = make_order(library, selection, clips, mix, column, options)
    order = in_buckets(order, found, selection, clips, options, mixed=mixed)
    settings = Settings(
        batch_size=options.batch_size if options.sampler is not None else min(options.batch_size, order.length(0)),
        fields=chosen,
        pipelines=pipelines,
        movers=movers,
        planes=planes,
        encoded=files,
        crop=crop,
        order_name=order.name,
        buckets=found,
        **workers,
    )
    ranks = ranks_of(options.ranks)
    last = "pad" if ranks is None or ranks.last is None else ranks.last
    split = RankSplit(len(order), options.batch_size, *resolve_rank(ranks), last, options.drop_last, mixed)
    if split.drop_last and order.foreseeable:
        order.split(split, 0).check_not_empty()
    return settings, order, split


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
    raw = copied(library, fields, planes)
    workers, backend = asked.number, asked.backend
    if workers is None:
        workers = 0 if tiny(library, fields, planes, frames) and not transformed else machine.cpus()
    if backend is None:
        # Copying rows releases the GIL, and threads share one page table: a row that one of them has touched costs the
        # others no page fault, which in another process takes as long as the copy.
        backend = "thread" if (raw and not transformed) or not hasattr(os, "fork") else "process"
    timeout = _TIMEOUT_S if asked.timeout is None else asked.timeout
    return {"workers": workers, "backend": backend, "timeout": timeout, "max_held": asked.max_held}


def warn_of_workers(options: Options, settings: Settings) -> None:
    """Warn where the number of workers is probably a mistake. settings: what it became."""
    assert isinstance(options.workers, Workers)
    number, cpus = options.workers.number or 0, machine.cpus()
    if settings.workers < number:
        warn(
            f"workers={number}: batches of {settings.batch_size} samples of this size keep {settings.workers} busy, so "
            f"only {settings.workers} are started; larger batches can use more",
            UserWarning,
        )
    elif settings.backend == "process" and number > max(_MANY_WORKERS, _MANY_A_CPU * cpus):
        warn(
            f"workers={number} on {cpus} {'CPU' if cpus == 1 else 'CPUs'}: each takes at least 5 MB of "
            "memory, and they take turns; workers=None starts one for each CPU",
            UserWarning,
        )


def _pipeline(
    library: Stores,
    clips: ClipTable | None,
    transform: Transform | None,
    chosen: Sequence[str],
    size: tuple[int, int] | None,
    files: Sequence[str],
    frames: int | None,
) -> tuple[Pipeline | None, BoxMover | None]:
    """files: the chosen fields that workers leave alone."""
    if transform is None and size is None:
        return None, None
    from rawpack.transforms.boxes import mover_for
    from rawpack.transforms.left_behind import look_alikes
    from rawpack.transforms.plan import plan_pipeline
    from rawpack.transforms.resizing import Fit

    before = [] if size is None else [Fit(size)]
    once = () if clips is None else clips.once
    classes = len(library.classes) if library.classes else None
    worked = [name for name in chosen if name not in files]
    alike = look_alikes(library, worked)
    pipeline = plan_pipeline(transform or [], library.fields, worked, before, frames, once, classes, alike)
    mover = mover_for(transform, library.fields, chosen, before)
    return pipeline if pipeline.plans or pipeline.batch_steps else None, mover
