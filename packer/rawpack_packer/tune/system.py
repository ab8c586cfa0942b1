"""What measuring asks of the system: dropping files from the page cache, CPU time, and the load."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rawpack.system import machine
from rawpack.system.memory import is_cached, map_descriptor

BUSY = 0.5
"""The load average per CPU from which a machine is too busy to measure well."""
_LOOKS = 64
"""Pages of a file that are checked."""
_STAYS = 0.05
"""The share of them that may be cached in a file that counts as cold."""


def drop(files: Sequence[Path]) -> bool:
    """Ask the system to drop these files, and no others, from the page cache. Returns whether it did.

    It keeps what any process has mapped, and file systems in memory.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    # Objects that wait for the collector may still map what was read before.
    gc.collect()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with suppress(OSError):
                os.fsync(descriptor)  # only pages that have reached the disk can be dropped
            with suppress(OSError):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return all(_cached_share(path) <= _STAYS for path in files if path.stat().st_size)


def _cached_share(path: Path) -> float:
    """The share of a file's pages that are in the page cache, judged by a few of them."""
    size = path.stat().st_size
    descriptor = os.open(path, os.O_RDONLY)
    try:
        mapping = map_descriptor(descriptor, size)
    finally:
        os.close(descriptor)
    if not isinstance(mapping, ctypes.Array):
        return 1.0
    address, looks = ctypes.addressof(mapping), min(_LOOKS, -(-size // 4096))
    return sum(is_cached(address + k * (size - 1) // max(1, looks - 1)) for k in range(looks)) / looks


def load_per_cpu() -> float | None:
    """Load average per CPU; None where the system has none."""
    return os.getloadavg()[0] / machine.cpus() if hasattr(os, "getloadavg") else None


def cpu_seconds() -> float | None:
    """CPU time so far of this process and all its children, living ones too; None where the system does not report it.

    Counted in ticks of the system's clock, usually 10 ms per process.
    """
    if not Path("/proc/self/task").is_dir():
        return None
    ticks = 0
    for pid in _descendants("self"):
        with suppress(OSError, ValueError, IndexError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")


def _descendants(pid: str) -> list[str]:
    """The living children of a process, and theirs: workers may have been forked by a template."""
    found: list[str] = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            found += (thread / "children").read_text().split()
    return found + [below for child in found for below in _descendants(child)]
