"""Annotations beside images: what a folder would lose in silence stops the command, which says what to type instead.

Which layouts stop, and which lose nothing, is in `tests/layouts/cases_beside.py`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from archived import tar as tarred
from folders import files_of
from pictures import encoded
from running import run_here, stop_of

from rawpack import Reader

SMALL = ("--workers", 0, "--size", 8, "--quiet")
JPEG = encoded(np.full((10, 10, 3), (255, 0, 0), np.uint8), "JPEG")
Files = Mapping[str, str | bytes]


def images(*names: str) -> dict[str, str | bytes]:
    return dict.fromkeys(names, JPEG)


def write(root: Path, files: Files) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return root


CAPTIONS = {"images": [{"id": 1, "file_name": "0.jpg"}], "annotations": [{"image_id": 1, "caption": "a"}]}
STOPS: dict[str, tuple[Files, str, str]] = {
    "COCO's captions": (
        images("val2017/0.jpg") | {"annotations/captions_val2017.json": json.dumps(CAPTIONS)},
        "COCO's JSON annotations/captions_val2017.json",
        "captions",
    ),
    "COCO's captions in two splits": (
        images("train2017/0.jpg", "val2017/0.jpg")
        | {f"annotations/captions_{name}2017.json": json.dumps(CAPTIONS) for name in ("train", "val")},
        "captions_val2017.json, and packing the folder would ignore them",
        "captions",
    ),
    "a CSV of paths": (
        images("0.jpg", "1.jpg") | {"labels.csv": "path,label\n0.jpg,cat\n1.jpg,dog\n"},
        "contains the table labels.csv next to its images",
        "label",
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_what_would_be_lost_stops_and_says_what_to_type(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, exit code 2, nothing written; the command in it then packs the annotations as fields, and `--source`
    the images alone."""
    files, words, field = STOPS[name]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my data", files)
    before = files_of(tmp_path)
    ran = run_here("pack", *SMALL, "my data", "store")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert words in ran.err
    assert files_of(tmp_path) == before
    (command,) = re.findall("`rawpack pack ([^`]+)`", ran.err)
    assert run_here("pack", *SMALL, *shlex.split(command)).code == 0
    assert field in Reader(shlex.split(command)[-1]).fields
    ran = run_here("pack", *SMALL, "--source", "folder", "my data", "alone")
    assert ran.code == 0, ran.err
    assert {*Reader(tmp_path / "alone").fields} <= {"image", "label", "key"}


def test_the_summary_names_what_was_skipped(tmp_path: Path) -> None:
    classes = images("cat/0.jpg", "cat/1.jpg", "dog/0.jpg")
    write(tmp_path / "data", classes | {"a.md": "x", "b.md": "x", "cat/c.json": "{}", "LICENSE": "x"})
    ran = run_here("pack", *SMALL[:4], tmp_path / "data", tmp_path / "store")
    assert "files that are not images, skipped: 4 (.md 2, no suffix 1, .json 1)" in ran.out
    ran = run_here("pack", *SMALL, "--json", "--source", "folder", tmp_path / "data", tmp_path / "again")
    assert json.loads(ran.out)["skipped"] == {".md": 2, "": 1, ".json": 1}
    members = {"0.jpg": JPEG, "0.txt": "a", "0.json": "{}", "1.jpg": JPEG, "1.txt": "b"}
    (tmp_path / "x.tar").write_bytes(tarred(members))
    ran = run_here("pack", *SMALL[:4], "--source", "webdataset", tmp_path / "x.tar", tmp_path / "shards")
    assert "members that --field does not name, left out: 3 (.txt 2, .json 1)" in ran.out
    ran = run_here("pack", *SMALL[:4], "--field", "txt", tmp_path / "x.tar", tmp_path / "texts")
    assert "members that --field does not name, left out: 1 (.json 1)" in ran.out


@pytest.mark.parametrize(
    ("path", "files", "line"),
    [
        (
            "set",
            images(*(f"cat/a{k}{end}.jpg" for k in range(2) for end in ("", "_edited"))),
            "may belong together, and each image is a sample",
        ),
        ("set.tar", {"cat/0.txt": "a"}, "1 .txt file with the name of an image, left out: cat/0.txt for cat/0.jpg"),
    ],
)
def test_files_that_may_be_labels_are_named(
    path: str, files: Files, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the summary, and as an error by --strict; not with the kind."""
    monkeypatch.chdir(tmp_path)
    layout = {**images(*(f"{name}/{k}.jpg" for name in ("cat", "dog") for k in range(5))), **files}
    write(tmp_path, {path: tarred(layout)}) if path.endswith(".tar") else write(Path(path), layout)
    line += ".*; --source (folder|archive) keeps it so"
    ran = run_here("pack", "--workers", 0, "--size", 8, path, "out")
    assert (ran.code, bool(re.search(line, re.sub(r"\s+", " ", ran.out)))) == (0, True), ran
    assert re.search(f"{line}; or leave out --strict", stop_of("pack", "--workers", 0, "--strict", path, "strict"))
    kind = "archive" if path.endswith(".tar") else "folder"
    ran = run_here("pack", "--workers", 0, "--size", 8, "--strict", "-q", "--source", kind, path, "alone")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
