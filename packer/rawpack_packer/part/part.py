"""One part of a packing job: a run of the source becomes one shard, and a record of what is in it.

The record is written last, so that it proves its shard: what has a record is done, what has none is done again.
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

from rawpack.disk.manifest import Field, FileRecord, Placement
from rawpack.errors import DamagedStoreError, DecodeError, PackError
from rawpack_packer.destination import files, run_token
from rawpack_packer.destination.layout import WORK
from rawpack_packer.destination.rejects import NOT_SCANNED, Reject
from rawpack_packer.part.pieces import PiecesAhead, PreparedItem, prepare_item
from rawpack_packer.part.readahead import ReadAhead
from rawpack_packer.recipe.fields import IMAGE
from rawpack_packer.recipe.recipe import Recipe, check_libraries
from rawpack_packer.samples.sample import PreparedSample
from rawpack_packer.sources import Samples
from rawpack_packer.writers import open_writer, shard_names


class PartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished part holds. Arrays are little-endian bytes."""

    number: int
    rows: int
    files: tuple[FileRecord, ...]
    placements: dict[str, Placement]
    """Of each image and mask field; none where every sample was rejected, and so there is no shard."""
    columns: dict[str, bytes]
    """Number fields and the index: "label", "image.xxh3", "image.offset", ... -> the bytes of their rows; of ragged
    fields all rows one after another, and "boxes.length", int64 (rows,)."""
    texts: dict[str, list[str]]
    rejects: tuple[Reject, ...]
    counts: dict[str, int]
    bytes_in: int
    sources: bytes
    """xxh3_64 of each packed sample's source bytes, little-endian uint64: to count files with identical bytes."""


@dataclass(frozen=True)
class PartTask:
    """A part to be done. Picklable: it travels to a worker."""

    number: int
    first: int
    """Number in the source of the part's first sample."""
    samples: Samples
    recipe: Recipe
    fields: Mapping[str, Field]
    """Of the store."""
    destination: str
    strict: bool = False
    max_rejects: int = sys.maxsize
    """Of the whole job: an engine need not go on once a single part has more."""
    token: str = ""
    """Of the run, unguessable: names the pieces that other workers prepare ahead; without one, there are none."""
    root: str = ""
    """Where the source lies: a path that every worker must have; empty where it is none."""
    run: str = ""
    """The run that the destination must belong to when files get their names: see `runs`; empty for workers that end
    with their run anyway."""
    attempt: str = ""
    """Keeps the temporary files of two workers apart, where one was taken for dead and lives."""
    crashed: frozenset[int] = field(default_factory=frozenset)
    """Samples of the part that killed the processes which decoded them: rejected unseen."""


@dataclass(frozen=True)
class Tick:
    """Progress within a part."""

    samples: int
    bytes_in: int


def record_path(destination: Path, number: int) -> Path:
    return destination / WORK / f"part-{number:05d}.done"


def run_part(task: PartTask, note: Callable[[int], None], tick: Callable[[Tick], None]) -> None:
    """Pack one part, so that its shard and then its record are on the disk.

    note: told each sample before it is touched, and -1 before the shard is finished. tick: told what is done, now and
    then. Raises PackError (a changed source, a reject under `strict`, other libraries than the recipe's) and OSError
    (the destination is full or gone); then the part was not done.
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
                died = DecodeError("crashed", "the process that decoded it died, twice")
                made = PreparedItem(task.samples.key(i), died, 0, None)
            elif made is None:
                made = prepare_item(task.samples, i, recipe, task.fields)
            rows.bytes_in += made.bytes_in
            if isinstance(made.sample, DecodeError):
                error = made.sample
                if task.strict and error.reason != NOT_SCANNED:
                    raise PackError(f"{task.samples.key(i)!r}: {error} (--strict stops at the first)")
                rows.reject(Reject(task.first + i, task.samples.key(i), error.reason, error.detail))
            else:
                writer.add(made.sample)
                rows.add(made.key, made.sample, made.source)
            if i % 16 == 15:
                tick(Tick(i + 1, rows.bytes_in))
        records: tuple[FileRecord, ...] = ()
        placements: dict[str, Placement] = {}
        # Whatever befalls the process from here on is no sample's fault.
        note(-1)
        if rows.count:
            finished = writer.finish(rows.columns())
            placements = {name: where.placement for name, where in finished.items()}
            pairs = list(zip(temporaries, names, strict=True))
            records = tuple(files.record(temporary, name, head=True) for temporary, name in pairs)
            if task.run:
                run_token.check(destination, task.run)
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
        run_token.check(destination, task.run)
    write_record(destination, record, task.attempt)
    tick(Tick(len(task.samples), rows.bytes_in))


def try_samples(task: PartTask, first: int, note: Callable[[int], None]) -> None:
    """Prepare the samples of a part from number `first` on as `run_part` does, and keep nothing of them.

    For finding out which of them kill the process that does this: `note` is told each before it is touched. Raises
    PackError where `run_part` would because of the source.
    """
    for i in range(first, len(task.samples)):
        note(i)
        prepare_item(task.samples, i, task.recipe, task.fields)
    note(-1)


class _RecordRows:
    """The small fields and the index of a part, row after row."""

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

    def add(self, key: str, sample: PreparedSample, source: int | None) -> None:
        """source: xxh3_64 of the image as it was read; None where that is what is stored."""
        self.count += 1
        self._keys.append(key)
        for name, column in self._values.items():
            column.append(sample.values[name])
        for name, stored in sample.parts.items():
            self._hashes[name].append(xxhash.xxh3_64_intdigest(stored.data.data))
            self._shapes[name].append(stored.shape)
        self._sources.append(self._hashes[IMAGE][-1] if source is None else source)
        self._counts.update(sample.notes)

    def reject(self, reject: Reject) -> None:
        self._rejects.append(reject)

    def columns(self) -> dict[str, NDArray[Any] | list[str] | list[NDArray[Any]]]:
        """Number, ragged and text fields of the rows, and `key`."""
        columns: dict[str, NDArray[Any] | list[str] | list[NDArray[Any]]] = {}
        for name, kind in self._small.items():
            values = self._values[name]
            columns[name] = np.array(values, kind.dtype) if kind.kind == "number" else values
        columns["key"] = self._keys
        return columns

    def index(self, name: str, index: Mapping[str, NDArray[np.int64]]) -> None:
        """Take over what the writer says of where the images of field `name` lie."""
        self._index[f"{name}.xxh3"] = np.array(self._hashes[name], np.uint64)
        for what, values in index.items():
            self._index[f"{name}.{what}"] = values
        if not self._fields[name].uniform:
            self._index[f"{name}.shape"] = np.array(self._shapes[name], np.int32)

    def record(self, number: int, records: tuple[FileRecord, ...], placements: dict[str, Placement]) -> PartRecord:
        numbers: dict[str, NDArray[Any]] = dict(self._index)
        texts: dict[str, list[str]] = {"key": self._keys}
        for name, kind in self._small.items():
            values = self._values[name]
            if kind.kind == "text":
                texts[name] = values
            elif kind.kind == "ragged":
                empty = np.empty((0, *(n or 0 for n in kind.shape[1:])), kind.dtype)
                numbers[name] = np.concatenate([empty, *values])
                numbers[f"{name}.length"] = np.array([len(value) for value in values], np.int64)
            else:
                numbers[name] = np.array(values, kind.dtype)
        return PartRecord(
            number=number,
            rows=self.count,
            files=records,
            placements=placements,
            columns={name: little(values).tobytes() for name, values in numbers.items()},
            texts=texts,
            rejects=tuple(self._rejects),
            counts=dict(self._counts),
            bytes_in=self.bytes_in,
            sources=np.array(self._sources, "<u8").tobytes(),
        )


def little(values: NDArray[Any]) -> NDArray[Any]:
    """The array in little-endian byte order, as the store's files have it."""
    return values.astype(values.dtype.newbyteorder("<"), copy=False)


def write_record(destination: Path, record: PartRecord, attempt: str = "") -> None:
    path = record_path(destination, record.number)
    body = msgspec.msgpack.encode(record)
    files.write_whole(path, body + xxhash.xxh3_128_digest(body), path.with_suffix(f"{attempt}.tmp"))


def read_record(destination: Path, number: int) -> PartRecord | None:
    """The record of a part that is done, its shard in place; None where it is to be done (again)."""
    path = record_path(destination, number)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    body, seal = data[:-16], data[-16:]
    if xxhash.xxh3_128_digest(body) != seal:
        return None
    record = msgspec.msgpack.decode(body, type=PartRecord)
    for file in record.files:
        try:
            size = (destination / file.name).stat().st_size
        except FileNotFoundError:
            return None
        if size != file.bytes:
            return None
    return record


def need_record(destination: Path, number: int) -> PartRecord:
    """The record of a part that was done in this run."""
    record = read_record(destination, number)
    if record is None:
        raise DamagedStoreError(f"{record_path(destination, number)} or its shard went away while packing")
    return record
