"""A store that is not in memory is read in long runs, whatever the order and whoever reads.

What is counted is page faults that go to the disk: they do not depend on how fast or busy the machine is.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS, wait_until, workers_of

import rawpack_packer
from rawpack import Blocks, Reader
from rawpack.transforms import CenterCrop
from rawpack_packer.tune.system import drop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which pages are in memory")

SIDE, IMAGES = 512, 32
"""An image has 192 pages or so, and 24 images have more bytes than many systems read for one request."""
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "memmap": ({"format": "memmap"}, {}),
    "hdf5": ({"format": "hdf5"}, {}),
    "planes": ({"format": "memmap", "color": "ycgco420"}, {}),
    "keep": ({"format": "memmap", "size": "keep"}, {"transform": [CenterCrop(SIDE)]}),
    "compressed keep": ({"format": "hdf5", "size": "keep", "compression": "gzip"}, {"transform": [CenterCrop(SIDE)]}),
    "lmdb": ({"format": "lmdb", "quality": 98}, {}),
}
"""How a store is packed, and how batches of it are read."""
ORDERS: dict[str, dict[str, Any]] = {
    "in order": {"shuffle": False},
    "shuffled": {"shuffle": True},
    "by blocks": {"shuffle": Blocks(block=8, window=2)},
}

Cold = Callable[[str], Path]


def faults() -> int:
    """How often this process, with all its threads, has waited for a page from the disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def faults_of(pid: int) -> int:
    """The same of another process, as the system counts it: field 12 of its `stat`."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[9])


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on a disk where reading a dropped page of a mapped file counts as a fault, as it should."""
    folder = tmp_path_factory.mktemp("cold")
    file, pages = folder / "probe", 256
    file.write_bytes(os.urandom(pages * mmap.PAGESIZE))
    drop([file])
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        mapped.madvise(mmap.MADV_RANDOM)
        before = faults()
        for start in range(0, len(mapped), mmap.PAGESIZE):
            mapped[start]
        counted = faults() - before
    if counted < pages // 2:
        pytest.skip(f"{counted} faults for {pages} dropped pages: the file system of {folder} holds them in memory")
    return folder


@pytest.fixture(scope="module")
def cold(disk: Path) -> Cold:
    """`cold("hdf5")`: a store of that form, of which nothing is in memory."""

    @cache
    def packed(form: str) -> Path:
        random = np.random.default_rng(0)
        sides = [(SIDE + number % 3, SIDE + number % 5) for number in range(IMAGES)]
        images = [random.integers(0, 256, (*side, 3)).astype(np.uint8) for side in sides]
        options = {"size": SIDE, "workers": 0, **FORMS[form][0]}
        rawpack_packer.pack([{"image": image} for image in images], disk / form, **options)
        return disk / form

    def get(form: str) -> Path:
        store = packed(form)
        # What somebody has mapped stays: workers of the test before may be ending.
        wait_until(lambda: drop(sorted(store.glob("shard-*"))), "nothing of the store is in memory")
        return store

    return get


def pages(store: Path) -> int:
    return sum(file.stat().st_size for file in store.glob("shard-*")) // mmap.PAGESIZE


def few(store: Path) -> int:
    """What is few: a fault for each run of 20 pages, and some that come from elsewhere. Read page by page, even a
    quarter of a store has five times as many."""
    return pages(store) // 20


@pytest.mark.parametrize(
    ("form", "way", "order"),
    [
        ("memmap", "here", "in order"),
        ("memmap", "threads", "shuffled"),
        ("memmap", "processes", "by blocks"),
        ("hdf5", "threads", "in order"),
        ("planes", "here", "by blocks"),
        ("keep", "processes", "shuffled"),
        ("compressed keep", "here", "shuffled"),
        ("lmdb", "threads", "by blocks"),
    ],
)
def test_batches_of_a_cold_store(cold: Cold, form: str, way: str, order: str) -> None:
    """An epoch from the disk waits for few pages: here, in threads and in processes, in any order, in any format."""
    store = cold(form)
    before = faults()
    batches = Reader(store).batches(IMAGES * 3 // 4, **FORMS[form][1], **ORDERS[order], **WAYS[way])
    iterator = iter(batches)
    rows = next(iterator)["index"].tolist()
    workers = workers_of(iterator) if way == "processes" else []
    rows += [row for batch in iterator for row in batch["index"].tolist()]
    counted = faults() - before + sum(map(faults_of, workers))
    assert sorted(rows) == list(range(IMAGES))
    assert counted < few(store), f"{counted} faults for {pages(store)} pages"


def test_no_file_stays_mapped(cold: Cold) -> None:
    """When a reader is gone, so are its mappings: the disk space of a store that is removed is free again."""
    for form in FORMS:
        store = cold(form)
        assert Reader(store)[0]["image"].any()
        gc.collect()
        assert str(store) not in Path("/proc/self/maps").read_text()
