"""What measuring asks of the system: dropping files from the page cache, CPU time, the load, and a temporary folder."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rawpack.errors import UsageError
from rawpack.system import machine, writing
from rawpack.system.files import try_lock
from rawpack.system.memory import is_cached, map_descriptor
from rawpack_packer.options import opt

BUSY = 0.5
"""The load average per CPU from which a machine is too busy to measure well."""
_LOOKS = 64
"""Pages of a file that are checked."""
_STAYS = 0.05
"""The share of them that may be cached in a file that counts as cold."""
_PREFIX, _LOCK = "rawpack-plan-", "lock"


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


@contextmanager
def scratch_folder(where: str | None) -> Iterator[tuple[Path, list[Path]]]:
    """A new folder in `where`, or in the system's temporary folder, and what was removed of earlier runs. Raises
    UsageError where none can be made.

    What a killed run left is removed by the next one, which finds its lock free.
    """
    parent, descriptor = Path(where or tempfile.gettempdir()).absolute(), None
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    except OSError as error:
        raise UsageError(f"{opt.tmp(parent)}: {error.strerror or error}") from None
    try:
        with suppress(OSError, UsageError):  # without locks, nothing is ever taken for what was left
            descriptor = try_lock(folder / "locking")
            writing.replace(folder / "locking", folder / _LOCK)  # which nobody finds before it is locked
        left = list(_left_in(parent))
        for old in left:
            shutil.rmtree(old, ignore_errors=True)
        yield folder, left
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _left_in(parent: Path) -> Iterator[Path]:
    """The folders of our own runs that have ended."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, UsageError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            descriptor = try_lock(folder / _LOCK, os.O_RDWR)
            if descriptor is not None:
                os.close(descriptor)
                yield folder
