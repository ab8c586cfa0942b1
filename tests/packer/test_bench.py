"""The benchmark runs, says what it measured, where and with what, and draws it; the server of its remote tables does as
it says. No figure is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from running import environment

pytestmark = pytest.mark.heavy

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
HELD = {
    "reading": {"memmap": "copy limit", "lmdb": "decode limit"},
    "cold": {"memmap, cold": "dd, memmap"},
    "packing-1": {"pack memmap": "bare loop, raw", "pack lmdb": "bare loop, jpeg"},
    "augment-256": {"normalize, memmap": "fused normalize"},
}
"""Table -> line -> the line that it is held against."""
BAR = "memmap: first batch of the next epoch"
"""A limit on time, in a table of its own."""
NOT_INSTALLED = "FFCV raw"
"""Mostly."""
NIGHT = "<!-- bench:begin -->\nrows of a night\n<!-- bench:end -->\n"


def quickly(folder: Path, tables: str, lines: Iterable[str] = ()) -> dict[str, Any]:
    """What the quick benchmark writes of some tables, or of some of their lines."""
    command: list[str | Path] = [sys.executable, BENCH / "run.py", "--quick", "--tables", tables]
    command += [word for line in lines for word in ("--line", line)]
    command += ["--work", folder / "work", "--json", folder / "out.json"]
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


def drawn(folder: Path, page: str) -> str:
    """What is printed as the results are drawn into a page, performance.md."""
    (folder / "performance.md").write_text(page)
    command = [sys.executable, BENCH.parent / "draw.py", folder / "out.json", "--out", folder]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=True).stdout


def test_each_line_is_held_against_a_bare_limit(tmp_path: Path) -> None:
    """It has a speed, and a ratio to a bare loop that does the same; a limit on time is judged, and printed; each row
    says where and with what it was measured; a peer that is not installed is named."""
    lines = {line for held in HELD.values() for pair in held.items() for line in pair} | {NOT_INSTALLED}
    measured = quickly(tmp_path, ",".join((*HELD, "next-epoch")), lines)
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


def test_the_recipe_is_drawn_in_a_section_of_its_own(tmp_path: Path) -> None:
    """Crops against OpenCV's resizing alone, by CPU time, and calls of Python functions: the other rows stay."""
    result = quickly(tmp_path, "recipe-alone,recipe-calls")
    share, calls = (table_of(result, name)["bars"][0] for name in ("recipe-alone", "recipe-calls"))
    assert share["bar"].endswith("as a share of cv2.resize of crops")
    assert (share["wanted"], calls["wanted"]) == ("at most 0.80", "at most 3.0")
    assert share["value"][0] > 0
    assert calls["value"][0] >= 1
    drawn(tmp_path, f"<!-- recipe:begin --><!-- recipe:end -->\n{NIGHT}")
    recipe, end, rest = (tmp_path / "performance.md").read_text().partition("<!-- recipe:end -->")
    assert (end, rest.strip()) == ("<!-- recipe:end -->", NIGHT.strip())
    assert f"| {share['bar']} | {share['found']} | at most 0.80 |" in recipe
    assert "| cv2.resize of crops |" in recipe


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
    quickly(
        tmp_path, "growth-workers", ("memmap, 1 workers", "memmap, 4 workers", "lmdb, 1 workers", "lmdb, 4 workers")
    )
    assert "| memmap, 4 workers |" in drawn(tmp_path, NIGHT)
    assert (tmp_path / "performance.md").read_text() == NIGHT
    plot = (tmp_path / "growth.svg").read_text()
    assert all(word in plot for word in ("memmap", "lmdb", "workers", "microseconds an image"))
