"""A cold store is asked of its disk by regions, in the order of its files; what is in memory is not asked for."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from reading import WAYS, Truth, nothing_left, wait_until

import rawpack_packer
from rawpack import Blocks, RawpackError, Reader
from rawpack.ahead.readahead import Readahead, RegionSteps
from rawpack.order.base import Order
from rawpack.order.shuffled import BlockShuffled, Shuffled
from rawpack.order.steps import EpochStep
from rawpack.store.stores import Stores
from rawpack_packer.tune.system import drop

Rows = NDArray[np.int64]
SAMPLES, BATCH = 1000, 30


class Disk:
    """Notes what it is asked for, and can be made to fail or to wait."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.error: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()

    def need(self, rows: Rows) -> None:
        self.goes_on.wait()
        self.asked += rows.tolist()
        if self.error is not None:
            raise self.error

    def is_cached(self, row: int) -> bool:
        if self.error is not None:
            raise self.error
        return False


def steps_of(order: Order, epoch: int, start: int = 0) -> Generator[EpochStep]:
    for at in range(start, len(order), BATCH):
        stop = min(at + BATCH, len(order))
        rows = order.samples(epoch, at, stop)
        yield EpochStep(rows, rows, stop)


def regions(disk: Disk, order: Order, epoch: int = 0, start: int = 0, most: int = SAMPLES) -> RegionSteps:
    steps = steps_of(order, epoch, start)
    return RegionSteps(steps, start, lambda at: order.region_end(epoch, at), disk.is_cached, disk.need, most)


def ended(steps: RegionSteps) -> None:
    wait_until(lambda: steps._thread is None or not steps._thread.is_alive(), "all is asked for")


BLOCKS = BlockShuffled(SAMPLES, seed=3, block=10, window=8)


@pytest.mark.parametrize("order", [BLOCKS, Shuffled(SAMPLES, seed=3)], ids=["block", "full"])
@pytest.mark.parametrize("start", [0, 7 * BATCH])
def test_the_steps_stay_what_they_are(order: Order, start: int) -> None:
    """Whatever is asked for, the same batches come at the same positions."""
    found, expected = list(regions(Disk(), order, 2, start)), list(steps_of(order, 2, start))
    assert [(step.rows.tolist(), step.position) for step in found] == [
        (step.rows.tolist(), step.position) for step in expected
    ]


def test_a_disk_that_stands_still_or_fails_holds_nobody_up() -> None:
    """Steps come, the end too, and afterwards no more is asked for. Errors are left to the worker that reads."""
    disk = Disk()
    disk.goes_on.clear()
    steps = regions(disk, BLOCKS)
    assert len(list(steps)) == -(-SAMPLES // BATCH)
    steps.close()
    disk.goes_on.set()
    ended(steps)
    assert len(disk.asked) <= 64
    disk.error = RawpackError("damaged")
    assert len(list(regions(disk, BLOCKS))) == -(-SAMPLES // BATCH)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 300 images in several shards, each large enough to be asked for."""
    folder = tmp_path_factory.mktemp("large")
    random = np.random.default_rng(0)
    images = [{"image": random.integers(0, 256, (80, 80, 3)).astype(np.uint8), "label": i} for i in range(300)]
    rawpack_packer.pack(images, folder / "store", shard_size=1, workers=0)
    return folder / "store"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tells", [True, False])
def test_a_store_from_the_disk(large: Path, way: str, tells: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read cold, the disk is asked for it, also where the system does not tell what is cached; each epoch is whole and
    right, and leaves no thread behind."""
    truth, asked = Truth(large), []
    threads = threading.active_count()
    monkeypatch.setattr(Stores, "tells_cached", tells)
    ask = Readahead.ask
    monkeypatch.setattr(Readahead, "ask", lambda policy, rows: (asked.append(len(rows)), ask(policy, rows))[1])
    with nothing_left():
        for epoch in range(2):
            wait_until(lambda: threading.active_count() <= threads, "no thread is left")
            if not drop(sorted(large.glob("shard-*"))):
                pytest.skip("the page cache keeps the files of this disk")
            batches = Reader(large).batches(16, shuffle=Blocks(block=8, window=4), **WAYS[way])
            batches.set_epoch(epoch)
            rows = []
            for batch in batches:
                assert truth.holds(batch)
                rows += batch["index"].tolist()
            assert sorted(rows) == list(range(300))
            del batches, batch
            if tells or way != "here":
                # Not all: where a region was read before the thread came to its end, the rest is not asked for.
                assert sum(asked) >= 150 * (epoch + 1)
    wait_until(lambda: threading.active_count() <= threads, "no thread is left")
