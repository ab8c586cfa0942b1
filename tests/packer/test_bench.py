"""The benchmark runs, and says what it measured, where and with what. No figure is judged here."""

from __future__ import annotations

from typing import Any

import pytest
from benchmark import lines_of, quickly, table_of

pytestmark = pytest.mark.heavy

HELD = {
    "reading": {"memmap": "copy limit", "hdf5": "memmap", "lmdb": "decode limit"},
    "cold": {"memmap, cold": "dd, memmap", "hdf5, cold": "dd, hdf5"},
    "packing-1": {"pack memmap": "bare loop, raw", "pack hdf5": "bare loop, raw", "pack lmdb": "bare loop, jpeg"},
    "scan": {"scan": "os.walk and stat"},
    "augment-256": {"crops of half the side, lmdb": "lmdb", "normalize, memmap": "fused normalize"},
}
"""Table -> line -> the line that it is held against."""
BARS = {
    "next-epoch": "memmap: first batch of the next epoch",
    "giant": "memmap, 2,000 samples: memory of the process, more than memmap, 20 samples",
}
"""Table -> a limit on time or memory."""
NOT_INSTALLED = "FFCV raw"
"""Mostly."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the quick benchmark writes of these lines."""
    lines = {line for held in HELD.values() for pair in held.items() for line in pair}
    lines |= {"memmap, 20 samples", "memmap, 2,000 samples", NOT_INSTALLED}
    return quickly(tmp_path_factory.mktemp("bench"), ",".join((*HELD, *BARS)), lines)


@pytest.mark.parametrize("table", HELD)
def test_each_line_is_held_against_a_bare_limit(measured: dict[str, Any], table: str) -> None:
    """It has a speed, and a ratio to a bare loop that does the same."""
    lines = lines_of(measured, table)
    for label, limit in HELD[table].items():
        assert lines[label]["against"] == limit
        median, least, most = lines[label]["ratio"]
        assert 0 < least <= median <= most
        assert lines[label]["images_per_s"][0] > 0


@pytest.mark.parametrize("table", BARS)
def test_limits_on_time_and_memory_are_judged(measured: dict[str, Any], table: str) -> None:
    """A bar says what was found, what was wanted, and whether that is so; all of it is printed."""
    words = BARS[table]
    (bar,) = (bar for bar in table_of(measured, table)["bars"] if bar["bar"] == words)
    assert bar["wanted"].startswith("at most ")
    median, least, most = bar["value"]
    assert least <= median <= most
    assert bar["passed"] in (True, False)
    (printed,) = (line for line in measured["printed"].splitlines() if line.strip().startswith(f"{words}  "))
    assert bar["found"] in printed
    assert printed.endswith("met" if bar["passed"] else "MISSED")


@pytest.mark.parametrize("table", [*HELD, *BARS])
def test_every_row_says_where_and_with_what_it_was_measured(measured: dict[str, Any], table: str) -> None:
    """A row can be read elsewhere and later: settings, machine, load and versions are in it."""
    rows = table_of(measured, table)["rows"]
    assert rows
    for row in rows:
        assert row["images"] > 0
        assert row["seconds"] > 0
        assert row["machine"]["cpu"]
        assert row["machine"]["cpus"] >= 1
        assert row["load"] >= 0
        assert {"python", "numpy"} <= set(row["versions"])


def test_what_is_not_installed_is_left_out_and_said(measured: dict[str, Any]) -> None:
    """A peer is either measured, or named among those left out."""
    left_out = table_of(measured, "reading")["left_out"]
    assert (NOT_INSTALLED in lines_of(measured, "reading")) != (NOT_INSTALLED in left_out)
    assert all(f"left out: {label}" in measured["printed"] for label in left_out)
