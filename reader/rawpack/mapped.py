"""Files mapped into memory: opened, checked against the manifest, mapped, and their descriptors closed."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import DamagedStoreError, StoreError
from rawpack.manifest import HEAD_BYTES, FileRecord
from rawpack.memory import advise, map_descriptor
from rawpack.plainfile import open_plain

Bytes = NDArray[np.uint8]


def map_file(folder: Path, record: FileRecord, *, scattered: bool = False) -> Bytes:
    """The bytes of a file that the manifest names: read-only, uint8 (record.bytes,).

    scattered: pieces of at least a few pages will be read in no order. The system then reads no more around them than
    it is asked for, and wants to be asked ahead: see `will_need`.

    Refused where it is no plain file, has another size, or its head is not the one that was packed. No descriptor stays
    open; the mapping lives as long as the array or any view of it.
    """
    path = folder / record.name
    with opened(path, record) as descriptor:
        if not record.bytes:
            return np.empty(0, np.uint8)
        try:
            mapping = map_descriptor(descriptor, record.bytes)
        except (OSError, ValueError, OverflowError) as error:
            raise StoreError(f"cannot map {path}: {error}") from error
    array = np.frombuffer(mapping, np.uint8)
    array.flags.writeable = False
    if scattered and hasattr(mmap, "MADV_RANDOM"):
        advise(array.ctypes.data, record.bytes, mmap.MADV_RANDOM)
    check_head(path, record, array.data)
    return array


@contextmanager
def opened(path: Path, record: FileRecord) -> Iterator[int]:
    """A descriptor of a file that the manifest names, of the size that was packed."""
    try:
        with open_plain(path) as (descriptor, size):
            if size != record.bytes:
                raise DamagedStoreError(f"{path} has {size} bytes; {record.bytes} were packed")
            yield descriptor
    except FileNotFoundError:
        raise DamagedStoreError(f"{path} is missing; the manifest names it with {record.bytes} bytes") from None


def check_head(path: Path, record: FileRecord, data: memoryview) -> None:
    """Refuse a file whose first bytes are not those that were packed."""
    if record.head and xxhash.xxh3_64_hexdigest(data[:HEAD_BYTES]) != record.head:
        raise DamagedStoreError(f"{path} is not the file that was packed: its first bytes differ")


def open_whole(folder: Path, record: FileRecord) -> int:
    """A descriptor of a file that `map_file` has checked, for the caller to close."""
    with opened(folder / record.name, record) as descriptor:
        return os.dup(descriptor)


def will_need(data: Bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    """Ask the disk for pieces of a mapped file, which are then read while other work goes on.

    data: what `map_file` gave, or a view of it; starts and sizes: bytes of it, what is outside is left out. Does
    nothing where the system has no such call.
    """
    if not hasattr(mmap, "MADV_WILLNEED") or not len(starts):
        return
    begin = data.ctypes.data
    order = np.argsort(starts)
    first = (np.maximum(starts[order], 0) + begin) // mmap.PAGESIZE * mmap.PAGESIZE
    last = np.minimum(starts[order] + sizes[order], data.nbytes) + begin
    # Neighbours are asked for together: one request for a block of samples instead of one for each.
    furthest = np.maximum.accumulate(last)
    begins = np.flatnonzero(np.concatenate([[True], first[1:] > furthest[:-1]]))
    ends = furthest[np.concatenate([begins[1:] - 1, [len(first) - 1]])]
    for start, end in zip(first[begins].tolist(), ends.tolist(), strict=True):
        if start < end:
            advise(start, end - start, mmap.MADV_WILLNEED)
