"""The comparison with other systems: its harness finds faults, its tables say what was measured, and it runs."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pictures import picture, save

COMPARE = Path(__file__).resolve().parents[2] / "scripts" / "compare"
COUNT, BATCH = 12, 4


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, which imports its neighbors by their bare names."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(COMPARE)
    import harness

    yield harness
    for name in set(sys.modules) - before:
        if str(COMPARE) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few photographs of several sizes."""
    root = tmp_path_factory.mktemp("images")
    for i in range(COUNT):
        save(root / "all" / f"{i:07}.jpg", picture(230 + 7 * i, 300 - 5 * i, i))
    return root


@pytest.fixture
def job(harness: Any, images: Path, tmp_path: Path) -> Any:
    return harness.Job("check", "none", "raw", str(tmp_path), str(images), batch=BATCH, keep=3, take=1)


def system(harness: Any, job: Any, order: list[int], change: Callable[[Any], Any] = lambda images: images) -> Any:
    """A system whose epoch is these samples."""
    source = harness.Source(job)

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        for start in range(0, len(order), job.batch):
            rows = order[start : start + job.batch]
            yield change(np.stack([source.sample(i) for i in rows])), np.array(rows)

    return SimpleNamespace(NAME="numpy", read=lambda folder, job: epoch)


def test_an_honest_system_passes(harness: Any, job: Any) -> None:
    """Each sample once, exactly its pixels, and batches that stay."""
    honest = system(harness, job, [*range(COUNT)][::-1])
    found = harness.check(job, honest)
    assert (found["samples"], found["delivered"], found["missing"], found["repeated"]) == (COUNT, COUNT, 0, 0)
    assert (found["difference"], found["wrong"], found["checked"]) == (0, 0, COUNT)
    assert harness.kept(job, honest) == {"kept": 3, "changed": 0}


@pytest.mark.parametrize(
    ("order", "within", "found"),
    [
        ([*range(COUNT - 4)], [0, 1, 2, 3], {"missing": 4, "repeated": 0, "wrong": 0}),
        ([*range(COUNT - 1), 0], [0, 1, 2, 3], {"missing": 1, "repeated": 1, "wrong": 0}),
        ([*range(COUNT)], [1, 0, 2, 3], {"missing": 0, "repeated": 0, "wrong": 6}),
    ],
)
def test_faults_are_counted(harness: Any, job: Any, order: list[int], within: list[int], found: dict[str, int]) -> None:
    """Samples that do not come exactly once, and images that changed places in a batch, as after a mistake with
    labels."""
    assert harness.check(job, system(harness, job, order, lambda images: images[within])).items() >= found.items()


@pytest.mark.heavy
def test_rawpack_is_measured_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--quick: packs, reads and answers every question, with this Python in place of an environment."""
    for i in range(4):
        save(tmp_path / "photos" / f"{i}.jpg", picture(240 + i, 300, i))
    python = tmp_path / "python"
    path = os.pathsep.join(sys.path)
    python.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    monkeypatch.syspath_prepend(COMPARE)
    import environments

    monkeypatch.setattr(environments, "make", lambda name, home: python)
    monkeypatch.setattr(environments, "size", lambda python: 1)
    out = tmp_path / "out.json"
    arguments = ["--photos", tmp_path / "photos", "--quick", "--systems", "rawpack lmdb", "--json", out]
    arguments += ["--parts", "recipe,read,behavior", "--work", tmp_path / "work", "--home", tmp_path / "home"]
    monkeypatch.setattr(sys, "argv", ["compare", *map(str, arguments)])
    runpy.run_path(str(COMPARE), run_name="__main__")
    found = json.loads(out.read_text())
    assert not [row for row in found["rows"] if "error" in row]
    by = {row["measure"]: row for row in found["rows"] if not row.get("limit")}
    assert by["read"]["images_per_s"] > 0
    assert by["recipe_check"] == by["recipe_check"] | {"missing": 0, "repeated": 0, "wrong": 0, "samples": 128}
    for measure in ("check", "kill_worker", "resume"):
        assert (by[measure]["delivered"], by[measure]["missing"], by[measure]["repeated"]) == (128, 0, 0)
    assert by["kept"] == by["kept"] | {"kept": 16, "changed": 0}
    assert by["killed_packer"]["after"]["missing"] == 0
    assert not (tmp_path / "work").exists()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("option", ["--work", "--home"])
def test_a_folder_with_other_files_is_not_deleted(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run makes is removed at its end, so that it begins only in a folder of its own."""
    precious = tmp_path / "data" / "photo.jpg"
    precious.parent.mkdir()
    precious.write_bytes(b"")
    monkeypatch.syspath_prepend(COMPARE)
    monkeypatch.setattr(sys, "argv", ["compare", "--quick", "--systems", "rawpack", option, str(precious.parent)])
    with pytest.raises(SystemExit):
        runpy.run_path(str(COMPARE), run_name="__main__")
    assert "data contains other files" in capsys.readouterr().err
    assert [*tmp_path.rglob("*.jpg")] == [precious]
