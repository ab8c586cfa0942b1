"""The benchmark runs, and says what it measured, where and with what. No figure is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import Packed, environment

TABLES = "reading,next-epoch,single,cold,giant,packing-1,scan,augment-256"
BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
RUN = BENCH / "run.py"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the quick benchmark writes."""
    return quickly(tmp_path_factory.mktemp("bench"), TABLES)


def quickly(folder: Path, tables: str) -> dict[str, Any]:
    """What the quick benchmark writes of some tables."""
    command: list[str | Path] = [sys.executable, RUN, "--quick", "--tables", tables]
    command += ["--work", folder / "work", "--json", folder / "out.json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memmap" in done.stdout
    loaded: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return loaded | {"printed": done.stdout}


def table_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    (table,) = (table for table in result["tables"] if table["table"] == name)
    found: dict[str, Any] = table
    return found


def lines_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    return {line["label"]: line for line in table_of(result, name)["lines"]}


def test_reading_is_held_against_the_bare_limits(result: dict[str, Any]) -> None:
    """Each format has a speed, a ratio to what it is held against, and the time to its first batch."""
    lines = lines_of(result, "reading")
    for form, limit in (("memmap", "copy limit"), ("hdf5", "memmap"), ("lmdb", "decode limit")):
        assert lines[form]["against"] == limit
        median, least, most = lines[form]["ratio"]
        assert 0 < least <= median <= most
        assert lines[form]["images_per_s"][0] > 0
        assert lines[form]["first_batch_s"] > 0


def test_the_scan_is_held_against_a_bare_walk(result: dict[str, Any]) -> None:
    """Listing files has a ratio to `os.walk` and `os.stat`, and what it keeps of each file."""
    assert lines_of(result, "scan")["scan"]["against"] == "os.walk and stat"
    assert any("memory for each file" in bar["bar"] for bar in table_of(result, "scan")["bars"])


@pytest.mark.parametrize("form", ["memmap", "hdf5"])
def test_reading_from_the_disk_is_held_against_dd(result: dict[str, Any], form: str) -> None:
    """Both read the same files, as many images."""
    line = lines_of(result, "cold")[f"{form}, cold"]
    assert (line["against"], line["bar"]) == (f"dd, {form}", 0.95)
    rows = [row for row in table_of(result, "cold")["rows"] if row["label"].endswith((f"dd, {form}", f"{form}, cold"))]
    assert {row["images"] for row in rows} == {48}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("next-epoch", "memmap: first batch of the next epoch"),
        ("giant", "hdf5, 20,000 samples: time to open"),
        ("giant", "memmap, 20,000 samples: memory of the process, more than memmap, 200 samples"),
    ],
)
def test_limits_on_time_and_memory_are_judged(result: dict[str, Any], table: str, words: str) -> None:
    """A bar says what was found, what was wanted, and whether that is so; all of it is printed."""
    (bar,) = (bar for bar in table_of(result, table)["bars"] if bar["bar"] == words)
    assert bar["wanted"].startswith("at most ")
    median, least, most = bar["value"]
    assert least <= median <= most
    assert bar["passed"] in (True, False)
    (printed,) = (line for line in result["printed"].splitlines() if line.strip().startswith(f"{words}  "))
    assert bar["found"] in printed
    assert printed.endswith("met" if bar["passed"] else "MISSED")


def test_packing_is_held_against_a_bare_loop(result: dict[str, Any]) -> None:
    """Packing has a ratio to the bare loop with the same outcome: pixels, or JPEG files."""
    lines = lines_of(result, "packing-1")
    for packing, loop in (
        ("pack memmap", "bare loop, raw"),
        ("pack hdf5", "bare loop, raw"),
        ("pack lmdb", "bare loop, jpeg"),
    ):
        assert lines[packing]["against"] == loop
        assert lines[packing]["ratio"][0] > 0


def test_transforms_are_held_against_bare_loops(result: dict[str, Any]) -> None:
    """Crops of half the side against whole images, normalising against a fused loop; peers where they are installed."""
    table = next(table for table in result["tables"] if table["table"] == "augment-256")
    lines = {line["label"]: line for line in table["lines"]}
    assert lines["crops of half the side, lmdb"]["against"] == "lmdb"
    assert lines["normalize, memmap"]["against"] == "fused normalize"
    for label in ("crops, memmap", "crops, lmdb", "crops of half the side, lmdb", "normalize, memmap"):
        assert lines[label]["images_per_s"][0] > 0


def test_clips_are_held_against_decoding_them_anew(tmp_path: Path) -> None:
    """The same random clips, with what the store of each format and the videos take of the disk; the bar is judged."""
    pytest.importorskip("av", reason="PyAV, which makes and decodes the videos, is not installed")
    result = quickly(tmp_path, "clips")
    lines = lines_of(result, "clips")
    for form in ("memmap", "hdf5", "lmdb"):
        assert lines[f"clips, {form}"]["against"] == "clips by PyAV"
        assert lines[f"clips, {form}"]["ratio"][0] > 0
    pixels = 2 * 75 * 48 * 48 * 3
    assert lines["clips, memmap"]["disk_bytes"] > pixels > lines["clips, lmdb"]["disk_bytes"]
    assert lines["clips by PyAV"]["disk_bytes"] > 0
    (bar,) = (bar for bar in table_of(result, "clips")["bars"] if bar["bar"] == "clips, memmap / clips by PyAV")
    assert bar["wanted"] == "at least 20"
    assert "on disk" in result["printed"]


def test_every_row_says_where_and_with_what_it_was_measured(result: dict[str, Any]) -> None:
    """A row can be read elsewhere and later: settings, machine, load and versions are in it."""
    rows = [row for table in result["tables"] for row in table["rows"]]
    assert rows
    for row in rows:
        assert row["images"] > 0
        assert row["seconds"] > 0
        assert row["machine"]["cpu"]
        assert row["machine"]["cpus"] >= 1
        assert row["load"] >= 0
        assert {"python", "numpy"} <= set(row["versions"])


def test_what_is_not_installed_is_left_out_and_said(result: dict[str, Any]) -> None:
    """A peer is either measured, or named among those left out."""
    reading = table_of(result, "reading")
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
