"""`rawpack bench`: what it measures, with what confidence, and that it leaves everything as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from folders import states_of
from hypothesis import given
from hypothesis import strategies as st
from running import Packed, run_here

from rawpack import Reader
from rawpack.epoch.making import IN_FLIGHT
from rawpack_packer.tune import measure, system
from rawpack_packer.tune.measure import Figure, Setting, StoreMeter, worker_counts

QUICK = ("--seconds", "0.01", "--rounds", "3", "--workers", "0", "--workers", "1", "--batch", "16")


# ---------------------------------------------------------------------------------------------- intervals


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_intervals_lie_around_their_medians(one: list[float], other: list[float]) -> None:
    """Low, median and high are in order, the median is numpy's, and overlapping is mutual and means a common point, or
    a single round, which shows no difference."""
    first, second = Figure(tuple(one)), Figure(tuple(other))
    assert first.low <= first.median <= first.high
    assert first.median == pytest.approx(float(np.median(one)))
    assert first.overlaps(first)
    assert first.overlaps(second) == second.overlaps(first)
    apart = first.high < second.low or second.high < first.low
    assert first.overlaps(second) == (not apart or min(len(one), len(other)) == 1)


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (3, [1, 2, 3]), (8, [1, 2, 4, 8])])
def test_workers_are_doubled_up_to_the_cpus(most: int, counts: list[int]) -> None:
    """The rows of a table begin with one worker and end with all CPUs."""
    assert worker_counts(most) == counts


# ---------------------------------------------------------------------------------------------- the page cache


def read_from_disk() -> int:
    """Bytes that the kernel has fetched from disks for this process."""
    text = Path("/proc/self/io").read_text()
    return int(re.findall(r"^read_bytes: (\d+)", text, re.MULTILINE)[0])


def test_a_dropped_file_comes_from_the_disk_again(tmp_path: Path) -> None:
    """After `drop` says so, reading the file makes the kernel fetch it; a file beside it stays in memory."""
    dropped, kept = tmp_path / "dropped", tmp_path / "kept"
    for path in (dropped, kept):
        path.write_bytes(np.random.default_rng(0).bytes(8 << 20))
    kept.read_bytes()
    if not system.drop([dropped]):
        pytest.skip("this file system keeps its files in memory")
    before = read_from_disk()
    kept.read_bytes()
    between = read_from_disk()
    dropped.read_bytes()
    assert between - before < 1 << 20
    assert read_from_disk() - between > 7 << 20


# ---------------------------------------------------------------------------------------------- one store


def test_a_pace_counts_what_was_read_while_the_clock_ran(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each batch takes 2 s to make, as many are counted as that allows, though workers make several at once."""
    slow, batch, now = 2.0, 10, 0.0

    class Played:
        """Batches that come when they are made, by a clock that goes only while one is waited for."""

        def __iter__(self) -> Iterator[dict[str, Any]]:
            nonlocal now
            began = now
            for number in range(1000):
                now = max(now, began + slow * max(1, number + 2 - IN_FLIGHT))
                yield {"index": np.arange(batch)}

    monkeypatch.setattr(measure, "_batches", lambda *_: Played())
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: now))
    meter = StoreMeter(packed("memmap", "--size", 48))
    meter._reader = Reader(meter.path)
    pace = meter.warm(Setting(batch, 2), 100.0)
    assert pace.images_per_s == pytest.approx(batch / slow)
    assert pace.first_batch_s == slow


# ---------------------------------------------------------------------------------------------- the command


@pytest.mark.own_processes
def test_bench_measures_each_store_by_workers_and_batch(packed: Packed) -> None:
    """Each store has a line for each number of workers, with an interval over as many rounds as were asked for; nothing
    is written into a store, and no process stays."""
    stores = [packed(layout, "--size", 48) for layout in ("memmap", "lmdb")]
    before, children = [*map(states_of, stores)], psutil.Process().children(recursive=True)
    ran = run_here("bench", "--json", *QUICK, *stores)
    assert (ran.code, ran.err) == (0, ""), ran
    assert [*map(states_of, stores)] == before
    gone = [child for child in psutil.Process().children(recursive=True) if child not in children]
    psutil.wait_procs(gone, timeout=120)
    assert not [child for child in gone if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    told = json.loads(ran.out)
    lines = [(line["name"], line["workers"]) for line in told["readings"]]
    assert lines == [(str(store), workers) for store in stores for workers in (0, 1)]
    for line in told["readings"]:
        rate = line["images_per_s"]
        assert len(rate["rounds"]) == 3
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert rate["confidence"] == 0.75
        assert line["first_batch_s"]["median"] > 0
        # An image has 48 x 48 x 3 bytes, and its label and index 8 each.
        assert line["bytes_per_s"]["median"] / rate["median"] == pytest.approx(48 * 48 * 3 + 16)


def test_bench_needs_a_size_for_images_that_differ(packed: Packed, tmp_path: Path) -> None:
    """A store of different sizes is measured with --image-size, and the error says so."""
    store = packed("lmdb", "--size", "keep")
    ran = run_here("bench", *QUICK, store)
    assert (ran.code, ran.out) == (2, "")
    assert "--image-size" in ran.err
    ran = run_here("bench", "--json", *QUICK, "--image-size", "32x40", store)
    assert ran.code == 0
    line = json.loads(ran.out)["readings"][0]
    assert line["image_size"] == [32, 40]
    assert line["bytes_per_s"]["median"] / line["images_per_s"]["median"] == pytest.approx(32 * 40 * 3 + 16)
