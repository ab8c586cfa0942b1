"""CPU time of this process and its workers, and the size of the processor's cache."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cpu_seconds() -> float | None:
    """CPU time so far of this process and of all its children, living ones too; None where the system does not tell.

    Counted in ticks of the system's clock, mostly 10 ms a process.
    """
    if not Path("/proc/self/task").is_dir():
        return None
    ticks = 0
    for pid in _children():
        with suppress(OSError, ValueError, IndexError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")


def cache_bytes() -> int | None:
    """The largest cache of the processor; None where the system does not tell."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError):
            sizes.append(int(file.read_text().strip().removesuffix("K")) << 10)
    return max(sizes, default=None)


def _children() -> list[str]:
    found: list[str] = []
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found += (thread / "children").read_text().split()
    return found
