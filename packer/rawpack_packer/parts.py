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

from rawpack.errors import DamagedStoreError, DecodeError, PackError
from rawpack.manifest import FileRecord, Placement
from rawpack_packer import files
from rawpack_packer.layout import WORK
from rawpack_packer.pieces import Ahead, Made, make
from rawpack_packer.prepare import Prepared
from rawpack_packer.recipe import Recipe
from rawpack_packer.sources import FieldKind, Item, Samples
from rawpack_packer.writers import SUFFIXES, WRITERS

IMAGE = "image"


class Reject(msgspec.Struct, frozen=True):
    """A line of `rejects.jsonl`."""

    sample: int
    """Its number in the source, rejected ones counted."""
    key: str
    reason: str
    detail: str


class PartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished part holds. Arrays are little-endian bytes."""

    number: int
    rows: int
    files: tuple[FileRecord, ...]
    placement: Placement | None
    """None where every sample was rejected, and so there is no shard."""
    columns: dict[str, bytes]
    """Number fields and the index: "label", "image.xxh3", "image.offset", ... -> the bytes of their rows."""
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
    fields: Mapping[str, FieldKind]
    destination: str
    strict: bool = False
    max_rejects: int = sys.maxsize
    """Of the whole job: an engine need not go on once a single part has more."""
    token: str = ""
    """Of the run, unguessable: names the pieces that other workers prepare ahead; without one, there are none."""
    crashed: frozenset[int] = field(default_factory=frozenset)
    """Samples of the part that killed the processes which decoded them: rejected unseen."""


@dataclass(frozen=True)
class Tick:
    """Progress within a part."""

    samples: int
    bytes_in: int


def record_path(destination: Path, number: int) -> Path:
    return destination / WORK / f"part-{number:05d}.done"


def shard_name(number: int, format: str) -> str:
    return f"shard-{number:05d}{SUFFIXES[format]}"


def run_part(task: PartTask, note: Callable[[int], None], tick: Callable[[Tick], None]) -> None:
    """Pack one part, so that its shard and then its record are on the disk.

    note: told each sample before it is touched, and -1 before the shard is finished. tick: told what is done, now and
    then. Raises PackError (a changed source, a reject under `strict`) and OSError (the destination is full or gone);
    then the part was not done.
    """
    destination, recipe = Path(task.destination), task.recipe
    name = shard_name(task.number, recipe.format)
    temporary = destination / WORK / f"{name}.tmp"
    writer = WRITERS[recipe.format](temporary, recipe)
    rows, ahead = _Rows(task.fields), Ahead(task)
    try:
        for i in range(len(task.samples)):
            note(i)
            made = ahead.take(i)
            if i in task.crashed:
                made = Made(None, DecodeError("crashed", "the process that decoded it died, twice"))
            elif made is None:
                made = make(task.samples, i, recipe)
            if made.item is not None:
                rows.bytes_in += len(made.item.image)
            if isinstance(made.sample, DecodeError):
                error = made.sample
                if task.strict:
                    raise PackError(f"{task.samples.key(i)!r}: {error} (--strict stops at the first)")
                rows.reject(Reject(task.first + i, task.samples.key(i), error.reason, error.detail))
            elif made.item is not None:
                writer.add(made.sample)
                rows.add(made.item, made.sample)
            if i % 16 == 15:
                tick(Tick(i + 1, rows.bytes_in))
        records: tuple[FileRecord, ...] = ()
        placement = None
        # Whatever befalls the process from here on is no sample's fault.
        note(-1)
        if rows.count:
            finished = writer.finish(rows.columns())
            placement = finished.placement
            records = (files.record(temporary, name, head=True),)
            files.commit(temporary, destination / name)
            rows.index(finished.index, recipe)
    finally:
        writer.abort()
        temporary.unlink(missing_ok=True)
        ahead.close()
    record = rows.record(task.number, records, placement)
    write_record(destination, record)
    tick(Tick(len(task.samples), rows.bytes_in))


def try_samples(task: PartTask, first: int, note: Callable[[int], None]) -> None:
    """Prepare the samples of a part from number `first` on as `run_part` does, and keep nothing of them.

    For finding out which of them kill the process that does this: `note` is told each before it is touched. Raises
    PackError where `run_part` would because of the source.
    """
    for i in range(first, len(task.samples)):
        note(i)
        make(task.samples, i, task.recipe)
    note(-1)


class _Rows:
    """The small fields and the index of a part, row after row."""

    def __init__(self, fields: Mapping[str, FieldKind]) -> None:
        self.count = self.bytes_in = 0
        self._fields = fields
        self._values: dict[str, list[Any]] = {name: [] for name in fields}
        self._keys: list[str] = []
        self._hashes: list[int] = []
        self._sources: list[int] = []
        self._shapes: list[tuple[int, int, int]] = []
        self._rejects: list[Reject] = []
        self._counts: Counter[str] = Counter()
        self._index: dict[str, NDArray[Any]] = {}

    def add(self, item: Item, sample: Prepared) -> None:
        self.count += 1
        self._keys.append(item.key)
        for name, column in self._values.items():
            column.append(item.fields[name])
        stored = xxhash.xxh3_64_intdigest(sample.image.data)
        self._hashes.append(stored)
        if "passed_through" in sample.notes:
            self._sources.append(stored)  # the same bytes
        else:
            source = item.image if isinstance(item.image, bytes) else np.ascontiguousarray(item.image).data
            self._sources.append(xxhash.xxh3_64_intdigest(source))
        self._shapes.append(sample.shape)
        self._counts.update(sample.notes)

    def reject(self, reject: Reject) -> None:
        self._rejects.append(reject)

    def columns(self) -> dict[str, NDArray[Any] | list[str]]:
        """Number and text fields of the rows, and `key`."""
        columns: dict[str, NDArray[Any] | list[str]] = {}
        for name, kind in self._fields.items():
            values = self._values[name]
            columns[name] = values if kind.dtype == "str" else np.array(values, kind.dtype)
        columns["key"] = self._keys
        return columns

    def index(self, index: Mapping[str, NDArray[np.int64]], recipe: Recipe) -> None:
        """Take over what the writer says of where the images lie."""
        self._index[f"{IMAGE}.xxh3"] = np.array(self._hashes, np.uint64)
        for name, values in index.items():
            self._index[f"{IMAGE}.{name}"] = values
        if recipe.target is None:
            self._index[f"{IMAGE}.shape"] = np.array(self._shapes, np.int32)

    def record(self, number: int, records: tuple[FileRecord, ...], placement: Placement | None) -> PartRecord:
        numbers: dict[str, NDArray[Any]] = dict(self._index)
        texts: dict[str, list[str]] = {}
        for name, column in self.columns().items():
            if isinstance(column, list):
                texts[name] = column
            else:
                numbers[name] = column
        return PartRecord(
            number=number,
            rows=self.count,
            files=records,
            placement=placement,
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


def write_record(destination: Path, record: PartRecord) -> None:
    path = record_path(destination, record.number)
    body = msgspec.msgpack.encode(record)
    files.write_whole(path, body + xxhash.xxh3_128_digest(body), path.with_suffix(".tmp"))


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
