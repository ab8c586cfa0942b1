"""The layout of a slot: the arrays that workers make of a batch, and how many batches are made at once."""

from __future__ import annotations

from collections.abc import Sequence

from rawpack.choose.settings import Settings, copied
from rawpack.samples.sample_set import SampleSet
from rawpack.words import CLIP, INDEX, ROWS
from rawpack.workers.slots import SlotField, SlotLayout

TOGETHER_BYTES = 12 << 20
"""So many bytes of small batches, at most, are made at once, in one slot, where samples are only copied: for a batch of
64 images of 128 px, messages and waiting for Python's lock take as long as copying."""
TOGETHER_HERE_BYTES = 1 << 21
"""The same without workers: finding 64 samples of 784 bytes takes longer than copying them, and what is just copied is
still in the processor's cache."""

_DECODED_SHIFT = 16
"""Of the images that JPEG files are decoded into. libjpeg-turbo writes rows past the cache if their addresses are
multiples of 32, which takes 3 to 5% longer."""


def slot_layout(samples: SampleSet, settings: Settings, *, repeats: bool) -> tuple[SlotLayout, int]:
    """The layout of a slot, and how many batches are made at once in it. repeats: whether samples may repeat in an
    epoch."""
    library, pipeline = samples.library, settings.pipeline
    shown = [name for name in settings.fields if library.fields[name].in_slot and name not in settings.encoded]
    if pipeline is not None and pipeline.samples is not None:
        shown = list(pipeline.samples.made)
    numbers = [SlotField(name, "int64", ()) for name in (INDEX, *([] if samples.clips is None else [CLIP]))]
    fields, *others = (
        [
            *(_slot_field(samples, settings, name, k) for name in shown),
            *numbers,
            SlotField(ROWS, "int64", axes_of(samples, ROWS, k)),
        ]
        for k in range(len(settings.pipelines))
    )
    together = _read_together(samples, settings, [field for field in fields if field.name != ROWS], repeats)
    return SlotLayout(fields, settings.batch_size * together, *others), together


def axes_of(samples: SampleSet, name: str, bucket: int) -> tuple[int, ...]:
    """The axes between the batch's and those of a stored sample: for clips, the frames."""
    frames = samples.frames(name, bucket if len(samples.lengths) > 1 else 0)
    return () if frames is None else (frames,)


def _read_together(samples: SampleSet, settings: Settings, fields: Sequence[SlotField], repeats: bool) -> int:
    """More than one batch only where small samples are copied, or many are transformed in one call. Where samples
    repeat, random numbers depend on where a batch begins. Batches of a remote store wait for their own shards."""
    library, pipeline = samples.library, settings.pipeline
    if library.fetcher or len(samples.lengths) > 1:
        return 1
    if pipeline is not None and (repeats or len(settings.pipelines) > 1 or not pipeline.takes_many):
        return 1
    shown = [field.name for field in fields if field.name in library.fields]
    if not copied(library, shown, settings.planes):
        return 1
    most = TOGETHER_BYTES if settings.workers else TOGETHER_HERE_BYTES
    batches = -(-len(samples) // settings.batch_size)
    return max(1, min(batches, most // (sum(field.bytes for field in fields) * settings.batch_size)))


def _slot_field(samples: SampleSet, settings: Settings, name: str, bucket: int) -> SlotField:
    pipeline = settings.pipelines[bucket]
    if pipeline is not None and name in pipeline.results:
        made = pipeline.results[name]
        return SlotField(name, made.dtype, tuple(n for n in made.shape if n is not None))
    field, axes = samples.library.fields[name], axes_of(samples, name, bucket)
    if name in settings.planes:
        return SlotField(name, field.dtype, (*axes, *field.stored_shape))
    shape = (*axes, *(n for n in field.shape if n is not None))
    return SlotField(name, field.dtype, shape, _DECODED_SHIFT if field.codec.scales else 0)
