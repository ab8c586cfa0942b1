"""Files mapped into memory: opened, checked against the manifest, mapped, and their descriptors closed."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import DamagedStoreError, StoreError
from rawpack.manifest import HEAD_BYTES, FileRecord

Bytes = NDArray[np.uint8]


def map_file(folder: Path, record: FileRecord) -> Bytes:
    """The bytes of a file that the manifest names: read-only, uint8 (record.bytes,).

    Refused where it is no plain file, has another size, or its head is not the one that was packed. No descriptor stays
    open; the mapping lives as long as the array or any view of it.
    """
    path = folder / record.name
    # O_NONBLOCK: opening a fifo that somebody put there must not wait for a writer.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise DamagedStoreError(f"{path} is missing; the manifest names it with {record.bytes} bytes") from None
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror or error}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedStoreError(f"{path} is not a plain file")
        if status.st_size != record.bytes:
            raise DamagedStoreError(f"{path} has {status.st_size} bytes; {record.bytes} were packed")
        if not record.bytes:
            return np.empty(0, np.uint8)
        try:
            mapping = mmap.mmap(descriptor, record.bytes, access=mmap.ACCESS_READ)
        except (OSError, ValueError, OverflowError) as error:
            raise StoreError(f"cannot map {path}: {error}") from error
    finally:
        os.close(descriptor)
    array = np.frombuffer(mapping, np.uint8)
    if record.head and xxhash.xxh3_64_hexdigest(array[:HEAD_BYTES].data) != record.head:
        raise DamagedStoreError(f"{path} is not the file that was packed: its first bytes differ")
    return array
