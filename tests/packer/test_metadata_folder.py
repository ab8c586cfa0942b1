"""A folder with a metadata.csv is that listing, as Hugging Face's ImageFolder has it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture, save
from running import pack, run_here, stop_of

from rawpack import Reader, UsageError
from rawpack_packer.sources import DividedError, open_source

SMALL = ("--size", 8)
Rows = Sequence[Mapping[str, Any]]


def write(file: Path, rows: Rows) -> None:
    """The table, by the suffix of its name."""
    if file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def image_folder(root: Path, count: int = 4) -> Path:
    """Images and their table, in which the order, the texts and the labels are not those of the names."""
    for i in range(count):
        save(root / f"{i:04}.png", picture(12, 12, i))
    rows = [{"file_name": f"{i:04}.png", "text": f"a, {i}", "label": "ba"[i % 2]} for i in range(count)]
    write(root / "metadata.csv", rows[::-1])
    return root


def test_one_table_may_list_all_splits(tmp_path: Path) -> None:
    """A table at the top that names train/0.png serves each split, and all of them together."""
    data, names = tmp_path / "data", [f"{split}/{i}.png" for split in ("train", "val") for i in range(2)]
    for i, name in enumerate(names):
        save(data / name, picture(12, 12, i))
    write(data / "metadata.csv", [{"file_name": name, "text": f"a {i}"} for i, name in enumerate(names)][::-1])
    with pytest.raises(DividedError, match=r"--splits train,val .*--source listing packs them as one set"):
        open_source(data)
    assert len(open_source(data, "listing")) == 4
    pack(data, tmp_path / "sets", *SMALL, "--splits", "train,val")
    for first, split in ((0, "train"), (2, "val")):
        texts = {one["key"]: one["text"] for one in Reader(tmp_path / "sets" / split)}
        assert texts == {"0.png": f"a {first}", "1.png": f"a {first + 1}"}


def class_folders(root: Path) -> Path:
    for i, name in enumerate(("cat/0", "cat/1", "dog/0", "dog/1")):
        save(root / f"{name}.png", picture(12, 12, i))
    return root


@pytest.mark.parametrize(
    ("column", "values", "wanted"),
    [
        ("text", ["a", "b", "c", "d"], ["dog", "cat", "cat", "dog"]),
        ("label", ["x0", "x1", "x0", "x1"], ["x0", "x1", "x0", "x1"]),
        ("label", ["cat", "", "cat", ""], ["cat", "cat", "cat", None]),
    ],
)
def test_folders_label_what_the_table_does_not(
    column: str, values: list[str], wanted: list[str | None], tmp_path: Path
) -> None:
    """A table with a label wins over class folders; without one, the folders stay the classes; a label that is missing
    is that of the folder where the table knows that class."""
    root = class_folders(tmp_path / "data")
    names = [f"{name}.png" for name in ("dog/0", "cat/1", "cat/0", "dog/1")]
    write(root / "metadata.csv", [{"file_name": n, column: v} for n, v in zip(names, values, strict=True)])
    source = open_source(root)
    classes, numbers = source.info.classes or (), [int(np.asarray(source[i].fields["label"])) for i in range(4)]
    assert [source.key(i) for i in range(4)] == names
    assert [classes[n] if n >= 0 else None for n in numbers] == wanted
    assert source.info.counts["unlabelled"] == wanted.count(None)


def test_folders_do_not_name_the_classes_of_boxes(tmp_path: Path) -> None:
    """Which are numbers, and those of folders are others."""
    root = class_folders(tmp_path / "data")
    boxes = {"cat/0.png": [5, 2, 3, 4, 0], "dog/0.png": [1, 2, 3, 4, 2]}
    rows = [{"file_name": n, "objects": {"bbox": [box[:4]], "category": box[4:]}} for n, box in boxes.items()]
    write(root / "metadata.jsonl", rows)
    reader = Reader(pack(root, tmp_path / "store", "--size", "keep"))
    assert (reader.classes, "label" in reader.fields) == (None, False)
    assert [one["boxes"].tolist() for one in reader] == [[[5, 2, 8, 6, 0]], [[1, 2, 4, 6, 2]]]


def test_a_single_folder_of_images_is_no_class(tmp_path: Path) -> None:
    """With the images in `images/`, as in the docs of the Hub, there is no class called images."""
    save(tmp_path / "data/images/0.png", picture(12, 12, 0))
    write(tmp_path / "data/metadata.csv", [{"file_name": "images/0.png", "text": "a"}])
    assert list(open_source(tmp_path / "data").info.fields) == ["text"]


def test_what_table_and_folder_do_not_share_is_counted(tmp_path: Path) -> None:
    """Images that are not listed and lines without an image are left out, in the summary's words; --strict stops."""
    root = image_folder(tmp_path / "data")
    save(root / "more/x.png", picture(12, 12, 9))
    with (root / "metadata.csv").open("a") as file:
        file.write("gone.png,t,a\nlost.png,t,a\n")
    ran = run_here("pack", "--workers", 0, *SMALL, root, tmp_path / "store")
    assert ran.code == 0, ran.err
    assert "2 lines of metadata.csv without an image in the folder, left out: line 6 names 'gone.png'" in ran.out
    assert "1 image that metadata.csv does not list, left out: more/x.png" in ran.out
    assert len(Reader(tmp_path / "store")) == 4
    counts = open_source(root).info.counts
    assert (counts["no_file"], counts["not_listed"]) == (2, 1)
    for command, store in (("pack", "strict"), ("append", "store")):
        said = stop_of(command, "--workers", 0, "--strict", root, tmp_path / store)
        assert "line 6 names 'gone.png'; 1 image that metadata.csv does not list" in said
    assert not (tmp_path / "strict").exists()


def test_other_names_of_the_column(tmp_path: Path) -> None:
    """A single column that ends in _file_name has the images; with several, the error names one to type."""
    root = image_folder(tmp_path / "data", 2)
    write(root / "metadata.csv", [{"image_file_name": f"{i:04}.png", "text": str(i)} for i in range(2)])
    assert list(open_source(root).info.fields) == ["text"]
    write(root / "metadata.csv", [{"left_file_name": "0000.png", "right_file_name": "0001.png"}])
    with pytest.raises(UsageError, match=r"left_file_name, right_file_name: name that of .*, such as --path left"):
        open_source(root)
    write(root / "metadata.jsonl", [{"file_name": "0000.png"}])
    with pytest.raises(UsageError, match=r"metadata.csv, metadata.jsonl: give one of them"):
        open_source(root)
