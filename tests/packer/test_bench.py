"""The benchmark runs, says what it measured, where and with what, and draws it. No figure is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from running import environment

pytestmark = pytest.mark.heavy

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
HELD = {
    "reading": {"memmap": "copy limit", "lmdb": "decode limit"},
    "packing-1": {"pack memmap": "bare loop, raw"},
}
"""Table -> line -> the line that it is held against."""
BAR = "memmap: first batch of the next epoch"
"""A limit on time, in a table of its own."""
NOT_INSTALLED = "FFCV raw"
"""Mostly."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all runs work with."""
    return tmp_path_factory.mktemp("bench")


def quickly(folder: Path, work: Path, tables: str, lines: Iterable[str]) -> dict[str, Any]:
    """What the quick benchmark writes of some lines of some tables."""
    command: list[str | Path] = [sys.executable, BENCH / "run.py", "--quick", "--tables", tables]
    command += [word for line in lines for word in ("--line", line)]
    command += ["--work", work, "--json", folder / "out.json"]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=found, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return loaded | {"printed": done.stdout}


def table_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    (table,) = (table for table in result["tables"] if table["table"] == name)
    found: dict[str, Any] = table
    return found


def lines_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    return {line["label"]: line for line in table_of(result, name)["lines"]}


def test_each_line_is_held_against_a_bare_limit(tmp_path: Path, work: Path) -> None:
    """It has a speed, and a ratio to a bare loop that does the same; a limit on time is judged, and printed; each row
    says where and with what it was measured; a peer that is not installed is named."""
    lines = {line for held in HELD.values() for pair in held.items() for line in pair} | {NOT_INSTALLED}
    measured = quickly(tmp_path, work, ",".join((*HELD, "next-epoch")), lines)
    for table, held in HELD.items():
        for label, limit in held.items():
            line = lines_of(measured, table)[label]
            assert line["against"] == limit
            median, least, most = line["ratio"]
            assert 0 < least <= median <= most
            assert line["images_per_s"][0] > 0
    (bar,) = (bar for bar in table_of(measured, "next-epoch")["bars"] if bar["bar"] == BAR)
    assert bar["wanted"].startswith("at most ")
    (printed,) = (line for line in measured["printed"].splitlines() if line.strip().startswith(f"{BAR}  "))
    assert bar["found"] in printed
    assert printed.endswith("met" if bar["passed"] else "MISSED")
    for row in (row for table in measured["tables"] for row in table["rows"]):
        assert row["images"] > 0
        assert row["seconds"] > 0
        assert row["machine"]["cpu"]
        assert row["load"] >= 0
        assert {"python", "numpy"} <= set(row["versions"])
    left_out = table_of(measured, "reading")["left_out"]
    assert (NOT_INSTALLED in lines_of(measured, "reading")) != (NOT_INSTALLED in left_out)
    assert all(f"left out: {label}" in measured["printed"] for label in left_out)


def test_curves_are_drawn_and_leave_the_page_alone(tmp_path: Path, work: Path) -> None:
    """A result of nothing but curves becomes the plot; the rows of other tables on the page stay."""
    night = "<!-- bench:begin -->\nrows of a night\n<!-- bench:end -->\n"
    lines = [f"{form}, {count} workers" for form in ("memmap", "lmdb") for count in (1, 4)]
    quickly(tmp_path, work, "growth-workers", lines)
    (tmp_path / "performance.md").write_text(night)
    command = [sys.executable, BENCH.parent / "draw.py", tmp_path / "out.json", "--out", tmp_path]
    drawn = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout
    assert "| memmap, 4 workers |" in drawn
    assert (tmp_path / "performance.md").read_text() == night
    plot = (tmp_path / "growth.svg").read_text()
    assert all(word in plot for word in ("memmap", "lmdb", "workers", "microseconds an image"))
