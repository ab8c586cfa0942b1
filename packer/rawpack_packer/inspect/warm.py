"""Reading a store's files once: into the system's page cache, or from a URL into the cache of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from rawpack.disk.plain_files import open_plain
from rawpack.errors import DamagedStoreError, StoreError, UsageError
from rawpack.remote.cache import Cache
from rawpack.remote.fetch import RemoteFile
from rawpack.remote.origin import RemoteStore, open_origins
from rawpack.store.store import Store
from rawpack.system import machine
from rawpack_packer import text

Begin = Callable[[int, int | None], Callable[[int], object]]
_PIECE = 8 << 20


def files_of(store: Store) -> list[tuple[Path, int]]:
    """Paths and bytes, the columns first."""
    return [(store.path / name, record.bytes) for name, record in store.manifest.records()]


def warm_file(path: Path, tick: Callable[[int], object]) -> None:
    """Read a file and forget it. tick: told the bytes read."""
    buffer = bytearray(_PIECE)
    try:
        with open_plain(path) as (descriptor, _), open(descriptor, "rb", buffering=0, closefd=False) as file:
            while count := file.readinto(buffer):
                tick(count)
    except FileNotFoundError:
        raise DamagedStoreError(f"{path} is missing; `rawpack inspect --verify` tells what else is") from None


def fetch_all(origin: RemoteStore, tick: Callable[[int], object]) -> int:
    """Have all files of a store in the cache, each as it was packed: what is there is read and checked.

    tick: told the bytes that are there and right. Returns how many bytes came in place of damaged ones. Raises
    StoreError where a file cannot be had, or other readers take its room.
    """
    shards = [origin.item(record) for shard in origin.manifest.shards for record in shard.files]
    items = [*origin.small, *shards]
    fetcher, cache = origin.fetcher, origin.fetcher.cache
    # What is there is wanted as well: it must not make room for what comes.
    cache.touch(item.key for item in items)
    missing, damaged = list[RemoteFile](), 0
    for item in items:
        if not cache.has(item.key, item.record):
            missing.append(item)
        elif _is_right(cache.path(item.key), item.record.xxh3, tick):
            continue
        else:
            fetcher.discard(item)
            missing.append(item)
            damaged += item.record.bytes
    for done, item in enumerate(missing):
        with fetcher.held([item], prefetch=missing[done + 1 :]):
            tick(item.record.bytes)
    _check_all(origin, items)
    return damaged


def _is_right(path: Path, expected: str, tick: Callable[[int], object]) -> bool:
    """Whether a file has the checksum that is expected; where it has, `tick` was told its bytes."""
    buffer, seen, size = bytearray(_PIECE), xxhash.xxh3_64(), 0
    view = memoryview(buffer)
    try:
        with open_plain(path) as (descriptor, _), open(descriptor, "rb", buffering=0, closefd=False) as file:
            while count := file.readinto(buffer):
                seen.update(view[:count])
                size += count
    except (FileNotFoundError, DamagedStoreError):
        return False
    if seen.hexdigest() != expected:
        return False
    tick(size)
    return True


def _check_all(origin: RemoteStore, items: Sequence[RemoteFile]) -> None:
    """Raise StoreError where other readers took the room of what had come."""
    cache = origin.fetcher.cache
    gone = sum(not cache.has(item.key, item.record) for item in items)
    if gone:
        raise StoreError(
            f"{gone:,} of {text.count(len(items), 'file')} of {origin.remote} left the cache {cache.folder} while "
            "others were fetched: by other readers that need its room, or by hand; pass a larger --cache-bytes, or "
            "another --cache"
        )


@dataclass(frozen=True)
class Warmed:
    """What came of warming a store."""

    store: str
    bytes: int
    cache: str | None = None
    """Of a URL: the folder that holds its files now."""
    fetched: int = 0
    replaced: int = 0
    """Bytes that came over the network, and how many of these in place of damaged ones."""


def warm_folders(name: str, stores: Sequence[Path], begin: Begin) -> Warmed:
    """Read all files of stores once. begin: see `api.warm`."""
    files = [file for store in stores for file in files_of(Store(store))]
    total = sum(size for _, size in files)
    tick = begin(total, machine.available_memory_bytes())
    for path, _ in files:
        warm_file(path, tick)
    return Warmed(name, total)


def warm_url(url: str, cache: str | None, cache_bytes: str | None, begin: Begin) -> Warmed:
    """Have all files of a store at a URL in the cache, checked. Raises UsageError where they do not fit."""
    (origin,) = open_origins([url], Cache(cache, cache_bytes))
    total, holds = sum(record.bytes for _, record in origin.manifest.records()), origin.fetcher.cache
    if origin.manifest.shard_bytes > origin.fetcher.room:
        raise UsageError(
            f"{origin.remote} has {text.size(total)}, and the cache {holds.folder} may hold {text.size(holds.limit)}: "
            "pass a larger --cache-bytes, or another --cache"
        )
    damaged = fetch_all(origin, begin(total, None))
    return Warmed(str(origin.remote), total, str(origin.folder), origin.fetcher.fetched, damaged)
