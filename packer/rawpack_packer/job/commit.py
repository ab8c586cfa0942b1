"""Turns finished parts into a store: writes columns, rejects and provenance, and the manifest last."""

from __future__ import annotations

import errno
import json
import platform
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

import rawpack
from rawpack.disk import manifest as manifests
from rawpack.disk import npy
from rawpack.disk.columns import files_of
from rawpack.disk.manifest import Columns, Field, FileRecord, Manifest, Range, Rejects, Shard, joined
from rawpack.disk.mapped import check_contents, map_file
from rawpack.errors import DamagedStoreError
from rawpack.system import writing
from rawpack_packer.destination import files
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.folder import left_by
from rawpack_packer.destination.lock import Lock
from rawpack_packer.part import PartRecord, read_record, record_path
from rawpack_packer.provenance import COLUMNS, PROVENANCE, REJECTS, STATES, of_run

if TYPE_CHECKING:
    from rawpack_packer.job.job import Job

_OPEN_FILES = 32
"""Columns that are written at the same time: a process may have few descriptors."""
_BLOCK_ROWS = 1 << 20


_IN_MEMORY = 1 << 22
"""Checksums that are kept in memory before they are written to disk: 32 MiB."""
_BUCKETS = 256


class Duplicates:
    """Counts duplicate files in bounded memory: checksums are distributed over files by their first byte, so that equal
    ones end up in the same file."""

    def __init__(self, folder: Path) -> None:
        """folder: created for many checksums, after removing what an earlier run left there; removed by `count`."""
        self._folder, self._spilled = folder, 0
        self._held: list[NDArray[np.uint64]] = []
        self._count = 0

    def add(self, checksums: NDArray[np.uint64]) -> None:
        """checksums: uint64 (n,), one for each file. Raises OSError if the disk is full."""
        self._held.append(checksums)
        self._count += len(checksums)
        if self._count - self._spilled >= _IN_MEMORY:
            self._spill()

    def count(self) -> int:
        """The number of files with the same bytes as an earlier one."""
        if not self._spilled:
            return _repeated(self._taken())
        self._spill()
        repeated = sum(_repeated(np.fromfile(path, "<u8")) for path in self._folder.iterdir())
        writing.remove_folder(self._folder)
        return repeated

    def _spill(self) -> None:
        if not self._spilled:
            writing.make_empty_folder(self._folder)
        checksums = np.sort(self._taken())
        self._spilled = self._count
        edges = np.searchsorted(checksums >> np.uint64(56), np.arange(_BUCKETS + 1, dtype=np.uint64)).tolist()
        for bucket in range(_BUCKETS):
            if edges[bucket] < edges[bucket + 1]:
                with writing.reopen(self._folder / f"{bucket:03d}", "ab") as file:
                    file.write(checksums[edges[bucket] : edges[bucket + 1]].astype("<u8").tobytes())

    def _taken(self) -> NDArray[np.uint64]:
        held, self._held = self._held, []
        return np.concatenate([np.empty(0, np.uint64), *held])


def _repeated(checksums: NDArray[np.uint64]) -> int:
    ordered = np.sort(checksums)
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))


@dataclass
class Totals:
    """Sums over all parts. Their size does not depend on the number of samples."""

    identical: Duplicates
    classes: bool = True
    """Whether labels number classes."""
    samples: int = 0
    chunks: Counter[str] = field(default_factory=Counter)
    """Compressed pieces of each image and mask field."""
    lengths: Counter[str] = field(default_factory=Counter)
    """The length of each text column in bytes, and of each ragged one in rows."""
    rejects: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0
    shards: list[Shard] = field(default_factory=list)
    labels: Counter[int] = field(default_factory=Counter)
    ranges: dict[str, Range] = field(default_factory=dict)

    def add(self, record: PartRecord) -> None:
        self.samples += record.rows
        self.bytes_in += record.bytes_in
        self.rejects.update(reject.reason for reject in record.rejects)
        self.counts.update(record.counts)
        self.ranges = joined((self.ranges, record.ranges))
        self.identical.add(np.frombuffer(record.sources, "<u8"))
        if self.classes and "label" in record.columns:
            values, numbers = np.unique(np.frombuffer(record.columns["label"], "<i8"), return_counts=True)
            self.labels.update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
        for column, data in record.columns.items():
            name, _, what = column.partition(".")
            if what == "length":
                self.lengths[name] += int(np.frombuffer(data, "<i8").sum())
        if record.placements:
            self.chunks.update({name: placed.chunks for name, placed in record.placements.items()})
            self.shards.append(Shard(rows=record.rows, files=record.files, fields=record.placements))

    @property
    def bytes_out(self) -> int:
        return sum(file.bytes for shard in self.shards for file in shard.files)


def commit_store(job: Job, totals: Totals, provenance: dict[str, Any]) -> Manifest:
    """Make finished parts a store, or add them to the store that is there. If this is killed at any point, it can be
    done again."""
    destination, fields, before, numbers = job.destination, job.fields, job.before, job.numbers
    columns = [_write_columns(destination, fields, numbers, totals, before.run)] if totals.samples else []
    old = before.manifest
    rejects = commit_rejects(destination, before.run, numbers if totals.rejects else (), old)
    write_provenance(destination, provenance, job.source.states(), before.run)
    reasons = totals.rejects + Counter(old.rejects.reasons if old else {})
    ranges = _ranges(job, totals)
    manifest = Manifest(
        rawpack=manifests.VERSION,
        format=job.recipe.format,
        samples=totals.samples + (old.samples if old else 0),
        fields=fields,
        features=manifests.features_of(fields, ranges),
        ranges=ranges,
        classes=job.source.info.classes,
        shards=(*(old.shards if old else ()), *totals.shards),
        columns=(*(old.columns if old else ()), *columns),
        rejects=Rejects(count=reasons.total(), reasons=dict(sorted(reasons.items())), file=rejects),
        counts=_counts(job, totals),
        recipe=job.recipe.as_manifest(),
    )
    write_manifest(destination, manifest)
    return manifest


def write_manifest(destination: Path, manifest: Manifest) -> None:
    """Make the files that a manifest names a store; all of them are on the disk before it is."""
    temporary = destination / WORK / f"{manifests.NAME}.tmp"
    files.write_whole(destination / manifests.NAME, manifests.dump(manifest), temporary)
    tidy(destination)


def tidy(destination: Path) -> None:
    """Remove the folder that packing needed until the manifest was written."""
    try:
        shutil.rmtree(destination / WORK)
    except OSError as error:
        # NFS keeps a removed file that is open, as the locks are, under another name until it is closed. The holder of
        # the locks then removes the folder.
        if error.errno not in (errno.ENOTEMPTY, errno.EBUSY):
            raise
    files.sync_folder(destination)


def tidy_finished(destination: Path) -> None:
    """As `tidy`, for a finished store whose run was killed before it could do that."""
    if left_by(destination) not in (None, "append"):
        with Lock(destination):
            tidy(destination)


def commit_rejects(destination: Path, run: int, parts: Iterable[int], old: Manifest | None) -> FileRecord:
    """Write the rejects of a run: see `write_rejects`."""
    temporary, name = destination / WORK / f"{REJECTS}.tmp", of_run(REJECTS, run)
    write_rejects(destination, parts, temporary, old)
    rejects = files.record(temporary, name)
    files.commit(temporary, destination / name)
    return rejects


def write_rejects(destination: Path, parts: Iterable[int], path: Path, old: Manifest | None = None) -> None:
    """Write the rejects of the old store, then those of the finished parts, one JSON object a line."""
    with writing.create(path) as file:
        if old is not None:
            check_contents(destination, old.rejects.file)
            file.write(map_file(destination, old.rejects.file).data)
        for number in parts:
            record = read_record(destination, number)
            for reject in record.rejects if record is not None else ():
                file.write(msgspec.json.encode(reject) + b"\n")


def _ranges(job: Job, totals: Totals) -> dict[str, Range] | msgspec.UnsetType:
    """The ranges of the whole store: unset if those of its older samples were not noted."""
    old = job.before.manifest
    was = old.ranges if old and old.samples else {}
    if was is msgspec.UNSET:
        return was
    both = joined((was, totals.ranges))
    return {name: both[name] for name in job.fields if name in both} or msgspec.UNSET


def _counts(job: Job, totals: Totals) -> dict[str, int]:
    """The counts of the whole store."""
    old, labels = job.before.manifest, totals.labels + Counter(job.before.labels)
    was = old.counts if old else {}
    counts = {name: was.get(name, 0) + totals.counts[name] for name in {*was, *totals.counts}} | dict(job.counts)
    counts["identical_files"] = was.get("identical_files", 0) + totals.identical.count()
    if labels and "unlabelled" in counts:
        counts["unlabelled"] = labels[-1]  # the source counts images that were rejected, too
    counts["classes_of_one"] = sum(label >= 0 and count == 1 for label, count in labels.items())
    if old and "empty_classes" in counts:
        # Without labels, the classes belong to boxes.
        classes = job.source.info.classes or ()
        counts["empty_classes"] = sum(not labels[label] for label in range(len(classes))) if labels else 0
    return dict(sorted(counts.items()))


def _write_columns(
    destination: Path, fields: dict[str, Field], parts: Iterable[int], totals: Totals, run: int
) -> Columns:
    """Write the columns of all parts, with no more than one part in memory."""
    folder = begin_columns(destination, run)
    columns: list[tuple[str, Field, bytes]] = []
    for name, column in fields.items():
        for file_name, (dtype, shape) in files_of(name, column, totals.samples, totals.chunks[name]).items():
            if shape[:1] == (-1,):
                shape = (totals.lengths[name], *shape[1:])
            columns.append((file_name, column, npy.header(dtype, shape)))
    for first in range(0, len(columns), _OPEN_FILES):
        _write_some(folder, columns[first : first + _OPEN_FILES], destination, parts)
    return end_columns(destination, run, [name for name, _, _ in columns], totals.samples)


def begin_columns(destination: Path, run: int) -> Path:
    """The empty folder that the columns of a run are written into, until `end_columns`."""
    folder = destination / WORK / f"{of_run(COLUMNS, run)}.tmp"
    writing.make_empty_folder(folder)
    return folder


def end_columns(destination: Path, run: int, names: Iterable[str], rows: int) -> Columns:
    """Give the folder of `begin_columns` its final name, with all bytes of these files on the disk."""
    name_of_all = of_run(COLUMNS, run)
    folder, final, written = destination / WORK / f"{name_of_all}.tmp", destination / name_of_all, list[FileRecord]()
    for name in names:
        files.sync_file(folder / name)
        written.append(files.record(folder / name, name))
    files.sync_folder(folder)
    # A commit that was killed may have left it: no manifest names it.
    writing.remove_folder(final)
    writing.replace(folder, final)
    files.sync_folder(destination)
    return Columns(folder=name_of_all, rows=rows, files=tuple(written))


def _write_some(
    folder: Path, columns: Sequence[tuple[str, Field, bytes]], destination: Path, parts: Iterable[int]
) -> None:
    """Write some column files at the same time, reading each record once."""
    with ExitStack() as opened:
        writers = []
        for file_name, kind, header in columns:
            file, column = opened.enter_context(writing.create(folder / file_name)), _ColumnWriter(file_name, kind)
            file.write(header + column.first)
            writers.append((file, column))
        for record in _records(destination, parts):
            for file, column in writers:
                file.write(column.of(record))


class _ColumnWriter:
    """The bytes that parts, in their order, add to one column file."""

    def __init__(self, file_name: str, kind: Field) -> None:
        self._column = file_name.removesuffix(".npy")
        self._offsets, self._end = kind.kind in ("text", "ragged") and self._column.endswith(".offset"), 0
        self.first = np.zeros(1, "<i8").tobytes() if self._offsets else b""
        """Comes before the values of the first part."""

    def of(self, record: PartRecord) -> bytes:
        if not self._offsets:
            return record.columns[self._column]
        lengths = np.frombuffer(record.columns[f"{self._column.removesuffix('.offset')}.length"], "<i8")
        ends = np.cumsum(lengths) + self._end
        self._end = int(ends[-1])
        return ends.astype("<i8").tobytes()


def _records(destination: Path, parts: Iterable[int]) -> Iterable[PartRecord]:
    """The records of the parts that have a shard."""
    for number in parts:
        record = read_record(destination, number)
        if record is None:
            path = record_path(destination, number)
            raise DamagedStoreError(f"{path} or its shard disappeared while packing")
        if record.rows:
            yield record


def facts_of_run() -> dict[str, str]:
    """When and where a run ended, for its provenance."""
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "rawpack": rawpack.__version__,
        "python": platform.python_version(),
    }


def write_provenance(destination: Path, provenance: dict[str, Any], states: NDArray[np.int64], run: int) -> None:
    work = destination / WORK
    temporary, digest = work / f"{STATES}.tmp", xxhash.xxh3_64()
    blocks = (states[first : first + _BLOCK_ROWS] for first in range(0, len(states), _BLOCK_ROWS))
    with writing.create(temporary) as file:
        for block in chain([npy.header("int64", states.shape)], (rows.astype("<i8").tobytes() for rows in blocks)):
            digest.update(block)
            file.write(block)
    files.commit(temporary, destination / of_run(STATES, run))
    text = json.dumps(provenance | {"states": digest.hexdigest()}, indent=1, ensure_ascii=False).encode(
        "utf-8", "backslashreplace"
    )
    files.write_whole(destination / of_run(PROVENANCE, run), manifests.seal(text), work / f"{PROVENANCE}.tmp")
