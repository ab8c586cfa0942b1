"""The same question, asked of every kind of source: all answer alike, or the table says why a kind cannot be asked."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archived import tar
from every_kind import OTHERS, TABLES, Files, made, pictures, png
from PIL import Image
from running import run_here

import rawpack_packer
from rawpack import Reader
from rawpack.errors import UsageError
from rawpack_packer.sources.base import Source
from rawpack_packer.sources.dataset import open_dataset
from rawpack_packer.sources.doubts import SplitColumnError, add_doubts, refuse_split_column
from rawpack_packer.sources.folder import DividedError
from rawpack_packer.sources.registry import open_source

Columns = dict[str, list[Any]]


def _pictures(columns: Columns) -> Files:
    return pictures(*(f"{i}.png" for i in range(len(next(iter(columns.values()))))))


def _rows(columns: Columns) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _samples(root: Path, columns: Columns, files: Files) -> list[dict[str, Any]]:
    return [{"image": Image.new("RGB", (4, 4)), **row} for row in _rows(columns)]


def _webdataset(root: Path, columns: Columns, files: Files) -> Path:
    """The label in .cls, all else in .json."""
    members = dict[str, bytes | str]()
    for i, row in enumerate(_rows(columns)):
        members[f"{i}.png"] = files[i][1]
        members |= {f"{i}.cls": str(row.pop("label"))} if "label" in row else {}
        members |= {f"{i}.json": json.dumps(row)} if row else {}
    (root / "set.tar").write_bytes(tar(members))
    return root / "set.tar"


DOORS: dict[str, Callable[[Path, Columns, Files], Any]] = {**TABLES, "samples": _samples}
MEMORY = ("columns", "samples")
OF_FOLDERS = ("folder", "tar", "zip")
"""Kinds whose labels are the names of folders, and which have no columns."""


def opened(door: str, root: Path, columns: Columns) -> Source:
    files = _pictures(columns)
    if door in OF_FOLDERS:
        return open_source(OTHERS[door](root, columns["label"], files))
    if door == "webdataset":
        return open_source(_webdataset(root, columns, files), "webdataset")
    source = DOORS[door](root, columns, files)
    return open_source(source) if isinstance(source, Path) else open_dataset(source)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("names", "fields"), [("label", ["label"]), ("classId", ["label"]), ("x y", ["x", "y"]), ("class label", None)]
)
def test_what_is_a_label_column(door: str, names: str, fields: list[str] | None, tmp_path: Path) -> None:
    """Other names that one may have are in `tests/layouts/cases_tables.py`. Beside x, y is where something is;
    `label` comes before other names."""
    source = opened(door, tmp_path, {name: [3, 1, 2] for name in names.split()})
    assert sorted(source.info.fields) == (fields or names.split())
    if fields != ["x", "y"]:
        assert [int(source[i].fields["label"]) for i in range(3)] == [3, 1, 2]


@pytest.mark.parametrize("door", [*DOORS, *OF_FOLDERS, "webdataset"])
@pytest.mark.parametrize(
    ("names", "line"),
    [(["7", "8", "10"], "class 10 has the label 0"), (["Oak", "a", "oak"], "Oak and oak differ in case only")],
)
def test_names_that_may_be_a_mistake(door: str, names: list[str], line: str, tmp_path: Path) -> None:
    source = opened(door, tmp_path, {"label": names})
    if door in MEMORY:
        add_doubts(source, {})
    as_numbers = door in ("csv", "webdataset") and names[0].isdecimal()  # in text files, they are numbers
    assert (line in " ".join(source.info.doubts)) != as_numbers


@pytest.mark.parametrize("door", [*DOORS, "webdataset"])
@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"tree": ["oak", "elm", "elm"] * 3, "n": [*range(9)]}, True),
        ({"kind_of_it": [5, 7, 5] * 3, "words": [f"text {i}" for i in range(9)]}, True),
        ({"tree": ["oak", "elm", "elm"] * 3, "weather": ["sun", "rain", "sun"] * 3}, False),  # which is not clear
        ({"label": [1, 0, 1] * 3, "tree": ["oak", "elm", "elm"] * 3}, False),
    ],
)
def test_what_may_be_the_label(door: str, columns: Columns, line: bool, tmp_path: Path) -> None:
    """Whatever it is called: the only column of few values that occur again, where no name says which it is."""
    if door == "hdf5" and "kind_of_it" in columns:
        pytest.skip("the only whole numbers of an HDF5 file are the label")
    problems = " ".join(opened(door, tmp_path, columns).info.problems)
    name, *_ = columns
    cure = f"--field label=json.{name}" if door == "webdataset" else f"--label-column {name}"
    assert (cure in problems) == (line and door not in MEMORY)  # where a program says what it gives


@pytest.mark.parametrize("door", [*DOORS, *OF_FOLDERS])
@pytest.mark.parametrize("values", [["train", "val", "train"], ["Training", "", "PublicTest"]])
def test_what_divides(door: str, values: list[str], tmp_path: Path) -> None:
    """A column of splits, or folders; of shards, names of files. A sample may be in none."""
    if door in OF_FOLDERS:
        with pytest.raises(DividedError, match="splits"):
            opened(door, tmp_path, {"label": ["train", "val", "train"]})
        return
    with pytest.raises(SplitColumnError, match=r"column part of .* has the splits") as refused:
        refuse_split_column(opened(door, tmp_path, {"part": values, "n": [1, 2, 3]}), None, {})
    assert ("other:" in str(refused.value)) == ("" in values)


@pytest.mark.parametrize("door", DOORS)
def test_blanks_around_names(door: str, tmp_path: Path) -> None:
    """They count in binary files and in memory, where somebody put them."""
    source, written = opened(door, tmp_path, {"label": [" cat", "cat", "dog "]}), door in ("csv", "jsonl")
    assert source.info.classes == (("cat", "dog") if written else (" cat", "cat", "dog "))
    assert any("are one, 'cat'" in one for one in source.info.problems) == written


def _csv_of(root: Path, name: str, head: str = "path,label") -> None:
    (root / f"{name}.png").write_bytes(png(len(name)))
    (root / f"{name}.csv").write_text(f"{head}\n{name}.png,{name[0]}\n")


@pytest.mark.parametrize(("pattern", "names"), [("[a-z].csv", "ab"), ("b.csv::a.csv", "ba"), ("{1..2}.csv", "ba")])
def test_a_pattern_is_the_listings_that_it_names(
    pattern: str, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in ((2, "a"), (1, "b")):
        _csv_of(tmp_path, name)
        (tmp_path / f"{number}.csv").write_text((tmp_path / f"{name}.csv").read_text())
    source = open_source(pattern)
    assert [source[i].key for i in range(len(source))] == [f"{name}.png" for name in names]
    assert source.info.classes == tuple(sorted(names))
    assert source.labels is not None
    assert [source.info.classes[k] for k in source.labels.tolist()] == [*names]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("*.csv", "c.csv has other columns than a.csv"),
        ("a.*", "names {}/a.png too, which is no listing"),
        ("t*/*.csv", "names several splits, train.csv, val.csv"),
        (
            "t*.npy",
            "names t0.npy, t1.npy, and a source of kind arrays is one path: `rawpack pack t0.npy store/` packs the "
            "first, and `rawpack append t1.npy store/` adds the other",
        ),
    ],
)
def test_what_a_pattern_cannot_name(
    pattern: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, name in (("", "a"), ("t", "train"), ("t", "val")):
        (tmp_path / folder).mkdir(exist_ok=True)
        _csv_of(tmp_path / folder, name)
    _csv_of(tmp_path, "c", "path,class")
    for k in range(2):
        np.save(tmp_path / f"t{k}.npy", np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(UsageError) as refused:
        open_source(pattern)
    assert message.replace("{}", str(tmp_path)) in str(refused.value)


# ---------------------------------------------------------------------------------------------- doubts


def settled(source: Any, root: Path, line: str, **option: Any) -> Reader:
    """The store of a source that is doubted, once an option has settled it. line: of the doubt."""

    def pack(name: str, **options: Any) -> Any:
        return rawpack_packer.pack(source, root / name, size=8, workers=0, **options)

    assert line in " ".join(pack("doubted").info.problems)
    with pytest.raises(UsageError, match=re.escape(line)):
        pack("strict", strict=True)
    assert not (root / "strict").exists()
    assert not pack("settled", strict=True, **option).info.problems
    return Reader(root / "settled")


def _classes(store: Reader) -> list[str]:
    names = store.classes or ()
    return sorted(names[int(sample["label"])] for sample in store)


@pytest.mark.parametrize(
    ("kind", "classes", "line"),
    [
        ("folder", ["7", "8", "10"], "class 10 has the label 0"),
        ("columns", ["a", "Oak", "oak"], "Oak and oak differ in case only"),
    ],
)
def test_doubts_about_names_of_classes_are_settled(kind: str, classes: list[str], line: str, tmp_path: Path) -> None:
    source = made(kind, tmp_path, classes, _pictures({"label": classes}))
    store = settled(source, tmp_path, line, classes=classes)
    assert (store.classes, _classes(store)) == (tuple(classes), sorted(classes))


def packs_as_told(doubt: str, sets: Path) -> None:
    """The command in a doubt packs the splits, of which one has fewer classes, with the classes of all."""
    (command,) = re.findall("`rawpack (.*?) DST`", doubt)
    ran = run_here(*shlex.split(command), sets, "--size", 8, "--workers", 0, "--strict")
    assert ran.code == 0, ran.err
    assert Reader(sets, split="valid").classes == ("fir", "oak", "yew")


@pytest.mark.parametrize(("kind", "divides"), [("zip", False), ("csv", False), ("parquet", True)])
def test_a_split_in_a_file_next_to_one_of_other_classes(kind: str, divides: bool, tmp_path: Path) -> None:
    """Whatever holds the splits; the command that is printed gives both the same classes."""
    (tmp_path / "both").mkdir()
    for classes, split in ((["fir", "oak", "yew"], "train"), (["oak", "yew"], "valid")):
        (tmp_path / split).mkdir()
        source = made(kind, tmp_path / split, classes, _pictures({"label": classes}))
        for file in (tmp_path / split).iterdir():
            file.rename(tmp_path / "both" / (f"{split}{source.suffix}" if file.name == source.name else file.name))
    path = tmp_path / "both" / f"valid{source.suffix}"
    line = f"train{source.suffix} next to {path.name} has other classes"
    assert _classes(settled(path, tmp_path, line, classes=["fir", "oak", "yew"])) == ["oak", "yew"]
    (doubt,) = open_source(path).info.doubts
    assert ("--splits" in doubt) == divides
    if divides:
        packs_as_told(doubt, tmp_path / "sets")


@pytest.mark.parametrize(("kind", "above"), [("folder", ""), ("zip", "data/"), ("tar", "data/"), ("tar", "")])
def test_a_split_in_a_folder_next_to_one_of_other_classes(kind: str, above: str, tmp_path: Path) -> None:
    """Also of an archive."""
    folders = ("train/fir", "train/oak", "train/yew", "valid/oak", "valid/yew")
    source = made(kind, tmp_path, [above + folder for folder in folders], _pictures({"label": [*folders]}))
    (doubt,) = open_source(source / above / "valid").info.doubts
    assert doubt.startswith("train next to valid has other classes")
    packs_as_told(doubt, tmp_path / "sets")


@pytest.mark.parametrize("door", ["csv", "parquet", "samples"])
def test_a_column_of_splits_is_asked_about(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be kept as a field, and the command that is printed divides by it."""
    columns = {"part": ["Training", "PublicTest", "Training"]}
    monkeypatch.chdir(tmp_path)
    source = DOORS[door](tmp_path, columns, _pictures(columns))
    with pytest.raises(UsageError, match="column part of") as caught:
        rawpack_packer.pack(source, tmp_path / "one", size=8, workers=0)
    assert not (tmp_path / "one").exists()
    rawpack_packer.pack(source, tmp_path / "kept", size=8, workers=0, fields={"part": "str"}, strict=True)
    assert [sample["part"] for sample in Reader(tmp_path / "kept")] == columns["part"]
    if door != "samples":
        (command,) = re.findall("`rawpack (.*?)`", str(caught.value))
        ran = run_here(*shlex.split(command), "--size", 8, "--workers", 0)
        assert ran.code == 0, ran.err
        assert len(Reader(tmp_path / "one", split="Training")) == 2
