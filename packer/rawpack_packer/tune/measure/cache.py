"""Dropping files from the page cache, to measure cold reads and the speed of the disk."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rawpack.system.memory import is_cached, map_descriptor

_LOOKS = 64
"""Pages of a file that are checked."""
_STAYS = 0.05
"""The share of them that may be cached in a file that counts as cold."""
_PIECE = 4 << 20


def drop(files: Sequence[Path]) -> bool:
    """Ask the system to drop these files, and no others, from the page cache. Returns whether it did.

    It keeps what any process has mapped, and file systems in memory.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    # Objects that wait for the collector may still map what was read before.
    gc.collect()
    for path in files:
        _forget(path)
    shares = [_cached_share(path) for path in files if path.stat().st_size]
    return all(share <= _STAYS for share in shares)


def read_rate(files: Sequence[Path], seconds: float) -> float | None:
    """Bytes per second of the disk, reading these files in order for about `seconds`; None where the system keeps them
    in memory."""
    if not drop(files):
        return None
    buffer, done, began = bytearray(_PIECE), 0, time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                done += count
                if time.perf_counter() - began > seconds:
                    return done / (time.perf_counter() - began)
    return done / (time.perf_counter() - began) if done else None


def _forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Only pages that have reached the disk can be dropped.
        with suppress(OSError):
            os.fsync(descriptor)
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _cached_share(path: Path) -> float:
    """The share of a file's pages that are in the page cache, judged by a few of them."""
    import ctypes

    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY)
    try:
        mapping = map_descriptor(descriptor, size)
    finally:
        os.close(descriptor)
    address = ctypes.addressof(mapping) if isinstance(mapping, ctypes.Array) else None
    if address is None:
        return 1.0
    looks = min(_LOOKS, -(-size // 4096))
    return sum(is_cached(address + k * (size - 1) // max(1, looks - 1)) for k in range(looks)) / looks
