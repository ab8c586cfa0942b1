"""CPU time of this process with its workers, the load of the machine, and the size of the processor's cache."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rawpack.system import machine

BUSY = 0.5
"""The load average per CPU from which a machine is too busy to measure well."""


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


def cache_bytes() -> int | None:
    """The largest cache of the processor; None where the system does not report it."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with suppress(OSError, ValueError):
            sizes.append(int(file.read_text().strip().removesuffix("K")) << 10)
    return max(sizes, default=None)


def _descendants(pid: str) -> list[str]:
    """The living children of a process, and theirs: workers may have been forked by a template."""
    found: list[str] = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            found += (thread / "children").read_text().split()
    return found + [below for child in found for below in _descendants(child)]
