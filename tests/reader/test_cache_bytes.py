"""The sum of the cache's files in its lock file: a bound that saves looking at all files for each new one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rawpack.disk.manifest import FileRecord
from rawpack.remote.cache import CacheFolder
from rawpack.remote.lease import Lease
from rawpack.system.files import unlock

STORE = "0" * 32


def fill(cache: CacheFolder, lease: Lease, name: str, size: int) -> bool:
    """Have a file of this size in the cache, as a download would. False where there is no room for it."""
    record = FileRecord(name=name, bytes=size, xxh3="")
    with cache.locked():
        file = cache.begin((STORE, name), record, (), lease)
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
    leases = Lease(one), Lease(other)
    for number in range(20):
        assert fill(one, leases[0], f"a{number}", 10)
        assert fill(other, leases[1], f"b{number}", 10)
    assert len(looked) == 1
    monkeypatch.setattr("rawpack.remote.cache._COUNT_AGAIN_S", 0)
    assert fill(one, leases[0], "last", 10)
    assert len(looked) == 2


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-1 -1\n", b"9" * 20 + b" " + b"9" * 20 + b"\n"])
def test_a_lock_file_without_a_sum(tmp_path: Path, content: bytes) -> None:
    """Then the files are looked at."""
    cache = CacheFolder(tmp_path, 100)
    lease = Lease(cache)
    assert fill(cache, lease, "a", 60)
    (tmp_path / "lock").write_bytes(content)
    assert fill(cache, lease, "b", 60)
    assert size_of(tmp_path) == 60


def test_the_limit_holds(tmp_path: Path) -> None:
    """Two processes together never exceed it, and what was removed is room again."""
    caches = [CacheFolder(tmp_path, 100) for _ in range(2)]
    leases = [Lease(cache) for cache in caches]
    for number in range(40):
        assert fill(caches[number % 2], leases[number % 2], str(number), 7 + number % 5)
        assert size_of(tmp_path) <= 100
    for path in (tmp_path / STORE).iterdir():
        path.unlink()
    assert fill(caches[0], leases[0], "large", 100)
    assert size_of(tmp_path) == 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_that_was_forked_holds_no_lock(tmp_path: Path) -> None:
    """A child that is forked while the cache is locked and a file is fetched, as a worker of a DataLoader may be, keeps
    nobody out once its parent is done with both."""
    cache, record, end = CacheFolder(tmp_path, 100), FileRecord(name="a", bytes=60, xxh3=""), os.pipe()
    lease = Lease(cache)
    with cache.locked():
        file = cache.begin((STORE, "a"), record, (), lease)
        assert isinstance(file, int)
        if (child := os.fork()) == 0:
            os.close(end[1])
            os.read(end[0], 1)  # until the parent is done
            os._exit(0)
    try:
        unlock(file)
        with cache.locked(0.5):
            again = cache.begin((STORE, "a"), record, (), lease)
        assert isinstance(again, int), again
        unlock(again)
    finally:
        os.close(end[1])
        os.waitpid(child, 0)
        os.close(end[0])
