"""All kinds of source answer the same questions alike: a user who knows one knows the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_kind import HEIGHT, OTHERS, TABLES, WIDTH, Files, made, pictures, pixels_of, png, rows_of_hdf5
from folders import rejects_of
from running import run_here

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.errors import DecodeError
from rawpack_packer.sources import KINDS, Source, open_dataset, open_source

FILES = [name for name in TABLES if name != "columns"]
"""The tables that are files."""
CLASS_FOLDERS = ["folder", "tar", "zip", "video", "store"]
BOXED = ["coco", "voc", "yolo", "labelme", "cvat"]
"""Kinds whose classes are those of boxes."""
SHOWN_AS = {
    "litdata": {"mds"},  # the same columns by the same code
    "archive": {"tar", "zip"}, "arrays": {"npz"}, "listing": {"csv", "jsonl"},
    "lerobot": set(),  # episodes, whose features are what they are
}  # fmt: skip
"""Kind of source -> what it is called here, if otherwise."""


def opened(source: Any, **options: Any) -> Source:
    return open_source(source, **options) if isinstance(source, Path) else open_dataset(source, **options)


def test_every_kind_is_asked() -> None:
    """Whoever adds a kind of source adds it to these questions."""
    shown = {name for kind in KINDS for name in SHOWN_AS.get(kind, {kind})}
    assert shown == {*TABLES, *OTHERS} - {"columns"}, "tests/support/every_kind.py makes a source of each kind"


# ---------------------------------------------------------------------------------------------- labels
@pytest.mark.parametrize("kind", [*TABLES, "webdataset", *CLASS_FOLDERS, "coco", "labelme", "cvat"])
def test_labels_that_are_texts_are_names_of_classes(kind: str, tmp_path: Path) -> None:
    """Sorted, and numbered in that order."""
    source = opened(made(kind, tmp_path, ["dog", "cat", "dog"], pictures("0.png", "1.png", "2.png")))
    assert source.info.classes == ("cat", "dog")
    if kind not in BOXED:
        found = [int(source[i].fields["label"]) for i in range(len(source))]  # type: ignore[arg-type]
        assert found == ([0, 0, 1, 1, 1, 1] if kind == "video" else [0, 1, 1] if kind in CLASS_FOLDERS else [1, 0, 1])


@pytest.mark.parametrize("kind", [*TABLES, "webdataset", "voc", "cvat"])
def test_texts_must_be_among_the_classes(kind: str, tmp_path: Path) -> None:
    """Where the user names all classes, a label that is none of them is refused, and named."""
    source = made(kind, tmp_path, ["dog", "cat", "eel"], pictures("0.png", "1.png", "2.png"))
    with pytest.raises(UsageError, match=r"'eel'.* is none of the (2 )?classes"):
        opened(source, classes=["cat", "dog"])


@pytest.mark.parametrize("kind", [*FILES, "webdataset", "recordio", "yolo"])
def test_labels_that_are_numbers_have_the_names_that_are_given(kind: str, tmp_path: Path) -> None:
    """A number beyond them is refused, or rejects its image; a class without samples is empty."""
    source = made(kind, tmp_path, [2, 0, 2], pictures("0.png", "1.png", "2.png"))
    info = opened(source, classes=["a", "b", "c"]).info
    assert (info.classes, info.empty_classes) == (("a", "b", "c"), ("b",))
    assert (info.counts.get("unlabelled", 0), info.counts["empty_classes"]) == (0, 1)
    refusal = DecodeError if kind == "yolo" else UsageError
    with pytest.raises(refusal, match=r"\b2\W.*there are 2 classes, counted from 0"):
        opened(source, classes=["a", "b"])[0]


# ---------------------------------------------------------------------------------------------- columns
@pytest.mark.parametrize("kind", FILES)
def test_columns_of_labels_and_keys_are_named_by_options(kind: str, tmp_path: Path) -> None:
    """Keys that are not unique are refused, and one of them is named."""
    (tmp_path / "twice").mkdir()
    images, columns = pictures("0.png", "1.png"), {"species": ["dog", "cat"], "name": ["x", "y"]}
    source = opened(TABLES[kind](tmp_path, columns, images), label_column="species", key_column="name")
    assert (source.info.classes, int(source[0].fields["label"])) == (("cat", "dog"), 1)  # type: ignore[arg-type]
    assert [source.key(i) for i in range(2)] == ["x", "y"]
    with pytest.raises(UsageError, match=r"\bx\b"):
        opened(TABLES[kind](tmp_path / "twice", {"name": ["x", "x"]}, images), key_column="name")


@pytest.mark.parametrize("option", ["label_column", "key_column", "image_column"])
@pytest.mark.parametrize("kind", [*FILES, *OTHERS])
def test_a_column_that_is_missing_is_named(kind: str, option: str, tmp_path: Path) -> None:
    """With those that a table has, or with the kinds of source that have columns."""
    source = made(kind, tmp_path, [0, 1], pictures("0.png", "1.png"))
    takes = kind in FILES and not (option == "image_column" and kind in ("csv", "jsonl"))
    flag = f"--{option.replace('_', '-')}"
    words = (
        rf"{flag} nothing: .* has no such column: it has .*label" if takes else rf"takes no option {flag}: it belongs"
    )
    if option == "label_column" and kind in ("folder", "tar", "zip"):
        words = "--label-column nothing names a column of --labels-file"
    with pytest.raises(UsageError, match=words):
        opened(source, **{option: "nothing"})


@pytest.mark.parametrize("kind", TABLES)
def test_a_column_declared_as_images_holds_further_images(kind: str, tmp_path: Path) -> None:
    """By one word: gray or RGB pictures with the values of that column. A column that is not there is named."""
    images, others = pictures("0.png", "1.png"), [png(7), png(8)]
    values: Any = list(pixels_of([("", data) for data in others]))
    if kind in ("parquet", "mds", "tfrecord", "csv", "jsonl"):
        values = ["a.png", "b.png"] if kind in ("csv", "jsonl") else others
    table = TABLES[kind](tmp_path, {"other": values}, images)
    for name, data in zip(("a.png", "b.png"), others, strict=True):
        (tmp_path / name).write_bytes(data)
    source = opened(table, fields={"other": "image"})
    assert (source.info.fields["other"].image, source.info.fields["other"].shape[2]) == ("picture", 3)
    found: Any = source[1].fields["other"]
    pixels = pixels_of([("", found)])[0] if isinstance(found, bytes) else found
    np.testing.assert_array_equal(pixels, pixels_of([("", others[1])])[0])
    with pytest.raises(UsageError, match="nothing"):
        opened(table, fields={"nothing": "image"})


@pytest.mark.parametrize("kind", ["csv", "jsonl", "webdataset", "coco", "columns"])
def test_a_key_that_comes_twice_is_refused(kind: str, tmp_path: Path) -> None:
    """With the key, where nobody named a column of keys."""
    files = [("a.png", png(0)), ("a.png", png(1))]
    source = made(kind, tmp_path, [0, 1], files)
    options = {"keys": ["a.png", "a.png"]} if kind == "columns" else {}
    with pytest.raises(UsageError, match=r"'?\ba(\.png)?\b"):
        opened(source, **options)


# ---------------------------------------------------------------------------------------------- what is wrong in it
IN_FILES = [*(name for name in TABLES if name not in ("npz", "columns")), *(name for name in OTHERS if name != "store")]
"""Kinds that hold files: arrays have no image that is none, and a store rejected it when it was packed."""


@pytest.mark.parametrize("kind", IN_FILES)
def test_an_entry_that_is_no_image_is_rejected(kind: str, tmp_path: Path) -> None:
    """With one reason, whatever it is in, and the others are packed; more rejects than allowed end the job."""
    images = [("0.png", png(0)), ("1.png", b"no image at all"), ("2.png", png(2))]
    source, store = made(kind, tmp_path / "in", [0, 1, 2] if kind != "voc" else ["cat"] * 3, images), tmp_path / "store"
    reason = "corrupt" if kind == "video" else "not_an_image"
    ran = run_here("pack", "--workers", 0, "--size", 8, "--max-rejects", 0, source, store)
    assert (ran.code, reason in ran.err) == (1, True), ran
    rawpack_packer.pack(source, tmp_path / "other", size=8, workers=0, max_rejects="50%")
    assert len(Reader(tmp_path / "other")) == (4 if kind == "video" else 2)
    assert [one["reason"] for one in rejects_of(tmp_path / "other")] == [reason]


BAD: Files = [("a.png", png(1)), ("b\udcff.png", png(2))]


@pytest.mark.parametrize("kind", ["folder", "tar", "webdataset", "lmdb", "video", "jsonl"])
def test_a_name_that_is_not_utf8_is_rejected(kind: str, tmp_path: Path) -> None:
    """With one reason, and the others are packed. In a zip archive, any bytes are a name."""
    source = made(kind, tmp_path / "in", [] if kind == "lmdb" else [0, 1], BAD)
    rawpack_packer.pack(source, tmp_path / "store", size=8, workers=0, max_rejects="60%")
    assert len(Reader(tmp_path / "store")) == (2 if kind == "video" else 1)
    reason = "bad_field" if kind == "jsonl" else "bad_name"
    assert [one["reason"] for one in rejects_of(tmp_path / "store")] == [reason]


@pytest.mark.parametrize("kind", ["coco", "yolo"])
def test_a_name_that_is_not_utf8_is_refused_where_texts_name_images(kind: str, tmp_path: Path) -> None:
    """What belongs to an image is found by its name; nothing is written."""
    with pytest.raises(UsageError, match=r"surrogate pair|not UTF-8"):
        rawpack_packer.pack(made(kind, tmp_path / "in", [0, 1], BAD), tmp_path / "store", workers=0)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("kind", [*TABLES, *(name for name in OTHERS if name != "store")])
def test_a_source_without_samples_is_refused(kind: str, tmp_path: Path) -> None:
    """Nothing is written, and the source is named."""
    source = (
        rows_of_hdf5(tmp_path, {"x": np.zeros((0, HEIGHT, WIDTH, 3), np.uint8)}, [])  # type: ignore[dict-item]
        if kind == "hdf5"
        else made(kind, tmp_path / "in", [], [])
    )
    with pytest.raises(UsageError) as refused:
        rawpack_packer.pack(source, tmp_path / "store", workers=0)
    assert (source.name if isinstance(source, Path) else "dict") in str(refused.value)
    assert not (tmp_path / "store").exists()
