"""How much of the machine this process may use: CPUs, memory, shared memory, space for files.

A container sees the CPUs and memory of its whole host. The files of its control groups (cgroup v2 or v1) say what it
may use. `root` is the root of the file system, for tests. None means that the system does not say, as with quotas on
macOS and Windows.
"""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/")
_IN_MEMORY = ("tmpfs", "ramfs")
"""Linux file systems whose files are memory."""


def cpus(root: Path = _ROOT) -> int:
    """CPUs that this process can keep busy: the least of machine, affinity and quota, rounded up."""
    limits = [os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        limits.append(len(os.sched_getaffinity(0)))
    quota = cpu_quota(root)
    if quota is not None:
        limits.append(math.ceil(quota))
    return max(1, min(limits))


def cpu_quota(root: Path = _ROOT) -> float | None:
    """CPU seconds per second that the control groups allow, such as 1.5; None where they set no limit."""
    quotas = []
    for group, second in _groups("cpu", root):
        if second:
            quota, _, period = _text(f"{group}/cpu.max").partition(" ")
        else:
            quota, period = _text(f"{group}/cpu.cfs_quota_us"), _text(f"{group}/cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit_bytes(root: Path = _ROOT) -> int | None:
    """Memory that this process may use: that of the machine, or less where the control groups allow less."""
    limits = [limit for limit, _ in _memory_groups(root)]
    return min([*limits, *_of_machine("MemTotal", "SC_PHYS_PAGES", root)], default=None)


def available_memory_bytes(root: Path = _ROOT) -> int | None:
    """Memory that this process could take now without swapping or being killed: free, or used to cache files."""
    free = [max(0, limit - used) for limit, used in _memory_groups(root) if used is not None]
    return min([*free, *_of_machine("MemAvailable", "SC_AVPHYS_PAGES", root)], default=None)


def shm_free_bytes(root: Path = _ROOT) -> int | None:
    """Free bytes of `/dev/shm`; None where there is none."""
    folder = root / "dev/shm"
    if not hasattr(os, "statvfs") or not folder.is_dir():
        return None
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def is_in_memory(folder: Path, root: Path = _ROOT) -> bool:
    """Whether files in an existing folder take memory, as in `/dev/shm`. Raises OSError."""
    if not hasattr(os, "major"):
        return False
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = (line.partition(" - ") for line in _text(f"{root}/proc/self/mountinfo").splitlines())
    return any(mount.split(" ")[2:3] == [number] and system.split(" ")[0] in _IN_MEMORY for mount, _, system in mounts)


def free_bytes(folder: Path, root: Path = _ROOT) -> int:
    """Bytes that files in an existing folder can take. In a file system in memory, these are not more than the memory
    that this process could take, which is often less than that file system says is free. Raises OSError."""
    import shutil  # it loads three kinds of archives

    free = shutil.disk_usage(folder).free
    memory = available_memory_bytes(root) if is_in_memory(folder, root) else None
    return free if memory is None else min(free, memory)


def describe(root: Path = _ROOT) -> dict[str, str | int | float | None]:
    """The facts above and the names of CPU, system and Python: for reports and for comparing machines."""
    return {
        "cpu": _cpu_model(root),
        "cpus": cpus(root),
        "cpus_of_machine": os.cpu_count(),
        "cpu_quota": cpu_quota(root),
        "memory_limit_bytes": memory_limit_bytes(root),
        "available_memory_bytes": available_memory_bytes(root),
        "shm_free_bytes": shm_free_bytes(root),
        "os": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _groups(controller: str, root: Path) -> Iterator[tuple[str, bool]]:
    """Folders with limits of `controller` on this process: its group's and those above it, where mounted; and whether
    they are of version 2.

    The lowest limit applies. A group's path, in /proc/self/cgroup, is relative to the root of its hierarchy, of which a
    mount may show only a part: /proc/self/mountinfo says which.
    """
    groups: dict[str, str] = {}
    for line in _text(f"{root}/proc/self/cgroup").splitlines():
        names, _, path = line.partition(":")[2].partition(":")
        groups |= dict.fromkeys(names.split(","), path)
    for line in _text(f"{root}/proc/self/mountinfo").splitlines():
        mount, _, system = line.partition(" - ")
        where, what = mount.split(" ")[3:5], system.split(" ")
        second = what[0] == "cgroup2"
        group = groups.get("" if second else controller)
        limits = second or (what[0] == "cgroup" and controller in what[-1].split(","))
        if not limits or group is None or len(where) < 2:
            continue
        shown, top = map(_unescape, where)
        shown = shown.rstrip("/")
        inside = group.removeprefix(shown).rstrip("/") if f"{group}/".startswith(f"{shown}/") else ""
        if ".." in inside.split("/"):  # a group outside of what this container may see
            inside = ""
        while inside:
            yield f"{root}{top}{inside}", second
            inside = inside.rpartition("/")[0]
        yield f"{root}{top}", second


def _memory_groups(root: Path) -> Iterator[tuple[int, int | None]]:
    """(limit, bytes in use without cached files) of each control group that limits memory."""
    for group, second in _groups("memory", root):
        limit = _text(f"{group}/memory.max" if second else f"{group}/memory.limit_in_bytes")
        if limit.isdigit():
            used = _text(f"{group}/memory.current" if second else f"{group}/memory.usage_in_bytes")
            cache, prefix = _numbers(_text(f"{group}/memory.stat")), "" if second else "total_"
            files = cache.get(f"{prefix}inactive_file", 0) + cache.get(f"{prefix}active_file", 0)
            yield int(limit), max(0, int(used) - files) if used.isdigit() else None


def _of_machine(name: str, pages: str, root: Path) -> list[int]:
    """Bytes by /proc/meminfo, else by sysconf; empty where neither says."""
    kib = _numbers(_text(f"{root}/proc/meminfo").replace(":", "")).get(name)
    if kib is not None:
        return [kib * 1024]
    with suppress(AttributeError, ValueError, OSError):
        count, size = os.sysconf(pages), os.sysconf("SC_PAGE_SIZE")
        return [count * size] if count > 0 and size > 0 else []
    return []


def _numbers(text: str) -> dict[str, int]:
    """Lines of `name number ...` as a dict."""
    return {name: int(number) for name, number in re.findall(r"^(\S+)[ \t]+(\d+)", text, re.MULTILINE)}


def _cpu_model(root: Path) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _text(f"{root}/proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _unescape(path: str) -> str:
    """Decode a path of mountinfo, where blanks and backslashes are three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), path)


def _text(file: str) -> str:
    """Contents of a small file; empty where it cannot be read."""
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read().strip()
    except OSError:
        return ""
