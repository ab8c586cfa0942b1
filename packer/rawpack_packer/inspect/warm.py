"""Reads all files of a store once: into the page cache or, from a URL, into the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from rawpack.errors import DamagedStoreError, StoreError, UsageError
from rawpack.remote.cache import CacheFolder
from rawpack.remote.download import RemoteFile
from rawpack.remote.origin import RemoteStore, open_origins
from rawpack.store.opening import Cache, StorePath, cache_of
from rawpack.store.store import Store
from rawpack.system import machine
from rawpack.system.files import open_plain
from rawpack_packer import text
from rawpack_packer.options import opt
from rawpack_packer.text import either

Begin = Callable[[int, int | None], Callable[[int], object]]
_PIECE = 8 << 20


def files_of(store: Store) -> list[tuple[Path, int]]:
    """Paths and bytes, the columns first."""
    return [(store.path / name, record.bytes) for name, record in store.manifest.records()]


def _read(path: Path, tick: Callable[[int], object]) -> str:
    """Read a file and forget it. Returns its xxh3-64. tick: gets the bytes read."""
    buffer, seen = bytearray(_PIECE), xxhash.xxh3_64()
    view = memoryview(buffer)
    with open_plain(path) as (descriptor, _), open(descriptor, "rb", buffering=0, closefd=False) as file:
        while count := file.readinto(buffer):
            seen.update(view[:count])
            tick(count)
    return seen.hexdigest()


def fetch_all(origin: RemoteStore, tick: Callable[[int], object]) -> int:
    """Have all files of a store in the cache, as they were packed: those already there are read and checked.

    tick: gets the bytes that are done. Returns how many bytes were fetched again because they were damaged. Raises
    StoreError if a file cannot be fetched, or if other readers take its space.
    """
    shards = [origin.item(record) for shard in origin.manifest.shards for record in shard.files]
    items = [*origin.small, *shards]
    fetcher, cache = origin.fetcher, origin.fetcher.cache
    # What is fetched must not push out what is already there.
    cache.touch(item.key for item in items)
    missing, damaged = list[RemoteFile](), 0
    for item in items:
        if cache.has(item.key, item.record):
            try:
                if _read(cache.path(item.key), lambda count: None) == item.record.xxh3:
                    tick(item.record.bytes)
                    continue
            except (FileNotFoundError, DamagedStoreError):
                pass
            fetcher.discard(item)
            damaged += item.record.bytes
        missing.append(item)
    for done, item in enumerate(missing):
        with fetcher.held([item], prefetch=missing[done + 1 :]):
            tick(item.record.bytes)
    gone = sum(not cache.has(item.key, item.record) for item in items)
    if gone:
        raise StoreError(
            f"{gone:,} of {text.count(len(items), 'file')} of {origin.remote} left the cache {cache.folder} while "
            f"others were fetched, because other readers need its space or somebody removed them; {_more_room()}"
        )
    return damaged


def _more_room() -> str:
    """The cure where files do not fit."""
    return "pass " + either(
        f"a larger {opt.cache_bytes}, or another {opt.cache}",
        "cache=Cache(folder, limit), a larger limit or another folder",
    )


@dataclass(frozen=True)
class Warmed(text.Shown):
    """The result of warming a store."""

    store: str
    bytes: int
    cache: str | None = None
    """The folder that holds the files of a store at a URL now."""
    fetched: int = 0
    replaced: int = 0
    """Bytes that came over the network, and how many of these replace damaged ones."""

    def in_words(self) -> text.Block:
        name, size = text.plain(self.store), text.size(self.bytes)
        if self.cache is None:
            return text.Block(f"{name}: {size} read into the page cache")
        fetched = f"{text.size(self.fetched)} fetched, so that all" if self.fetched else "all"
        already = "" if self.fetched else " already"
        instead = (
            f"; {text.size(self.replaced)} of that in place of what was damaged in the cache" if self.replaced else ""
        )
        return text.Block(f"{name}: {fetched} {size} are in {text.plain(self.cache)}{already}, checked{instead}")


def warm_folders(name: str, stores: Sequence[Path], begin: Begin) -> Warmed:
    """Read all files of stores once. begin: see `api.warm`."""
    files = [file for store in stores for file in files_of(Store(store))]
    total = sum(size for _, size in files)
    tick = begin(total, machine.available_memory_bytes())
    for path, _ in files:
        try:
            _read(path, tick)
        except FileNotFoundError:
            raise DamagedStoreError(f"{path} is missing; `rawpack inspect --verify` lists all damage") from None
    return Warmed(name, total)


def warm_url(url: str, cache: Cache | StorePath | None, begin: Begin) -> Warmed:
    """Have all files of a store at a URL in the cache, checked. Raises UsageError if they do not fit."""
    asked = cache_of(cache)
    (origin,) = open_origins([url], CacheFolder(asked.folder, asked.limit_bytes), timeout=asked.timeout)
    origin.fetcher.restore()
    total, into = sum(record.bytes for _, record in origin.manifest.records()), origin.fetcher.cache
    if origin.manifest.shard_bytes > origin.fetcher.room:
        raise UsageError(
            f"{origin.remote} has {text.size(total)}, and the cache {into.folder} may hold {text.size(into.limit)}: "
            f"{_more_room()}"
        )
    damaged = fetch_all(origin, begin(total, None))
    return Warmed(str(origin.remote), total, str(origin.folder), origin.fetcher.fetched, damaged)
