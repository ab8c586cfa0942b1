"""Reads shards into memory once, where all workers of this reader share them."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import FileRecord, Manifest
from rawpack.disk.mapped import check_head, opened
from rawpack.errors import DamagedStoreError
from rawpack.system.memory import anonymous_file, map_descriptor

_PIECE = 8 << 20
Hold = Callable[[FileRecord], AbstractContextManager[None]]
"""Keeps a file from being evicted while it is read: see `ShardFiles.held`."""


class Memory:
    """The bytes of shard files in anonymous shared memory. A child process opens it by its descriptor and `layout`."""

    def __init__(self, descriptor: int, places: dict[str, tuple[int, int]], size: int) -> None:
        """places: path of a file -> offset and bytes. The descriptor is closed with this object."""
        self.places, self.size, self.descriptor = places, size, descriptor
        self._data = np.frombuffer(map_descriptor(descriptor, size), np.uint8)
        self._data.flags.writeable = False
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def load(cls, stores: Sequence[tuple[Path, Manifest, Hold]], tick: Callable[[int], None]) -> Memory:
        """Read all shards of some stores. tick: called with the bytes read."""
        files = [
            (path / record.name, record, hold)
            for path, manifest, hold in stores
            for shard in manifest.shards
            for record in shard.files
        ]
        places: dict[str, tuple[int, int]] = {}
        end = 0
        for file, record, _ in files:
            places[str(file)] = (end, record.bytes)
            end += -(-record.bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        size = max(end, mmap.PAGESIZE)
        descriptor = anonymous_file(size)
        try:
            with mmap.mmap(descriptor, size) as memory, memoryview(memory) as view:
                for file, record, hold in files:
                    start = places[str(file)][0]
                    with hold(record), view[start : start + record.bytes] as target:
                        _read(file, target, record, tick)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor, places, size)

    @property
    def layout(self) -> tuple[dict[str, tuple[int, int]], int]:
        """What `Memory` needs besides its descriptor."""
        return self.places, self.size

    def open(self, path: Path) -> tuple[int, int]:
        """A descriptor, for the caller to close, and the offset of a file in it: a multiple of the page size."""
        return os.dup(self.descriptor), self.places[str(path)][0]

    def view(self, path: Path) -> NDArray[np.uint8]:
        """The bytes of a file."""
        offset, size = self.places[str(path)]
        return self._data[offset : offset + size]


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
