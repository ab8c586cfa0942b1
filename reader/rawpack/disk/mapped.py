"""Mapping files into memory: each is checked against the manifest, and no descriptor stays open."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.manifest import HEAD_BYTES, FileRecord
from rawpack.errors import DamagedStoreError, StoreError
from rawpack.system.files import open_plain
from rawpack.system.limits import limit_behind, refused
from rawpack.system.memory import advise, map_descriptor

Bytes = NDArray[np.uint8]
Identity = tuple[int, int]
"""Device and inode of a file."""
_LOOK_EVERY_S, _LOOK_SHARE = 1.0, 100
"""How often mapped files are checked while an epoch runs: in at most a hundredth of the time."""
_LOOK_S, _LOOK_FILES = 0.1, 256
"""One look ends after this many seconds, but not before this many files."""
_BLOCK = 1 << 20
_REQUEST = 128 << 10
"""Bytes that the system is asked for in one call: whole pages. Of a longer request, Linux reads the first part only, as
much as the device's read-ahead or its largest transfer, and says nothing; by default neither is less than this."""
_CURE = (
    "never overwrite a file of a store: write to another name and rename; "
    "copy or pack the store again, then open it again"
)


class MappedFiles:
    """The mapped files of this process, checked now and then for having been written to.

    Touching a mapped page after the end of a truncated file kills the process (SIGBUS), which cannot be turned into an
    exception. So sizes and times are checked now and then. A file that was removed, or replaced by a rename, does no
    harm: the mapping keeps the old one. Any number of threads may use one.
    """

    def __init__(self) -> None:
        self._files: dict[str, tuple[FileRecord, Identity, int]] = {}
        """Path -> its record; identity, and mtime in ns, when it was mapped."""
        self._at = 0
        self.look_at = 0.0
        """When the next look is due, by `time.monotonic`."""

    def add(self, path: Path, record: FileRecord, status: os.stat_result) -> None:
        self._files[str(path)] = record, (status.st_dev, status.st_ino), status.st_mtime_ns

    def look(self, *, now: bool) -> None:
        """Check mapped files, if it is time to, or `now`.

        With very many files, or on a slow network share, the next look continues where this one ended. Raises
        DamagedStoreError for a file that was written to.
        """
        began = time.monotonic()
        if not now and began < self.look_at:
            return
        paths = list(self._files)
        for count in range(len(paths)):
            if count >= _LOOK_FILES and time.monotonic() - began > _LOOK_S:
                break
            self._at = (self._at + 1) % len(paths)
            self._check(paths[self._at])
        ended = time.monotonic()
        self.look_at = ended + max(_LOOK_EVERY_S, _LOOK_SHARE * (ended - began))

    def check(self, path: str) -> None:
        """Check one file now, if it is mapped: for callers that read little of it, and seldom. Raises as `look`."""
        if path in self._files:
            self._check(path)

    def _check(self, path: str) -> None:
        record, identity, written = self._files[path]
        try:
            status = os.stat(path)  # noqa: PTH116 - half the time, and a store may have very many
        except OSError:
            return  # removed, or out of reach
        if (status.st_dev, status.st_ino) != identity:
            return
        if status.st_size != record.bytes:
            raise DamagedStoreError(
                f"{path} has {status.st_size} bytes now, but had {record.bytes} when it was opened: {_CURE}"
            )
        if status.st_mtime_ns == written:
            return
        # Touched or overwritten. Not read through the mapping: the file may be truncated at any moment.
        try:
            with open_plain(Path(path)) as (descriptor, _):
                fits = _fits(descriptor, record)
        except (OSError, StoreError):
            return
        if not fits:
            raise DamagedStoreError(f"{path} was overwritten after it was opened: {_CURE}")
        self._files[path] = record, identity, status.st_mtime_ns


def _fits(descriptor: int, record: FileRecord) -> bool:
    """Whether the head of a shard, or all of a column, has the checksum in the manifest."""
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        if record.head:
            return xxhash.xxh3_64_hexdigest(file.read(HEAD_BYTES)) == record.head
        digest = xxhash.xxh3_64()
        while block := file.read(_BLOCK):
            digest.update(block)
        return digest.hexdigest() == record.xxh3


def map_file(
    folder: Path, record: FileRecord, *, random_access: bool = False, mapped: MappedFiles | None = None
) -> Bytes:
    """The bytes of a file that the manifest names: read-only, uint8 (record.bytes,).

    random_access: pieces of a few pages or more will be read in random order. The system then reads nothing around
    them, and must be asked in advance: see `readahead`. mapped: notes the file, to check it later.

    Raises DamagedStoreError unless it is a plain file with the size and head that were packed. No descriptor stays
    open; the mapping lives as long as the array or any view of it.
    """
    path = folder / record.name
    with opened(path, record) as descriptor:
        if not record.bytes:
            return np.empty(0, np.uint8)
        try:
            mapping = map_descriptor(descriptor, record.bytes)
            status = os.fstat(descriptor)
        except (OSError, ValueError, OverflowError) as error:
            limit = limit_behind(error) if isinstance(error, OSError) else ""
            # Rows of raw shards are mapped together, besides each file: see `Gather`.
            more = f": {limit}, to more than twice the size of the store" if limit else ""
            raise StoreError(f"cannot map {path}: {error}{more}") from error
    array = np.frombuffer(mapping, np.uint8)
    array.flags.writeable = False
    if random_access and hasattr(mmap, "MADV_RANDOM"):
        advise(array.ctypes.data, record.bytes, mmap.MADV_RANDOM)
    check_head(path, record, array.data)
    if mapped is not None:
        mapped.add(path, record, status)
    return array


def check_contents(folder: Path, record: FileRecord) -> None:
    """Read all of a file that the manifest names. Raises DamagedStoreError unless its checksum matches."""
    if xxhash.xxh3_64_hexdigest(map_file(folder, record).data) != record.xxh3:
        raise DamagedStoreError(
            f"{folder / record.name} was changed after packing: its checksum does not match; "
            "copy the store again, or pack it again"
        )


@contextmanager
def opened(path: Path, record: FileRecord) -> Iterator[int]:
    """A descriptor of a file that the manifest names. Raises DamagedStoreError where its size differs."""
    try:
        with open_plain(path) as (descriptor, size):
            if size != record.bytes:
                raise DamagedStoreError(f"{path} has {size} bytes; {record.bytes} were packed")
            yield descriptor
    except FileNotFoundError:
        raise DamagedStoreError(f"{path} is missing; the manifest names it with {record.bytes} bytes") from None


def check_head(path: Path, record: FileRecord, data: memoryview) -> None:
    """Raise DamagedStoreError where a file's first bytes are not those that were packed."""
    if record.head and xxhash.xxh3_64_hexdigest(data[:HEAD_BYTES]) != record.head:
        raise DamagedStoreError(f"{path} is not the file that was packed: its first bytes differ")


def open_whole(folder: Path, record: FileRecord) -> int:
    """A descriptor of a file that the manifest names, for the caller to close. Raises as `map_file`, as the file may
    have been replaced since that was called."""
    path = folder / record.name
    with opened(path, record) as descriptor:
        check_head(path, record, memoryview(os.pread(descriptor, HEAD_BYTES, 0)))
        with refused(StoreError, f"cannot open {path}"):
            return os.dup(descriptor)


def readahead(data: Bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
    """Ask the system to read pieces of a mapped file in the background, where it can.

    data: a result of `map_file`, or a view of it. starts, sizes: in bytes of `data`; parts outside it are ignored.
    """
    if not hasattr(mmap, "MADV_WILLNEED") or not len(starts):
        return
    begin = data.ctypes.data
    order = np.argsort(starts)
    first = (np.maximum(starts[order], 0) + begin) // mmap.PAGESIZE * mmap.PAGESIZE
    last = np.minimum(starts[order] + sizes[order], data.nbytes) + begin
    # Neighbors are requested together: fewer calls for a block of small samples than one for each.
    furthest = np.maximum.accumulate(last)
    begins = np.flatnonzero(np.concatenate([[True], first[1:] > furthest[:-1]]))
    ends = furthest[np.concatenate([begins[1:] - 1, [len(first) - 1]])]
    for start, end in zip(first[begins].tolist(), ends.tolist(), strict=True):
        for at in range(start, end, _REQUEST):
            advise(at, min(_REQUEST, end - at), mmap.MADV_WILLNEED)
