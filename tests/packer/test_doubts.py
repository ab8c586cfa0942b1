"""What may be a mistake about classes and splits: a line, an error under `strict`, and neither once an option settles
it; whatever the kind of the source is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archived import tar, zipped
from pictures import encoded, picture
from PIL import Image
from running import run_here

import rawpack
import rawpack_packer
from rawpack.errors import UsageError
from rawpack_packer.sources import open_source


def jpeg(seed: int) -> bytes:
    return encoded(picture(8, 8, seed), "JPEG")


Made = Callable[[Path, list[str]], Any]


def _folder(root: Path, classes: list[str]) -> Path:
    for name in classes:
        (root / "set" / name).mkdir(parents=True)
        (root / "set" / name / "0.jpg").write_bytes(jpeg(0))
    return root / "set"


def _members(classes: list[str]) -> dict[str, bytes]:
    return {f"{name}/0.jpg": jpeg(0) for name in classes}


def _zip(root: Path, classes: list[str]) -> Path:
    (root / "set.zip").write_bytes(zipped(_members(classes)))  # type: ignore[arg-type]
    return root / "set.zip"


def _tar(root: Path, classes: list[str]) -> Path:
    (root / "set.tar").write_bytes(tar(_members(classes)))  # type: ignore[arg-type]
    return root / "set.tar"


def _listing(root: Path, classes: list[str]) -> Path:
    for i in range(len(classes)):
        (root / f"{i}.jpg").write_bytes(jpeg(i))
    (root / "set.csv").write_text("\n".join(["path,label", *(f"{i}.jpg,{name}" for i, name in enumerate(classes))]))
    return root / "set.csv"


def _parquet(root: Path, classes: list[str]) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"image": [jpeg(0)] * len(classes), "label": classes}), root / "set.parquet")
    return root / "set.parquet"


def _samples(root: Path, classes: list[str]) -> list[dict[str, Any]]:
    return [{"image": np.zeros((8, 8, 3), np.uint8), "label": name} for name in classes]


def settled(source: Any, root: Path, line: str, **option: Any) -> rawpack.Reader:
    """The store of a source that is doubted, once an option has settled it. line: of the doubt."""

    def pack(name: str, **options: Any) -> Any:
        return rawpack_packer.pack(source, root / name, size=8, workers=0, **options)

    assert line in " ".join(pack("doubted").info.problems)
    with pytest.raises(UsageError, match=re.escape(line)):
        pack("strict", strict=True)
    assert not (root / "strict").exists()
    assert not pack("settled", strict=True, **option).info.problems
    return rawpack.Reader(root / "settled")


def _classes(store: rawpack.Reader) -> list[str]:
    names = store.classes or ()
    return sorted(names[int(sample["label"])] for sample in store)


@pytest.mark.parametrize("made", [_folder, _zip, _tar, _listing, _parquet, _samples])
@pytest.mark.parametrize(
    ("classes", "line"),
    [(["7", "8", "10"], "class 10 has the label 0"), (["a", "Oak", "oak"], "Oak and oak differ in case only")],
)
def test_names_of_classes_that_may_be_a_mistake(made: Made, classes: list[str], line: str, tmp_path: Path) -> None:
    if made is _listing and classes[0].isdecimal():
        pytest.skip("numbers in a text file are numbers")
    names: Any = classes
    source = made(tmp_path, classes)
    if isinstance(source, Path):
        names = tmp_path / "names.txt"
        names.write_text("\n".join(classes))
    store = settled(source, tmp_path, line, classes=names)
    assert (store.classes, _classes(store)) == (tuple(classes), sorted(classes))


@pytest.mark.parametrize("made", [_folder, _zip, _tar])
@pytest.mark.parametrize(("depth", "classes"), [(1, ["a", "a", "b"]), (2, ["x", "x", "y"])])
def test_class_folders_two_deep(made: Made, depth: int, classes: list[str], tmp_path: Path) -> None:
    """Folders of one name are one class."""
    source = made(tmp_path, ["a/x", "a/y", "b/x"])
    assert _classes(settled(source, tmp_path, "are no classes of their own", label_depth=depth)) == classes


@pytest.mark.parametrize(("made", "divides"), [(_zip, False), (_listing, False), (_parquet, True)])
def test_a_split_in_a_file_next_to_one_of_other_classes(made: Made, divides: bool, tmp_path: Path) -> None:
    """Whatever holds the splits; the command that is printed gives both the same classes."""
    (tmp_path / "both").mkdir()
    for classes, split in ((["fir", "oak", "yew"], "train"), (["oak", "yew"], "valid")):
        (tmp_path / split).mkdir()
        source = made(tmp_path / split, classes)
        for file in (tmp_path / split).iterdir():
            file.rename(tmp_path / "both" / (f"{split}{source.suffix}" if file.name == source.name else file.name))
    path = tmp_path / "both" / f"valid{source.suffix}"
    names = tmp_path / "names.txt"
    names.write_text("fir\noak\nyew\n")
    line = f"train{source.suffix} next to {path.name} has other classes"
    assert _classes(settled(path, tmp_path, line, classes=names)) == ["oak", "yew"]
    (doubt,) = open_source(path).info.doubts
    assert ("--splits" in doubt) == divides
    for command in re.findall("`rawpack (.*?) DST`", doubt):
        ran = run_here(*shlex.split(command), tmp_path / "sets", "--size", 8, "--workers", 0, "--strict")
        assert ran.code == 0, ran.err
        assert rawpack.Reader(tmp_path / "sets", split="valid").classes == ("fir", "oak", "yew")


@pytest.mark.parametrize(
    ("first", "line"), [(["oak", "oak", "fir"], False), (["oak", "fir", "oak"], True), (["oak", "yew"], False)]
)
def test_of_a_long_parquet_file_the_first_rows_are_compared(
    first: list[str], line: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may lack classes; those that they have and the split lacks are said."""
    tables = pytest.importorskip("rawpack_packer.sources.parquet.tables")
    monkeypatch.setattr(tables, "_FIRST", 2)
    for split, classes in (("train", first), ("valid", ["oak", "yew"])):
        _parquet(tmp_path, classes).rename(tmp_path / f"{split}.parquet")
    assert bool(open_source(tmp_path / "valid.parquet").info.doubts) == line


@pytest.mark.parametrize("made", [_folder, _zip, _tar])
@pytest.mark.parametrize("above", ["", "data/"])
def test_a_split_in_an_archive_next_to_one_of_other_classes(made: Made, above: str, tmp_path: Path) -> None:
    folders = ("train/fir", "train/oak", "train/yew", "valid/oak", "valid/yew")
    source = made(tmp_path, [above + folder for folder in folders])
    path = source / above / "valid"
    (doubt,) = open_source(path).info.doubts
    assert doubt.startswith("train next to valid has other classes")
    (command,) = re.findall("`rawpack (.*?) DST`", doubt)
    ran = run_here(*shlex.split(command), tmp_path / "sets", "--size", 8, "--workers", 0, "--strict")
    assert ran.code == 0, ran.err
    assert rawpack.Reader(tmp_path / "sets", split="valid").classes == ("fir", "oak", "yew")


def test_splits_whose_class_folders_differ_in_depth(tmp_path: Path) -> None:
    _folder(tmp_path, ["train/x/oak", "train/x/yew", "val/oak", "val/yew"])
    with pytest.raises(UsageError, match="differ in depth"):
        rawpack_packer.pack_splits(tmp_path / "set", tmp_path / "sets", splits=["train", "val"], size=8, workers=0)


def test_a_column_of_splits_is_asked_about(tmp_path: Path) -> None:
    """Of samples in memory as of files, before anything is written; the option keeps the column."""
    values = ["Training", "PublicTest", "Training"]
    samples = [{"image": np.zeros((8, 8, 3), np.uint8), "part": value} for value in values]
    with pytest.raises(UsageError, match="column part of"):
        rawpack_packer.pack(samples, tmp_path / "one", size=8, workers=0)
    assert not (tmp_path / "one").exists()
    rawpack_packer.pack(samples, tmp_path / "kept", size=8, workers=0, fields={"part": "str"}, strict=True)
    assert [sample["part"] for sample in rawpack.Reader(tmp_path / "kept")] == values


def test_a_column_of_splits_does_not_hide_one_of_classes(tmp_path: Path) -> None:
    """The column that divides a table is no candidate for the label: the other one is still named."""
    rows = [f"{n}.png,{('oak', 'elm')[n % 2]},{('train', 'val')[n % 3 == 0]}" for n in range(12)]
    (tmp_path / "list.csv").write_text("\n".join(["path,tree,part", *rows]) + "\n")
    for n in range(12):
        Image.new("RGB", (8, 8), (20 * n, 0, 0)).save(tmp_path / f"{n}.png")
    ran = run_here("pack", "--split-by", "part", "--workers", 0, tmp_path / "list.csv", tmp_path / "set")
    assert ran.code == 0, ran.err
    assert "'tree' is a field: --label-column tree" in ran.out
