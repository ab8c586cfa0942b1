"""An open store behind a URL: its manifest and columns are in the cache, its shards are fetched when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rawpack.disk.manifest import NAME, FileRecord, Manifest, parse
from rawpack.errors import StoreError, UsageError
from rawpack.remote.cache import CacheFolder
from rawpack.remote.download import RemoteFile
from rawpack.remote.executor import MOST_THREADS
from rawpack.remote.fetch import Fetcher
from rawpack.remote.transfer import TIMEOUT_S, Remote, no_bucket, stall_s
from rawpack.remote.wire import Wire


@dataclass(frozen=True)
class RemoteStore:
    remote: Remote
    fetcher: Fetcher
    manifest_bytes: bytes
    manifest: Manifest
    digest: str

    @property
    def folder(self) -> Path:
        """Its folder in the cache, with the files that have been fetched."""
        return self.fetcher.cache.folder / self.digest

    def item(self, record: FileRecord, name: str = "") -> RemoteFile:
        """A file of the store. name: its path below the store's folder, if it is not directly in it."""
        return RemoteFile(self.remote, (self.digest, name or record.name), record)

    @cached_property
    def small(self) -> tuple[RemoteFile, ...]:
        """All files except the manifest and shards: the columns and the rejects."""
        columns = [
            self.item(record, f"{part.folder}/{record.name}") for part in self.manifest.columns for record in part.files
        ]
        return (*columns, self.item(self.manifest.rejects.file))

    @cached_property
    def small_bytes(self) -> int:
        """What the cache keeps while the store is in use: these files, and the manifest."""
        return len(self.manifest_bytes) + sum(item.record.bytes for item in self.small)


def open_origins(
    urls: Sequence[str],
    cache: CacheFolder,
    options: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    asks: Callable[[Remote], object] = lambda remote: None,
) -> list[RemoteStore]:
    """Open the stores at these URLs, with one fetcher for all. Their columns are there after `Fetcher.restore`.

    options: fsspec's `storage_options`. timeout: seconds without any byte after which a transfer fails. asks: called
    with the first one before it is asked for anything.
    Raises StoreError where there is no store, or it cannot be reached.
    """
    timeout = TIMEOUT_S if timeout is None else timeout
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"storage_options= must be a dict of options for fsspec, not {type(options).__name__}")
    fetcher, wire = Fetcher(cache, timeout), Wire(stall_s(timeout))
    remotes = [Remote(url, options or {}, timeout, wire) for url in urls]
    asks(remotes[0])
    return [_open(remote, found, fetcher) for remote, found in zip(remotes, _manifests(remotes), strict=True)]


def _manifests(remotes: Sequence[Remote]) -> Iterator[bytes]:
    """Their bytes: the first alone, since it may say what is wrong with all of them, and then many at once."""
    yield _manifest(remotes[0])
    if remotes[1:]:
        with ThreadPoolExecutor(MOST_THREADS) as threads:
            yield from threads.map(_manifest, remotes[1:])


def _manifest(remote: Remote) -> bytes:
    where = remote.where(NAME)
    try:
        return remote.read(NAME, lambda data: parse(data, where))
    except FileNotFoundError:
        if remote.has_no_bucket():
            raise no_bucket(remote.url) from None
        raise StoreError(
            f"{remote} is not a rawpack store: it has no {NAME}, which is written or copied last"
        ) from None


def _open(remote: Remote, manifest_bytes: bytes, fetcher: Fetcher) -> RemoteStore:
    where = remote.where(NAME)
    manifest, digest = parse(manifest_bytes, where)
    origin = RemoteStore(remote, fetcher, manifest_bytes, manifest, digest)
    small = origin.small_bytes
    largest = max((record.bytes for shard in manifest.shards for record in shard.files), default=0)
    if small + largest > fetcher.cache.limit:
        raise UsageError(
            f"{remote} needs a cache of at least {small + largest} bytes: {small} for its columns, {largest} "
            f"for its largest shard; {fetcher.cache.folder} may hold {fetcher.cache.limit}: pass a larger limit, "
            "cache=Cache(limit=...)"
        )
    fetcher.keep_store(origin)
    return origin
