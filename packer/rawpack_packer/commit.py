"""From finished parts to a store: columns, rejects, provenance, and last of all the manifest."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack import manifest as manifests
from rawpack import npyfile
from rawpack.columns import files_of
from rawpack.manifest import Columns, Field, FileRecord, Manifest, Rejects, Shard
from rawpack_packer import files
from rawpack_packer.layout import COLUMNS, PROVENANCE, REJECTS, STATES, WORK
from rawpack_packer.parts import PartRecord, need_record, read_record
from rawpack_packer.recipe import Recipe


@dataclass
class Totals:
    """What the parts hold together: small, whatever the number of samples."""

    classes: bool = True
    """Whether labels are numbers of classes."""
    samples: int = 0
    chunks: Counter[str] = field(default_factory=Counter)
    """Compressed pieces of each image and mask field."""
    lengths: Counter[str] = field(default_factory=Counter)
    """Of each text column in bytes, of each ragged one in rows."""
    rejects: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    bytes_in: int = 0
    shards: list[Shard] = field(default_factory=list)
    labels: Counter[int] = field(default_factory=Counter)
    _sources: list[NDArray[np.uint64]] = field(default_factory=list)

    def add(self, record: PartRecord) -> None:
        self.samples += record.rows
        self.bytes_in += record.bytes_in
        self.rejects.update(reject.reason for reject in record.rejects)
        self.counts.update(record.counts)
        self._sources.append(np.frombuffer(record.sources, "<u8"))
        if self.classes and "label" in record.columns:
            values, found = np.unique(np.frombuffer(record.columns["label"], "<i8"), return_counts=True)
            self.labels.update(dict(zip(values.tolist(), found.tolist(), strict=True)))
        for name, texts in record.texts.items():
            self.lengths[name] += sum(len(text.encode()) for text in texts)
        for column, data in record.columns.items():
            name, _, what = column.partition(".")
            if what == "length":
                self.lengths[name] += int(np.frombuffer(data, "<i8").sum())
        if record.placements:
            self.chunks.update({name: placed.chunks for name, placed in record.placements.items()})
            self.shards.append(Shard(rows=record.rows, files=record.files, fields=record.placements))

    @property
    def noticed(self) -> dict[str, int]:
        """What a summary tells of the samples as a whole."""
        sources = np.concatenate([np.empty(0, np.uint64), *self._sources])
        return {
            "identical_files": len(sources) - len(np.unique(sources)),
            "classes_of_one": sum(label >= 0 and count == 1 for label, count in self.labels.items()),
        }

    @property
    def bytes_out(self) -> int:
        return sum(file.bytes for shard in self.shards for file in shard.files)


def commit_store(
    destination: Path,
    recipe: Recipe,
    fields: dict[str, Field],
    classes: tuple[str, ...] | None,
    parts: int,
    totals: Totals,
    counts: Mapping[str, int],
    provenance: dict[str, Any],
    states: NDArray[np.int64],
) -> Manifest:
    """Write what makes finished parts a store. May be killed at any instant, and be done again from the start."""
    work = destination / WORK
    columns = _write_columns(destination, fields, parts, totals)
    reject_lines = work / f"{REJECTS}.tmp"
    write_rejects(destination, parts, reject_lines)
    rejects = files.record(reject_lines, REJECTS)
    files.commit(reject_lines, destination / REJECTS)
    _write_provenance(destination, provenance, states)
    manifest = Manifest(
        rawpack=manifests.VERSION,
        format=recipe.format,
        samples=totals.samples,
        fields=fields,
        classes=classes,
        shards=tuple(totals.shards),
        columns=(columns,),
        rejects=Rejects(count=totals.rejects.total(), reasons=dict(sorted(totals.rejects.items())), file=rejects),
        counts=dict(sorted((dict(counts) | totals.counts | totals.noticed).items())),
        recipe=recipe.as_manifest(),
    )
    # The manifest names files; all of them are on the disk before it is.
    files.write_whole(destination / manifests.NAME, manifests.dump(manifest), work / f"{manifests.NAME}.tmp")
    tidy(destination)
    return manifest


def tidy(destination: Path) -> None:
    """Remove what packing needed until the manifest was written."""
    shutil.rmtree(destination / WORK)
    files.sync_folder(destination)


def write_rejects(destination: Path, parts: int, path: Path) -> None:
    """Write what the finished parts have rejected, one JSON object a line."""
    with path.open("wb") as file:
        for number in range(parts):
            record = read_record(destination, number)
            for reject in record.rejects if record is not None else ():
                file.write(msgspec.json.encode(reject) + b"\n")


def _write_columns(destination: Path, fields: dict[str, Field], parts: int, totals: Totals) -> Columns:
    """All columns, written part after part: no more than one part is ever in memory."""
    folder = destination / WORK / f"{COLUMNS}.tmp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    written: list[FileRecord] = []
    for name, column in fields.items():
        for file_name, (dtype, shape) in files_of(name, column, totals.samples, totals.chunks[name]).items():
            if shape[:1] == (-1,):
                shape = (totals.lengths[name], *shape[1:])
            path = folder / file_name
            with path.open("wb") as file:
                file.write(npyfile.header(dtype, shape))
                _write_column(file, file_name.removesuffix(".npy"), column, destination, parts)
            files.sync_file(path)
            written.append(files.record(path, file_name))
    files.sync_folder(folder)
    final = destination / COLUMNS
    # Left by a commit that was killed: no manifest names it.
    shutil.rmtree(final, ignore_errors=True)
    folder.replace(final)
    files.sync_folder(destination)
    return Columns(folder=COLUMNS, rows=totals.samples, files=tuple(written))


def _write_column(file: BinaryIO, column: str, kind: Field, destination: Path, parts: int) -> None:
    name, _, piece = column.partition(".")
    if kind.kind in ("text", "ragged") and piece == "offset":
        end = 0
        file.write(np.zeros(1, "<i8").tobytes())
        for record in _records(destination, parts):
            ends = np.cumsum(_lengths(record, name, kind)) + end
            file.write(ends.astype("<i8").tobytes())
            end = int(ends[-1])
    elif kind.kind == "text":
        for record in _records(destination, parts):
            file.write("".join(record.texts[name]).encode())
    else:
        for record in _records(destination, parts):
            file.write(record.columns[column])


def _lengths(record: PartRecord, name: str, kind: Field) -> NDArray[np.int64]:
    """How long each row of a text or ragged field is."""
    if kind.kind == "text":
        return np.array([len(text.encode()) for text in record.texts[name]], np.int64)
    return np.frombuffer(record.columns[f"{name}.length"], "<i8")


def _records(destination: Path, parts: int) -> Iterable[PartRecord]:
    """The records of the parts that have a shard."""
    for number in range(parts):
        record = need_record(destination, number)
        if record.rows:
            yield record


def _write_provenance(destination: Path, provenance: dict[str, Any], states: NDArray[np.int64]) -> None:
    work = destination / WORK
    array = npyfile.header("int64", states.shape) + states.astype("<i8").tobytes()
    files.write_whole(destination / STATES, array, work / f"{STATES}.tmp")
    whole = provenance | {"states": xxhash.xxh3_64_hexdigest(array)}
    text = json.dumps(whole, indent=1, ensure_ascii=False).encode("utf-8", "backslashreplace")
    files.write_whole(destination / PROVENANCE, manifests.seal(text), work / f"{PROVENANCE}.tmp")
