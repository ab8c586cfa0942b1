"""`rawpack bench`: what it measures, with what confidence, and that it leaves everything as it was."""

from __future__ import annotations

import itertools
import json
import re
import time
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
from rawpack_packer.tune.measure import Figure, Rate, Setting, StoreMeter, worker_counts

QUICK = ("--seconds", "0.01", "--rounds", "3", "--workers", "0", "--workers", "1", "--batch", "16")


# ---------------------------------------------------------------------------------------------- intervals


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 9])
def test_an_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    """Over all ways in which values fall above or below the true median, here 0, the share that the interval holds."""
    held = 0
    for signs in itertools.product((-1, 1), repeat=count):
        figure = Figure(tuple(sign * (1.0 + k) for k, sign in enumerate(signs)))
        held += figure.low <= 0 <= figure.high
    assert held / 2**count == pytest.approx(figure.confidence)


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


def test_memory_is_no_disk() -> None:
    """Files of a file system in memory cannot be dropped, and that is said: no cold figure is made of them."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.skip("no file system in memory")
    path = folder / f"rawpack-test-{time.time_ns()}"
    try:
        path.write_bytes(b"x" * (1 << 20))
        assert not system.drop([path])
    finally:
        path.unlink()


# ---------------------------------------------------------------------------------------------- one store


@pytest.mark.parametrize("ahead", [1, IN_FLIGHT])
def test_a_pace_counts_what_was_read_while_the_clock_ran(
    packed: Packed, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Where each batch takes 2 s to make, as many are counted as that allows, also where several workers have made the
    first ones at the same time."""
    slow, batch, now = 2.0, 10, 0.0

    class Played:
        """Batches that come when they are made, by a clock that goes only while one is waited for."""

        def __iter__(self) -> Iterator[dict[str, Any]]:
            nonlocal now
            began = now
            for number in range(1000):
                now = max(now, began + slow * max(1, number + 2 - ahead))
                yield {"index": np.arange(batch)}

    monkeypatch.setattr(measure, "_batches", lambda *_: Played())
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: now))
    meter = StoreMeter(packed("memmap", "--size", 48))
    meter._reader = Reader(meter.path)
    pace = meter.warm(Setting(batch, 2), 100.0)
    assert pace.images_per_s == pytest.approx(batch / slow)
    assert pace.first_batch_s == slow


def test_every_sample_is_read_as_often_as_any_other(packed: Packed) -> None:
    """The order that is measured with is made of whole permutations, so that no image weighs more than another."""
    meter = StoreMeter(packed("lmdb", "--size", 48))
    order = meter._long_order.reshape(-1, len(meter))
    assert len(order) > 100
    assert (np.sort(order, axis=1) == np.arange(len(meter))).all()
    assert len(np.unique(order, axis=0)) == len(order)


# ---------------------------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def benched(packed: Packed) -> tuple[dict[str, Any], list[Path]]:
    """What `rawpack bench --json` prints of two stores, and the stores."""
    stores = [packed(layout, "--size", 48) for layout in ("memmap", "lmdb")]
    ran = run_here("bench", "--json", *QUICK, *stores)
    assert (ran.code, ran.err) == (0, ""), ran
    told: dict[str, Any] = json.loads(ran.out)
    return told, stores


def test_bench_measures_each_store_by_workers_and_batch(benched: tuple[dict[str, Any], list[Path]]) -> None:
    """Each store has a line for each number of workers, with an interval over as many rounds as were asked for."""
    told, stores = benched
    lines = [(line["name"], line["workers"]) for line in told["readings"]]
    assert lines == [(str(store), workers) for store in stores for workers in (0, 1)]
    for line in told["readings"]:
        rate = line["images_per_s"]
        assert len(rate["rounds"]) == 3
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert rate["confidence"] == 0.75
        assert line["first_batch_s"]["median"] > 0
        assert line["batch"] == 16
        # An image has 48 x 48 x 3 bytes, and its label and index 8 each.
        assert line["bytes_per_s"]["median"] / rate["median"] == pytest.approx(48 * 48 * 3 + 16)
    assert [store["samples"] for store in told["stores"]] == [75, 75]
    assert told["machine"]["cpus"] >= 1


@pytest.mark.parametrize("columns", [None, 40])
def test_bench_prints_nothing_wider_than_the_terminal(
    packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int | None
) -> None:
    """80 columns in a pipe, where COLUMNS does not say otherwise, also of a store with a long path; columns that do
    not fit are named."""
    rates = itertools.cycle([1_510_000.0, 1_560_000.0, 1_610_000.0])
    monkeypatch.setattr(StoreMeter, "warm", lambda *_: Rate(next(rates), 0.0125, 9e8, next(rates)))
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    place = tmp_path / ("long " * 20) / "store"
    place.parent.mkdir()
    place.symlink_to(packed("memmap", "--size", 48))
    ran = run_here("bench", *QUICK[:6], "--batch", 16, "--no-cold", place)
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= (columns or 80)
    assert ("Columns that do not fit: per core" in ran.out) == (columns == 40)
    assert "/store: memmap, 75 images" in " ".join(ran.out.split())


def test_bench_leaves_everything_as_it_was(packed: Packed) -> None:
    """Nothing is written into a store, and no process stays."""
    store = packed("lmdb", "--size", 48)
    before, children = states_of(store), psutil.Process().children(recursive=True)
    assert run_here("bench", *QUICK, "--no-cold", store).code == 0
    assert states_of(store) == before
    gone = [child for child in psutil.Process().children(recursive=True) if child not in children]
    psutil.wait_procs(gone, timeout=120)
    assert not [child for child in gone if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


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
