"""Verifies a store: the checksums of all files and samples, and that every sample can be read."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.columns import files_of, open_field, runs_of
from rawpack.disk.manifest import Field, FileRecord, Manifest, load
from rawpack.disk.mapped import check_contents, map_file
from rawpack.disk.tables import format_of, resolve
from rawpack.errors import DamagedStoreError, RawpackError
from rawpack.remote.cache import is_cached_store, is_coming
from rawpack.store.store import Store
from rawpack_packer import text
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.folder import is_ours, left_by, names_of
from rawpack_packer.errors import is_no_fault_of_data
from rawpack_packer.inspect.problems import PLANTED, Problem, samples_of
from rawpack_packer.isolated import ChildDiedError, IsolatedCalls
from rawpack_packer.provenance import PROVENANCE, STATES, of_run, packing_runs, read_provenance
from rawpack_packer.recipe.tables import output_format

_OWN_NAMES = re.compile(r".*\.tmp|columns-\d+", re.DOTALL)
_BLOCK = 1 << 14
"""Rows that are read at once."""
_REJECT_BYTES = 1 << 20
"""The most that one line of the rejects takes."""
_CLASS = 4
"""The position of the class in a stored box."""
_TIMEOUT_S = 600.0
_SPARE = 64 << 20
"""Bytes that a shard may have in addition to twice those that its own header says it uses."""


def verify(path: Path, *, quick: bool, tick: Callable[[int], object]) -> Iterator[Problem]:
    """Everything that is wrong with the store at `path`. quick: sizes and headers only. tick: gets the bytes that were
    checked, `work_of` in all. A file with a wrong size or header is not read any further.

    Raises StoreError if there is no manifest to check the rest against.
    """
    manifest, _ = load(path)
    yield from _check_planted(path, manifest)
    broken, refused = list(_check_heads(path, manifest)), set[str]()
    broken += _check_column_heads(path, manifest, {problem.what for problem in broken}, refused)
    shards = samples_of(manifest)
    store = None
    try:
        store = Store(path)
        broken += _check_shard_heads(store, {problem.where for problem in broken})
    except RawpackError as error:
        if not broken:
            broken.append(Problem("columns", str(error)))
    yield from (
        msgspec.structs.replace(problem, samples=shards.get(problem.where)) for problem in dict.fromkeys(broken)
    )
    reported = refused | {problem.where for problem in broken}
    if not quick:
        changed = list(_check_files(path, manifest, reported, tick))
        yield from changed
        reported.update(problem.where for problem in changed)
    yield from _check_provenance(path, manifest)
    if store is None or quick:
        return
    yield from _check_columns(store)
    yield from _check_labels(store)
    with contextlib.closing(ShardProbe(store)) as probe:
        for number in range(len(manifest.shards)):
            yield from _check_shard(store, number, reported, tick, probe)


def work_of(path: Path) -> int:
    """The bytes that `tick` gets in all: each file once for its checksum, each shard again for its samples."""
    manifest, _ = load(path)
    return sum(record.bytes for _, record in manifest.records()) + manifest.shard_bytes


def unlisted(path: Path) -> list[str]:
    """What is in a store's folder and not in its manifest, which no reader needs. Raises StoreError without one."""
    listed, unfinished, cached = names_of(load(path)[0]), left_by(path), is_cached_store(path)
    names = []
    for name in sorted(entry.name for entry in path.iterdir()):
        if unfinished and is_ours(name):
            continue  # `describe` says what left it, and what removes it
        # liblmdb leaves a harmless lock file next to a shard that somebody opened without lock=False.
        if cached and is_coming(name):
            continue
        if name not in listed and name.removesuffix("-lock") not in listed:
            names.append(name)
    return names


def _check_planted(path: Path, manifest: Manifest) -> Iterator[Problem]:
    """Links and special files where packing makes its own: a run that changes the store would refuse them."""
    listed, work = names_of(manifest), path / WORK
    own = [file for file in path.iterdir() if file.name not in listed and _OWN_NAMES.fullmatch(file.name)]
    own += [work] if os.path.lexists(work) else []
    own += [] if work.is_symlink() else work.rglob("*")
    for file in sorted(own):
        with contextlib.suppress(FileNotFoundError):  # a run that changes the store may have just removed it
            status = file.lstat()
            if not stat.S_ISDIR(status.st_mode) and (not stat.S_ISREG(status.st_mode) or status.st_nlink > 1):
                yield Problem(str(file.relative_to(path)), PLANTED)


def _check_heads(path: Path, manifest: Manifest) -> Iterator[Problem]:
    """Check the sizes of all files, and the headers of shards."""
    cached = is_cached_store(path)
    for name, record in manifest.records():
        if cached and not os.path.lexists(path / name):
            yield Problem(
                name, "was not fetched into this cache, or has left it; `rawpack warm` fetches all of a store"
            )
            continue
        try:
            if name == manifest.rejects.file.name and record.bytes > manifest.rejects.count * _REJECT_BYTES:
                raise DamagedStoreError(
                    f"{name} has {text.count(record.bytes, 'byte')} for {text.count(manifest.rejects.count, 'reject')}"
                )
            map_file((path / name).parent, record)
        except RawpackError as error:
            yield Problem(name, str(error))


def _check_column_heads(path: Path, manifest: Manifest, reported: set[str], refused: set[str]) -> Iterator[Problem]:
    """Compare the headers of columns with the manifest, as the reader does. reported: problems that need no
    second line. refused: gets the files of the fields that differ."""
    try:
        for columns, chunks in runs_of(manifest):
            for name, field in manifest.fields.items():
                try:
                    open_field(path / columns.folder, columns, name, field, chunks[name])
                except RawpackError as error:
                    files = files_of(name, field, columns.rows, chunks[name])
                    refused.update(f"{columns.folder}/{file}" for file in files)
                    if str(error) not in reported:
                        yield Problem(f"{columns.folder}/{next(iter(files))}", str(error))
    except RawpackError as error:
        yield Problem("columns", str(error))


def _check_shard_heads(store: Store, damaged: set[str]) -> Iterator[Problem]:
    """Compare shards with the manifest and the index, without reading samples. damaged: files that are known to be
    damaged."""
    for number, shard in enumerate(store.manifest.shards):
        for name, field in store.fields.items():
            if not field.in_shards:
                continue
            placement = shard.fields[name]
            record = shard.files[placement.file]
            if record.name in damaged:
                continue
            try:
                store.reader(number, name)
                _check_size(store, number, name, field, record)
            except RawpackError as error:
                yield Problem(record.name, str(error))


def _check_size(store: Store, number: int, name: str, field: Field, record: FileRecord) -> None:
    """Refuse a shard whose file is larger than its contents: such a file may be a hole of any size."""
    shard = store.manifest.shards[number]
    packed = shard.fields[name].bytes
    if "bytes" in field.index:
        held = int(store.columns.piece(f"{name}.bytes", store.first(number), shard.rows).sum())
        if held != packed:
            raise DamagedStoreError(
                f"its samples of {name} contain {text.count(held, 'byte')} in all; the manifest says {packed:,}"
            )
    used_bytes = format_of(store.manifest.format).used_bytes
    if used_bytes:
        used = resolve(used_bytes)(map_file(store.path, record))
        if record.bytes > 2 * used + _SPARE:
            raise DamagedStoreError(f"it has {record.bytes} bytes, and its header speaks of {used}")


def _check_files(path: Path, manifest: Manifest, damaged: set[str], tick: Callable[[int], object]) -> Iterator[Problem]:
    """Check each file's checksum. damaged: files that are known to be damaged: they are not read."""
    for name, record in manifest.records():
        if name not in damaged:
            try:
                check_contents((path / name).parent, record)
            except RawpackError:
                yield Problem(name, "was changed: its checksum does not fit")
        tick(record.bytes)


def _check_columns(store: Store) -> Iterator[Problem]:
    """Read all texts and ragged fields, as a reader does."""
    for name, field in store.fields.items():
        if field.kind not in ("text", "ragged"):
            continue
        read = store.columns.text if field.kind == "text" else store.columns.ragged
        for first in range(0, len(store), _BLOCK):
            rows = np.arange(first, min(first + _BLOCK, len(store)))
            try:
                read(name, rows)
            except RawpackError as error:
                problems = []
                for row in rows:
                    try:
                        read(name, np.array([row]))
                    except RawpackError as why:
                        problems.append(Problem(_sample(store, int(row)), str(why), (int(row), int(row) + 1)))
                several = int(rows[0]), int(rows[-1]) + 1
                yield from problems or [Problem(f"samples {rows[0]} to {rows[-1]}", str(error), several)]


def _check_labels(store: Store) -> Iterator[Problem]:
    """Compare labels with the list of classes; in a store without labels, the classes of boxes. -1 is not a class."""
    classes, label = store.manifest.classes, store.fields.get("label")
    if classes is None or (label is not None and (label.kind != "number" or label.shape)):
        return
    boxes = {name: field.shape for name, field in store.fields.items() if field.is_boxes and len(field.shape) == 2}
    names = ["label"] if label is not None else [name for name, shape in boxes.items() if (shape[1] or 0) > _CLASS]
    for name in names:
        wrong, example = 0, ""
        for first in range(0, len(store), _BLOCK):
            rows = np.arange(first, min(first + _BLOCK, len(store)))
            try:
                numbers, rows = _classes_in(store, name, rows)
            except RawpackError:
                continue  # `_check_columns` reports it
            beyond = np.flatnonzero(~((numbers >= -1) & (numbers < len(classes)) & (numbers == np.floor(numbers))))
            if len(beyond) and not wrong:
                example = f"{numbers[beyond[0]]:.15g} of {_sample(store, int(rows[beyond[0]]))}"
            wrong += len(beyond)
        if wrong:
            listed = f"the manifest lists {text.count(len(classes), 'class', 'classes')}, counted from 0"
            others = f", and {text.count(wrong - 1, 'other', 'others')} like it" if wrong > 1 else ""
            yield Problem(f"field {name}", f"{example} is not a class{others}: {listed}")


def _classes_in(store: Store, name: str, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The numbers of classes in these rows, and the row of each."""
    if name == "label":
        labels = np.empty(len(rows), store.fields[name].dtype)
        store.columns.take(name, rows, labels)
        return labels, rows
    boxes = store.columns.ragged(name, rows)
    return np.concatenate([array[:, _CLASS] for array in boxes]), np.repeat(rows, [len(array) for array in boxes])


def _check_provenance(path: Path, manifest: Manifest) -> Iterator[Problem]:
    """Check the files that the digest does not cover: they carry their own checksums."""
    for run in packing_runs(manifest):
        names = (of_run(PROVENANCE, run), of_run(STATES, run))
        if is_cached_store(path) and not any(os.path.lexists(path / name) for name in names):
            continue  # no reader needs it, so it is not fetched
        try:
            read_provenance(path, run)
        except (OSError, RawpackError) as error:
            yield Problem(of_run("provenance.*", run), str(error))


def _check_shard(
    store: Store, number: int, damaged: set[str], tick: Callable[[int], object], probe: ShardProbe
) -> Iterator[Problem]:
    """Check each sample of a shard. damaged: files that are known to be damaged."""
    shard = store.manifest.shards[number]
    first = store.first(number)
    for name, field in store.fields.items():
        if not field.in_shards:
            continue
        where = shard.files[shard.fields[name].file].name
        try:
            reader = store.reader(number, name)
        except RawpackError as error:
            if where not in damaged:
                yield Problem(where, str(error), (first, first + shard.rows))
            try:
                reader = _trusting(store, number).reader(number, name)
            except RawpackError:
                continue
        # HDF5 and LMDB must agree with the index. A damaged file may kill them, so another process asks them.
        refused = probe.complaint(number, name)
        if refused:
            yield Problem(where, refused)
        file = shard.fields[name].file
        share = shard.files[file].bytes // shard.rows // sum(placed.file == file for placed in shard.fields.values())
        sums = store.columns.piece(f"{name}.xxh3", first, shard.rows)
        for row in range(shard.rows):
            problem = None
            try:
                if xxhash.xxh3_64_intdigest(np.ascontiguousarray(reader.stored(row)).data) != int(sums[row]):
                    problem = f"{name} was changed: its checksum does not fit"
                else:
                    reader.read(row)
            except RawpackError as error:
                problem = str(error)
            if problem:
                yield Problem(_sample(store, first + row), problem, (first + row, first + row + 1))
            tick(share)


def _trusting(store: Store, number: int) -> Store:
    """The store, opened again so that a shard with a changed header can be read, to see which samples are damaged."""
    trusting, shards = Store(store.path), list(store.manifest.shards)
    files = tuple(msgspec.structs.replace(record, head="") for record in shards[number].files)
    shards[number] = msgspec.structs.replace(shards[number], files=files)
    trusting.manifest = msgspec.structs.replace(store.manifest, shards=tuple(shards))
    return trusting


def _sample(store: Store, row: int) -> str:
    try:
        return f"sample {row} ({store.columns.text('key', np.array([row]))[0]})"
    except RawpackError:
        return f"sample {row}"


class ShardProbe:
    """Asks HDF5 or LMDB what the shards of one store hold, in a separate process, because a damaged file may crash the
    library. The process is kept as long as it finds nothing wrong."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._calls = IsolatedCalls(_TIMEOUT_S, text.plain(str(store.path)))

    def complaint(self, number: int, name: str) -> str | None:
        """What the format's own library finds wrong with field `name` of a shard; None if nothing is."""
        if not output_format(self._store.manifest.format).compare:
            return None
        kept = self._calls.is_running
        complaint = self._ask(number, name)
        # Again in a new process: an earlier shard may have harmed this one.
        return self._ask(number, name) if complaint and kept else complaint

    def close(self) -> None:
        """End the process."""
        self._calls.close()

    def _ask(self, number: int, name: str) -> str | None:
        try:
            complaint = self._calls.call(_compare, self._store.path, number, name)
        except ChildDiedError as died:
            complaint = f"{self._store.manifest.format.upper()} crashes or hangs when it reads it ({died})"
        if complaint:
            self.close()
        return complaint


def _compare(path: Path, number: int, name: str) -> str | None:
    """What `complaint` says. Runs in the child process."""
    store = _store_at(path)
    shard = store.manifest.shards[number]
    file = store.path / shard.files[shard.fields[name].file].name
    compare = resolve(output_format(store.manifest.format).compare)
    try:
        difference: str | None = compare(store, number, name, file)
    except RawpackError as error:
        return str(error)
    except Exception as error:  # h5py and lmdb raise many types for broken files
        if is_no_fault_of_data(error):
            raise
        return f"{store.manifest.format.upper()} cannot read it: {error}"
    return difference


@lru_cache(1)
def _store_at(path: Path) -> Store:
    """The store, whose manifest is read once for all of its shards."""
    return Store(path)
