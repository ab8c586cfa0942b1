"""The sum of the cache's files in its lock file, so that each new one needs no look at all others; locks on files that
are in use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rawpack.disk.manifest import FileRecord
from rawpack.remote.cache import CacheFolder, NoRoom
from rawpack.system.files import unlock

STORE = "0" * 32


def fill(cache: CacheFolder, name: str, size: int) -> bool:
    """Have a file of this size in the cache, as a download would. False where there is no room for it."""
    record = FileRecord(name=name, bytes=size, xxh3="")
    with cache.locked():
        file = cache.begin((STORE, name), record, ())
    if not isinstance(file, int):
        return False
    os.write(file, bytes(size))
    with cache.locked():
        assert cache.commit((STORE, name), record, file)
    unlock(file)
    return True


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / STORE).iterdir())


def test_files_are_not_looked_at_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is room, all files are looked at once, also by another process; and again after a minute."""
    looked: list[int] = []
    sizes = CacheFolder._sizes
    monkeypatch.setattr(CacheFolder, "_sizes", lambda self: looked.append(1) or sizes(self))
    one, other = CacheFolder(tmp_path, 10_000), CacheFolder(tmp_path, 10_000)
    for number in range(20):
        assert fill(one, f"a{number}", 10)
        assert fill(other, f"b{number}", 10)
    assert len(looked) == 1
    monkeypatch.setattr("rawpack.remote.cache._COUNT_AGAIN_S", 0)
    assert fill(one, "last", 10)
    assert len(looked) == 2


def test_the_limit_holds(tmp_path: Path) -> None:
    """Two processes together never exceed it, what was removed is room again, and a lock file without a sum, or with a
    damaged one, has the files looked at."""
    caches = [CacheFolder(tmp_path, 100) for _ in range(2)]
    damaged = [b"", b"nonsense", b"-1 -1\n", b"9" * 20 + b" " + b"9" * 20 + b"\n"]
    for number in range(40):
        assert fill(caches[number % 2], str(number), 7 + number % 5)
        assert size_of(tmp_path) <= 100
        if number % 5 == 0:
            (tmp_path / "lock").write_bytes(damaged[number // 5 % 4])
    for path in (tmp_path / STORE).iterdir():
        path.unlink()
    assert fill(caches[0], "large", 100)
    assert size_of(tmp_path) == 100


HOLDS = """
import os, sys
from rawpack.errors import StoreError
from rawpack.remote.cache import CacheFolder, NoRoom
cache = CacheFolder(sys.argv[1], 100)
with cache.locked():
    held = cache.hold((sys.argv[2], "a"), 30)
child = os.fork()
if not child:
    print("held" if held else "missing", flush=True)
    del held  # a forked child has no part in it, neither while it lives nor when it lets go
    os.read(int(sys.argv[3]), 1)
    os._exit(0)
sys.stdin.readline()
del held
print("let go", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a forked child holds it too")
@pytest.mark.parametrize("ends", ["let go", "killed"])
def test_what_another_process_holds_is_never_removed(tmp_path: Path, ends: str) -> None:
    """However old it is, and however much room is needed: until that process lets go of it or is killed, though a child
    that it forked lives on."""
    cache = CacheFolder(tmp_path, 100)
    held = tmp_path / STORE / "a"
    assert fill(cache, "a", 30)
    os.utime(held, (1, 1))
    reads, writes = os.pipe()
    with os.fdopen(writes, "w"), os.fdopen(reads), subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path, STORE, str(reads)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[reads],
    ) as other:  # fmt: skip
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        for number in range(8):
            assert fill(cache, f"b{number}", 30)
            assert held.read_bytes() == bytes(30)
        with cache.locked():
            assert cache.begin((STORE, "large"), FileRecord(name="large", bytes=90, xxh3=""), ()) == NoRoom(30)
        assert held.exists()
        if ends == "killed":
            other.kill()
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        else:
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "let go\n"
        assert fill(cache, "large", 90)
        assert not held.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_that_was_forked_holds_no_lock(tmp_path: Path) -> None:
    """A child that is forked while the cache is locked and a file is fetched, as a worker of a DataLoader may be, keeps
    nobody out once its parent is done with both."""
    cache, record, end = CacheFolder(tmp_path, 100), FileRecord(name="a", bytes=60, xxh3=""), os.pipe()
    with cache.locked():
        file = cache.begin((STORE, "a"), record, ())
        assert isinstance(file, int)
        if (child := os.fork()) == 0:
            os.close(end[1])
            os.read(end[0], 1)  # until the parent is done
            os._exit(0)
    try:
        unlock(file)
        with cache.locked(0.5):
            again = cache.begin((STORE, "a"), record, ())
        assert isinstance(again, int), again
        unlock(again)
    finally:
        os.close(end[1])
        os.waitpid(child, 0)
        os.close(end[0])
