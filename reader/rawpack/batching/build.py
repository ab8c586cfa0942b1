"""Makes the batches of a reader from the options of `Reader.batches`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.batching.encoded import first_crop
from rawpack.batching.feed import Feed
from rawpack.batching.options import Options, Workers, by_field, size_of
from rawpack.batching.ordering import in_buckets, make_order
from rawpack.batching.settings import (
    Settings,
    check_ragged,
    choose_fields,
    choose_form,
    choose_workers,
    doubtful_workers,
)
from rawpack.clips.reading import samples_in
from rawpack.errors import UsageError
from rawpack.order.launcher import ranks_of, resolve_rank
from rawpack.order.ranks import RankSplit
from rawpack.store.mix import Mix
from rawpack.store.stores import Stores
from rawpack.system.warning import warn

if TYPE_CHECKING:
    from rawpack.batching.buckets import FoundBuckets
    from rawpack.clips.table import ClipTable
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline
    from rawpack.transforms.plan import Transform


def feed_of(
    library: Stores,
    selection: NDArray[np.int64] | None,
    clips: ClipTable | None,
    mix: Mix | None,
    column: Callable[[str], Any],
    options: Options,
) -> Feed:
    """Batches of a reader. library, selection, clips: as for `Feed`. column: gives a field of all samples."""
    if samples_in(library, selection, clips) == 0:
        raise UsageError("there are no samples to read: the store or the selection is empty")
    size, found = _size(library, selection, clips, options)
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
        ragged=options.ragged,
        order_name=order.name,
        verify=options.verify,
        buckets=found,
        **workers,
    )
    ranks = ranks_of(options.ranks)
    last = "pad" if ranks is None or ranks.last is None else ranks.last
    split = RankSplit(len(order), options.batch_size, *resolve_rank(ranks), last, options.drop_last, mixed)
    if split.drop_last and order.foreseeable:
        order.split(split, 0).check_not_empty()
    feed = Feed(library, selection, order, split, options.seed, settings, clips, ranks)
    if asked.number is not None and (problem := doubtful_workers(asked.number, feed.settings)):
        warn(problem, UserWarning)
    return feed


def _size(
    library: Stores, rows: NDArray[np.int64] | None, clips: ClipTable | None, options: Options
) -> tuple[tuple[int, int] | None, FoundBuckets | None]:
    """What `image_size=` asks: one size, or buckets."""
    if options.image_size is None:
        return None, None
    images = [name for name, field in library.fields.items() if field.kind == "image"]
    if not images and isinstance(options.image_size, dict):
        raise UsageError("image_size= is by field, and the store has no images")
    # Masks and boxes follow their image.
    asked = by_field("image_size", options.image_size, images, None).get(images[0]) if images else options.image_size
    if asked is None:
        return None, None
    from rawpack.batching.buckets import find_buckets
    from rawpack.batching.options import Buckets

    if not isinstance(asked, Buckets):
        return size_of(asked), None
    if not images:
        raise UsageError("Buckets are for images, and the store has none: leave out image_size=")
    if clips is not None:
        if len(clips.shape.lengths) > 1:
            raise UsageError("Buckets are for clips of one length: leave them out, or call clips() with one number")
        rows = clips.first_rows(rows)
    return None, find_buckets(library, images[0], rows, asked)


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
