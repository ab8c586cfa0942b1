"""What may be a mistake about classes and splits: a line, an error under `strict`, and neither once an option settles
it; whatever the kind of the source is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import every_kind
import numpy as np
import pytest
from running import run_here

import rawpack
import rawpack_packer
from rawpack.errors import UsageError
from rawpack_packer.sources import open_source


def made(kind: str, root: Path, classes: list[str]) -> Any:
    """A source with an image of each of these classes."""
    if kind == "samples":
        return [{"image": np.zeros((8, 8, 3), np.uint8), "label": name} for name in classes]
    return every_kind.made(kind, root, classes, every_kind.pictures(*(f"{i}.png" for i in range(len(classes)))))


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


@pytest.mark.parametrize(
    ("kind", "classes", "line"),
    [
        ("folder", ["7", "8", "10"], "class 10 has the label 0"),
        ("parquet", ["7", "8", "10"], "class 10 has the label 0"),
        ("csv", ["a", "Oak", "oak"], "Oak and oak differ in case only"),
        ("samples", ["a", "Oak", "oak"], "Oak and oak differ in case only"),
    ],
)
def test_names_of_classes_that_may_be_a_mistake(kind: str, classes: list[str], line: str, tmp_path: Path) -> None:
    names: Any = classes
    source = made(kind, tmp_path, classes)
    if isinstance(source, Path):
        names = tmp_path / "names.txt"
        names.write_text("\n".join(classes))
    store = settled(source, tmp_path, line, classes=names)
    assert (store.classes, _classes(store)) == (tuple(classes), sorted(classes))


def packs_as_told(doubt: str, sets: Path) -> None:
    """The command in a doubt packs the splits, of which one has fewer classes, with the classes of all."""
    (command,) = re.findall("`rawpack (.*?) DST`", doubt)
    ran = run_here(*shlex.split(command), sets, "--size", 8, "--workers", 0, "--strict")
    assert ran.code == 0, ran.err
    assert rawpack.Reader(sets, split="valid").classes == ("fir", "oak", "yew")


@pytest.mark.parametrize(("kind", "divides"), [("zip", False), ("csv", False), ("parquet", True)])
def test_a_split_in_a_file_next_to_one_of_other_classes(kind: str, divides: bool, tmp_path: Path) -> None:
    """Whatever holds the splits; the command that is printed gives both the same classes."""
    (tmp_path / "both").mkdir()
    for classes, split in ((["fir", "oak", "yew"], "train"), (["oak", "yew"], "valid")):
        (tmp_path / split).mkdir()
        source = made(kind, tmp_path / split, classes)
        for file in (tmp_path / split).iterdir():
            file.rename(tmp_path / "both" / (f"{split}{source.suffix}" if file.name == source.name else file.name))
    path = tmp_path / "both" / f"valid{source.suffix}"
    names = tmp_path / "names.txt"
    names.write_text("fir\noak\nyew\n")
    line = f"train{source.suffix} next to {path.name} has other classes"
    assert _classes(settled(path, tmp_path, line, classes=names)) == ["oak", "yew"]
    (doubt,) = open_source(path).info.doubts
    assert ("--splits" in doubt) == divides
    if divides:
        packs_as_told(doubt, tmp_path / "sets")


@pytest.mark.parametrize(("kind", "above"), [("folder", ""), ("zip", "data/"), ("tar", "data/"), ("tar", "")])
def test_a_split_in_a_folder_next_to_one_of_other_classes(kind: str, above: str, tmp_path: Path) -> None:
    """Also of an archive."""
    folders = ("train/fir", "train/oak", "train/yew", "valid/oak", "valid/yew")
    source = made(kind, tmp_path, [above + folder for folder in folders])
    (doubt,) = open_source(source / above / "valid").info.doubts
    assert doubt.startswith("train next to valid has other classes")
    packs_as_told(doubt, tmp_path / "sets")


@pytest.mark.parametrize("kind", ["csv", "parquet", "samples"])
def test_a_column_of_splits_is_asked_about(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["Training", "PublicTest", "Training"]
    monkeypatch.chdir(tmp_path)
    source = made(kind, tmp_path, values)
    if kind == "samples":
        source = [{"image": one["image"], "part": one["label"]} for one in source]
    if kind == "csv":
        source.write_text(source.read_text().replace("label", "part"))
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"image": [every_kind.png(0)] * 3, "part": values}), source)
    with pytest.raises(UsageError, match="column part of") as caught:
        rawpack_packer.pack(source, tmp_path / "one", size=8, workers=0)
    assert not (tmp_path / "one").exists()
    rawpack_packer.pack(source, tmp_path / "kept", size=8, workers=0, fields={"part": "str"}, strict=True)
    assert [sample["part"] for sample in rawpack.Reader(tmp_path / "kept")] == values
    if kind != "samples":
        (command,) = re.findall("`rawpack (.*?)`", str(caught.value))
        ran = run_here(*shlex.split(command), "--size", 8, "--workers", 0)
        assert ran.code == 0, ran.err
        assert len(rawpack.Reader(tmp_path / "one", split="Training")) == 2
