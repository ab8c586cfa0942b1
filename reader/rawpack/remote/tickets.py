"""Tickets: each reader has one, which says which files it needs now and which to prefetch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rawpack.disk.manifest import FileRecord
from rawpack.remote.cache import Key
from rawpack.remote.transfer import Remote

if TYPE_CHECKING:
    from rawpack.remote.fetch import Fetcher


@dataclass(frozen=True)
class RemoteFile:
    """A file of a store behind a URL."""

    remote: Remote
    key: Key
    record: FileRecord


@dataclass(frozen=True)
class Kept:
    """The files that the cache keeps while a store is in use."""

    digest: str
    manifest_bytes: bytes
    small: tuple[RemoteFile, ...]
    """Its columns and rejects."""

    @property
    def size(self) -> int:
        """In bytes, with the manifest."""
        return len(self.manifest_bytes) + sum(item.record.bytes for item in self.small)


class Ticket:
    """The files that one reader needs. Used by one thread."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self.now: dict[Key, RemoteFile] = {}
        self.prefetch: dict[Key, RemoteFile] = {}
        self.closed = False

    def want(self, now: Iterable[RemoteFile], prefetch: Iterable[RemoteFile] = ()) -> None:
        """Replace the files that are needed now, and those to prefetch, in this order."""
        self._fetcher.want(self, {item.key: item for item in now}, {item.key: item for item in prefetch})

    def ready(self) -> bool:
        """Whether all files that are needed now are in the cache. They stay there while they are needed."""
        return self._fetcher.has(self.now)

    def wait(self) -> None:
        """Wait until all files that are needed now are there. Raises StoreError where one cannot be fetched."""
        self._fetcher.wait(self)

    def close(self) -> None:
        """Need nothing anymore. Suitable for finalizers: it never waits long for a lock."""
        self.closed = True
        self._fetcher.drop(self)
