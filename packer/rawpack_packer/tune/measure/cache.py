"""Files out of the system's page cache, so that a cold read can be measured; and how fast the disk is then."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rawpack.system.memory import is_cached, map_descriptor

_LOOKS = 64
"""Pages of a file that are looked at."""
_STAYS = 0.05
"""The share of them that may still be there in a file that counts as cold."""
_PIECE = 4 << 20


def drop(files: Sequence[Path]) -> bool:
    """Ask the system to forget what it holds of these files; whether it did.

    It keeps what some process has mapped, and everything of file systems that live in memory. Only the files named
    are dropped, whoever else reads them: they are read from the disk again.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    # What was read before may still be mapped by objects that wait for the collector.
    gc.collect()
    for path in files:
        _forget(path)
    shares = [_cached_share(path) for path in files if path.stat().st_size]
    return all(share <= _STAYS for share in shares)


def read_rate(files: Sequence[Path], seconds: float) -> float | None:
    """Bytes per second at which the disk gives these files, read in order, for about so long; None where they cannot
    be had from the disk."""
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
        # Only pages that are on the disk can be dropped.
        with suppress(OSError):
            os.fsync(descriptor)
        with suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _cached_share(path: Path) -> float:
    """The share of a file's pages that lies in the page cache, by a few of them."""
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
