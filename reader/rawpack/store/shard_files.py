"""Locates and maps the shard files of a store: one class for each place, chosen once.

ShardFiles  in the store's own folder
InMemory    read into shared memory before: `Reader(preload=True)`
InCache     in the cache of a remote store, fetched by another process: what a worker has
Fetched     the same, in the process that fetches them
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import FileRecord, Manifest
from rawpack.disk.mapped import MappedFiles, check_head, map_file, open_whole, opened
from rawpack.errors import DamagedStoreError, StoreError
from rawpack.system.limits import refused
from rawpack.system.memory import anonymous_file, map_descriptor

if TYPE_CHECKING:
    from rawpack.remote.origin import RemoteStore

T = TypeVar("T")
Bytes = NDArray[np.uint8]
Key = tuple[int, str]
_LOOK_EVERY_S, _LOOK_SHARE = 1.0, 100
"""How often to check that mapped shards are still in the cache, on which at most a hundredth of the time is spent."""
_PIECE = 8 << 20


class ShardFiles:
    """The shard files of one store, in its folder. Any number of threads may use one."""

    evictable = False
    """Whether files may be removed while they are mapped. Then they are unmapped, which frees the space on the disk."""
    origin: RemoteStore | None = None
    """What fetches the files of a remote store."""

    def __init__(self, path: Path, *, random_access: bool = False) -> None:
        """path: the folder of the store: manifest and columns are there in any case.

        random_access: whether samples will be read in random order: then the system reads no more of a file than is
        asked for.
        """
        self.path, self.random_access = path, random_access
        self.where = str(path)
        """How to name the store to a person: its folder, or its URL without credentials."""

    def map(self, key: Key, record: FileRecord, mapped: MappedFiles, *, random_access: bool) -> Bytes:
        """The bytes of a file, read-only; see `map_file`. key: what they are for. mapped: registers files on disk."""
        return map_file(self.path, record, random_access=random_access, mapped=mapped)

    def open(self, record: FileRecord) -> tuple[int, int]:
        return open_whole(self.path, record), 0

    def held(self, record: FileRecord) -> AbstractContextManager[None]:
        """While this context is open, the file exists."""
        return contextlib.nullcontext()

    def removed(self) -> list[Key]:
        """Mappings whose files were removed since, each reported once; checked from time to time."""
        return []

    def for_worker(self) -> ShardFiles:
        """The same for a worker process, to be pickled: without threads, connections and descriptors."""
        return self


class InMemory(ShardFiles):
    def __init__(self, before: ShardFiles, memory: Memory) -> None:
        super().__init__(before.path)
        self.memory = memory

    def map(self, key: Key, record: FileRecord, mapped: MappedFiles, *, random_access: bool) -> Bytes:
        offset, size = self.memory.places[str(self.path / record.name)]
        return self.memory.data[offset : offset + size]

    def open(self, record: FileRecord) -> tuple[int, int]:
        return os.dup(self.memory.descriptor), self.memory.places[str(self.path / record.name)][0]

    def for_worker(self) -> ShardFiles:
        """Without the memory, whose descriptor is sent separately."""
        return ShardFiles(self.path)


class InCache(ShardFiles):
    """Shards in the cache of a remote store: another process keeps those in it that are being read."""

    evictable = True

    def __init__(self, path: Path, *, random_access: bool = False) -> None:
        super().__init__(path, random_access=random_access)
        self._inodes: dict[Key, tuple[Path, int]] = {}
        self._look_at = 0.0

    def map(self, key: Key, record: FileRecord, mapped: MappedFiles, *, random_access: bool) -> Bytes:
        read = super().map
        data = self._reached(record, lambda: read(key, record, mapped, random_access=random_access))
        path = self.path / record.name
        if (inode := _inode(path)) is not None:
            self._inodes[key] = path, inode
        return data

    def open(self, record: FileRecord) -> tuple[int, int]:
        read = super().open
        return self._reached(record, lambda: read(record))

    def _reached(self, record: FileRecord, read: Callable[[], T]) -> T:
        try:
            return read()
        except DamagedStoreError as error:
            raise DamagedStoreError(
                f"{error}: it was removed or changed in the cache; the next epoch fetches again what is missing, and "
                "`rawpack warm` what was changed"
            ) from None

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


class Fetched(InCache):
    """Shards of a remote store: each is fetched into the cache before it is mapped."""

    def __init__(self, origin: RemoteStore, *, random_access: bool = False) -> None:
        super().__init__(origin.folder, random_access=random_access)
        self.origin: RemoteStore = origin
        self.where = str(origin.remote)

    def map(self, key: Key, record: FileRecord, mapped: MappedFiles, *, random_access: bool) -> Bytes:
        self.origin.fetcher.cache.touch(
            [self.origin.item(record).key]
        )  # before it is mapped: later, it would look changed
        return super().map(key, record, mapped, random_access=random_access)

    def _reached(self, record: FileRecord, read: Callable[[], T]) -> T:
        with contextlib.suppress(StoreError):
            return read()  # mostly it is there: then nothing has to be waited for
        with contextlib.suppress(DamagedStoreError), self.held(record):
            return read()
        # It is not the file that was packed: fetch it once more.
        self.origin.fetcher.discard(self.origin.item(record))
        with self.held(record):
            return read()

    def held(self, record: FileRecord) -> AbstractContextManager[None]:
        return self.origin.fetcher.held([self.origin.item(record)])

    def for_worker(self) -> ShardFiles:
        return InCache(self.path, random_access=self.random_access)


class Memory:
    """The bytes of shard files in anonymous shared memory, read once, where all workers of a reader share them. A child
    process opens it by its descriptor and `layout`."""

    def __init__(self, descriptor: int, places: dict[str, tuple[int, int]], size: int) -> None:
        """places: path of a file -> offset, a multiple of the page size, and bytes. The descriptor is closed with this
        object."""
        self.descriptor, self.places = descriptor, places
        self.layout = places, size
        """What `Memory` needs besides its descriptor."""
        self.data: Bytes = np.frombuffer(map_descriptor(descriptor, size), np.uint8)
        self.data.flags.writeable = False
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def load(cls, stores: Sequence[tuple[ShardFiles, Manifest]], tick: Callable[[int], None]) -> Memory:
        """Read all shards of some stores. tick: called with the bytes read."""
        found = [(files, record) for files, manifest in stores for shard in manifest.shards for record in shard.files]
        places: dict[str, tuple[int, int]] = {}
        end = 0
        for files, record in found:
            places[str(files.path / record.name)] = (end, record.bytes)
            end += -(-record.bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        size = max(end, mmap.PAGESIZE)
        with refused(StoreError, f"no memory for {size} bytes of shards to preload"):
            descriptor = anonymous_file(size)
        try:
            with mmap.mmap(descriptor, size) as memory, memoryview(memory) as view:
                for files, record in found:
                    path = files.path / record.name
                    start = places[str(path)][0]
                    with files.held(record), view[start : start + record.bytes] as target:
                        _read(path, target, record, tick)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, places, size)


def _read(path: Path, target: memoryview, record: FileRecord, tick: Callable[[int], None]) -> None:
    """Read a file that the manifest names. Raises DamagedStoreError where `map_file` would."""
    with opened(path, record) as descriptor, open(descriptor, "rb", buffering=0, closefd=False) as file:
        done = 0
        while done < len(target):
            count = file.readinto(target[done : done + _PIECE])
            if not count:
                raise DamagedStoreError(f"{path} ends after {done} bytes; {len(target)} were packed")
            done += count
            tick(count)
    check_head(path, record, target)


def _inode(path: Path) -> int | None:
    """Which file is at `path`: one that was fetched again is another. None where there is none."""
    try:
        return path.stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
