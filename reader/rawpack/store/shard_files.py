"""Locates and maps the shard files of a store: one class for each place, chosen once.

OnDisk    in the store's own folder
InMemory  read into shared memory before: `Reader(preload=True)`
InCache   in the cache of a remote store, fetched by another process: what a worker has
Fetched   the same, in the process that fetches them
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import FileRecord
from rawpack.disk.mapped import MappedFiles, map_file, open_whole
from rawpack.errors import DamagedStoreError, StoreError
from rawpack.store.preload import Memory

if TYPE_CHECKING:
    from rawpack.remote.origin import RemoteStore

Bytes = NDArray[np.uint8]
Key = tuple[int, str]
"""A shard's number and a field: what one mapping is for."""
_LOOK_EVERY_S, _LOOK_SHARE = 1.0, 100
"""How often to check that mapped shards are still in the cache, on which at most a hundredth of the time is spent."""


class ShardFiles(ABC):
    """The shard files of one store. Any number of threads may use one."""

    path: Path
    """The folder of the store: manifest and columns are there in any case."""
    random_access = False
    """Whether samples will be read in random order: then the system reads no more of a file than is asked for."""
    evictable = False
    """Whether files may be removed while they are mapped. Then they are unmapped, which frees the space on the disk."""
    origin: RemoteStore | None = None
    """What fetches the files of a remote store."""

    @property
    def where(self) -> str:
        """How to name the store to a person: its folder, or its URL without credentials."""
        return str(self.path)

    @abstractmethod
    def map(self, key: Key, record: FileRecord, mapped: MappedFiles, *, random_access: bool) -> Bytes:
        """The bytes of a file, read-only; see `map_file`. key: what they are for. mapped: registers files on disk."""

    @abstractmethod
    def open(self, record: FileRecord) -> tuple[int, int]:
        """See `RawShard.open`."""

    columns_come = False
    """Whether the store is opened before its columns are there."""

    def wait_for_columns(self) -> None:  # noqa: B027 # nothing to wait for, by default
        """Return when the columns are there. Raises StoreError where they cannot be fetched."""

    def held(self, record: FileRecord) -> AbstractContextManager[None]:
        """While this context is open, the file exists."""
        return contextlib.nullcontext()

    def removed(self) -> list[Key]:
        """Mappings whose files were removed since, each reported once; checked from time to time."""
        return []

    def for_worker(self) -> ShardFiles:
        """The same for a worker process, to be pickled: without threads, connections and descriptors."""
        return self


class OnDisk(ShardFiles):
    """Shards in the folder of their store."""

    def __init__(self, path: Path, *, random_access: bool = False) -> None:
        self.path, self.random_access = path, random_access

    def map(self, key: Key, record: FileRecord, mapped: MappedFiles, *, random_access: bool) -> Bytes:
        return map_file(self.path, record, random_access=random_access, mapped=mapped)

    def open(self, record: FileRecord) -> tuple[int, int]:
        return open_whole(self.path, record), 0


class InMemory(ShardFiles):
    """Shards that were read into memory."""

    def __init__(self, before: ShardFiles, memory: Memory) -> None:
        """before: what they were read from."""
        self.path, self.memory = before.path, memory

    def map(self, key: Key, record: FileRecord, mapped: MappedFiles, *, random_access: bool) -> Bytes:
        return self.memory.view(self.path / record.name)

    def open(self, record: FileRecord) -> tuple[int, int]:
        return self.memory.open(self.path / record.name)

    def for_worker(self) -> ShardFiles:
        """Without the memory, whose descriptor is sent separately."""
        return OnDisk(self.path)


class InCache(OnDisk):
    """Shards in the cache of a remote store: another process keeps those in it that are being read."""

    evictable = True

    def __init__(self, path: Path, *, random_access: bool = False) -> None:
        super().__init__(path, random_access=random_access)
        self._inodes: dict[Key, tuple[Path, int]] = {}
        """What is mapped -> its path and inode."""
        self._look_at = 0.0

    def map(self, key: Key, record: FileRecord, mapped: MappedFiles, *, random_access: bool) -> Bytes:
        data = self._map(record, mapped, random_access)
        path = self.path / record.name
        if (inode := _inode(path)) is not None:
            self._inodes[key] = path, inode
        return data

    def removed(self) -> list[Key]:
        now = time.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_EVERY_S
        found = [key for key, (path, inode) in list(self._inodes.items()) if _inode(path) != inode]
        for key in found:
            self._inodes.pop(key, None)
        # A store of very many shards must not be checked all the time.
        self._look_at += _LOOK_SHARE * (time.monotonic() - now)
        return found

    def open(self, record: FileRecord) -> tuple[int, int]:
        with _cured():
            return super().open(record)

    def _map(self, record: FileRecord, mapped: MappedFiles, random_access: bool) -> Bytes:
        with _cured():
            return map_file(self.path, record, random_access=random_access, mapped=mapped)


class Fetched(InCache):
    """Shards of a remote store: each is fetched into the cache before it is mapped."""

    columns_come = True

    def __init__(self, origin: RemoteStore, *, random_access: bool = False) -> None:
        super().__init__(origin.folder, random_access=random_access)
        self.origin: RemoteStore = origin

    def wait_for_columns(self) -> None:
        self.origin.fetcher.restore()

    @property
    def where(self) -> str:
        return str(self.origin.remote)

    def held(self, record: FileRecord) -> AbstractContextManager[None]:
        return self.origin.held([record])

    def for_worker(self) -> ShardFiles:
        return InCache(self.path, random_access=self.random_access)

    def open(self, record: FileRecord) -> tuple[int, int]:
        with contextlib.suppress(StoreError):
            return super().open(record)
        with self.held(record):
            return super().open(record)

    def _map(self, record: FileRecord, mapped: MappedFiles, random_access: bool) -> Bytes:
        with contextlib.suppress(StoreError):
            # Mostly it is there: then nothing has to be waited for. Touched first, or it would look changed later.
            self.origin.touch(record)
            return map_file(self.path, record, random_access=random_access, mapped=mapped)
        with contextlib.suppress(DamagedStoreError), self.held(record):
            return map_file(self.path, record, random_access=random_access, mapped=mapped)
        # It is not the file that was packed: fetch it once more.
        self.origin.discard(record)
        with self.held(record):
            return map_file(self.path, record, random_access=random_access, mapped=mapped)


@contextmanager
def _cured() -> Iterator[None]:
    """Add the cure to an error about a file in the cache."""
    try:
        yield
    except DamagedStoreError as error:
        raise DamagedStoreError(
            f"{error}: it was removed or changed in the cache; the next epoch fetches again what is missing, and "
            "`rawpack warm` what was changed"
        ) from None


def _inode(path: Path) -> int | None:
    """Which file is at `path`: one that was fetched again is another. None where there is none."""
    try:
        return path.stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
