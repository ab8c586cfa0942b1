"""Checks the arguments of `Reader.batches` and builds the `Batches` from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rawpack.batching.batches import Batches
from rawpack.batching.encoded import choose_encoded, first_crop
from rawpack.batching.options import (
    Options,
    check_ragged,
    choose_fields,
    choose_planes,
    choose_workers,
    doubtful_workers,
    flag,
    image_size_of,
    names,
    one_of,
    seconds,
)
from rawpack.batching.ordering import Sampler, in_buckets, make_order
from rawpack.clips.reading import samples_in
from rawpack.errors import UsageError
from rawpack.order import RankSplit, resolve_rank
from rawpack.order.keys import whole_number
from rawpack.store.concatenated import ConcatenatedStore
from rawpack.store.mix import Mix
from rawpack.system.warning import warn

if TYPE_CHECKING:
    from rawpack.batching.buckets import Buckets
    from rawpack.clips.table import ClipTable
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline
    from rawpack.transforms.plan import Transform


def build_batches(
    library: ConcatenatedStore,
    selection: NDArray[np.int64] | None,
    clips: ClipTable | None,
    mix: Mix | None,
    column: Callable[[str], Any],
    *,
    verify: bool,
    batch_size: int,
    shuffle: bool | Literal["block"],
    block: int,
    window: int,
    sampler: Sampler | None,
    seed: int,
    drop_last: bool,
    fields: Sequence[str] | None,
    image_size: int | tuple[int, int] | None,
    buckets: Sequence[tuple[int, int]] | Literal["auto"] | None,
    transform: Transform | None,
    color: Literal["yuv420"] | None,
    encoded: bool | Sequence[str],
    workers: int | None,
    backend: Literal["process", "thread"] | None,
    rank: int | Literal["auto"] | None,
    world_size: int,
    uneven: Literal["pad", "keep"],
    timeout: float,
    max_slots: int | None,
    ragged: Literal["list", "pad"] | int,
    progress: bool,
) -> Batches:
    """Batches of a reader. library, selection, clips: as for `Batches`. column: gives a field of all samples. verify:
    check images and masks against their checksums. The others are the parameters of `Reader.batches`."""
    batch_size, seed = whole_number("batch_size", batch_size, 1), whole_number("seed", seed)
    if max_slots is not None:
        max_slots = whole_number("max_slots", max_slots, 2)  # one to hold and one to fill
    block, window = whole_number("block", block, 1), whole_number("window", window, 1)
    one_of("uneven", uneven, "pad", "keep")
    size = image_size_of(image_size)
    if samples_in(library, selection, clips) == 0:
        raise UsageError("there are no samples to read: the store or the selection is empty")
    found = None if buckets is None else _find_buckets(library, selection, clips, buckets, size)
    sizes = [size] if found is None else found.sizes
    transformed = bool(transform) or sizes[0] is not None
    fields = None if fields is None else names("fields", fields)
    files = choose_encoded(library, fields, encoded)
    if files and (sizes[0] is not None or clips is not None):
        raise UsageError(
            "encoded= gives files, which cannot be resized, nor be frames of clips: leave out image_size=, "
            "buckets= and clips(); transform= may begin with a crop"
        )
    planes = choose_planes(library, fields, color, transformed)
    chosen = choose_fields(library, fields, sizes[0], transformed, files)
    check_ragged(library, chosen, ragged)
    crop = first_crop(transform, library, chosen, files) if files else (None, ())
    lengths = clips.shape.lengths if clips is not None else (None,)
    made = [_pipeline(library, clips, transform, chosen, one, files, frames) for one in sizes for frames in lengths]
    pipelines, movers = zip(*made, strict=True)
    frames = lengths[-1] or 1
    worked = [name for name in chosen if not files or (name not in files and library.fields[name].in_slot)]
    number, kind = choose_workers(library, worked, planes, workers, backend, pipelines[0] is not None, frames)
    order = make_order(library, selection, clips, mix, column, shuffle, block, window, sampler, seed, batch_size)
    order = in_buckets(order, found, selection, clips, mix, batch_size, seed)
    options = Options(
        batch_size=min(batch_size, order.length(0)) if sampler is None else batch_size,
        fields=chosen,
        pipelines=pipelines,
        movers=movers,
        planes=planes,
        encoded=files,
        crop=crop,
        workers=number,
        backend=kind,
        timeout=seconds("timeout", timeout),
        max_slots=max_slots,
        ragged=ragged,
        order_name=order.name,
        progress=flag("progress", progress),
        verify=verify,
        buckets=found,
    )
    ranks = (rank, world_size)
    split = RankSplit(
        len(order), batch_size, *resolve_rank(*ranks), uneven, flag("drop_last", drop_last), mix is not None
    )
    if split.drop_last and order.foreseeable:
        order.split(split, 0).check_not_empty()
    batches = Batches(library, selection, order, split, seed, options, clips, ranks)
    if workers is not None and (problem := doubtful_workers(number, batches.options)):
        warn(problem, UserWarning)
    return batches


def _find_buckets(
    library: ConcatenatedStore,
    rows: NDArray[np.int64] | None,
    clips: ClipTable | None,
    asked: Sequence[tuple[int, int]] | Literal["auto"],
    image_size: tuple[int, int] | None,
) -> Buckets:
    from rawpack.batching.buckets import find_buckets

    if clips is not None:
        if len(clips.shape.lengths) > 1:
            raise UsageError("buckets= is for clips of one length: leave it out, or call clips() with one number")
        rows = clips.first_rows(rows)
    return find_buckets(library, rows, asked, image_size)


def _pipeline(
    library: ConcatenatedStore,
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
