"""An open store behind a URL: its manifest and columns are in the cache, its shards are fetched as they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rawpack.disk.manifest import NAME, FileRecord, Manifest, parse
from rawpack.errors import StoreError, UsageError
from rawpack.remote.cache import Cache
from rawpack.remote.fetch import Fetcher, Kept, RemoteFile
from rawpack.remote.transfer import TIMEOUT_S, Remote


@dataclass(frozen=True)
class RemoteStore:
    """A store behind a URL, which is read from the cache."""

    remote: Remote
    fetcher: Fetcher
    manifest_bytes: bytes
    """The manifest."""
    manifest: Manifest
    digest: str

    @property
    def folder(self) -> Path:
        """Where its files are, as far as they have been fetched."""
        return self.fetcher.cache.store(self.digest)

    def item(self, record: FileRecord, name: str = "") -> RemoteFile:
        """A file of the store, for the fetcher. name: where it is not in the store's folder itself."""
        return RemoteFile(self.remote, (self.digest, name or record.name), record)

    @property
    def small(self) -> tuple[RemoteFile, ...]:
        """All files beside manifest and shards: columns, and what was rejected."""
        columns = [
            self.item(record, f"{part.folder}/{record.name}") for part in self.manifest.columns for record in part.files
        ]
        return (*columns, self.item(self.manifest.rejects.file))

    def discard(self, record: FileRecord) -> None:
        """A shard file in the cache is not the one that was packed: see `Fetcher.discard`."""
        self.fetcher.discard(self.item(record))

    def held(self, records: Iterable[FileRecord], prefetch: Iterable[FileRecord] = ()) -> AbstractContextManager[None]:
        """Within this block these shard files are in the cache; `prefetch` come after them. Raises as `Ticket.wait`."""
        return self.fetcher.held([self.item(record) for record in records], [self.item(record) for record in prefetch])


def open_origins(
    urls: Sequence[str],
    cache: Cache,
    options: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> list[RemoteStore]:
    """The stores at these URLs, which share one fetcher: manifests and columns are fetched now.

    options: fsspec's `storage_options`. timeout: seconds after which a transfer that brings no byte fails.
    Raises StoreError where there is no store, or it cannot be reached.
    """
    timeout = TIMEOUT_S if timeout is None else timeout
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout > 0:
        raise UsageError(f"timeout={timeout!r} must be more than 0 seconds")
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"storage_options= must be a dict of options for fsspec, not {type(options).__name__}")
    fetcher = Fetcher(cache, timeout)
    return [_open(Remote(url, options or {}, timeout), fetcher) for url in urls]


def _open(remote: Remote, fetcher: Fetcher) -> RemoteStore:
    where = remote.where(NAME)
    try:
        manifest_bytes = remote.read(NAME, lambda data: parse(data, where))
    except FileNotFoundError:
        if remote.has_no_bucket():
            raise UsageError(f"{remote}: there is no such bucket; check its name and the endpoint") from None
        raise StoreError(
            f"{remote} is not a rawpack store: it has no {NAME}, which is the last file to be packed or copied"
        ) from None
    manifest, digest = parse(manifest_bytes, where)
    origin = RemoteStore(remote, fetcher, manifest_bytes, manifest, digest)
    kept = Kept(digest, manifest_bytes, origin.small)
    need = kept.size
    largest = max((record.bytes for shard in manifest.shards for record in shard.files), default=0)
    if need + largest > fetcher.cache.limit:
        raise UsageError(
            f"{remote} needs a cache of at least {need + largest} bytes: {need} for its columns, {largest} for its "
            f"largest shard; {fetcher.cache.folder} may hold {fetcher.cache.limit}: pass a larger cache_bytes="
        )
    # With its manifest, so that a store that was fetched completely can be opened as a folder.
    fetcher.keep_store(kept)
    return origin
