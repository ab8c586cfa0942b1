"""What is known of stores and samples: where their bytes are, if they are damaged, whose key has a part, rejects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import DamagedStoreError, UsageError
from rawpack.store.store import Store
from rawpack.store.stores import Stores
from rawpack.system.files import open_plain

_KEY = "key"
_MOST_LINE = 1 << 20


class StoreInfo(NamedTuple):
    """One of the stores that a reader reads."""

    path: str
    """Its folder, or its URL without credentials."""
    format: str
    samples: int
    """In the store; a reader may have some of them."""
    bytes: int
    """Of all its files but the manifest and provenance."""
    digest: str
    """Differs from that of every store with other contents."""
    rejects: int
    """Samples that could not be packed."""
    fields: Mapping[str, Field]
    """As of `Reader.fields`, as they are stored."""

    @classmethod
    def of(cls, store: Store) -> StoreInfo:
        """What is known of an open store."""
        manifest = store.manifest
        sizes = manifest.samples, manifest.store_bytes
        return cls(store.where, manifest.format, *sizes, store.digest, manifest.rejects.count, store.fields)


class Place(NamedTuple):
    """Where the stored bytes of an image or a mask are."""

    file: Path
    """The shard; of a store behind a URL, where the cache has or would have it."""
    offset: int
    """Of the first byte; of compressed chunks, that of the chunk which holds the sample."""
    bytes: int
    """How many: of the sample, or of the compressed chunk."""


def rows_with_key(library: Stores, part: str) -> NDArray[np.int64]:
    """The rows whose key has `part` in it, whatever the case of ASCII letters, int64 (n,), ascending. The mapped text
    is searched as it is, without a string for each key. Raises UsageError where the store has no keys."""
    if not isinstance(part, str):
        raise UsageError(f"key={part!r} must be a text, a part of the keys")
    if _KEY not in library.fields:
        raise UsageError("these samples have no key to search in")
    wanted = re.compile(re.escape(part.encode("utf-8", "replace")), re.IGNORECASE)
    found, first = [np.empty(0, np.int64)], 0
    for folder in library.columns.folders:
        folder.look(_KEY)
        ends, data = folder.arrays[f"{_KEY}.offset"], folder.arrays[_KEY]
        hits = np.fromiter(_starts(wanted, data.data), np.int64)
        stops = hits + len(part.encode("utf-8", "replace"))
        rows = np.searchsorted(ends, hits, side="right") - 1
        # What begins in one key and ends in the next is in neither.
        inside = stops <= ends[np.minimum(rows + 1, folder.rows)]
        found.append(np.unique(rows[inside & (rows < folder.rows)]) + first)
        first += folder.rows
    return np.concatenate(found)


def _starts(wanted: re.Pattern[bytes], data: memoryview) -> Iterator[int]:
    """Where each match begins, also within another one: that may begin in the key before."""
    hit = wanted.search(data)
    while hit is not None:
        yield hit.start()
        hit = wanted.search(data, hit.start() + 1) if hit.start() < len(data) else None


def places_of(library: Stores, row: int) -> dict[str, Place]:
    """Image or mask -> where the sample in a row is stored."""
    store, at = library.locate(row)
    number, in_shard = store.locate(at)
    shard = store.manifest.shards[number]
    for name in store.fields:
        store.columns.located(at)[0].look(name)
    return {
        name: Place(store.path / shard.files[shard.fields[name].file].name, *_span(store, number, name, at, in_shard))
        for name, field in store.fields.items()
        if field.in_shards
    }


def damaged_in(library: Stores, row: int) -> list[str]:
    """The images and masks of the sample in a row whose stored bytes are not those that were packed."""
    found = list[str]()
    for name, field in library.fields.items():
        try:
            if field.in_shards:
                library.look(name, row)
                library.columns.located(row)[0].look(name)
                library.check(name, row)
        except DamagedStoreError:
            found.append(name)
    return found


def _span(store: Store, number: int, name: str, row: int, in_shard: int) -> tuple[int, int]:
    """The offset in its shard, and the bytes, of field `name` of the sample in a row."""
    field, placement = store.fields[name], store.manifest.shards[number].fields[name]
    if "offset" in field.index:
        offset, size = (int(store.columns.piece(f"{name}.{part}", row, 1)[0]) for part in ("offset", "bytes"))
        if not field.deflated:
            return offset, size
    else:
        size = int(np.prod(field.stored_shape)) * np.dtype(field.dtype).itemsize
        offset = in_shard * size
    if field.deflated:
        first, length = store.chunks(number, name)[offset // placement.chunk_bytes].tolist()
        return first, length
    return placement.offset + offset, size


def rejects_of(library: Stores) -> Iterator[dict[str, Any]]:
    """The samples that could not be packed, of one store after another: `key`, `reason`, `detail`, and what else their
    lines say. Raises DamagedStoreError where a line is no JSON object."""
    for store in library.stores:
        path = store.path / store.manifest.rejects.file.name
        if not store.manifest.rejects.count:
            continue
        with open_plain(path) as (descriptor, _), open(descriptor, "rb", closefd=False) as file:
            while line := file.readline(_MOST_LINE):
                try:
                    yield msgspec.json.decode(line, type=dict[str, Any])
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise DamagedStoreError(f"{path} has a line that is no reject: {error}") from error
