"""Files that are whole or not there: written under another name, synced, renamed, and the folder synced."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import xxhash

from rawpack.disk.manifest import HEAD_BYTES, FileRecord
from rawpack.errors import PackError

_MANY = 8
"""Files; fewer are synced one by one."""


def commit(temporary: Path, final: Path) -> None:
    """Give a finished file its name. Both are on one file system; what `final` was before is replaced."""
    sync_file(temporary)
    temporary.replace(final)
    sync_folder(final.parent)


def write_whole(path: Path, data: bytes, temporary: Path) -> None:
    """Write a small file so that it is there whole or not at all."""
    temporary.write_bytes(data)
    commit(temporary, path)


def sync_file(path: Path) -> None:
    """Return when the file's bytes are on the disk."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Sequence[Path]) -> None:
    """Return when the bytes of all these files, on one file system, are on the disk."""
    # One call for the whole file system: a thousand small files took a twentieth of what one call for each took.
    if len(paths) < _MANY or not _sync_file_system(paths[0]):
        for path in paths:
            sync_file(path)


def sync_tree(folder: Path) -> None:
    """Return when all names in a folder and below it are on the disk."""
    if not _sync_file_system(folder):
        for inner, _, _ in os.walk(folder):
            sync_folder(Path(inner))


def _sync_file_system(path: Path) -> bool:
    """Return True when all that was written to the file system of `path` is on the disk; False where there is no such
    call."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None) if sys.platform == "linux" else None
    if syncfs is None:
        return False
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)
    return True


def reserve(descriptor: int, start: int, count: int) -> None:
    """Have the disk keep room for `count` bytes of an open file from `start` on, which it then has. OSError where there
    is none. A file system that cannot promise promises nothing."""
    # Not `posix_fallocate`: where the file system has no such call, that writes into every block.
    allocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None) if sys.platform == "linux" else None
    if allocate is not None and allocate(descriptor, 0, ctypes.c_int64(start), ctypes.c_int64(count)):
        number = ctypes.get_errno()
        if number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO):
            raise OSError(number, os.strerror(number))


def sync_folder(path: Path) -> None:
    """Return when the folder's names are on the disk."""
    if os.name == "nt":
        return  # Windows syncs names with the file system's journal and offers no call
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refused(error: OSError | MemoryError, destination: str | Path) -> PackError:
    """What the system refused to a run that packs into `destination`, as one line that says how to resume."""
    if isinstance(error, MemoryError):
        return PackError("out of memory while packing; try fewer --workers; the same command resumes")
    # Writes into an open file tell no path.
    what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return PackError(f"packing into {destination} stopped: {what}; once that is fixed, the same command resumes")


@contextmanager
def refusals_named(destination: str | Path) -> Iterator[None]:
    """Turn what the system refuses inside into `refused`."""
    try:
        yield
    except (OSError, MemoryError) as error:
        raise refused(error, destination) from error


def record(path: Path, name: str, *, head: bool = False) -> FileRecord:
    """Size and checksums of a finished file, as the manifest keeps them."""
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
