"""What a destination remembers of the run that began it, so that another run goes on only with the same job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack import manifest as manifests
from rawpack import npyfile
from rawpack.errors import DamagedStoreError, RawpackError, StoreError, UsageError
from rawpack.manifest import Field, Manifest
from rawpack.plainfile import open_plain, read_plain
from rawpack.store import Store
from rawpack_packer import files
from rawpack_packer.layout import JOB, PROVENANCE, REJECTS, STATES, WORK
from rawpack_packer.parts import Reject
from rawpack_packer.recipe import Recipe
from rawpack_packer.sources import Source
from rawpack_packer.sources.base import UNKNOWN, printable

_SHOWN = 10
_MAX_PROVENANCE, _MAX_STATES, _MAX_LINE = 1 << 20, 1 << 34, 1 << 20
"""Bytes: a stranger's store must not fill this machine's memory."""
Files = dict[str, tuple[int, int]]
"""Key -> size in bytes and mtime in ns of a source's file."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is noted before the first part is packed."""

    recipe: dict[str, Any]
    fields: dict[str, Field]
    """Of the store."""
    classes: tuple[str, ...] | None
    digest: str
    keys: list[str]
    states: bytes
    """int64 (n, 2), little-endian."""

    def source(self) -> Known:
        states = np.frombuffer(self.states, "<i8").reshape(-1, 2)
        return Known(self.digest, self.keys, states)


class Known:
    """A source as an earlier run saw it."""

    def __init__(self, digest: str, keys: Sequence[str], states: NDArray[np.int64]) -> None:
        self.digest, self._keys, self._states = digest, keys, states

    def files(self) -> Files:
        states = [tuple(state) for state in self._states.tolist()]
        return dict(
            zip(self._keys, states if len(states) == len(self._keys) else [UNKNOWN] * len(self._keys), strict=True)
        )


def source_digest(source: Source) -> str:
    """xxh3_128 over the keys, sizes and times of all files of a source: what must be the same to go on."""
    digest = xxhash.xxh3_128()
    for i in range(len(source)):
        digest.update(source.key(i).encode("utf-8", "surrogateescape") + b"\0")
    digest.update(np.ascontiguousarray(source.states(), "<i8").tobytes())
    return digest.hexdigest()


def write_job(path: Path, recipe: Recipe, fields: Mapping[str, Field], source: Source) -> None:
    job = Job(
        recipe=recipe.as_manifest(),
        fields=dict(fields),
        classes=source.classes,
        digest=source_digest(source),
        keys=[source.key(i) for i in range(len(source))],
        states=np.ascontiguousarray(source.states(), "<i8").tobytes(),
    )
    work = path / WORK
    files.write_whole(work / JOB, msgspec.msgpack.encode(job), work / f"{JOB}.tmp")


def read_job(path: Path) -> Job | None:
    """The job that was begun at `path`; None where none was."""
    try:
        return msgspec.msgpack.decode((path / WORK / JOB).read_bytes(), type=Job)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise StoreError(f"{path / WORK / JOB} is damaged ({error}); --restart begins anew") from None


def finished_source(path: Path, manifest: Manifest) -> Known:
    """The source that a finished store was packed from."""
    try:
        provenance, states = read_provenance(path)
        digest = str(provenance["source"]["digest"])
        rejected = list(read_rejects(path))
    except (OSError, RawpackError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is a complete store, but not what it was packed from is known ({error}); --restart packs it anew"
        ) from None
    keys = Store(path).columns.text("key", np.arange(manifest.samples))
    for reject in rejected:
        keys.insert(reject.sample, reject.key)
    return Known(digest, keys, states)


def read_provenance(path: Path) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """What a finished store says of its making: `provenance.json`, and size and time of every source file (n, 2).

    Raises DamagedStoreError where either was changed, FileNotFoundError where it is missing.
    """
    text, _ = manifests.unseal(read_plain(path / PROVENANCE, _MAX_PROVENANCE), PROVENANCE)
    data = read_plain(path / STATES, _MAX_STATES)
    try:
        provenance = msgspec.json.decode(text, type=dict[str, Any])
    except ValueError as error:
        raise DamagedStoreError(f"{PROVENANCE} is no JSON object: {error}") from None
    if provenance.get("states") != xxhash.xxh3_64_hexdigest(data):
        raise DamagedStoreError(f"{STATES} was changed: its checksum does not fit")
    states = npyfile.array(np.frombuffer(data, np.uint8), STATES)
    return provenance, states.astype(np.int64)


def read_rejects(path: Path) -> Iterator[Reject]:
    """The lines of a finished store's `rejects.jsonl`, in the order of the source. ValueError where one is none."""
    decode = msgspec.json.Decoder(Reject).decode
    with open_plain(path / REJECTS) as (descriptor, _), open(descriptor, "rb", closefd=False) as file:
        while line := file.readline(_MAX_LINE):
            yield decode(line)


def check_recipe(path: Path, before: Mapping[str, Any], recipe: Recipe) -> None:
    """Raise UsageError, naming what differs, where another recipe made what is at `path`."""
    now, was = _flat(recipe.as_manifest()), _flat(before)
    differing = [
        f"{name}: {was.get(name)!r} then, {now.get(name)!r} now"
        for name in sorted(set(now) | set(was))
        if now.get(name) != was.get(name)
    ]
    if differing:
        raise UsageError(
            f"{path} was begun with another recipe ({'; '.join(differing)}); --restart removes it and begins anew"
        )


def check_fields(path: Path, before: Job | Manifest, fields: Mapping[str, Field], source: Source) -> None:
    """Raise UsageError, naming the first that differs, where samples had other fields or classes."""
    for name in [*fields, *before.fields]:
        was, now = before.fields.get(name), fields.get(name)
        if was != now:
            raise UsageError(
                f"{path} was begun with other fields ({name}: {_shown(was)} then, {_shown(now)} now); --restart "
                "removes it and begins anew"
            )
    if before.classes != source.classes:
        raise UsageError(f"{path} was begun with other classes; --restart removes it and begins anew")


def _shown(field: Field | None) -> str:
    return "none" if field is None else f"{field.kind} {field.dtype} {field.shape} {field.encoding}"


def check_source(path: Path, known: Known, source: Source) -> None:
    """Raise UsageError, listing the first files that differ, where `path` was begun with another source."""
    if known.digest == source_digest(source):
        return
    was = known.files()
    states = [tuple(state) for state in source.states().tolist()]
    keys = [source.key(i) for i in range(len(source))]
    if len(states) != len(keys):
        # Not one file for each sample: which sample a changed file belongs to is not known.
        now = dict.fromkeys(keys, UNKNOWN)
        was = dict.fromkeys(was, UNKNOWN) if was else {}
    else:
        now = dict(zip(keys, states, strict=True))
    lines = [f"added: {key}" for key in now if key not in was]
    lines += [f"removed: {key}" for key in was if key not in now]
    lines += [f"changed: {key}" for key in now if key in was and was[key] != now[key]]
    shown = "; ".join(printable(line) for line in lines[:_SHOWN])
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    raise UsageError(
        f"{path} was begun with another source ({shown or 'their files or order'}{more}); --restart removes it and "
        "begins anew"
    )


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's entries, those of `libraries` beside the others; lists as tuples."""
    flat: dict[str, Any] = {}
    for name, value in recipe.items():
        if isinstance(value, dict):
            flat |= value
        else:
            flat[name] = tuple(value) if isinstance(value, list) else value
    return flat
