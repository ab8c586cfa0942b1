"""How batches are made: what a slot holds, what fills it, what comes besides it, and workers between two epochs."""

from __future__ import annotations

import weakref
from typing import Any

import msgspec
import numpy as np

from rawpack import native
from rawpack.ahead.readahead import OwnReads, Readahead
from rawpack.choose.layout import axes_of, slot_layout
from rawpack.choose.settings import Settings, sides
from rawpack.disk.manifest import Field, dump
from rawpack.epoch.stats import Stats
from rawpack.order.steps import EpochStep
from rawpack.samples.sample_set import SampleSet
from rawpack.system.memory import free_large_block, major_faults
from rawpack.words import BOXES, LENGTH, ROWS, STORE_ROW, VALID
from rawpack.workers.besides import EncodedFields, RaggedFields
from rawpack.workers.fill import BatchFiller, WorkSpec, most_slices
from rawpack.workers.slots import SlotField, SlotPool
from rawpack.workers.source import BatchSource, Here, Pooled

IN_FLIGHT = 2
"""Batches that are made while the caller holds one."""
_WHOLE_BATCHES_BYTES = 1 << 30
"""If one worker makes each batch, there is one in flight for each worker, but no more than this many bytes together."""


class BatchField(msgspec.Struct, frozen=True):
    kind: str
    """Of the field: "image", "mask", "number", "ragged", "text"."""
    dtype: str | None
    """numpy's name, also of the arrays of a list; None for texts and files."""
    channels_last: bool
    """Whether it is images (n, H, W, C), or clips of them."""
    axes: tuple[int | None, ...] | None = None
    """Of one sample, with None for an axis that differs from batch to batch; for texts, those between samples and
    texts. None where it is a list of arrays, or of lists of texts."""
    exact: bool = False
    """Whether it is a mask, or images whose values must not be rounded, such as depths."""

    @property
    def listed(self) -> bool:
        return self.dtype is None or self.axes is None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of one sample; None where it is a list, or differs from batch to batch."""
        axes: Any = self.axes
        return None if self.dtype is None or axes is None or None in axes else axes


class Making:
    """What makes the batches of one `Epochs`, in whichever process."""

    def __init__(self, samples: SampleSet, settings: Settings, *, repeats: bool = False) -> None:
        """repeats: whether samples may repeat in an epoch."""
        self._samples, self._library = samples, samples.library
        self.settings, library = settings, samples.library
        whole = None if settings.pipeline is None else settings.pipeline.samples
        self._in_slots = () if whole is None else tuple(whole.ragged)
        """Ragged fields that workers make."""
        outside = [name for name in settings.fields if not library.fields[name].in_slot]
        ragged_fields = [name for name in outside if name not in self._in_slots]
        self._ragged_fields = RaggedFields(
            library, ragged_fields, settings.ragged, settings.movers, settings.texts, samples.field_rows
        )
        layout, self.together = slot_layout(samples, settings, repeats=repeats)
        files = tuple(store.files.for_worker() for store in library.stores)
        memory = None if library.memory is None else library.memory.layout
        manifests = tuple(dump(store.manifest) for store in library.stores)
        self._spec = WorkSpec(
            files, manifests, layout, settings.pipelines, settings.planes, samples.asked.verify, memory,
            samples.field_rows, library.groups,
        )  # fmt: skip
        self._sends = bool(settings.workers) and settings.backend == "process" and settings.pipeline is not None
        """Whether worker processes get a copy of the transform."""
        self._warned = set[int]()
        """Ids of the steps that `SentSteps.changed` has warned of."""
        if self._sends:
            from rawpack.workers.sent import packed

            packed(settings.pipelines)
        self.filler = BatchFiller(self._spec, library)
        # More workers than there are slices in flight would only wait.
        self.in_flight = IN_FLIGHT
        if self.filler.whole_batches:
            self.in_flight = max(IN_FLIGHT, min(settings.workers, _WHOLE_BATCHES_BYTES // layout.size))
        useful = (self.in_flight + 1) * most_slices(layout.size, self.filler)
        self.settings = settings = msgspec.structs.replace(settings, workers=min(settings.workers, useful))
        self.counted = Stats(settings.workers)
        self._slot_pools = weakref.WeakSet[SlotPool]()
        self.own_reads = OwnReads(library, settings.workers)
        self.besides_bytes = library.mean_bytes(settings.encoded)
        """Mean bytes of a sample's files, which are not in slots."""
        self.besides_slots: RaggedFields | EncodedFields | None = None
        if settings.encoded:
            self.besides_slots = EncodedFields(
                library, settings.encoded, *settings.crop, self._ragged_fields, self.filler.name, self.counted.times,
                verify=samples.asked.verify,
            )  # fmt: skip
        elif ragged_fields:
            self.besides_slots = self._ragged_fields

    def complete(self, batch: dict[str, Any], step: EpochStep, epoch: int) -> None:
        """Add to a batch what is not in its slot: what this process reads, and `Settings.extras`."""
        if self._in_slots:
            self._trim(batch)
        if self.besides_slots is not None:
            seeds, faults = (self.settings.seed, epoch, step.first), major_faults()
            batch.update(self.besides_slots(step.rows, seeds, step.clips, step.bucket))
            self.own_reads.note(faults)
        if self._samples.offsets is not None:
            batch.update(self._samples.pads(self.settings.fields, step.rows))
        for name in self.settings.extras:
            batch[name] = step.valid if name == VALID else step.rows.copy()

    def _trim(self, batch: dict[str, Any]) -> None:
        """Bring the ragged fields that workers made into the form that was asked for."""
        for name in self._in_slots:
            lengths, form = batch[LENGTH.format(name)], self.settings.ragged
            if form == "list":
                lengths = batch.pop(LENGTH.format(name))
                batch[name] = [rows[:n].copy() for rows, n in zip(batch[name], lengths.tolist(), strict=True)]
            elif form == "pad":
                batch[name] = batch[name][:, : lengths.max(initial=0)].copy()

    def _is_decoded_by_the_core(self, name: str) -> bool:
        """Whether the native core takes part in reading a field as it is stored: it converts planes, undoes differences
        of rows, and cuts what a crop needs out of JPEG files."""
        settings = self.settings
        if name in settings.planes or name in settings.encoded:
            return False
        stored = [store.fields[name] for store in self._library.stores if name in store.fields]
        codecs = [field.codec for field in stored if field.in_shards]
        plan = None if settings.pipeline is None else settings.pipeline.plans.get(name)
        crops = plan is not None and plan.crop is not None
        return any(codec.planar or codec.native or (crops and codec.suffix == ".jpg") for codec in codecs)

    @property
    def _extras(self) -> dict[str, Field]:
        """What `complete` adds that no store has: `Settings.extras`, and `Offsets.pads`."""
        pads = self._samples.pads(self.settings.fields, np.empty(0, np.int64))
        kinds = {VALID: ("bool", ()), STORE_ROW: ("int64", self._spec.layout.shapes[ROWS])}
        chosen = {name: ("bool", flags.shape[1:]) for name, flags in pads.items()}
        chosen |= {name: kinds[name] for name in self.settings.extras}
        return {name: Field(kind="number", dtype=dtype, shape=axes) for name, (dtype, axes) in chosen.items()}

    def source(self, held: int) -> BatchSource:
        """New workers, and slots. held: batches that the caller is expected to hold at a time."""
        settings = self.settings
        shared = settings.workers > 0 and settings.backend == "process"
        if not shared and not self.filler.only_copies:
            free_large_block()
        slot_pool = SlotPool(self._spec.layout, self.in_flight + 1 + held, shared=shared)
        self._slot_pools.add(slot_pool)
        args = self.filler, slot_pool, self.together, settings.seed, self.counted.times
        if not settings.workers:
            return Here(*args)
        from rawpack.workers.pool import WorkerPool

        spec, sent = self._spec, None
        if settings.pipeline is not None:
            from rawpack.transforms.fused import native_share

            native_share(settings.pipeline)  # workers do not warn, and do as this process does
        if any(map(self._is_decoded_by_the_core, settings.fields)):
            native.library()  # the same
        if self._sends:
            from rawpack.workers.sent import SentSteps

            sent = SentSteps(settings.pipelines)
            spec = msgspec.structs.replace(spec, pipelines=sent.pipelines)
        pool = WorkerPool(spec, settings.workers, settings.backend, slot_pool, self.filler, settings.timeout)
        return Pooled(*args, pool=pool, sent=sent, in_flight=self.in_flight)

    @property
    def held(self) -> int:
        """How many batches, in slots of this process, the caller holds arrays of; those that share a slot are one."""
        return sum(pool.held for pool in list(self._slot_pools))

    def readahead(self, source: BatchSource) -> Readahead:
        field_rows = self._samples.field_rows
        return Readahead(self._library, self.settings.fields, source.pool, self.own_reads, field_rows)

    def outdated(self, source: BatchSource) -> bool:
        """Whether the caller has changed the transform since its workers got it."""
        return source.sent is not None and source.sent.changed(self._warned)

    def described(self) -> dict[str, BatchField]:
        described, ragged = {}, (*self._ragged_fields.names, *self._in_slots)
        for field in self._spec.layout.fields:
            if field.name == ROWS or field.name.removesuffix(LENGTH.format("")) in self._in_slots:
                continue
            stored = self._library.fields.get(field.name)
            kind, channels_last, shape = "number", False, self._spec.layout.shapes[field.name]
            if stored is not None:
                made = None if self.settings.pipeline is None else self.settings.pipeline.results.get(field.name)
                layout = len(stored.shape) == 3 if made is None else made.layout == "HWC"
                kind = stored.kind
                channels_last = layout and stored.in_shards and field.name not in self.settings.planes
            exact = stored is not None and stored.exact
            described[field.name] = BatchField(kind, field.dtype, channels_last, shape, exact)
        for name in self.settings.encoded:
            described[name] = BatchField(self._library.fields[name].kind, None, False)
        if self.settings.crop[0] is not None:
            described[BOXES] = BatchField("number", "int64", False, (4,))
        for name in ragged:
            stored, length = self._library.fields[name], self.settings.ragged
            axes = axes_of(self._samples, name, 0) if self._samples.clips is None else self._spec.layout.shapes[ROWS]
            assert axes is not None
            if stored.kind == "text":
                one_text = not stored.is_texts or name in self.settings.texts
                described[name] = BatchField(stored.kind, None, False, axes if one_text else None)
                continue
            if length == "list":
                described[name] = BatchField(stored.kind, stored.dtype, False)
                continue
            padded = (None if isinstance(length, str) else length, *(n or 0 for n in stored.shape[1:]))
            described[name] = BatchField(stored.kind, stored.dtype, False, (*axes, *padded))
            described[f"{name}.length"] = BatchField("number", "int64", False, axes)
        extras = self._extras.items()
        return described | {name: BatchField("number", extra.dtype, False, extra.shape) for name, extra in extras}

    def table(self) -> list[tuple[str, str, str]]:
        """Name, dtype and shape of each field of a batch."""
        fields: dict[str, SlotField | Field] = {name: self._library.fields[name] for name in self.settings.fields}
        fields |= {name: Field(kind="image", dtype="uint8", shape=(None,)) for name in self.settings.encoded}
        fields |= {name: Field(kind="text", dtype="str") for name in self.settings.texts}
        inner = [ROWS, *self._in_slots, *map(LENGTH.format, self._in_slots)]
        fields |= {field.name: field for field in self._spec.layout.fields if field.name not in inner}
        fields |= self._extras
        made = {name: shape for name, shape in self._spec.layout.shapes.items() if name not in inner}
        shapes = {name: one.shape for name, one in fields.items()} | made
        return [(name, one.dtype, sides((self.settings.batch_size, *shapes[name]))) for name, one in fields.items()]
