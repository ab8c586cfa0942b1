"""The benchmark runs, and says what it measured, where and with what. No figure is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Packed, environment

BENCH = Path(__file__).resolve().parent.parent / "scripts" / "bench"
RUN = BENCH / "run.py"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the quick benchmark of reading writes."""
    folder = tmp_path_factory.mktemp("bench")
    command: list[str | Path] = [sys.executable, RUN, "--quick", "--tables", "reading,packing-1,augment-256"]
    command += ["--work", folder / "work", "--json", folder / "out.json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memmap" in done.stdout
    loaded: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return loaded | {"printed": done.stdout}


def test_reading_is_held_against_the_bare_limits(result: dict[str, Any]) -> None:
    """Each format has a speed, a ratio to what it is held against, and the time to its first batch."""
    lines = {line["label"]: line for line in result["tables"][0]["lines"]}
    for form, limit in (("memmap", "copy limit"), ("hdf5", "memmap"), ("lmdb", "decode limit")):
        assert lines[form]["against"] == limit
        median, least, most = lines[form]["ratio"]
        assert 0 < least <= median <= most
        assert lines[form]["images_per_s"][0] > 0
        assert lines[form]["first_batch_s"] > 0


def test_packing_is_held_against_a_bare_loop(result: dict[str, Any]) -> None:
    """Packing has a ratio to the bare loop with the same outcome: pixels, or JPEG files."""
    lines = {line["label"]: line for line in result["tables"][1]["lines"]}
    for packing, loop in (
        ("pack memmap", "bare loop, raw"),
        ("pack hdf5", "bare loop, raw"),
        ("pack lmdb", "bare loop, jpeg"),
    ):
        assert lines[packing]["against"] == loop
        assert lines[packing]["ratio"][0] > 0


def test_transforms_are_held_against_bare_loops(result: dict[str, Any]) -> None:
    """Centre crops against decoding in full, normalising against one fused loop; peers where they are installed."""
    table = next(table for table in result["tables"] if table["table"] == "augment-256")
    lines = {line["label"]: line for line in table["lines"]}
    assert lines["centre crop, lmdb"]["against"] == "decode limit"
    assert lines["normalise, memmap"]["against"] == "fused normalise"
    for label in ("crops, memmap", "crops, lmdb", "centre crop, lmdb", "normalise, memmap"):
        assert lines[label]["images_per_s"][0] > 0


def test_every_row_says_where_and_with_what_it_was_measured(result: dict[str, Any]) -> None:
    """A row can be read elsewhere and later: settings, machine, load and versions are in it."""
    rows = [row for table in result["tables"] for row in table["rows"]]
    assert rows
    for row in rows:
        assert row["images"] > 0
        assert row["seconds"] > 0
        assert row["settings"]["shape"] == [48, 48, 3]
        assert row["machine"]["cpu"]
        assert row["machine"]["cpus"] >= 1
        assert row["load"] >= 0
        assert {"python", "numpy"} <= set(row["versions"])


def test_what_is_not_installed_is_left_out_and_said(result: dict[str, Any]) -> None:
    """A peer is either measured, or named among those left out."""
    reading = result["tables"][0]
    measured = {line["label"] for line in reading["lines"]}
    assert not measured & set(reading["left_out"])
    assert "FFCV raw" in measured | set(reading["left_out"])
    for label in reading["left_out"]:
        assert f"left out: {label}" in result["printed"]


def test_what_counting_costs(packed: Packed) -> None:
    """The cost of stats() is measured for each store, without workers and with: a time, and shares of a batch's."""
    store = packed("memmap", "--size", 48)
    command = [sys.executable, str(BENCH / "stats_cost.py"), str(store), "--batch", "8"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split() for line in done.stdout.splitlines()[4:]]
    assert [row[1] for row in rows] == ["0", "2"]
    for row in rows:
        assert float(row[-3]) > 0
        assert all(share.endswith("%") and float(share.rstrip("%")) >= 0 for share in row[-2:])
