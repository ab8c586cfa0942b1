"""What a process and its descendants have taken, as the kernel counts it, and what a folder takes; needs nothing that
must be installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any


def descendants(pid: str = "self") -> Iterator[str]:
    """The ids of a process's living children, and of theirs; none where the kernel does not list them."""
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in listed.read_text().split():
                yield child
                yield from descendants(child)


def workers() -> list[str]:
    """The ids of descendants that load data: all except multiprocessing's own helpers."""
    found = []
    for pid in descendants():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if not any(helper in command for helper in (b"resource_tracker", b"forkserver import main")):
                found.append(pid)
    return found


def ticks(pid: str) -> int:
    """CPU time of a process and of its children that have ended, in clock ticks."""
    with suppress(OSError):
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return 0


def cpu_seconds() -> float:
    """CPU time so far of this process and of all its descendants."""
    return sum(os.times()[:4]) + sum(map(ticks, descendants())) / os.sysconf("SC_CLK_TCK")


def memory(before: int | None = 0) -> dict[str, Any]:
    """Bytes beside the page cache: this process's own, its largest worker's, those of shared memory, and all of them
    together without the `before` of this process.

    None where the kernel does not tell.
    """
    own = _rollup("self")
    if not own:
        return dict.fromkeys(("process_bytes", "worker_bytes", "worker_private_bytes", "shared_bytes", "beside_bytes"))
    below = list(descendants())
    others = [one for one in map(_rollup, below) if one]
    shared = sum(one["Pss_Shmem"] for one in (own, *others))
    return {
        "process_bytes": own["Pss_Anon"],
        "worker_bytes": max((one["Pss_Anon"] for one in others), default=None),
        "worker_private_bytes": max(map(_private, below), default=None),
        "shared_bytes": shared,
        "beside_bytes": sum(one["Pss_Anon"] for one in (own, *others)) + shared - (before or 0),
    }


def total_bytes(folder: Path) -> int:
    """Sum of the sizes of all files below a folder."""
    return sum(status.st_size for status in statuses(folder))


def statuses(folder: Path) -> Iterator[os.stat_result]:
    """Of all files below a folder, others may be writing to it meanwhile."""
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file():
                yield path.stat()


def _private(pid: str) -> int:
    """Bytes that a process has written to and shares with nobody. Slots, which it fills for others, do not count."""
    found, counts = 0, True
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            name = line.split(maxsplit=1)[0]
            if not name.endswith(":"):
                counts = "memfd:rawpack" not in line
            elif counts and name == "Private_Dirty:":
                found += int(line.split()[1]) * 1024
    return found


def _rollup(pid: str) -> dict[str, int]:
    """Totals of a process's memory in bytes, as the kernel adds them up; empty where it does not tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
