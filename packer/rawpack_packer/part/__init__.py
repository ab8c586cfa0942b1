"""One part of a packing job: consecutive samples become one shard, and a record of its contents.

The record is written last: a part with a record is done, one without is packed again.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, FileRecord, Placement, Range, joined
from rawpack.errors import DecodeError, PackError
from rawpack.system import writing
from rawpack_packer.destination import files, lock
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.journal import NOT_SCANNED, Reject, rejected
from rawpack_packer.options import opt
from rawpack_packer.part.pieces import PiecesAhead, PreparedItem, ReadAhead, prepare_item
from rawpack_packer.recipe import Recipe, check_libraries
from rawpack_packer.recipe.depth import lost_depth
from rawpack_packer.recipe.fields import IMAGE
from rawpack_packer.samples.sample import PreparedSample
from rawpack_packer.sources.table.table import TablePart
from rawpack_packer.writers import open_writer, shard_names


class PartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished part holds. Arrays are little-endian bytes."""

    number: int
    rows: int
    files: tuple[FileRecord, ...]
    placements: dict[str, Placement]
    """The place of each image and mask field; empty if every sample was rejected, so that there is no shard."""
    columns: dict[str, bytes]
    """All other fields and the index: "label", "image.xxh3", "image.offset", ... -> the bytes of their rows. Texts
    (UTF-8) and ragged fields have all rows one after another, and "key.length", int64 (rows,)."""
    rejects: tuple[Reject, ...]
    counts: dict[str, int]
    bytes_in: int
    sources: bytes
    """xxh3_64 of each packed sample's source bytes, little-endian uint64, to count duplicates."""
    ranges: dict[str, Range] = {}
    """As in `Manifest`."""
    away: bool = False
    """Whether its shard was uploaded, and is not in the folder anymore."""


@dataclass(frozen=True)
class PartTask:
    """A part to be packed. Picklable, because it is sent to a worker."""

    number: int
    first: int
    """The number of the part's first sample in the source."""
    samples: TablePart
    recipe: Recipe
    fields: Mapping[str, Field]
    """Those of the store."""
    destination: str
    strict: bool = False
    max_rejects: int = sys.maxsize
    """For the whole job: an engine may stop once a single part has more."""
    alone: bool = False
    """Whether one worker prepares all of it: others would fetch files again that a full spool has no room for."""
    token: str = ""
    """Unguessable, different for each run: part of the names of pieces that other workers prepare. Empty: no pieces."""
    root: str = ""
    """The path of the source, which every worker must have; empty if the source has none."""
    run: str = ""
    """The run that must own the destination when files are renamed: see `lock`. Empty for workers that end with
    their run anyway."""
    attempt: str = ""
    """Distinguishes the temporary files of two workers, one of which was taken for dead and is not."""
    crashed: frozenset[int] = field(default_factory=frozenset)
    """Samples of the part that killed the processes that decoded them: rejected without another try."""


class Tick(msgspec.Struct, frozen=True):
    """Progress within a part."""

    samples: int
    bytes_in: int


def record_path(destination: Path, number: int) -> Path:
    return destination / WORK / f"part-{number:05d}.done"


def run_part(task: PartTask, note: Callable[[int], None], tick: Callable[[Tick], None]) -> None:
    """Pack one part: write its shard to disk, then its record.

    note: called with the number of each sample before it is read, and with -1 before the shard is finished. tick:
    called with the progress now and then. Raises PackError (a changed source, a reject under `strict`, other library
    versions than the recipe's) and OSError (the destination is full or gone); then the part is not done.
    """
    destination, recipe = Path(task.destination), task.recipe
    check_libraries(recipe)
    names = shard_names(task.number, recipe.format, task.fields)
    temporaries = [destination / WORK / f"{name}{task.attempt}.tmp" for name in names]
    writer = open_writer(temporaries, recipe, task.fields)
    rows, ahead, disk = _RecordRows(task.fields), PiecesAhead(task), ReadAhead(task.samples, range(len(task.samples)))
    try:
        for i in range(len(task.samples)):
            note(i)
            disk.at(i)
            made = ahead.take(i)
            if i in task.crashed:
                died = DecodeError("crashed", "it killed two processes that decoded it")
                made = PreparedItem(task.samples.key(i), died, 0, None)
            elif made is None:
                made = prepare_item(task.samples, i, recipe, task.fields)
            rows.bytes_in += made.bytes_in
            if isinstance(made.sample, DecodeError):
                error = made.sample
                if task.strict and error.reason != NOT_SCANNED:
                    key = repr(task.samples.key(i))
                    message = f"{key}: {error} ({opt.strict} stops at the first)"
                    raise PackError(message)
                rows.reject(rejected(task.first + i, task.samples.key(i), error))
            else:
                if task.strict and (lost := lost_depth(Counter(made.sample.notes))):
                    raise PackError(f"{made.key!r}: {lost} ({opt.strict} stops at the first)")
                writer.add(made.sample)
                rows.add(made.key, made.sample, made.source)
            if i % 16 == 15:
                tick(Tick(i + 1, rows.bytes_in))
        records: tuple[FileRecord, ...] = ()
        placements: dict[str, Placement] = {}
        # If the process dies from here on, it is not because of a sample.
        note(-1)
        if rows.count:
            finished = writer.finish(rows.columns())
            placements = {name: where.placement for name, where in finished.items()}
            pairs = list(zip(temporaries, names, strict=True))
            records = tuple(files.record(temporary, name, head=True) for temporary, name in pairs)
            if task.run:
                lock.check_token(destination, task.run)
            for temporary, name in pairs:
                files.commit(temporary, destination / name)
            for name, where in finished.items():
                rows.index(name, where.index)
    finally:
        writer.abort()
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)
        ahead.close()
    record = rows.record(task.number, records, placements)
    if task.run:
        lock.check_token(destination, task.run)
    write_record(destination, record, task.attempt)
    tick(Tick(len(task.samples), rows.bytes_in))


def try_samples(task: PartTask, first: int, note: Callable[[int], None]) -> None:
    """Prepare the samples of a part from number `first` on as `run_part` does, and discard the results.

    This finds out which samples kill the process: `note` gets the number of each before it is read. Raises PackError
    for the same faults of the source as `run_part`.
    """
    for i in range(first, len(task.samples)):
        note(i)
        prepare_item(task.samples, i, task.recipe, task.fields)
    note(-1)


class _RecordRows:
    """Collects the small fields and the index of a part, row by row."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self.count = self.bytes_in = 0
        self._fields = fields
        self._small = {name: field for name, field in fields.items() if not field.in_shards and name != "key"}
        self._values: dict[str, list[Any]] = {name: [] for name in self._small}
        self._keys: list[str] = []
        self._hashes: dict[str, list[int]] = {name: [] for name, field in fields.items() if field.in_shards}
        self._shapes: dict[str, list[tuple[int, ...]]] = {name: [] for name in self._hashes}
        self._sources: list[int] = []
        self._rejects: list[Reject] = []
        self._counts: Counter[str] = Counter()
        self._index: dict[str, NDArray[Any]] = {}
        self._ranges: dict[str, Range] = {}

    def add(self, key: str, sample: PreparedSample, source: int | None) -> None:
        """source: xxh3_64 of the image as it was read; None if it is stored unchanged."""
        self.count += 1
        self._keys.append(key)
        for name, column in self._values.items():
            column.append(sample.values[name])
        for name, stored in sample.parts.items():
            self._hashes[name].append(xxhash.xxh3_64_intdigest(stored.data.data))
            self._shapes[name].append(stored.shape)
        self._sources.append(self._hashes[IMAGE][-1] if source is None else source)
        self._counts.update(sample.notes)
        own = {name: stored.range for name, stored in sample.parts.items() if stored.range is not None}
        self._ranges = joined((self._ranges, own))

    def reject(self, reject: Reject) -> None:
        self._rejects.append(reject)

    def columns(self) -> dict[str, NDArray[Any] | list[Any]]:
        """Number, ragged and text fields of all rows, and `key`."""
        kinds = self._small
        columns = {
            name: np.array(values, kinds[name].dtype) if kinds[name].kind == "number" else values
            for name, values in self._values.items()
        }
        return {**columns, "key": self._keys}

    def index(self, name: str, index: Mapping[str, NDArray[np.int64]]) -> None:
        """Add where the writer put the images of field `name`."""
        self._index[f"{name}.xxh3"] = np.array(self._hashes[name], np.uint64)
        for what, values in index.items():
            self._index[f"{name}.{what}"] = values
        if not self._fields[name].uniform:
            self._index[f"{name}.shape"] = np.array(self._shapes[name], np.int32)

    def record(self, number: int, records: tuple[FileRecord, ...], placements: dict[str, Placement]) -> PartRecord:
        columns = dict[str, bytes]()
        for name, values in (self._index | self.columns()).items():
            if isinstance(values, np.ndarray):
                columns[name] = little(values).tobytes()
            else:
                rows = [row.encode() if isinstance(row, str) else row for row in values]
                columns[name] = b"".join(row if isinstance(row, bytes) else little(row).tobytes() for row in rows)
                columns[f"{name}.length"] = np.array(list(map(len, rows)), "<i8").tobytes()
        return PartRecord(
            number=number,
            rows=self.count,
            files=records,
            placements=placements,
            columns=columns,
            rejects=tuple(self._rejects),
            counts=dict(self._counts),
            bytes_in=self.bytes_in,
            sources=np.array(self._sources, "<u8").tobytes(),
            ranges=self._ranges,
        )


def little(values: NDArray[Any]) -> NDArray[Any]:
    """The array in little-endian byte order, which the store's files have."""
    return values.astype(values.dtype.newbyteorder("<"), copy=False)


def write_record(destination: Path, record: PartRecord, attempt: str = "") -> None:
    path = record_path(destination, record.number)
    body = msgspec.msgpack.encode(record)
    files.write_whole(path, body + xxhash.xxh3_128_digest(body), path.with_suffix(f"{attempt}.tmp"))


def read_record(destination: Path, number: int) -> PartRecord | None:
    """The record of a part that is done and has its shard, or had it; None if the part must be packed (again)."""
    path = record_path(destination, number)
    try:
        data = writing.read(path, of_any_user=True)  # workers of a cluster may run as another one
    except FileNotFoundError:
        return None
    body, seal = data[:-16], data[-16:]
    if xxhash.xxh3_128_digest(body) != seal:
        return None
    record = msgspec.msgpack.decode(body, type=PartRecord)
    for file in () if record.away else record.files:
        try:
            size = (destination / file.name).stat().st_size
        except FileNotFoundError:
            return None
        if size != file.bytes:
            return None
    return record
