"""The measurements that others published, done again: they run, they read what they claim to read, and their tables say
what was measured."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture, save
from running import environment

import rawpack_packer
from rawpack import Reader

ROOT = Path(__file__).resolve().parents[2]
COMPARE = ROOT / "scripts" / "compare"
NAMES = ("reader_128", "video_queue", "keras_generator", "five_ways", "full_hd", "ffcv_table")


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(COMPARE))


def part_of(name: str) -> Any:
    return importlib.import_module(f"published_parts.{name}")


def published(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, COMPARE / "published.py", *map(str, arguments)],
        capture_output=True, encoding="utf-8", env=environment(), check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_relations_are_between_cells_of_the_table(name: str) -> None:
    """No relation names a method or a column that its part lacks, and each ratio of a report is that of its figures."""
    part = part_of(name).PART
    labels = {method.label for method in part.methods}
    assert len(labels) == len(part.methods)
    for relation in part.relations:
        for label, column in (relation.over, relation.under):
            assert label in labels, relation.says
            assert column in part.columns, relation.says
        if {relation.over, relation.under} <= part.published.keys() and relation.theirs is not None:
            ratio = part.published[relation.over] / part.published[relation.under]
            assert relation.theirs == pytest.approx(ratio, rel=0.01), relation.says


def test_a_part_runs_and_its_table_is_drawn(tmp_path: Path) -> None:
    """One command measures; the file it writes is enough to draw the table, also into a page, as often as one likes.
    What is not installed is named, and no failure."""
    for i in range(4):
        save(tmp_path / "photos" / f"{i % 2}" / f"{i}.jpg", picture(80 + i, 90, i))
    ran = published(
        5, "--quick", "--here", "--only", "stage", "--only", "LMDB, unencoded", "--data", tmp_path / "photos",
        "--work", tmp_path / "work", "--json", tmp_path / "out.json",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "out.json").read_text())["parts"]["5"]
    values = {row["label"]: row["values"]["ms per image"] for row in found["rows"] if row["label"].startswith("stage")}
    assert values["stage: decode, OpenCV"] > values["stage: read a file"] > 0
    if importlib.util.find_spec("torch") is None:
        assert "torch" in found["left_out"]["LMDB, unencoded"]
    page = tmp_path / "page.md"
    overview = "<!-- overview: begin -->\n<!-- overview: end -->\n"
    page.write_text(f"before\n{overview}<!-- table 5: begin -->\nwhat was there\n<!-- table 5: end -->\nafter\n")
    for _ in range(2):
        drawn = published("draw", "--json", tmp_path / "out.json", "--page", page)
        assert drawn.returncode == 0, drawn.stderr
    text = page.read_text()
    assert text.startswith("before\n<!-- overview: begin -->")
    assert "| [5. A loader of 1080p images](#5-a-loader-of-1080p-images) | 3 | " in text
    assert text.endswith("<!-- table 5: end -->\nafter\n")
    assert "what was there" not in text
    assert text.count("Tiny sets") == 1
    page.write_text("no markers")
    assert published("draw", "--json", tmp_path / "out.json", "--page", page).returncode != 0


def test_what_the_file_had_of_a_method_stays_until_all_its_rounds_are_there(tmp_path: Path) -> None:
    """Also without --only: a run that is interrupted loses nothing. With --more, all rows stay."""
    script: Any = importlib.import_module("published")
    part = part_of("five_ways").PART

    def result(*rows: tuple[str, int], quick: bool = False, version: str = "2") -> dict[str, Any]:
        found = [{"label": label, "round": 0, "values": {"s": value}} for label, value in rows]
        return {"rows": found, "left_out": {}, "versions": {"numpy": version}, "quick": quick}

    def kept(new: dict[str, Any], complete: set[str], *, more: bool = False, old_is_quick: bool = False) -> Any:
        script._BEFORE.clear()
        old = result(("a", 1), ("a", 2), ("b", 3), quick=old_is_quick, version="1")
        file = tmp_path / "out.json"
        file.write_text(json.dumps({"parts": {"4": old, "5": {}}}))
        whole = script.keep(part, new, argparse.Namespace(json=file, more=more), complete)
        assert json.loads(file.read_text())["parts"] == {"4": whole, "5": {}}
        assert list(tmp_path.iterdir()) == [file]
        return [(row["label"], row["values"]["s"]) for row in whole["rows"]], whole["versions"]["numpy"]

    one = result(("a", 7), ("c", 8))
    assert kept(one, set()) == ([("a", 1), ("a", 2), ("b", 3), ("c", 8)], "1 and 2")
    assert kept(one, {"a"}) == ([("b", 3), ("a", 7), ("c", 8)], "1 and 2")
    assert kept(result(("a", 7), ("b", 9)), {"a", "b"}) == ([("a", 7), ("b", 9)], "2")
    assert kept(one, set(), more=True) == ([("a", 1), ("a", 2), ("b", 3), ("a", 7), ("c", 8)], "1 and 2")
    assert kept(one, set(), old_is_quick=True) == ([("a", 7), ("c", 8)], "2")


def test_what_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    """Toy figures in place of full ones; and a name that no method has, with the names that there are."""
    file, work = tmp_path / "out.json", tmp_path / "work"
    file.write_text(json.dumps({"parts": {"5": {"quick": False}}}))
    before = file.read_bytes()
    refused = published(5, "--quick", "--here", "--json", file, "--work", work)
    assert refused.returncode == 1
    assert "full results of part 5" in refused.stderr
    refused = published(4, "--quick", "--here", "--only", "xyz", "--work", work)
    assert refused.returncode == 1
    assert "--only xyz" in refused.stderr
    assert "np.memmap" in refused.stderr
    assert file.read_bytes() == before
    assert not work.exists()


def test_data_of_other_sources_is_not_used_again(tmp_path: Path) -> None:
    """Each pair of --data and --videos has a folder of its own, the same in each run."""
    from published_parts.contract import Task

    sources = [("", ""), ("/a", ""), ("/b", ""), ("", "/a"), ("/a", "/b")]
    folders = [Task(str(tmp_path), *pair, quick=quick).folder for pair in sources for quick in (False, True)]
    assert len(set(folders)) == len(folders)
    assert folders[:2] == [tmp_path / "full", tmp_path / "quick"]
    assert Task(str(tmp_path), "/a", "", quick=False).folder == folders[2]


def test_the_object_store_serves_files_after_its_latency(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    served = importlib.import_module("published_parts.slow_store").served
    with served(tmp_path, 0.2) as port:
        began = time.monotonic()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/file", headers={"Range": "bytes=2-4"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.read() == b"234"
        assert time.monotonic() - began >= 0.2


def test_the_words_of_the_verdicts() -> None:
    """Within half and twice the ratio of the report agrees; beyond that, the same side of 1 is the same direction; the
    other side, or about equal, does not agree. What the report found equal must be as equal here, and has no
    direction."""
    from published_parts.contract import Relation

    times_four = Relation("a takes 4 times as long as b", ("a", "s"), ("b", "s"), theirs=4.0)
    tenth = Relation("a takes a tenth of b", ("a", "s"), ("b", "s"), theirs=0.1)
    half_more = Relation("a takes half as long again as b", ("a", "s"), ("b", "s"), theirs=1.5)
    about = Relation("a takes about as long as b", ("a", "s"), ("b", "s"), theirs=1.04)
    hardly = Relation("a takes hardly longer than b", ("a", "s"), ("b", "s"), theirs=1.16)
    same = Relation("a takes as long as b", ("a", "s"), ("b", "s"), within=(0.8, 1.25))
    more = Relation("a takes longer than b", ("a", "s"), ("b", "s"), within=(1.15, 1e9))
    for relation, ours, verdict in (
        (times_four, 4.1, "agrees"), (times_four, 7.9, "agrees"), (times_four, 1.5, "same direction, smaller here"),
        (times_four, 9.0, "same direction, larger here"), (times_four, 1.05, "does not agree"),
        (times_four, 0.2, "does not agree"), (tenth, 0.12, "agrees"), (tenth, 0.01, "same direction, larger here"),
        (tenth, 0.6, "same direction, smaller here"), (tenth, 3.0, "does not agree"),
        (half_more, 2.9, "agrees"), (half_more, 1.05, "does not agree"), (half_more, 0.9, "does not agree"),
        (about, 0.9, "agrees"), (about, 1.2, "agrees"), (about, 2.1, "does not agree"), (about, 0.5, "does not agree"),
        (hardly, 1.4, "agrees"), (hardly, 1.82, "does not agree"), (hardly, 0.9, "does not agree"),
        (same, 1.0, "agrees"), (same, 2.0, "does not agree"), (same, 0.5, "does not agree"),
        (more, 90.0, "agrees"), (more, 1.0, "does not agree"), (more, 0.5, "does not agree"),
    ):  # fmt: skip
        found = relation.judge({("a", "s"): ours * 3, ("b", "s"): 3.0})
        assert found == (pytest.approx(ours), verdict)
    assert times_four.judge({("a", "s"): 1.0}) == (None, "not measured")


def test_the_overview_counts_what_the_report_found_for_its_own_methods() -> None:
    """No relation of rawpack counts, with a ratio of the report next to it or without."""
    parts = {name: part_of(name).PART for name in NAMES}
    counted = {name: sum(relation.reported for relation in part.relations) for name, part in parts.items()}
    assert counted == dict(zip(NAMES, (9, 3, 4, 7, 13, 5), strict=True))
    for part in parts.values():
        for relation in part.relations:
            if relation.reported:
                assert "rawpack" not in relation.says


def test_the_number_of_rounds_and_ones_are_drawn() -> None:
    """Each table says how many rounds it is of, and which methods had fewer; a ratio of one reads 1.0 times."""
    from published_parts import drawing

    part = part_of("five_ways").PART
    rows = [
        {"label": label, "round": number, "values": {"traverse, FashionMNIST": 2.0}}
        for label, rounds in (("np.memmap", 3), ("preload, decoded in memory", 2))
        for number in range(rounds)
    ]
    result = {
        "rows": rows, "left_out": {}, "machine": {"cpu": "one", "cpus": 1, "memory_limit_bytes": 2**30}, "load": 0.0,
        "date": "2026-01-01", "quick": False,
        "versions": {"python": "3.11", "numpy": "1 and 2", "rawpack at commit": "abc"},
    }  # fmt: skip
    text = drawing.as_text(part, result)
    assert "Median of 3 rounds [lowest, highest]. Fewer rounds: preload, decoded in memory: 2." in text
    assert "| 1.0 times |" in text
    assert "One round." in drawing.as_text(part, result | {"rows": rows[:1]})
    other = result | {"versions": {"numpy": "2"}}
    assert drawing.versions({"1": result, "2": other}) == (
        "Versions: python 3.11, numpy 1 and 2, rawpack at commit abc."
    )


def test_the_figures_of_a_table(tmp_path: Path) -> None:
    """Medians with the least and the most, next to the report's figures; a method that was not measured keeps those."""
    from published_parts import drawing

    part = part_of("five_ways").PART
    rows = [
        {"label": label, "round": number, "values": {"traverse, FashionMNIST": value}}
        for label, values in (("np.memmap", (7.0, 5.0, 6.0)), ("preload, decoded in memory", (2.0, 2.0, 4.0)))
        for number, value in enumerate(values)
    ]
    machine = {"cpu": "one of them", "cpus": 3, "memory_limit_bytes": 2**33}
    text = drawing.as_text(
        part,
        {
            "rows": rows,
            "left_out": {"rawpack, lmdb": "no disk"},
            "machine": machine,
            "load": 4.5,
            "date": "2026-01-01",
            "quick": False,
        },
    )
    lines = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in text.splitlines() if " | " in line
    }
    assert lines["np.memmap"][:2] == ["6 [5, 7]", "4.41"]
    assert lines["preload, decoded in memory"][:2] == ["2 [2, 4]", "2.08"]
    assert lines["raw, decoded at each access"][:2] == ["", "32.98"]
    assert lines["np.memmap is slower than preloaded tensors (traverse)"] == ["2.12 times", "3 times", "agrees |"]
    assert "Left out: rawpack, lmdb (no disk)." in text
    assert "3 CPUs (one of them), 8 GiB, load before the start 1.5 for each CPU" in text


def test_the_record_file_is_one(tmp_path: Path) -> None:
    """rawpack's own reader of RecordIO finds in it the images of the files, and so does the loop that is measured."""
    reader_128 = part_of("reader_128")
    files = [
        save(tmp_path / "photos" / f"{i}.jpg", picture(40 + i, 50, i)) or tmp_path / "photos" / f"{i}.jpg"
        for i in range(5)
    ]
    reader_128._make_record(tmp_path / "photos.rec", files)
    contents = sorted(path.read_bytes() for path in files)
    assert sorted(reader_128.records(io.BytesIO((tmp_path / "photos.rec").read_bytes()))) == contents
    rawpack_packer.pack(
        tmp_path / "photos.rec", tmp_path / "store", format="lmdb", size="keep", quality="keep", workers=0
    )
    (batch,) = Reader(tmp_path / "store").batches(5, workers=0, decode=False)
    assert sorted(image.tobytes() for image in batch["image"]) == contents


def test_both_ways_to_normalize_are_one() -> None:
    """The look-up table gives the numbers of the arithmetic, channels first."""
    full_hd = part_of("full_hd")
    image = np.random.default_rng(0).integers(0, 256, (12, 17, 3), np.uint8)
    expected = (image / 255 - full_hd.MEAN) / full_hd.STD
    for convert in (full_hd.by_arithmetic, full_hd.by_table):
        np.testing.assert_allclose(convert(image), expected.transpose(2, 0, 1), atol=1e-5)
