"""Parquet files with images and folders of `save_to_disk`: the rows that Hugging Face `datasets` reads from them.

`tests/support/fixtures/huggingface/` was written by `datasets`, with what `datasets` reads from it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from mutated import cut, some_bytes
from pictures import encoded, picture
from reading import SOAK
from running import pack, reason_of

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.errors import DecodeError, PackError
from rawpack_packer.sources import FieldKind, Item, Source, open_source
from rawpack_packer.sources.fields import Boxes
from rawpack_packer.sources.parquet import tables
from rawpack_packer.sources.parquet.source import open_parquet
from rawpack_packer.sources.table.named_files import NamedFiles
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


def described(table: Any, **features: Any) -> Any:
    """A table with the metadata of `datasets`."""
    known = {name: {"dtype": "string", "_type": "Value"} for name in table.schema.names}
    text = json.dumps({"info": {"features": {**known, **features}}})
    return table.replace_schema_metadata({"huggingface": text})


def write(path: Path, columns: dict[str, Any], **features: Any) -> Path:
    """A Parquet file with small row groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    pq.write_table(described(table, **features) if features else table, path, row_group_size=3)
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


# ---------------------------------------------------------------------------------------------- as `datasets` reads it


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


# ---------------------------------------------------------------------------------------------- which files


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


# ---------------------------------------------------------------------------------------------- which columns


def test_the_image_column(tmp_path: Path) -> None:
    """It is the one that metadata or types show; with several, the user names one, and another may be a mask."""
    plain = write(tmp_path / "plain.parquet", {"file": pa.array([jpeg(0)], pa.large_binary()), "n": [1]})
    assert open_source(plain)[0].image == jpeg(0)
    two = write(tmp_path / "two.parquet", {"left": images(2), "right": images(2), "mask": images(2)})
    source = open_source(two, image_column="right", fields={"mask": "mask"})
    assert source.info.fields["mask"].mask
    assert source[1].fields["mask"] == jpeg(1)
    assert source.info.counts["columns_left_out"] == 1
    assert "--field left:image stores it as a further image, left:mask as a mask" in source.info.problems[0]
    sound = write(
        tmp_path / "s.parquet", {"sound": images(1), "img": images(1)}, sound={"_type": "Audio"}, img={"_type": "Image"}
    )
    assert list(open_source(sound).info.fields) == []


LISTS = pa.array([[{"bytes": b"", "path": ""}]], pa.list_(IMAGE))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"photo": ["a word"]}, {}, r"no column of images.*packed by --source listing --path COLUMN"),
        ({"image": pa.array([], pa.null())}, {}, r"a\.parquet has no rows$"),
        ({"label": pa.array([], pa.int64())}, {}, r"a\.parquet has no rows$"),
        ({"pages": LISTS}, {"image_column": "pages"}, r"--image-column pages: .*split a list of images"),
        ({"image": images(1), "index": [1]}, {"columns": "index"}, "already"),
        ({"image": images(1)}, {"columns": "x"}, "no such"),
        ({"image": images(1)}, {"fields": ["x:int"]}, r"--field x: .* no such column"),
        ({"image": images(1), "day": pa.array([1], pa.date32())}, {"columns": "day"}, "no field can store date32"),
        ({"image": images(1), "raw": [{"b": b"x"}]}, {"fields": ["raw:str"]}, "column 'raw' cannot be a field: .*text"),
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


def test_parts_of_a_listing_that_do_not_fit(tmp_path: Path) -> None:
    """The error names the folder and the row, or the file."""
    names = pictures(tmp_path / "data" / "img", 4)
    for k in range(2):
        write(tmp_path / "data" / f"p-{k}.parquet", {"path": [f"img/{one}" for one in names[2 * k : 2 * k + 2]]})
    (tmp_path / "data" / "img" / "2.jpg").unlink()
    with pytest.raises(UsageError, match=rf"^{tmp_path}/data: row 2, column \(path\): there is no file img/2\.jpg"):
        open_source(tmp_path / "data", "listing")
    write(tmp_path / "data" / "p-1.parquet", {"path": ["img/1.jpg"], "age": [3]})
    with pytest.raises(UsageError, match=r"p-1\.parquet has other columns than p-0\.parquet: pack them separately"):
        open_source(tmp_path / "data", "listing")
    (tmp_path / "data" / "p-1.parquet").write_bytes(b"PAR1 is not all")
    with pytest.raises(UsageError, match=r"p-1\.parquet cannot be read as Parquet"):
        open_source(tmp_path / "data", "listing")


def test_which_column_is_the_label(tmp_path: Path) -> None:
    """The only column of classes is the label; of several, the user names one; texts are names of classes."""
    fine = {"names": ["x", "y"], "_type": "ClassLabel"}
    one = write(tmp_path / "1.parquet", {"img": images(2), "labels": [1, None]}, labels=fine)
    source = open_source(one)
    assert (source.info.classes, list(source.info.fields)) == (("x", "y"), ["label"])
    assert [source[i].fields["label"] for i in range(2)] == [1, -1]
    two = write(tmp_path / "2.parquet", {"img": images(2), "fine": [0, 1], "coarse": [1, 1]}, fine=fine, coarse=fine)
    assert (open_source(two).info.classes, list(open_source(two).info.fields)) == (None, ["fine", "coarse"])
    source = open_source(two, label_column="coarse")
    assert (source.info.classes, list(source.info.fields)) == (("x", "y"), ["label", "fine"])
    assert source.info.empty_classes == ("x",)
    texts = pa.array(["dog", "cat", None, "dog"]).dictionary_encode()
    source = open_source(write(tmp_path / "3.parquet", {"img": images(4), "label": texts}))
    assert source.info.classes == ("cat", "dog")
    assert [source[i].fields["label"] for i in range(4)] == [1, 0, -1, 1]
    with pytest.raises(UsageError, match="the label of row 1 is 7; there are 2 classes"):
        open_source(write(tmp_path / "4.parquet", {"img": images(2), "label": [0, 7]}, label=fine))
    source = open_source(write(tmp_path / "5.parquet", {"img": images(2), "label": [0.5, None]}))
    assert (source.info.classes, source.info.fields["label"]) == (None, FieldKind("float64"))


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


def test_missing_values(tmp_path: Path) -> None:
    """They are NaN, an empty text or an empty list, wherever in a batch they come first."""
    columns = {
        "image": images(5),
        "year": pa.array([1, 2, 3, 4, None], pa.int16()),
        "note": ["a", None, "c", "d", "e"],
        "x": pa.array([None, 1, 2, 3, 4], pa.float64()),
        "some": pa.array([[1], None, [], [2, 3], [4]], pa.list_(pa.int32())),
    }
    file = write(tmp_path / "a.parquet", columns)
    reader = Reader(pack(file, tmp_path / "s", "--field", "year:float64"))
    assert [one["note"] for one in reader] == ["a", "", "c", "d", "e"]
    assert [one["some"].tolist() for one in reader] == [[1], [], [], [2, 3], [4]]
    np.testing.assert_array_equal(reader.column("year"), [1, 2, 3, 4, np.nan])
    np.testing.assert_array_equal(reader.column("x"), [np.nan, 1, 2, 3, 4])


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 24, reason="pyarrow writes no such lists before 24")
def test_missing_values_of_fixed_lists(tmp_path: Path) -> None:
    """A list of fixed length that is missing, or lacks a number, rejects its row, which it names."""
    fixed = pa.array([[1, 2], None, [3, 4], [5, None], [7, 8]], pa.list_(pa.int32(), 2))
    source = open_source(write(tmp_path / "a.parquet", {"image": images(5), "fixed": fixed}))
    assert source[0].fields["fixed"].tolist() == [1, 2]  # type: ignore[union-attr]
    for i, what in ((1, "the value is missing"), (3, "no array of numbers")):
        with pytest.raises(DecodeError, match=f"a.parquet, row {i}, column fixed: .*{what}") as refused:
            source[i]
        assert refused.value.reason == "bad_field"


def test_kinds_of_arrow_types(tmp_path: Path) -> None:
    """Large, dictionary-encoded and unsigned types are read like the others; text that is not UTF-8 is a reject."""
    columns = {
        "image": pa.array([{"bytes": jpeg(i), "path": None} for i in range(3)],
                          pa.struct([("bytes", pa.large_binary()), ("path", pa.large_string())])),
        "big": pa.array([0, 2**63, 2**64 - 1], pa.uint64()),
        "half": pa.array(np.array([0, 0.5, 1], np.float16)),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
        "large": pa.array(["p", "q", "r"], pa.large_string()),
        "on": pa.array([True, False, True]),
        "bad": pa.array([b"ok", b"a\xff", b"c"], pa.binary()).view(pa.string()),
    }  # fmt: skip
    source = open_source(write(tmp_path / "a.parquet", columns))
    assert [kind.dtype for kind in source.info.fields.values()] == ["uint64", "float16", "str", "str", "bool", "str"]
    item = source[2]
    assert [item.fields[name] for name in ("word", "large")] == ["x", "r"]
    assert [int(source[i].fields["big"]) for i in (0, 2)] == [0, 2**64 - 1]  # type: ignore[call-overload]
    with pytest.raises(DecodeError, match="row 1, column bad: byte 1 of the text is not UTF-8"):
        source[1]


# ---------------------------------------------------------------------------------------------- keys and images


@pytest.mark.parametrize(
    ("paths", "what"),
    [
        (["a", "a"], "row 1 has 'a', as row 0 has"),
        (["a", None], "row 1 has no path"),
        (["/etc/x", "b"], "row 0 has '/etc/x', which is not below its folder"),
        (["../x", "b"], "row 0 has '../x', which is not below its folder"),
        (["", "b"], "row 0 has no path"),
    ],
)
def test_why_keys_are_row_numbers(paths: list[str | None], what: str, tmp_path: Path) -> None:
    """Keys are the paths only where each image has another safe one; otherwise the summary says why not."""
    source = open_source(write(tmp_path / "a.parquet", {"image": images(2, paths)}))
    assert (source.info.numbered, source.key(1)) == (True, "00000001")
    assert f"keys are the numbers of rows, not the paths: {what}" in str(source.info.problems)


def test_a_column_called_key(tmp_path: Path) -> None:
    """It has the keys, if it has no doubles."""
    source = open_source(write(tmp_path / "b.parquet", {"image": images(2, ["a", "b"]), "key": ["x/1", "x/2"]}))
    assert ([source.key(i) for i in range(2)], source.info.problems) == (["x/1", "x/2"], ())
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


@pytest.mark.parametrize("same", [False, True])
def test_a_row_group_is_read_once_and_never_held_as_a_whole(same: bool, tmp_path: Path) -> None:
    """Rows in order read each batch once, also across parts; a batch is a bounded share of a row group, even if all
    rows are one entry of a dictionary."""
    draw = np.random.default_rng(0)
    noise = [draw.bytes(1 << 14) for _ in range(1 if same else 40)] * (40 if same else 1)
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": noise, "n": list(range(40))}), file)
    source = open_source(file)
    read = []
    with (
        mock.patch.object(tables, "_OPEN", tables.threading.local()),
        mock.patch.object(tables, "_BATCH_ROWS" if same else "_BATCH_BYTES", 8 if same else 1 << 17),
    ):
        original = tables.ParquetTable.read

        def counted(self: Any, leaves: Any, block: int) -> Any:
            for batch in original(self, leaves, block):
                read.append(batch.num_rows)
                yield batch

        with mock.patch.object(tables.ParquetTable, "read", counted):
            for start in range(0, 40, 8):
                part = source.part(start, start + 8)
                assert [part[i].fields["n"].item() for i in range(8)] == list(range(start, start + 8))  # type: ignore[union-attr]
    assert sum(read) == 40
    assert max(read) <= 8


# ---------------------------------------------------------------------------------------------- untrusted files


@pytest.mark.parametrize("name", ["checkout/data/test-00000-of-00001.parquet", "saved/data-00000-of-00002.arrow"])
def test_broken_files_are_refused_or_rejected(name: str, tmp_path: Path) -> None:
    """Whatever is wrong with its bytes, a file is a UsageError that names it, or its samples are rejects."""
    data, file = (MADE / name).read_bytes(), tmp_path / Path(name).name
    refusals, details, readable = list[str](), list[str](), 0
    for seed in range(60 if SOAK else 30):
        draw = random.Random(seed)
        file.write_bytes(draw.choice([some_bytes, some_bytes, cut])(data, draw))
        try:
            source = open_parquet(file)
        except UsageError as error:
            refusals.append(str(error))
            continue
        for i in range(len(source)):
            try:
                readable += isinstance(source[i], Item)
            except DecodeError as error:
                details.append(error.detail)
    assert all(str(file) in text and text.isprintable() for text in refusals)
    assert not any(str(tmp_path) in text for text in details)
    assert min(len(refusals), readable) > 5


def test_a_footer_that_would_crash_pyarrow(tmp_path: Path) -> None:
    """pyarrow 26 ends the process if it is asked for the sizes of the columns of this file. It is not asked: the
    rows are rejects."""
    shutil.copy(MADE.parent / "broken_footer.parquet", tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet", fields=["objects:str"])
    assert [source.key(i) for i in range(len(source))] == [row["path"] for row in EXPECTED["checkout/train"][:5]]
    for i in range(4):
        with pytest.raises(DecodeError, match=f"a.parquet: rows from {i // 2 * 2} on cannot be read"):
            source[i]


def test_damage_in_one_row_group_leaves_the_others(tmp_path: Path) -> None:
    """Rows that cannot be read are rejects, the same from whichever end they are read; others are read."""
    file = write(tmp_path / "a.parquet", {"image": images(9), "n": list(range(9))})
    about = pq.ParquetFile(file).metadata.row_group(1).column(0)
    data = bytearray(file.read_bytes())
    data[about.data_page_offset + 20 : about.data_page_offset + 900] = b"\xa5" * 880
    file.write_bytes(bytes(data))
    reasons = [reason_of(open_source(file), i) for i in range(9)]
    source = open_source(file)
    assert [reason_of(source, i) for i in reversed(range(9))][::-1] == reasons
    assert {i for i in range(9) if reasons[i]} <= {3, 4, 5}


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.parquet", b""), ("b.parquet", b"PARE" * 9), ("c.arrow", b"ARROW1\0\0" * 9)],
)
def test_files_that_are_something_else(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=rf"{name} cannot be read as (parquet|arrow): "):
        open_source(tmp_path / name)


def test_files_that_do_not_fit_together_or_their_metadata(tmp_path: Path) -> None:
    write(tmp_path / "f" / "a.parquet", {"image": images(1), "n": [1]})
    write(tmp_path / "f" / "b.parquet", {"image": images(1), "n": [0.5]})
    with pytest.raises(UsageError, match=r"b.parquet has other columns than a.parquet \(columns n\)"):
        open_source(tmp_path / "f")
    junk = pa.table({"image": images(1)}).replace_schema_metadata({"huggingface": "{"})
    pq.write_table(junk, tmp_path / "g.parquet")
    with pytest.raises(UsageError, match="metadata `huggingface`"):
        open_source(tmp_path / "g.parquet")


# ---------------------------------------------------------------------------------------------- the contract


def write_again(path: Path) -> None:
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(10**18, 10**18))


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


def test_a_file_that_cannot_be_fetched_now_rejects_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stops a job, such as a server that is gone, is raised as it is: no row is called corrupt for it."""
    source = open_source(write(tmp_path / "a.parquet", {"image": images(4), "label": list(range(4))}))

    def lost(*_: Any, **__: Any) -> Any:
        raise PackError("the server cannot be reached")

    with monkeypatch.context() as patch:
        patch.setattr(NamedFiles, "opened", lost)
        with pytest.raises(PackError, match=r"^the server cannot be reached$"):
            source[0]
    assert source[0]
