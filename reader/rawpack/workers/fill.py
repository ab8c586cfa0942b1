"""Fills rows of a slot: what a worker does, in any process or thread, and the messages that it gets and answers."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.disk.tables import CODECS, FORMATS
from rawpack.errors import RawpackError, WorkerError
from rawpack.samples.field_rows import OWN_ROWS, ClipRows, FieldRows
from rawpack.store.shard_files import ShardFiles
from rawpack.store.stores import Stores
from rawpack.system.memory import major_faults
from rawpack.system.times import Times
from rawpack.words import CLIP, INDEX, ROWS
from rawpack.workers.slots import SlotLayout

if TYPE_CHECKING:
    from rawpack.system.channel import Channel, Heartbeat
    from rawpack.transforms.pipeline import Pipeline
    from rawpack.transforms.sample_plan import SamplePlan
    from rawpack.workers.besides import RaggedFields

Views = dict[str, NDArray[Any]]
Seeds = tuple[int, int, int]
"""What random numbers depend on, for a batch: see `rawpack.transforms.randomness`."""
_WHOLE = -1
_SLICE_BYTES = 1 << 18
"""A batch is cut into no more slices than have this many bytes: below, the messages cost more than the work."""
_COPIED_BYTES = 1 << 22
"""The same where samples are only copied from memory."""
_WHOLE_BYTES = 1 << 24
"""Where they are, and batches are in the making for all workers, one is cut only into slices of this many bytes: a
worker that makes a whole batch, while another makes the next, sends half as many messages."""


class WorkSpec(msgspec.Struct, frozen=True):
    """All that a worker needs to know, sent once."""

    files: tuple[ShardFiles, ...]
    """Of each store; preloaded ones are all in `memory` instead."""
    manifests: tuple[bytes, ...]
    """As the reader found them: a worker that starts later must not read what was packed since."""
    layout: SlotLayout
    pipelines: tuple[Pipeline | None, ...] = (None,)
    """The transform; more than one where batches are of buckets."""
    planes: tuple[str, ...] = ()
    verify: bool = False
    """Check each image against its checksum before it is used."""
    memory: tuple[dict[str, tuple[int, int]], int] | None = None
    """`Memory.layout` of preloaded shards; the descriptor is sent along with the spec."""
    field_rows: FieldRows = OWN_ROWS
    groups: tuple[int, ...] | None = None


class Task(msgspec.Struct, frozen=True, array_like=True):
    """A message to a worker: fill rows `start` .. `stop` of a slot. Pixels are never in messages."""

    number: int
    slot: int
    size: int
    keep: bool
    """Whether the slot will be used again. Then the worker keeps its mapping, and the descriptor comes only with the
    first task that names the slot; otherwise it comes with every task."""
    rows: int
    start: int
    stop: int
    careful: bool
    """Do one sample at a time, and note each before it is begun: this slice has killed a worker before."""
    bucket: int = 0
    seed: int = 0
    epoch: int = 0
    first: int = -1
    forget: tuple[int, ...] = ()
    """Slots that will not be used again, to be unmapped."""


class SliceDone(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    number: int
    times: Times
    waited_for_disk: bool
    """Whether pages were missing from the page cache, so that readahead is worthwhile."""


class SliceFailed(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    number: int
    what: str
    """The error to raise, with the sample, the exception and the worker's traceback."""


Reply = SliceDone | SliceFailed
encode = msgspec.msgpack.Encoder().encode
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


class _Way(NamedTuple):
    """How a field is read that no transform changes."""

    name: str
    planes: bool
    copies: bool
    """Whether its values are as they are stored, in all stores."""
    check: bool
    """Whether each sample is checked against its checksum."""
    one_by_one: bool
    """So that what was decompressed to be checked is not decompressed again."""


class BatchFiller:
    """Fills slots by a spec. Any number of threads may use one."""

    def __init__(self, spec: WorkSpec, library: Stores) -> None:
        self._library, self._verify = library, spec.verify
        self._pipelines, self._pipeline = spec.pipelines, spec.pipelines[0]
        self._planes, self._field_rows = spec.planes, spec.field_rows
        self._own_rows = type(spec.field_rows) is FieldRows
        self._of_clips = isinstance(spec.field_rows, ClipRows)
        names = [field.name for field in spec.layout.fields if field.name in library.fields]
        self._fields = [(name, library.fields[name]) for name in names]
        self._as_stored = [self._way(name, field) for name, field in self._fields]
        self.whole_batches = self._pipeline is not None and bool(self._pipeline.batch_steps)
        """Whether a batch must be made as a whole, not in slices."""
        self.only_copies = self._pipeline is None and not self._verify and all(way.copies for way in self._as_stored)
        """Whether samples are neither decoded nor transformed nor verified."""

    def _way(self, name: str, field: Field) -> _Way:
        stored = [store.fields[name] for store in self._library.stores] if field.in_shards else [field]
        planes = name in self._planes
        copies = all(one.codec.in_place and one.planar == planes for one in stored)
        check = self._verify and field.in_shards
        return _Way(name, planes, copies, check, self._verify and field.deflated)

    def of_bucket(self, bucket: int) -> BatchFiller:
        if len(self._pipelines) == 1:
            return self
        filler = copy(self)
        filler._pipeline = self._pipelines[bucket]
        return filler

    def fill(self, views: Views, start: int, stop: int, times: Times, seeds: Seeds) -> None:
        """Fill rows start .. stop of every array of a slot, by its `ROWS`; add to `times` what that took."""
        samples = views[ROWS][start:stop]
        clips = views[CLIP][start:stop] if samples.ndim == 2 else None
        plans = () if self._pipeline is None else self._pipeline.plans
        check = self._library.check if self._verify else None
        seed, epoch, first = seeds
        own = seed, epoch, first + start if first >= 0 else first
        if self._pipeline is not None and self._pipeline.samples is not None:
            whole, made = self._pipeline.samples, {name: view[start:stop] for name, view in views.items()}
            samples_of = whole.reads(self._library, self._field_rows, self._ragged(whole), times, check)
            whole.fill(samples_of, samples, made, own, clips, times)
            return
        if self._pipeline is not None and plans:
            outs = {name: self._each(name, views[name][start:stop]) for name in plans}
            self._pipeline.fill(self._library, samples, outs, own, times, check, clips, self._field_rows)
        for way in self._as_stored:
            name = way.name
            if name in plans:
                continue
            rows, out = samples, views[name][start:stop]
            if not self._own_rows:
                rows, out = self._field_rows.of(name, rows), self._each(name, out)
            read = self._library.read_planes if way.planes else self._library.read_into
            began, step = time.perf_counter(), 1 if way.one_by_one else max(1, len(rows))
            for i in range(0, len(rows), step):
                if way.check:
                    for row in rows[i : i + step].tolist():
                        self._library.check(name, row)
                read(name, rows[i : i + step], out[i : i + step])
            if way.copies:
                times.reading += time.perf_counter() - began
            else:
                times.decoding += time.perf_counter() - began

    def _ragged(self, whole: SamplePlan) -> RaggedFields:
        """What reads the texts and ragged fields that functions of whole samples get."""
        from rawpack.workers.besides import RaggedFields

        return RaggedFields(self._library, whole.lists, "list", (whole.mover,), whole.texts, self._field_rows)

    @property
    def uses_opencv(self) -> bool:
        """Whether OpenCV works on the samples, besides decoding them."""
        converted = [name for name, field in self._fields if field.in_shards and name not in self._planes]
        planar = any(store.fields[name].planar for store in self._library.stores for name in converted)
        return self._pipeline is not None or planar

    def targets(self, views: Views) -> Views:
        """The arrays that samples are made in: the slot's, or others that `finish` copies into the slot's."""
        if self._pipeline is None:
            return views
        return {name: self._pipeline.target(name, view) for name, view in views.items()}

    def finish(self, targets: Views, views: Views, times: Times, seeds: Seeds) -> None:
        """Apply the steps that work on whole batches, once the batch has all its samples."""
        if self._pipeline is not None and self.whole_batches:
            self._pipeline.finish(targets, views, seeds, times)

    def _each(self, name: str, out: NDArray[Any]) -> NDArray[Any]:
        """The same memory, frame by frame: (n, frames, ...) as (n * frames, ...)."""
        return out.reshape(out.shape[0] * out.shape[1], *out.shape[2:]) if self._field_rows.framed(name) else out

    @property
    def descriptors(self) -> list[int]:
        return [] if self._library.memory is None else [self._library.memory.descriptor]

    @property
    def references(self) -> tuple[str, ...]:
        """The code of rawpack itself that reads the samples, as "module:name"."""
        stores = self._library.stores
        formats = (FORMATS.get(store.manifest.format) for store in stores)
        codecs = (
            CODECS.get(store.fields[name].encoding) for store in stores for name, one in self._fields if one.in_shards
        )
        return tuple({row.open for row in (*formats, *codecs) if row is not None})

    def name(self, row: int) -> str:
        """A sample's name in an error: its row and key; for a clip those of its first frame."""
        what = f"the clip that begins with sample {row}" if self._of_clips else f"sample {row}"
        try:
            return f"{what} ({self._library.columns.text('key', np.array([row]))[0]!r})"
        except (RawpackError, KeyError):
            return what

    def failure(self, error: Exception, views: Views, position: int) -> str:
        """What failed: reading one sample of a batch, or transforming the `_WHOLE` of it."""
        name = self.name(first_row(views, max(position, 0)))
        doing = f"reading {name}"
        if position == _WHOLE:
            doing = f"transforming the batch of {len(views[INDEX])} that begins with {name}"
        cure = "; a step must not write to the array that it gets, but to `out`, or return a new one"
        wrote = "read-only" in str(error) or "readonly" in str(error)  # numpy's word, and OpenCV's
        return f"{doing} failed: {type(error).__name__}: {error}{cure if wrote and self._pipeline else ''}"


def do(task: Task, filler: BatchFiller, views: Views, heartbeat: Heartbeat) -> Reply:
    """Do one task; an exception is reported with the sample that raised it."""
    times, position, before = Times(), task.start, major_faults()
    seeds, careful = (task.seed, task.epoch, task.first), task.careful
    try:
        targets = filler.targets(views)
        if not careful:
            heartbeat.note(task.number, -1)
            try:
                filler.fill(targets, task.start, task.stop, times, seeds)
            except Exception:
                careful = True
        if careful:  # one by one: to find the sample that raises, or the one that kills
            for position in range(task.start, task.stop):
                heartbeat.note(task.number, position)
                filler.fill(targets, position, position + 1, times, seeds)
        position = _WHOLE
        filler.finish(targets, views, times, seeds)
        return SliceDone(task.number, times, major_faults() > before)
    except Exception as error:
        what = f"{filler.failure(error, views, position)}\n\nIn the worker:\n{traceback.format_exc()}"
        # A message to the parent is UTF-8, and names of files in an error need not be.
        return SliceFailed(task.number, what.encode(errors="backslashreplace").decode())


def first_row(views: Views, position: int) -> int:
    """The row of a batch's sample; for a clip that of its first frame."""
    return int(views[ROWS][position].flat[0])


def blame(filler: BatchFiller, views: Views, seeds: Seeds, error: Exception) -> RawpackError:
    """The error to raise in this process for one that came up while a batch was filled: it names the sample."""
    targets = filler.targets(views)
    position = 0
    try:
        for position in range(len(views[INDEX])):
            filler.fill(targets, position, position + 1, Times(), seeds)
        position = _WHOLE
        filler.finish(targets, views, Times(), seeds)
    except Exception as again:
        return WorkerError(filler.failure(again, views, position))
    return WorkerError(f"reading a batch failed, but not when repeated: {type(error).__name__}: {error}")


def serve(
    channel: Channel, filler: BatchFiller, views_of: Callable[[Task, list[int]], Views], heartbeat: Heartbeat
) -> None:
    """Do tasks until the other end is gone. One loop for both backends."""
    while True:
        received = channel.receive()
        if received is None:
            return
        task = decode_task(received[0])
        reply = do(task, filler.of_bucket(task.bucket), views_of(task, received[1]), heartbeat)
        try:
            channel.send(encode(reply))
        except OSError:
            return


def most_slices(batch_bytes: int, filler: BatchFiller) -> int:
    """How many slices a batch is cut into if there are enough workers."""
    return 1 if filler.whole_batches else max(1, batch_bytes // _SLICE_BYTES)


def most_copied_slices(batch_bytes: int, wanted: int) -> int:
    """The same for samples that are copied, where no worker waits for a disk, which many can do at once. wanted: how
    many keep all workers busy."""
    return max(1, batch_bytes // _WHOLE_BYTES, min(wanted, batch_bytes // _COPIED_BYTES))
