"""What follows from the options of `Reader.batches` for a store, these ranks and this machine: what must fit is
checked, and what the caller left open is chosen."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rawpack.choose.buckets import FoundBuckets, asked_sizes
from rawpack.choose.fields import check_ragged, choose_fields, choose_form, extras_of, first_crop
from rawpack.choose.options import Backend, Options, Workers
from rawpack.disk.manifest import main_image
from rawpack.errors import UsageError
from rawpack.order.base import Order
from rawpack.order.buckets import Bucketed
from rawpack.order.from_column import FromColumn
from rawpack.order.launcher import Ranks, ranks_of, resolve_rank
from rawpack.order.ranks import RankSplit
from rawpack.order.sampled import Sampled
from rawpack.order.shuffled import Blocks, BlockShuffled, Sequential, Shuffled
from rawpack.samples.sample_set import SampleSet
from rawpack.store.stores import Stores
from rawpack.system import machine
from rawpack.system.user import count, warn
from rawpack.workers.besides import Ragged

if TYPE_CHECKING:
    from rawpack.transforms.boxes import BoxMover
    from rawpack.transforms.pipeline import Pipeline
    from rawpack.transforms.step import CropStep, Step
    from rawpack.transforms.texts import OneText

_MANY_WORKERS, _MANY_A_CPU = 16, 4
"""More than both is worth a warning. Where workers wait for a disk, a few more than there are CPUs make sense."""
_COPYING_WORKERS = 8
"""Workers that copy rows, where their number is left open. More threads are slower: on 16 CPUs, 4 copied 93,700
images/s of 256 px, 8 copied 94,800, and 16 copied 56,200."""
_TIMEOUT_S = 120.0
_TINY_BYTES = 4096
"""Copying a sample this small takes less time than a message to a worker."""
_LARGE_BATCH_BYTES = 1 << 24
"""Copying a batch this large takes so long that it hardly matters how long threads wait for Python's lock."""


class Settings(msgspec.Struct, frozen=True):
    """What follows from the options, for a store and this machine."""

    batch_size: int
    fields: tuple[str, ...]
    pipelines: tuple[Pipeline | None, ...]
    """What is done to samples; None where they are only copied or decoded. One, or one for each bucket."""
    movers: tuple[BoxMover | None, ...]
    """What that does to boxes; None where no boxes were chosen."""
    planes: tuple[str, ...]
    encoded: tuple[str, ...]
    crop: tuple[CropStep | None, tuple[str, ...]]
    """What is cropped of these, and the fields that are cropped: see `first_crop`."""
    workers: int
    backend: Backend
    timeout: float
    order_name: str
    """The kind of order and its parameters: part of a state."""
    buckets: FoundBuckets | None
    seed: int
    ragged: Ragged
    ranks: Ranks | None
    extras: tuple[str, ...]
    """What batches have of VALID and STORE_ROW."""
    texts: Mapping[str, OneText]
    """What chooses one of the texts of a sample, by field."""

    @property
    def pipeline(self) -> Pipeline | None:
        """That of the first bucket: None where there is none in any."""
        return self.pipelines[0]


def choose(samples: SampleSet, options: Options) -> tuple[Settings, Order, RankSplit]:
    library = samples.library
    if not len(samples):
        raise UsageError("there are no samples to read: the store or the selection is empty")
    texts, options = _without_texts(options)
    ranks = ranks_of(options.ranks)
    extras = extras_of(library, options.fields or (), ranks, options.drop_last)
    if options.fields is not None:
        options = replace(options, fields=[name for name in options.fields if name not in extras])
    main = main_image(library.fields)
    asked = asked_sizes(samples, options, main)
    found, resized = asked.buckets, asked.resized(asked.sizes[0], main, library.fields)
    transformed = bool(options.transform) or bool(resized)
    planes, files = choose_form(library, options, transformed)
    if files and (resized or samples.framing is not None):
        raise UsageError(
            "decode=False gives files, which cannot be resized, nor be frames of clips: leave out image_size= and "
            "clips(); transform= may begin with a crop"
        )
    sized = [name for names in resized for name in (library.fields if names is None else names)]
    chosen = choose_fields(library, options.fields, sized, transformed, files)
    check_ragged(library, chosen, options.ragged)
    for step in texts.values():
        step.check(library.fields, chosen)
    crop = first_crop(options.transform, library, chosen, files) if files else (None, ())
    befores = [_fits(asked.resized(size, main, library.fields)) for size in asked.sizes]
    lengths = range(len(samples.lengths))
    made = [_pipeline(samples, options, chosen, one, files, n, texts) for one in befores for n in lengths]
    pipelines, movers = zip(*made, strict=True)
    # Buckets decide more than sizes: which samples are in a batch.
    if not (any(pipelines) or any(movers) or files or found) and transformed:
        raise UsageError(
            f"{'image_size=' if resized else 'transform='} has nothing to work on: the batch has no images or masks, "
            f"only {', '.join(chosen)}; leave it out, or name more with fields="
        )
    worked = [name for name in chosen if not files or (name not in files and library.fields[name].in_slot)]
    order = make_order(samples, options, found)
    settings = Settings(
        batch_size=min(options.batch_size, order.length(0)) if order.foreseeable else options.batch_size,
        fields=chosen,
        pipelines=pipelines,
        movers=movers,
        planes=planes,
        encoded=files,
        crop=crop,
        order_name=order.name,
        buckets=found,
        seed=options.seed,
        ragged=options.ragged,
        ranks=ranks,
        extras=extras,
        texts=texts,
        **choose_workers(samples, worked, planes, options, pipelines[0] is not None),
    )
    last = "pad" if ranks is None or ranks.last is None else ranks.last
    mixed = samples.asked.mix is not None
    split = RankSplit(len(order), options.batch_size, *resolve_rank(ranks), last, options.drop_last, mixed)
    if split.drop_last and order.foreseeable:
        order.split(split, 0).check_not_empty()
    return settings, order, split


def _without_texts(options: Options) -> tuple[Mapping[str, OneText], Options]:
    """The steps that choose texts, which no worker does, by their fields; and the options without them."""
    if not options.transform:
        return {}, options
    from rawpack.transforms.plan import as_steps
    from rawpack.transforms.texts import OneText

    steps = as_steps(options.transform)
    texts = {step.field: step for step in steps if isinstance(step, OneText)}
    # Steps from now on, as what was given may be an iterator, which is read once.
    return texts, replace(options, transform=[step for step in steps if not isinstance(step, OneText)] or None)


def make_order(samples: SampleSet, options: Options, found: FoundBuckets | None) -> Order:
    """The order of the samples of a reader. found: the buckets that they are in, if any."""
    order, n_lengths = _order(samples, options), len(samples.lengths)
    if found is None and n_lengths < 2:
        return order
    if order.batch_size is not None:
        what = "Balanced" if samples.asked.mix is None else "a mix"
        raise UsageError(
            f"{what} decides what is in each batch, so its batches cannot have sizes or lengths of their own: leave "
            "out Buckets, or call clips() with one number of frames"
        )
    if found is not None:
        return Bucketed(order, found.of, len(found), options.batch_size, options.seed, found.identity)
    assert samples.clips is not None
    name = f"{' '.join(map(str, samples.lengths))} frames"
    of = samples.clips.buckets(samples.selection)
    return Bucketed(order, of, n_lengths, options.batch_size, options.seed, name)


def _order(samples: SampleSet, options: Options) -> Order:
    sampler, shuffle, seed, batch_size = options.sampler, options.shuffle, options.seed, options.batch_size

    def order(n: int, seed: int) -> Order:
        if isinstance(shuffle, Blocks):
            return BlockShuffled(n, seed, shuffle.block, shuffle.window)
        return Shuffled(n, seed) if shuffle else Sequential(n)

    if samples.asked.mix is not None:
        if sampler is not None:
            raise UsageError("a mix has its own order: leave out sampler=")
        return samples.asked.mix.order(samples.asked.mix.sizes(samples.library, samples.rows), order, seed, batch_size)
    if isinstance(sampler, FromColumn):
        return sampler.order(samples.column, len(samples), seed, batch_size)
    return order(len(samples), seed) if sampler is None else Sampled(sampler, len(samples))


def choose_workers(
    samples: SampleSet, fields: Sequence[str], planes: Sequence[str], options: Options, transformed: bool
) -> dict[str, Any]:
    """How many workers, and of which kind: see `Workers`. By their names in `Settings`.

    planes: the fields that come as they are stored. transformed: whether workers do more than copy or decode samples.
    """
    asked, raw = options.workers, copied(samples.library, fields, planes)
    assert isinstance(asked, Workers)
    workers, backend = asked.number, asked.backend
    only_copies = raw and not transformed
    if backend is None:
        # Copying rows releases the GIL, and threads share one page table: a row that one of them has touched costs the
        # others no page fault, which in another process takes as long as the copy. But between small batches they wait
        # for the GIL, which the loop that reads them has as well.
        large = only_copies and bytes_of(samples, fields) * options.batch_size >= _LARGE_BATCH_BYTES
        backend = "thread" if large or not hasattr(os, "fork") else "process"
    if workers is None:
        workers = machine.cpus()
        if only_copies and tiny(samples, fields, planes):
            workers = 0
        elif only_copies and asked.backend != "process":
            workers = min(workers, _COPYING_WORKERS)
    timeout = _TIMEOUT_S if asked.timeout is None else asked.timeout
    return {"workers": workers, "backend": backend, "timeout": timeout}


def warn_of_workers(options: Options, settings: Settings) -> None:
    """Warn where the number of workers is probably a mistake. settings: what it became."""
    assert isinstance(options.workers, Workers)
    number, cpus = options.workers.number or 0, machine.cpus()
    if settings.workers < number:
        warn(
            f"workers={number}: batches of {count(settings.batch_size, 'sample')} of this size keep {settings.workers} "
            f"busy, so only {settings.workers} are started; larger batches can use more",
            UserWarning,
        )
    elif settings.backend == "process" and number > max(_MANY_WORKERS, _MANY_A_CPU * cpus):
        warn(
            f"workers={number} on {cpus} {'CPU' if cpus == 1 else 'CPUs'}: each takes at least 5 MB of "
            "memory, and they take turns; workers=None starts one for each CPU",
            UserWarning,
        )


def _pipeline(
    samples: SampleSet,
    options: Options,
    chosen: Sequence[str],
    before: Sequence[Step],
    files: Sequence[str],
    length: int,
    texts: Mapping[str, OneText],
) -> tuple[Pipeline | None, BoxMover | None]:
    """before: steps that come first. files: the chosen fields that workers leave alone. length: which of the lengths of
    clips. texts: as of `Settings`."""
    transform = options.transform
    if transform is None and not before:
        return None, None
    from rawpack.transforms.boxes import mover_for
    from rawpack.transforms.plan import look_alikes, plan_pipeline
    from rawpack.transforms.samples import SampleLambda
    from rawpack.transforms.together import stored_ranges, stored_sizes

    library = samples.library
    classes = len(library.classes) if library.classes else None
    worked = [name for name in chosen if name not in files]
    alike = look_alikes(library, worked)
    sizes, ranges = stored_sizes(library, chosen), stored_ranges(library, worked, transform or [])
    frames = {name: samples.frames(name, length) for name in worked}
    if any(isinstance(step, SampleLambda) for step in transform or []):
        from rawpack.transforms.sample_plan import plan_samples
        from rawpack.workers.besides import RaggedFields

        reader_of = partial(RaggedFields, library, texts=texts, field_rows=samples.field_rows)
        steps: Any = transform
        return plan_samples(
            samples, steps, chosen, before, length, options.ragged, options.seed, texts, reader_of, classes=classes,
            alike=alike, sizes=sizes, ranges=ranges,
        ), None  # fmt: skip
    pipeline = plan_pipeline(transform or [], library.fields, worked, before, frames, classes, alike, sizes, ranges)
    mover = mover_for(transform, library.fields, chosen, before, sizes)
    return pipeline if pipeline.plans or pipeline.batch_steps else None, mover


def _fits(resized: Mapping[tuple[str, ...] | None, tuple[int, int]]) -> list[Step]:
    if not resized:
        return []
    from rawpack.transforms.resizing import Fit

    return [Fit(size, fields=names) for names, size in resized.items()]


def sides(shape: Sequence[int | None]) -> str:
    """A shape to be shown: "48x48x3", "?x5", "scalar"."""
    return "x".join("?" if n is None else str(n) for n in shape) or "scalar"


def tiny(samples: SampleSet, names: Sequence[str], planes: Sequence[str]) -> bool:
    """Whether samples of these fields are so small that copying them costs less than handing them to workers."""
    fields = [samples.library.fields[name] for name in names]
    if not copied(samples.library, names, planes) or not all(field.in_slot and field.uniform for field in fields):
        return False
    return bytes_of(samples, names) <= _TINY_BYTES


def bytes_of(samples: SampleSet, names: Sequence[str]) -> int:
    """Bytes of one sample, or clip, as it is stored, of those of these fields that have one size."""
    fields = {name: field for name in names if (field := samples.library.fields[name]).in_slot and field.uniform}
    sizes = {name: np.dtype(field.dtype).itemsize * math.prod(field.stored_shape) for name, field in fields.items()}
    return sum(size * (samples.frames(name, -1) or 1) for name, size in sizes.items())


def copied(library: Stores, fields: Sequence[str], planes: Sequence[str]) -> bool:
    """Whether samples of these fields are copied from the files as they are."""
    return all(
        library.fields[name].codec.in_place and library.fields[name].planar == (name in planes) for name in fields
    )
