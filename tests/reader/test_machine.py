"""Facts about the machine, read from made-up /proc and /sys folders and held against the real ones; and limits of the
shell or a batch scheduler, `ulimit`: the error says which one it was."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running import Packed

from rawpack import RawpackError, Reader, StoreError, WorkerError, Workers
from rawpack.system import machine

GIB = 1 << 30
CGROUP2 = "30 23 0:26 {shown} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="limits differ between systems")
PLAIN_MOUNT = "23 1 254:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"


def write(root: Path, files: dict[str, str]) -> Path:
    """Put files below a made-up root."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def v2(root: Path, group: str, files: dict[str, str], shown: str = "/") -> Path:
    """A machine with cgroup v2 only, this process being in `group`."""
    proc = {"proc/self/cgroup": f"0::{group}\n", "proc/self/mountinfo": PLAIN_MOUNT + CGROUP2.format(shown=shown)}
    return write(root, proc | {f"sys/fs/cgroup/{name}": text for name, text in files.items()})


def v1(root: Path, group: str, files: dict[str, str], shown: str = "/") -> Path:
    """A machine with cgroup v1, this process being in `group` of the controllers cpu and memory."""
    mount = "{n} 31 0:{n} " + shown + " /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"
    names = ("cpu,cpuacct", "memory", "name=systemd")
    proc = {
        "proc/self/cgroup": "".join(f"{n}:{name}:{group}\n" for n, name in enumerate(names, 1)),
        "proc/self/mountinfo": PLAIN_MOUNT + "".join(mount.format(n=40 + n, name=name) for n, name in enumerate(names)),
    }
    return write(root, proc | {f"sys/fs/cgroup/{name}": text for name, text in files.items()})


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 8 CPUs, all of them allowed."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.parametrize(
    ("limit", "quota", "cpus"),
    [
        ("150000 100000\n", 1.5, 2),
        ("1000 100000\n", 0.01, 1),
        ("1600000 100000\n", 16.0, 8),
        ("max 100000\n", None, 8),
        ("nonsense\n", None, 8),
    ],
)
def test_a_quota_bounds_the_cpus(
    tmp_path: Path, limit: str, quota: float | None, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota counts as that many CPUs, rounded up, never less than one; "max" and nonsense set no limit. So does
    affinity, as taskset sets it."""
    root = v2(tmp_path, "/", {"cpu.max": limit})
    assert machine.cpu_quota(root) == quota
    assert machine.cpus(root) == cpus
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 5, 6}, raising=False)
    assert machine.cpus(root) == min(3, cpus)


def test_the_tightest_group_around_the_process_binds(tmp_path: Path) -> None:
    """The least limit of all groups around the process, also in a container that sees a part of them."""
    files = {"a/cpu.max": "300000 100000", "a/b c/cpu.max": "400000 100000", "a/b c/d/cpu.max": "max 100000"}
    other = {"other/cpu.max": "100000 100000"}
    assert machine.cpu_quota(v2(tmp_path / "0", "/a/b c/d", files | other)) == 3.0
    files = {"cpu.max": "600000 100000", "inner/cpu.max": "500000 100000"}
    for k, (group, quota) in enumerate((("/docker/x", 6.0), ("/docker/x/inner", 5.0), ("/elsewhere", 6.0)), 1):
        assert machine.cpu_quota(v2(tmp_path / str(k), group, files, shown="/docker/x")) == quota
    outside = {"../../outside/cpu.max": "100000 100000"}
    assert machine.cpu_quota(v2(tmp_path / "4", "/../../outside", files | outside)) == 6.0


@pytest.mark.usefixtures("eight_cpus")
def test_version_1_groups(tmp_path: Path) -> None:
    """The older control groups are read too, where -1 is no limit and cpu is mounted with cpuacct."""
    files = {
        "cpu,cpuacct/pod/cpu.cfs_quota_us": "250000\n",
        "cpu,cpuacct/pod/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/pod/memory.limit_in_bytes": f"{2 * GIB}\n",
        "memory/pod/memory.usage_in_bytes": f"{GIB}\n",
        "memory/pod/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 4}\ntotal_active_file 0\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.usage_in_bytes": f"{3 * GIB}\n",
    }
    root = v1(tmp_path, "/pod", {**files})
    write(root, {"proc/meminfo": f"MemTotal:  {8 * GIB >> 10} kB\nMemAvailable: {6 * GIB >> 10} kB\n"})
    assert machine.cpu_quota(root) == 2.5
    assert machine.cpus(root) == 3
    assert machine.memory_limit_bytes(root) == 2 * GIB
    assert machine.available_memory_bytes(root) == GIB + GIB // 4


def test_memory_of_a_container(tmp_path: Path) -> None:
    """The least of machine and groups is the limit; cache of files is available, and nothing is negative."""
    files = {
        "a/memory.max": f"{GIB}\n",
        "a/memory.current": f"{GIB - 1000}\n",
        "a/memory.stat": "anon 7\nactive_file 300\ninactive_file 200\n",
        "a/b/memory.max": "max\n",
        "a/b/memory.current": "12345\n",
    }
    meminfo = {"proc/meminfo": f"MemTotal:  {4 * GIB >> 10} kB\nMemFree: 10 kB\nMemAvailable:  {2 * GIB >> 10} kB\n"}
    root = write(v2(tmp_path / "in", "/a/b", files), meminfo)
    assert machine.memory_limit_bytes(root) == GIB
    assert machine.available_memory_bytes(root) == 1500
    write(root, {"sys/fs/cgroup/a/memory.current": f"{GIB + 5000}"})
    assert machine.available_memory_bytes(root) == 0
    bare = write(tmp_path / "bare", meminfo)
    assert (machine.memory_limit_bytes(bare), machine.available_memory_bytes(bare)) == (4 * GIB, 2 * GIB)


@pytest.mark.parametrize("text", [None, "", "::\n", "1 2 3 - cgroup2\n", "1 2 3 / /x - cgroup2 y rw\n", "a - \n"])
def test_a_system_that_tells_nothing(tmp_path: Path, text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc, /sys, affinity and sysconf, as on Windows, or with files that do not read as the kernel writes
    them, unknown facts are None and nothing fails."""
    for name in ("sched_getaffinity", "sysconf", "statvfs"):
        monkeypatch.delattr(os, name, raising=False)
    if text is not None:
        write(tmp_path, {"proc/self/cgroup": text, "proc/self/mountinfo": text, "proc/meminfo": text})
    for fact in (machine.cpu_quota, machine.memory_limit_bytes, machine.available_memory_bytes, machine.shm_free_bytes):
        assert fact(tmp_path) is None
    facts = machine.describe(tmp_path)
    assert (facts["cpus"], facts["cpu"]) == (os.cpu_count(), platform.machine())


@pytest.mark.skipif(not hasattr(os, "major"), reason="needs device numbers")
@pytest.mark.parametrize("version", [v1, v2])
def test_files_in_memory_take_what_the_container_may_use(tmp_path: Path, version: Any) -> None:
    """A tmpfs as large as the disk has free what the control group leaves; a disk, all of it."""
    limits = {"memory.max": f"{GIB}", "memory.current": f"{GIB - 5000}", "memory.stat": "active_file 500\n"}
    old = {"max": "limit_in_bytes", "current": "usage_in_bytes", "stat": "stat"}
    if version is v1:
        limits = {f"memory/memory.{old[name[7:]]}": text.replace("a", "total_a", 1) for name, text in limits.items()}
    root = version(tmp_path / "root", "/", limits)
    mounts = root / "proc/self/mountinfo"
    device = tmp_path.stat().st_dev
    mount = f"90 23 {os.major(device)}:{os.minor(device)} / /ram rw,nosuid shared:9 - {{}} none rw\n"
    before = mounts.read_text()
    for system, in_memory in (("tmpfs", True), ("ramfs", True), ("ext4", False)):
        mounts.write_text(before + mount.format(system))
        assert machine.is_in_memory(tmp_path, root) == in_memory
        free = machine.free_bytes(tmp_path, root)
        assert free == 5500 if in_memory else abs(free - shutil.disk_usage(tmp_path).free) < GIB
    mounts.write_text("odd\n - tmpfs\n")
    assert not machine.is_in_memory(tmp_path, root)


@on_linux
def test_this_machine(tmp_path: Path) -> None:
    """On Linux all facts but the quota are known, and they agree with one another; the CPU is the first processor."""
    limit, available = machine.memory_limit_bytes(), machine.available_memory_bytes()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 1 <= machine.cpus() <= (os.cpu_count() or 1)
    assert limit is not None
    assert available is not None
    assert 0 <= available <= pages
    assert limit <= pages
    assert (machine.shm_free_bytes() or 0) > 0 or not Path("/dev/shm").exists()
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Example CPU 9000 @ 3GHz\n\nmodel name\t: Other\n"})
    facts = machine.describe(tmp_path)
    assert facts["cpu"] == "Example CPU 9000 @ 3GHz"
    assert all(value is None or isinstance(value, str | int | float) for value in facts.values())


@pytest.mark.parametrize(
    ("layout", "asked", "expected"),
    [
        ("memmap", None, 8),
        ("memmap", Workers(backend="process"), 32),
        ("memmap", Workers(20), 20),
        ("lmdb", None, 32),
    ],
)
def test_more_threads_than_memory_feeds_are_not_started(
    packed: Packed, layout: str, asked: Workers | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a machine with many cores, copies use a few, unless asked; decoding uses all."""
    monkeypatch.setattr(machine, "cpus", lambda: 32)
    batches = Reader(packed(layout, "--size", 192)).batches(75, workers=asked)
    assert batches._feed.settings.workers == expected


@contextmanager
def limited(name: str, value: int) -> Iterator[None]:
    """A limit of this process, within the block."""
    import resource

    number = getattr(resource, name)
    before, most = resource.getrlimit(number)
    resource.setrlimit(number, (value, most))
    try:
        yield
    finally:
        resource.setrlimit(number, (before, most))


@on_linux
@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_limit_on_open_files_is_named(reader: Reader, store: Path, backend: Any) -> None:
    """Where no worker can be started, and where no store can be opened."""
    workers = Workers(1, backend=backend)
    next(iter(reader.batches(8, workers=workers)))  # imports what is needed
    batches = reader.batches(8, workers=workers)
    for failing, read in ((WorkerError, lambda: next(iter(batches))), (StoreError, lambda: Reader(store))):
        lowest = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest)
        with (
            limited("RLIMIT_NOFILE", lowest),
            pytest.raises(failing, match=r"a limit on open files \(ulimit -n\) is too low: raise it"),
        ):
            read()


@on_linux
@pytest.mark.parametrize("most", [1 << 10, 1 << 16])
def test_a_limit_on_file_sizes_is_named(store: Path, most: int) -> None:
    """Memory that processes share counts as a file."""
    for read in (
        lambda: list(Reader(store).batches(24, workers=Workers(1, backend="process"))),
        lambda: Reader(store, preload=True),
    ):
        with limited("RLIMIT_FSIZE", most), pytest.raises(RawpackError, match=r"a limit on file sizes \(ulimit -f\)"):
            read()
