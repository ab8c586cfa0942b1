"""The benchmark runs, and says what it measured, where and with what. No figure is judged here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from benchmark import lines_of, quickly, table_of

TABLES = ("reading", "next-epoch", "single", "cold", "giant", "packing-1", "scan", "augment-256")
pytestmark = pytest.mark.heavy

Measured = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """`measured("reading")`: what the quick benchmark writes of a table, which is measured once."""
    folder = tmp_path_factory.mktemp("bench")
    return cache(lambda table: quickly(folder, table))


def test_reading_is_held_against_the_bare_limits(measured: Measured) -> None:
    """Each format has a speed, a ratio to what it is held against, and the time to its first batch."""
    lines = lines_of(measured("reading"), "reading")
    for form, limit in (("memmap", "copy limit"), ("hdf5", "memmap"), ("lmdb", "decode limit")):
        assert lines[form]["against"] == limit
        median, least, most = lines[form]["ratio"]
        assert 0 < least <= median <= most
        assert lines[form]["images_per_s"][0] > 0
        assert lines[form]["first_batch_s"] > 0


def test_the_scan_is_held_against_a_bare_walk(measured: Measured) -> None:
    """Listing files has a ratio to `os.walk` and `os.stat`, and what it keeps of each file."""
    assert lines_of(measured("scan"), "scan")["scan"]["against"] == "os.walk and stat"
    assert any("memory for each file" in bar["bar"] for bar in table_of(measured("scan"), "scan")["bars"])


@pytest.mark.parametrize("form", ["memmap", "hdf5"])
def test_reading_from_the_disk_is_held_against_dd(measured: Measured, form: str) -> None:
    """Both read the same files, as many images."""
    result = measured("cold")
    line = lines_of(result, "cold")[f"{form}, cold"]
    assert (line["against"], line["bar"]) == (f"dd, {form}", 0.95)
    rows = [row for row in table_of(result, "cold")["rows"] if row["label"].endswith((f"dd, {form}", f"{form}, cold"))]
    assert {row["images"] for row in rows} == {48}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("next-epoch", "memmap: first batch of the next epoch"),
        ("giant", "hdf5, 2,000 samples: time to open"),
        ("giant", "memmap, 2,000 samples: memory of the process, more than memmap, 20 samples"),
    ],
)
def test_limits_on_time_and_memory_are_judged(measured: Measured, table: str, words: str) -> None:
    """A bar says what was found, what was wanted, and whether that is so; all of it is printed."""
    (bar,) = (bar for bar in table_of(measured(table), table)["bars"] if bar["bar"] == words)
    assert bar["wanted"].startswith("at most ")
    median, least, most = bar["value"]
    assert least <= median <= most
    assert bar["passed"] in (True, False)
    (printed,) = (line for line in measured(table)["printed"].splitlines() if line.strip().startswith(f"{words}  "))
    assert bar["found"] in printed
    assert printed.endswith("met" if bar["passed"] else "MISSED")


def test_packing_is_held_against_a_bare_loop(measured: Measured) -> None:
    """Packing has a ratio to the bare loop with the same outcome: pixels, or JPEG files."""
    lines = lines_of(measured("packing-1"), "packing-1")
    for packing, loop in (
        ("pack memmap", "bare loop, raw"),
        ("pack hdf5", "bare loop, raw"),
        ("pack lmdb", "bare loop, jpeg"),
    ):
        assert lines[packing]["against"] == loop
        assert lines[packing]["ratio"][0] > 0


def test_transforms_are_held_against_bare_loops(measured: Measured) -> None:
    """Crops of half the side against whole images, normalising against a fused loop; peers where they are installed."""
    lines = lines_of(measured("augment-256"), "augment-256")
    assert lines["crops of half the side, lmdb"]["against"] == "lmdb"
    assert lines["normalize, memmap"]["against"] == "fused normalize"
    for label in ("crops, memmap", "crops, lmdb", "crops of half the side, lmdb", "normalize, memmap"):
        assert lines[label]["images_per_s"][0] > 0


@pytest.mark.parametrize("table", TABLES)
def test_every_row_says_where_and_with_what_it_was_measured(measured: Measured, table: str) -> None:
    """A row can be read elsewhere and later: settings, machine, load and versions are in it."""
    rows = table_of(measured(table), table)["rows"]
    assert rows
    for row in rows:
        assert row["images"] > 0
        assert row["seconds"] > 0
        assert row["machine"]["cpu"]
        assert row["machine"]["cpus"] >= 1
        assert row["load"] >= 0
        assert {"python", "numpy"} <= set(row["versions"])


def test_what_is_not_installed_is_left_out_and_said(measured: Measured) -> None:
    """A peer is either measured, or named among those left out."""
    result = measured("reading")
    lines, left_out = lines_of(result, "reading"), table_of(result, "reading")["left_out"]
    assert not set(lines) & set(left_out)
    assert "FFCV raw" in set(lines) | set(left_out)
    for label in left_out:
        assert f"left out: {label}" in result["printed"]
