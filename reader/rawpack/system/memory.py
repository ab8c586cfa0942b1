"""Shared memory and mapped files, without names and without keeping descriptors open.

Python's own `mmap` keeps a duplicate of its descriptor, so a store of a thousand shards, or a list of a thousand
batches, would need a thousand descriptors. The C library's `mmap` needs none.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import weakref
from functools import cache
from pathlib import Path
from typing import Any

from rawpack.system.files import above_streams, unlock

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_READ, _WRITE = 1, 2
_SHARED, _PRIVATE, _FIXED = 0x01, 0x02, 0x10
_ANONYMOUS, _NORESERVE = 0x20, 0x4000
_FAILED = ctypes.c_void_p(-1).value
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_HUGE_FROM = 4 << 20
"""Bytes: two of the usual large pages. For less memory, rounding up could waste more than it holds."""


def anonymous_file(size: int) -> int:
    """The descriptor of `size` zero bytes without a name: a memfd, or an unlinked file where the system has none."""
    if sys.platform == "linux":
        descriptor = above_streams(os.memfd_create("rawpack", os.MFD_CLOEXEC))
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = above_streams(os.dup(file.fileno()))
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def map_descriptor(descriptor: int, size: int, *, writable: bool = False) -> Any:
    """A file's first `size` bytes, 1 or more, as an object with a buffer; unmapped when the last view of it is gone.

    The descriptor stays the caller's, who may close it. Unless `writable`, nobody may write into the buffer, even if it
    claims to be writable: that would end the process. Raises OSError.
    """
    if os.name != "posix":
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    address = _map(None, size, _READ | (_WRITE if writable else 0), _SHARED, descriptor)
    return _owner(address, size)


def kept_open(descriptor: int) -> Any:
    """An object that keeps an open file, and so its lock, until it is gone: without a descriptor on Linux, where a page
    that is mapped does so too. The descriptor stays the caller's, who may close it. Forked children do not have the
    lock on Linux; elsewhere, they do as long as their parent. Raises OSError."""
    if sys.platform != "linux":
        kept = _OpenFile(above_streams(os.dup(descriptor)))
        weakref.finalize(kept, _unlock_here, kept.number, os.getpid())
        return kept
    kept = _OpenFile(_map(None, 1, _READ, _SHARED, descriptor))
    advise(kept.number, mmap.PAGESIZE, mmap.MADV_DONTFORK)
    weakref.finalize(kept, _unmap_here, kept.number, os.getpid()).atexit = False
    return kept


class _OpenFile:
    def __init__(self, number: int) -> None:
        self.number = number


def _unmap_here(address: int, process: int) -> None:
    # A child may have other memory at this address.
    if os.getpid() == process:
        _libc().munmap(address, 1)


def _unlock_here(descriptor: int, process: int) -> None:
    unlock(descriptor) if os.getpid() == process else os.close(descriptor)


def private_memory(size: int) -> Any:
    """`size` zero bytes of this process alone, as an object with a buffer, like `map_descriptor`'s. Raises OSError."""
    if sys.platform != "linux":
        return mmap.mmap(-1, size)
    return _owner(_map(None, size, _READ | _WRITE, _PRIVATE | _ANONYMOUS, -1), size)


def prefer_huge_pages(memory: Any) -> None:
    """Ask for large pages behind a buffer, where that is worth it and the system has them.

    They need fewer address translations: copying scattered rows into the buffer gets up to 1.5 times as fast.
    """
    if hasattr(mmap, "MADV_HUGEPAGE") and len(memory) >= _HUGE_FROM:
        advise(ctypes.addressof(ctypes.c_char.from_buffer(memory)), len(memory), mmap.MADV_HUGEPAGE)


def reserve(size: int) -> Any:
    """A range of `size` addresses with nothing behind them, for `put`. Linux; raises OSError elsewhere."""
    if sys.platform != "linux":
        raise OSError("ranges of addresses are reserved on Linux only")
    return _owner(_map(None, size, 0, _PRIVATE | _ANONYMOUS | _NORESERVE, -1), size)


def put(descriptor: int, begin: int, size: int, reserved: Any, offset: int) -> None:
    """Map `size` bytes of a file from `begin` on, to be read, into a reserved range from `offset` on: whole pages."""
    _map(ctypes.addressof(reserved) + offset, size, _READ, _SHARED | _FIXED, descriptor, begin)


def advise(address: int, size: int, advice: int) -> None:
    """Tell the system how mapped bytes will be used: `mmap.MADV_...`. `address` begins a page. Errors do not matter."""
    _libc().madvise(address, size, advice)


def tells_cached(path: Path) -> bool:
    """Whether the system tells this process which pages of a file are in the page cache. Linux does, for files that the
    user owns or may write to."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError):
        return path.stat().st_uid == os.geteuid() or os.access(path, os.W_OK)
    return False


def is_cached(address: int) -> bool:
    """Whether a mapped byte is in the page cache; it is not touched. True where the system does not tell."""
    if sys.platform != "linux":
        return True
    page, found = address // mmap.PAGESIZE * mmap.PAGESIZE, ctypes.c_ubyte(1)
    return _libc().mincore(page, 1, ctypes.byref(found)) != 0 or bool(found.value & 1)


def _owner(address: int, size: int) -> Any:
    """An object that exports the mapped bytes and unmaps them at its end."""
    whole = (ctypes.c_char * size).from_address(address)
    # Not at exit: threads may still be reading then, and the system frees everything.
    weakref.finalize(whole, _libc().munmap, address, size).atexit = False
    return whole


def _map(place: int | None, size: int, protection: int, flags: int, descriptor: int, begin: int = 0) -> int:
    address = _libc().mmap(place, size, protection, flags, descriptor, begin)
    if address is None or address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(address)


def keep_freed_memory() -> None:
    """In a process of our own: have glibc's allocator keep freed memory for the next samples. Otherwise it gives large
    arrays back to the system each time, and fresh pages cost as much as the work."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 32 << 20)
        mallopt(_TRIM_THRESHOLD, 256 << 20)


@cache
def free_large_block() -> None:
    """In the caller's process: much the same for arrays of up to 16 MiB. Once a program has freed a block of that size,
    glibc takes smaller ones from its heap; many programs do so anyway."""
    import numpy as np

    np.empty(16 << 20, np.uint8)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    ]  # fmt: skip
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    if hasattr(libc, "mincore"):
        libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def major_faults() -> int:
    """How often this thread has waited for a page from the disk; 0 where the system does not say."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt if hasattr(resource, "RUSAGE_THREAD") else 0
