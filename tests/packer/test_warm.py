"""`rawpack warm`: every byte of a store lies in the page cache afterwards, as the kernel itself tells."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import sys
from pathlib import Path

import pytest
from folders import files_of
from running import Packed, run_here

if sys.platform != "linux":
    pytest.skip("only Linux tells what lies in the page cache", allow_module_level=True)


def cached(path: Path) -> float:
    """The share of a file's pages that lie in the page cache."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(start), ctypes.c_size_t(size), found) == 0
    return sum(one & 1 for one in found) / pages


@pytest.mark.parametrize("layout", ["memmap", "hdf5-gzip", "lmdb"])
def test_warm(packed: Packed, tmp_path: Path, layout: str) -> None:
    """All that a reader reads is in the page cache, nothing was written, and the command says how much it was."""
    store = shutil.copytree(packed(layout, "--size", 160), tmp_path / "store")
    data = [*store.glob("shard-*"), *store.glob("columns-1/*.npy")]
    for path in data:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if max(map(cached, data)) > 0:
        pytest.skip("this file system keeps its pages whatever it is asked")
    before = files_of(store)
    ran = run_here("warm", store)
    assert (ran.code, ran.err) == (0, "")
    assert "read into the page cache" in ran.out
    assert [cached(path) for path in data] == [1.0] * len(data)
    assert files_of(store) == before
