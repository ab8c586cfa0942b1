"""Parquet files with images and folders of `save_to_disk`: the rows that Hugging Face `datasets` reads from them.

`tests/support/fixtures/huggingface/` was written by `datasets`, with what `datasets` reads from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from pictures import encoded, picture
from running import pack, reason_of
from test_source_conformance import write_again

import rawpack_packer
from rawpack import PackError, Reader, UsageError
from rawpack.errors import DecodeError
from rawpack_packer.sources import Source, open_source
from rawpack_packer.sources.fields import Boxes
from rawpack_packer.sources.parquet import tables
from rawpack_packer.testing import SourceConformance

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402 - after the check that there is one

MADE = Path(__file__).parents[1] / "support" / "fixtures" / "huggingface"
EXPECTED: dict[str, Any] = json.loads((MADE / "expected.json").read_text())
CLASSES = ("zebra", "ant", "eel")
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def jpeg(i: int, size: tuple[int, int] = (20, 30)) -> bytes:
    return encoded(picture(*size, i), "JPEG", quality=90)


def images(count: int, paths: Sequence[str | None] | None = None) -> Any:
    named = paths or [f"{i}.jpg" for i in range(count)]
    return pa.array([{"bytes": jpeg(i), "path": named[i]} for i in range(count)], IMAGE)


def write(path: Path, columns: dict[str, Any], **features: Any) -> Path:
    """A Parquet file with small row groups, and the metadata of `datasets` if there are features."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if features:
        known = {name: {"dtype": "string", "_type": "Value"} for name in table.schema.names}
        about = {"info": {"features": {**known, **features}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(about)})
    pq.write_table(table, path, row_group_size=3)
    return path


def save(folder: Path, columns: dict[str, Any]) -> Path:
    """A folder as `save_to_disk` writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table, max_chunksize=2)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


@pytest.mark.parametrize("name", ["checkout/train", "checkout/test", "saved", "divided/train", "divided/test"])
def test_rows_are_those_that_datasets_reads(name: str, tmp_path: Path) -> None:
    """Images, byte for byte, and all fields of a store are those of `datasets`; a missing text is the empty one, a
    missing float NaN."""
    store = tmp_path / "store"
    keep = [] if "saved" in name else ["--quality", "keep"]
    pack(MADE / name, store, "--format", "lmdb", "--size", "keep", *keep)
    source, reader, rows = open_source(MADE / name), Reader(store), EXPECTED[name]
    assert len(reader) == len(source) == len(rows)
    assert reader.classes == CLASSES
    for i, row in enumerate(rows):
        item, sample = source[i], reader[i]
        assert isinstance(item.image, bytes)
        assert hashlib.sha256(item.image).hexdigest() == row["sha256"]
        assert sample["key"] == (row["path"] or f"{i:08d}")
        assert sample["label"] == row["label"]
        assert sample["caption"] == (row["caption"] or "")
        assert sample["flag"] == row["flag"]
        assert sample["big"] == row["big"]
        np.testing.assert_array_equal(sample["score"], np.float32(np.nan if row["score"] is None else row["score"]))
        for name_of in ("vector", "ids", "grid"):
            np.testing.assert_array_equal(sample[name_of], row[name_of])
        np.testing.assert_array_equal(sample["corners"], np.array(row["corners"], np.float32).reshape(-1, 4))
        (x, y, width, height), category = row["objects"]["bbox"][0], row["objects"]["category"]
        assert sample["boxes"].tolist() == [[x, y, x + width, y + height, *category]]


def test_files_are_in_natural_order(tmp_path: Path) -> None:
    for k in (10, 2, 1):
        write(tmp_path / "d" / f"train-{k}.parquet", {"image": images(2, [f"{k}a", f"{k}b"])})
    source = open_source(tmp_path / "d")
    assert [source.key(i) for i in range(6)] == ["1a", "1b", "2a", "2b", "10a", "10b"]


def test_what_state_json_names(tmp_path: Path) -> None:
    folder = save(tmp_path / "d", {"image": images(3)})
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_files": [{"filename": "i.arrow"}]}
    for found, message in (
        (state, "_indices_files.*flatten_indices"),
        ({"_data_files": [{"filename": "../x.arrow"}]}, "outside its folder"),
        ({"_data_files": []}, "the dataset is empty"),
        ({"_data_files": 3}, "not what save_to_disk writes"),
    ):
        (folder / "state.json").write_text(json.dumps(found))
        with pytest.raises(UsageError, match=message):
            open_source(folder)


def test_which_columns_are_the_image_and_the_label(tmp_path: Path) -> None:
    """Those that metadata or types show; of several, the user names one, and another image may be a mask."""
    plain = write(tmp_path / "plain.parquet", {"file": pa.array([jpeg(0)], pa.large_binary()), "n": [1]})
    assert open_source(plain)[0].image == jpeg(0)
    two = write(tmp_path / "two.parquet", {"left": images(2), "right": images(2), "mask": images(2)})
    source = open_source(two, image_column="right", fields={"mask": "mask"})
    assert source.info.fields["mask"].mask
    assert source[1].fields["mask"] == jpeg(1)
    assert "--field left:image stores it as a further image, left:mask as a mask" in source.info.problems[0]
    sound, fine = {"_type": "Audio"}, {"names": ["x", "y"], "_type": "ClassLabel"}
    columns = {"sound": images(2), "img": images(2), "fine": [0, 1], "coarse": [1, 1]}
    about = {"sound": sound, "img": {"_type": "Image"}, "fine": fine, "coarse": fine}
    file = write(tmp_path / "a.parquet", columns, **about)
    assert (open_source(file).info.classes, list(open_source(file).info.fields)) == (None, ["fine", "coarse"])
    source = open_source(file, label_column="coarse")
    assert (source.info.classes, source.info.empty_classes) == (("x", "y"), ("x",))
    assert [source[i].fields["label"] for i in range(2)] == [1, 1]
    texts = pa.array(["dog", "cat", None, "dog"]).dictionary_encode()
    source = open_source(write(tmp_path / "3.parquet", {"img": images(4), "label": texts}))
    assert source.info.classes == ("cat", "dog")
    assert [source[i].fields["label"] for i in range(4)] == [1, 0, -1, 1]
    with pytest.raises(UsageError, match="the label of row 1 is 7; there are 2 classes"):
        open_source(write(tmp_path / "4.parquet", {"img": images(2), "label": [0, 7]}, label=fine))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"photo": ["a word"]}, {}, r"no column of images.*packed by --source listing --path COLUMN"),
        ({"label": pa.array([], pa.int64())}, {}, r"a\.parquet has no rows$"),
        ({"image": images(1), "index": [1]}, {"columns": "index"}, "already"),
        ({"image": images(1)}, {"fields": ["x:int"]}, r"--field x: .* no such column"),
        ({"image": images(1), "day": pa.array([1], pa.date32())}, {"columns": "day"}, "no field can store date32"),
        ({"image": images(2), "year": [1, None]}, {}, r"'year' .* no value in row 1: declare --field year:float64"),
        ({"image": images(3), "id": ["a", "b", "a"]}, {"key_column": "id"}, r"row 2 has 'a', as row 0 has: .* names"),
    ],
)
def test_what_cannot_be_packed_as_it_is_asked_for(
    columns: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "a.parquet", columns)
    with pytest.raises(UsageError, match=message):
        open_source(file, **options)


def pictures(folder: Path, count: int) -> list[str]:
    folder.mkdir(parents=True)
    for i in range(count):
        (folder / f"{i}.jpg").write_bytes(jpeg(i))
    return [f"{i}.jpg" for i in range(count)]


def test_parquet_files_of_paths_are_one_listing(tmp_path: Path) -> None:
    """A folder of them gives the store that the same rows in JSON Lines give, in the order of the files' names."""
    names = pictures(tmp_path / "img", 6)
    columns: dict[str, Any] = {"path": names, "label": [*"bacabc"], "score": [3.5, 1.5, None, 1.5, 5.5, 9.5]}
    lines = [json.dumps({name: values[i] for name, values in columns.items()}) for i in range(6)]
    (tmp_path / "whole.jsonl").write_text("\n".join(lines))
    for name, rows in (("p-2", slice(0, 1)), ("p-10", slice(1, 4)), ("p-9", slice(1, 1)), ("p-11", slice(4, 6))):
        turned = reversed(columns) if name == "p-10" else columns
        write(tmp_path / "parts" / f"{name}.parquet", {one: columns[one][rows] for one in turned})
    options = ("--size", "keep", "--images", tmp_path / "img")
    wanted = Reader(pack(tmp_path / "whole.jsonl", tmp_path / "one", *options))
    reader = Reader(pack(tmp_path / "parts", tmp_path / "several", *options))
    assert (reader.classes, reader.fields) == (wanted.classes, wanted.fields)
    for one, other in zip(reader, wanted, strict=True):
        for name in ("image", "label", "score", "key"):
            np.testing.assert_array_equal(one[name], other[name])


def test_structs_and_lists_of_lists_are_kept_as_json(tmp_path: Path) -> None:
    """A column of objects as `datasets` writes it, and lists of lists, as text of which json.loads makes the same
    again: the summary says what keeps them; bytes are taken as UTF-8."""
    objects = [{"path": [[1.0, 2.5]], "category": ["\u00e9"]}, None, {"path": [], "category": []}]
    columns = {
        "image": images(3), "objects": objects, "tags": [[["a", "b"]], [], None], "note": [b"x", b"\xc3\xa9", None],
        "day": pa.array([1, None, 2], pa.date32()),
    }  # fmt: skip
    file = write(tmp_path / "a.parquet", columns)
    problems = " ".join(open_source(file, image_column="image").info.problems)
    for name in ("objects", "tags"):
        assert f"--field {name}:str stores it as JSON" in problems
    source = open_source(file, image_column="image", fields=["objects:str", "tags:str", "note:str", "day:str"])
    found = {name: [source[i].fields[name] for i in range(3)] for name in source.info.fields}
    for name in ("objects", "tags"):
        assert [json.loads(str(one)) if one else None for one in found[name]] == columns[name]
    assert (found["note"], found["day"]) == (["x", "\u00e9", ""], ["1970-01-02", "", "1970-01-03"])


def test_columns_that_are_asked_for(tmp_path: Path) -> None:
    """`--columns` takes what it names; `--field` declares shapes and boxes."""
    boxes = pa.array([[[1, 2, 3, 4, 0]], []], pa.list_(pa.list_(pa.float32())))
    file = write(tmp_path / "a.parquet", {"image": images(2), "boxes": boxes, "note": ["a", "b"], "index": [1, 2]})
    info = open_source(file).info
    assert (list(info.fields), info.counts["columns_left_out"]) == (["note"], 2)
    assert "--field boxes:xyxy" in info.problems[0]
    assert list(open_source(file, columns="note").info.fields) == ["note"]
    assert list(open_source(file, columns=[]).info.fields) == []
    source = open_source(file, fields=["boxes:xyxy"])
    value = source[0].fields["boxes"]
    assert isinstance(value, Boxes)
    assert value.rows.tolist() == [[1, 2, 3, 4, 0]]
    assert source[1].fields["boxes"].rows.shape == (0, 5)  # type: ignore[union-attr]


def test_kinds_of_arrow_types(tmp_path: Path) -> None:
    """Large, dictionary-encoded and unsigned types are read like the others; a text that is not UTF-8, and a list of
    fixed length that is missing or lacks a number, reject their rows."""
    columns = {
        "image": pa.array([{"bytes": jpeg(i), "path": None} for i in range(3)],
                          pa.struct([("bytes", pa.large_binary()), ("path", pa.large_string())])),
        "big": pa.array([0, 2**63, 2**64 - 1], pa.uint64()),
        "half": pa.array(np.array([0, 0.5, 1], np.float16)),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
        "large": pa.array(["p", "q", "r"], pa.large_string()),
        "on": pa.array([True, False, True]),
        "some": pa.array([[1], None, []], pa.list_(pa.int32())),
        "bad": pa.array([b"ok", b"a\xff", b"c"], pa.binary()).view(pa.string()),
    }  # fmt: skip
    source = open_source(write(tmp_path / "a.parquet", columns))
    assert [kind.dtype for kind in source.info.fields.values()] == [
        "uint64", "float16", "str", "str", "bool", "int32", "str",
    ]  # fmt: skip
    item = source[2]
    assert [item.fields[name] for name in ("word", "large")] == ["x", "r"]
    assert [int(source[i].fields["big"]) for i in (0, 2)] == [0, 2**64 - 1]  # type: ignore[call-overload]
    with pytest.raises(DecodeError, match="row 1, column bad: byte 1 of the text is not UTF-8"):
        source[1]
    none = pa.array([1, None, 3], pa.int16())
    source = open_source(write(tmp_path / "c.parquet", {**columns, "bad": none}), fields=["bad:float64"])
    assert np.array_equal([source[i].fields["bad"] for i in range(3)], [1, np.nan, 3], equal_nan=True)
    assert [np.asarray(source[i].fields["some"]).tolist() for i in range(3)] == [[1], [], []]
    if int(pa.__version__.split(".")[0]) < 24:
        return  # which writes no such lists
    fixed = pa.array([[1, 2], None, [5, None]], pa.list_(pa.int32(), 2))
    source = open_source(write(tmp_path / "b.parquet", {"image": images(3), "fixed": fixed}))
    assert source[0].fields["fixed"].tolist() == [1, 2]  # type: ignore[union-attr]
    assert [reason_of(source, i) for i in range(3)] == ["", "bad_field", "bad_field"]


def test_keys_are_paths_only_where_each_is_another_safe_one(tmp_path: Path) -> None:
    """Otherwise they are the numbers of rows, and the summary says why; a column called key has them, too."""
    for paths, what in (
        (["a", "a"], "row 1 has 'a', as row 0 has"),
        (["a", None], "row 1 has no path"),
        (["../x", "b"], "row 0 has '../x', which is not below its folder"),
    ):
        source = open_source(write(tmp_path / "a.parquet", {"image": images(2, paths)}))
        assert (source.info.numbered, source.key(1)) == (True, "00000001")
        assert f"keys are the numbers of rows, not the paths: {what}" in str(source.info.problems)
    source = open_source(write(tmp_path / "b.parquet", {"image": images(2, ["a", "b"]), "key": ["x/1", "x/2"]}))
    assert [source.key(i) for i in range(2)] == ["x/1", "x/2"]
    assert open_source(write(tmp_path / "c.parquet", {"image": images(2), "key": ["x", "x"]})).info.numbered


@pytest.mark.parametrize("saved", [False, True])
def test_images_in_files_next_to_the_table(saved: bool, tmp_path: Path) -> None:
    """A path without bytes is a file below the table's folder, and nowhere else; it is watched for changes."""
    (tmp_path / "secret.jpg").write_bytes(jpeg(5))
    root = tmp_path / "d"
    pictures(root / "in", 1)
    paths = ["in/0.jpg", "1.jpg", "../secret.jpg", str(tmp_path / "secret.jpg"), "gone.jpg", None]
    values = [{"bytes": jpeg(1) if path == "1.jpg" else None, "path": path} for path in paths]
    columns = {"image": pa.array(values, IMAGE)}
    source = open_source(save(root, columns) if saved else write(root / "a.parquet", columns))
    assert [source[i].image for i in range(2)] == [jpeg(0), jpeg(1)]
    assert [reason_of(source, i) for i in range(6)] == ["", "", *["unreadable"] * 3, "empty"]
    assert len(source.states()) == 7
    os.utime(root / "in" / "0.jpg", ns=(10**18, 10**18))
    with pytest.raises(rawpack_packer.sources.SourceChangedError):
        source.part(0, 1)[0]


def test_a_row_group_is_read_once_and_never_held_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in order read each batch once, also across parts, even if all are one entry of a dictionary."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [jpeg(0)] * 40, "n": list(range(40))}), file)
    source, read, original = open_source(file), list[int](), tables.ParquetTable.read

    def counted(self: Any, leaves: Any, block: int) -> Any:
        for batch in original(self, leaves, block):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(tables, "_OPEN", threading.local())
    monkeypatch.setattr(tables, "_BATCH_ROWS", 8)
    monkeypatch.setattr(tables.ParquetTable, "read", counted)
    for start in range(0, 40, 8):
        part = source.part(start, start + 8)
        assert [part[i].fields["n"].item() for i in range(8)] == list(range(start, start + 8))  # type: ignore[union-attr]
    assert (sum(read), max(read)) == (40, 8)


def test_a_file_that_cannot_be_fetched_now_rejects_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stops a job, such as a server that is gone, is raised as it is: no row is called corrupt for it."""
    source = open_source(write(tmp_path / "a.parquet", {"image": images(4)}))
    gone = PackError("the server cannot be reached")
    monkeypatch.setattr("rawpack_packer.sources.table.named_files.NamedFiles.opened", mock.Mock(side_effect=gone))
    with pytest.raises(PackError, match="the server cannot be reached"):
        source[0]


def test_a_footer_that_would_crash_pyarrow(tmp_path: Path) -> None:
    """pyarrow 26 ends the process if it is asked for the sizes of the columns of this file. It is not asked: the
    rows are rejects."""
    shutil.copy(MADE.parent / "broken_footer.parquet", tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet", fields=["objects:str"])
    assert [source.key(i) for i in range(len(source))] == [row["path"] for row in EXPECTED["checkout/train"][:5]]
    for i in range(4):
        with pytest.raises(DecodeError, match=f"a.parquet: rows from {i // 2 * 2} on cannot be read"):
            source[i]


def test_files_that_do_not_fit_together_or_their_metadata(tmp_path: Path) -> None:
    """The error names the file or the row, of tables of images and of their paths."""
    write(tmp_path / "f" / "a.parquet", {"image": images(1), "n": [1]})
    write(tmp_path / "f" / "b.parquet", {"image": images(1), "n": [0.5]})
    with pytest.raises(UsageError, match=r"b.parquet has other columns than a.parquet \(columns n\)"):
        open_source(tmp_path / "f")
    junk = pa.table({"image": images(1)}).replace_schema_metadata({"huggingface": "{"})
    pq.write_table(junk, tmp_path / "g.parquet")
    with pytest.raises(UsageError, match="metadata `huggingface`"):
        open_source(tmp_path / "g.parquet")
    pictures(tmp_path / "data" / "img", 2)
    for k in range(2):
        write(tmp_path / "data" / f"p-{k}.parquet", {"path": [f"img/{2 * k}.jpg", "img/1.jpg"]})
    with pytest.raises(UsageError, match=rf"^{tmp_path}/data: row 2, column \(path\): there is no file img/2\.jpg"):
        open_source(tmp_path / "data", "listing")
    write(tmp_path / "data" / "p-1.parquet", {"path": ["img/1.jpg"], "age": [3]})
    with pytest.raises(UsageError, match=r"p-1\.parquet has other columns than p-0\.parquet: pack them separately"):
        open_source(tmp_path / "data", "listing")


@pytest.mark.skipif(sys.platform != "linux", reason="packs by worker processes")
class TestCheckout(SourceConformance):
    def open(self, folder: Path) -> Source:
        if not (folder / "data").exists():
            shutil.copytree(MADE / "checkout" / "data", folder / "data")
        return open_source(folder / "train")

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        files = sorted((folder / "data").glob("train*"))
        rows = [row for file in files for row in pq.read_table(file, columns=["image"]).to_pylist()]
        return [(row["image"]["path"], row["image"]["bytes"]) for row in rows]

    def change(self, folder: Path) -> bool:
        write_again(folder / "data" / "train-00000-of-00002.parquet")
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="packs by worker processes")
class TestSaved(SourceConformance):
    def open(self, folder: Path) -> Source:
        if not (folder / "d").exists():
            rows = [{"bytes": [jpeg(i), b"", None][i % 3], "path": None} for i in range(7)]
            save(folder / "d", {"image": pa.array(rows, IMAGE), "label": list("abcabca"), "n": list(range(7))})
        return open_source(folder / "d")

    def change(self, folder: Path) -> bool:
        write_again(folder / "d" / "data-00000-of-00001.arrow")
        return True

    def test_workers_pack_what_one_process_packs(self, tmp_path: Path) -> None:
        """`TestCheckout` has it."""
