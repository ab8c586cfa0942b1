"""Checking a store: every file against its checksum, every sample against its own, and that every one reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import xxhash

from rawpack.errors import RawpackError
from rawpack.manifest import Manifest, load
from rawpack.mapped import map_file
from rawpack.remote.cache import is_cached_store, is_coming
from rawpack.store import Store
from rawpack_packer import history
from rawpack_packer.destination import is_appending, is_ours
from rawpack_packer.layout import PROVENANCE, STATES, names_of, of_run, runs_by
from rawpack_packer.probe import probe_shard


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a store."""

    where: str
    """The file, or "sample 17 (cats/1.jpg)"."""
    what: str


def verify(path: Path, *, quick: bool, tick: Callable[[int], None]) -> Iterator[Problem]:
    """Everything that is wrong with the store at `path`. quick: sizes and headers only. tick: told the bytes that were
    checked, `work_of` in all.

    Raises StoreError where there is no manifest to hold the rest against.
    """
    manifest, _ = load(path)
    yield from _check_names(path, manifest)
    broken = list(_check_files(path, manifest, quick, tick))
    yield from broken
    yield from _check_provenance(path, manifest)
    try:
        store = Store(path)
    except RawpackError as error:
        if not broken:
            yield Problem("columns", str(error))
        return
    told = {problem.where for problem in broken}
    for number in range(len(manifest.shards)):
        yield from _check_shard(store, number, told, quick, tick)


def work_of(manifest: Manifest) -> int:
    """What `tick` comes to in all, in bytes: each file's once for its checksum, each shard's again for its samples."""
    return sum(record.bytes for _, record in manifest.records()) + manifest.shard_bytes


def _check_names(path: Path, manifest: Manifest) -> Iterator[Problem]:
    known, appending, cached = names_of(manifest), is_appending(path), is_cached_store(path)
    for name in sorted(entry.name for entry in path.iterdir()):
        if appending and is_ours(name):
            continue  # of an append that is under way, or goes on: no manifest names it yet
        # liblmdb leaves a lock file beside a shard that somebody opened without lock=False: harmless.
        if cached and is_coming(name):
            continue
        if name not in known and name.removesuffix("-lock") not in known:
            yield Problem(name, "is in the store's folder, and the manifest does not name it")


def _check_files(path: Path, manifest: Manifest, quick: bool, tick: Callable[[int], None]) -> Iterator[Problem]:
    cached = is_cached_store(path)
    for name, expected in manifest.records():
        if cached and not os.path.lexists(path / name):
            yield Problem(
                name, "was not fetched into this cache, or has left it; `rawpack warm` fetches all of a store"
            )
            tick(expected.bytes)
            continue
        try:
            data = map_file((path / name).parent, expected)
            if not quick and xxhash.xxh3_64_hexdigest(data.data) != expected.xxh3:
                yield Problem(name, "was changed: its checksum does not fit")
        except RawpackError as error:
            yield Problem(name, str(error))
        tick(expected.bytes)


def _check_provenance(path: Path, manifest: Manifest) -> Iterator[Problem]:
    """What no digest covers carries its own checksum."""
    for run in range(1, runs_by(manifest.rejects.file.name) + 1):
        names = (of_run(PROVENANCE, run), of_run(STATES, run))
        if is_cached_store(path) and not any(os.path.lexists(path / name) for name in names):
            continue  # no reader needs it, so it is not fetched
        try:
            history.read_provenance(path, run)
        except (OSError, RawpackError) as error:
            yield Problem(of_run("provenance.*", run), str(error))


def _check_shard(
    store: Store, number: int, told: set[str], quick: bool, tick: Callable[[int], None]
) -> Iterator[Problem]:
    """told: files of which it was said already that they are damaged."""
    shard = store.manifest.shards[number]
    first = store.first(number)
    for name, field in store.fields.items():
        if not field.in_shards:
            continue
        where = shard.files[shard.fields[name].file].name
        try:
            reader = store.reader(number, name)
        except RawpackError as error:
            if where not in told:
                yield Problem(where, str(error))
            try:
                reader = _trusting(store, number).reader(number, name)
            except RawpackError:
                continue
        if quick:
            continue
        # The file's own library must see what the index says; a damaged file may kill it, so another process asks.
        refused = probe_shard(store, number, name)
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
                elif field.encoded:
                    reader.read(row)
            except RawpackError as error:
                problem = str(error)
            if problem:
                yield Problem(_sample(store, first + row), problem)
            tick(share)


def _trusting(store: Store, number: int) -> Store:
    """The store, opened again to read a shard whose head was changed: which of its samples were hit is then seen."""
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
