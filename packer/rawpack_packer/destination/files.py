"""Files of a destination. They are complete or missing: written under another name, synced, renamed, and their folder
synced."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from rawpack.disk.manifest import HEAD_BYTES, FileRecord
from rawpack.errors import PackError
from rawpack.system import writing
from rawpack.system.writing import WORK as WORK
from rawpack_packer.errors import hopeless
from rawpack_packer.options import opt
from rawpack_packer.text import again

JOB = "job"
"""In WORK: what is packed, and how. It shows that the folder is ours."""
APPEND = "append"
"""In WORK, in place of JOB: what is appended, and to which state of the finished store."""
TICKS = "tick-*"
"""In WORK: how far the workers of a cluster are with their parts."""
SPOOL = "spool"
"""In WORK: archives behind URLs, fetched to be packed."""
TABLE = "table"
"""In WORK: what was scanned, see `job/saved_tables.py`."""

_NO_CALL = {errno.EINVAL, errno.EBADF, errno.ENOSYS, errno.EOPNOTSUPP}
"""What file systems say that cannot sync a folder, or all files."""
_MANY = 8
"""Files; fewer are synced one by one."""
_SYNC_FILE_RANGE_WRITE = 2
"""From `fcntl.h`."""


def commit(temporary: Path, final: Path) -> None:
    """Give a finished file its final name, on the same file system, replacing what is there."""
    sync_file(temporary)
    writing.replace(temporary, final)
    sync_folder(final.parent)


def write_whole(path: Path, data: bytes, temporary: Path, *, private: bool = False) -> None:
    """Write a file atomically. private: for this user alone."""
    with writing.create(temporary, private=private) as file:
        file.write(data)
    commit(temporary, path)


def sync_file(path: Path) -> None:
    """Return when the bytes of a file that this run made are on the disk."""
    with writing.reopen(path, "r+b") as file:
        os.fsync(file.fileno())


def begin_sync(path: Path) -> None:
    """Have the system begin to write the file's bytes to the disk, and return at once: the next `sync_file` is faster.
    Does nothing where there is no call for that."""
    sync_range = _of_linux("sync_file_range")
    if sync_range is not None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # `sync_file` will report an error.
            sync_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)
        finally:
            os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Return when the names in the folder are on the disk, where the file system has a call for that."""
    if os.name != "nt":  # Windows syncs names with the file system's journal and offers no call
        try:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno not in _NO_CALL:
                raise


def sync_all(paths: Sequence[Path]) -> None:
    """Return when the bytes of all these files, on one file system, are on the disk."""
    # For a thousand small files, one call for the whole file system took a twentieth of the time of a call for each.
    if len(paths) < _MANY or not _sync_file_system(paths[0]):
        for path in paths:
            sync_file(path)


def sync_tree(folder: Path) -> None:
    """Return when all names in a folder and below it are on the disk."""
    if not _sync_file_system(folder):
        for inner, _, _ in os.walk(folder):
            sync_folder(Path(inner))


def _sync_file_system(path: Path) -> bool:
    """Sync everything written to the file system of `path`; False where there is no call for that."""
    syncfs = _of_linux("syncfs")
    if syncfs is None:
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if syncfs(descriptor):
            number = ctypes.get_errno()
            if number in _NO_CALL:
                return False
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)
    return True


def reserve(descriptor: int, start: int, count: int) -> None:
    """Extend an open file by `count` bytes from `start` on and reserve the space on the disk. Raises OSError where
    there is too little; does nothing on a file system that cannot reserve."""
    # Not `posix_fallocate`: where the file system has no such call, that writes into every block.
    allocate = _of_linux("fallocate64")
    if allocate is not None and allocate(descriptor, 0, ctypes.c_int64(start), ctypes.c_int64(count)):
        number = ctypes.get_errno()
        if number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO):
            raise OSError(number, os.strerror(number))


def _of_linux(name: str) -> Any:
    """A function of Linux's C library; None elsewhere."""
    return getattr(ctypes.CDLL(None, use_errno=True), name, None) if sys.platform == "linux" else None


def refused(error: OSError | MemoryError, destination: str | Path) -> PackError:
    """An error of the system in a run that packs into `destination`, as one line that says how to resume."""
    if isinstance(error, MemoryError):
        if why := hopeless(error):
            return PackError(f"packing into {destination} stopped: {why}")
        return PackError(f"out of memory while packing; try fewer {opt.workers}; {again()} resumes")
    # An error of writing into an open file has no path.
    what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return PackError(f"packing into {destination} stopped: {what}; once that is fixed, {again()} resumes")


@contextmanager
def refusals_named(destination: str | Path) -> Iterator[None]:
    """Turn the system's errors in the block into `refused`."""
    try:
        yield
    except (OSError, MemoryError) as error:
        raise refused(error, destination) from error


def record(path: Path, name: str, *, head: bool = False) -> FileRecord:
    """Size and checksums of a finished file, for the manifest."""
    size = path.stat().st_size
    whole, first = xxhash.xxh3_64(), xxhash.xxh3_64()
    if size:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data,
            memoryview(data) as view,
        ):
            first.update(view[:HEAD_BYTES])
            whole.update(view)
    return FileRecord(name=name, bytes=size, xxh3=whole.hexdigest(), head=first.hexdigest() if head else "")
