"""The benchmark runs, and says what it measured, where and with what. No figure is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from running import environment

TABLES = ("reading", "next-epoch", "single", "cold", "giant", "packing-1", "scan", "augment-256")
pytestmark = pytest.mark.heavy

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
RUN = BENCH / "run.py"
Measured = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """`measured("reading")`: what the quick benchmark writes of a table, which is measured once."""
    folder = tmp_path_factory.mktemp("bench")
    return cache(lambda table: quickly(folder, table))


def quickly(folder: Path, table: str) -> dict[str, Any]:
    """What the quick benchmark writes of one table."""
    command: list[str | Path] = [sys.executable, RUN, "--quick", "--tables", table]
    command += ["--work", folder / "work", "--json", folder / "out.json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return loaded | {"printed": done.stdout}


def table_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    (table,) = (table for table in result["tables"] if table["table"] == name)
    found: dict[str, Any] = table
    return found


def lines_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    return {line["label"]: line for line in table_of(result, name)["lines"]}


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


def test_the_recipe_is_drawn_in_a_section_of_its_own(tmp_path: Path) -> None:
    """Crops against OpenCV's resizing alone, by CPU time, and calls of Python functions: the other rows stay."""
    result = quickly(tmp_path, "recipe-alone,recipe-calls")
    share, calls = (table_of(result, name)["bars"][0] for name in ("recipe-alone", "recipe-calls"))
    assert share["bar"].endswith("as a share of cv2.resize of crops")
    assert (share["wanted"], calls["wanted"]) == ("at most 0.80", "at most 3.0")
    assert share["value"][0] > 0
    assert calls["value"][0] >= 1
    page = tmp_path / "performance.md"
    page.write_text(
        "<!-- recipe:begin --><!-- recipe:end -->\n<!-- bench:begin -->\nrows of a night\n<!-- bench:end -->"
    )
    command = [sys.executable, BENCH.parent / "draw.py", tmp_path / "out.json", "--out", tmp_path]
    subprocess.run(command, env=environment(), capture_output=True, check=True)
    drawn = page.read_text()
    assert "rows of a night" in drawn
    assert f"| {share['bar']} | {share['found']} | at most 0.80 |" in drawn
    assert "| cv2.resize of crops |" in drawn.partition("<!-- recipe:end -->")[0]


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


def test_the_server_of_remote_tables_has_a_latency_and_ranges(tmp_path: Path) -> None:
    """A request for some bytes of a file gets these, and waits as long as the table says."""
    (tmp_path / "file").write_bytes(b"0123456789")
    command = [sys.executable, str(BENCH / "loopback.py"), str(tmp_path), "1e9", "0.2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/file"
        began = time.monotonic()
        request = urllib.request.Request(url, headers={"Range": "bytes=2-4"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.read() == b"234"
        assert time.monotonic() - began >= 0.2
        server.stdin.close()


def test_curves_are_drawn_and_leave_the_page_alone(tmp_path: Path) -> None:
    """A result of nothing but curves becomes the plot; the rows of other tables on the page stay."""
    quickly(tmp_path, "growth-workers")
    page = "before\n<!-- bench:begin -->\nrows of a night\n<!-- bench:end -->\nafter\n"
    (tmp_path / "performance.md").write_text(page)
    command = [sys.executable, BENCH.parent / "draw.py", tmp_path / "out.json", "--out", tmp_path]
    drawn = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert "| memmap, 4 workers |" in drawn.stdout
    assert (tmp_path / "performance.md").read_text() == page
    plot = (tmp_path / "growth.svg").read_text()
    assert all(word in plot for word in ("memmap", "lmdb", "workers", "microseconds an image"))
