"""Listings: CSV, TSV and JSON lines, packed by the command, with columns that are seen to be what they are.

The oracle is what was written, and Pillow for pixels.
"""

from __future__ import annotations

import csv
import json
import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture, save
from PIL import Image
from running import FORMATS, pack, run_here, stop_of

from rawpack import Reader, UsageError
from rawpack_packer.sources import Source, open_source
from rawpack_packer.sources.listing.lines import BadListingError
from rawpack_packer.sources.table.choose import classes_of

COUNT = 70
"""More than one part of a store."""
PEOPLE = ("Ünï", "b, c", 'say "x"', "")


def row_of(i: int) -> dict[str, Any]:
    """The fields of one image, as JSON has them."""
    return {
        "path": f"img/{i:02d}.jpg",
        "label": ("dog", "cat", "naïve 猫")[i % 3],
        "first": i % 10,
        "second": (i * 7) % 10,
        "score": i / 7 if i % 5 else float(i),
        "vector": [i, 0.5, -i],
        "points": [[i, k] for k in range(i % 4)],
        "boxes": [[2, 3, 20 + k, 18, k] for k in range(i % 3)],
        "name": PEOPLE[i % 4],
        "good": bool(i % 2),
        "seg": f"seg/{i:02d}.png",
    }


KINDS: dict[str, tuple[str, tuple[int | None, ...]]] = {
    "label": ("int64", ()), "first": ("int64", ()), "second": ("int64", ()), "score": ("float64", ()),
    "vector": ("float64", (3,)), "points": ("int64", (None, 2)), "boxes": ("float32", (None, 5)),
    "name": ("str", ()), "good": ("bool", ()),
}  # fmt: skip
SAID = ("--field", "boxes:xyxy", "--field", "seg:mask")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images and masks, and three listings that say the same of them."""
    root = tmp_path_factory.mktemp("listing")
    for i in range(COUNT):
        save(root / f"img/{i:02d}.jpg", picture(20 + i % 5, 24, i))
        save(root / f"seg/{i:02d}.png", np.full((20 + i % 5, 24), i, np.uint8))
    rows = [row_of(i) for i in range(COUNT)]
    write_cells(root / "all.csv", rows)
    write_cells(root / "all.tsv", rows, "\t")
    write_lines(root / "all.jsonl", rows)
    return root


def write_cells(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    """CSV by Python's own writer; lists as JSON."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow(json.dumps(value) if isinstance(value, list) else value for value in row.values())
    return path


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Path]:
    """`small(text)`: a listing with that text, beside images."""
    folder = tmp_path / "in"
    for i, name in enumerate(("0.jpg", "1.jpg", "2.jpg", "3.jpg", "a photo.jpg", "sub/3.jpg")):
        save(folder / name, picture(8, 8, i))

    def write(text: str | bytes, name: str = "list.csv") -> Path:
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return folder / name

    return write


@pytest.mark.parametrize(("name", "layout"), [("all.csv", "memmap"), ("all.tsv", "hdf5"), ("all.jsonl", "lmdb")])
def test_every_column_comes_back(name: str, layout: str, place: Path, tmp_path: Path) -> None:
    """Labels, several classes, floats, vectors, ragged arrays, texts, boxes and masks are in every format what the
    listing says; `label` is the number of a class, in the order of sorted names."""
    store = pack(place / name, tmp_path / "store", "--size", "keep", *SAID, *FORMATS[layout])
    reader = Reader(store)
    assert [*reader.fields] == ["image", *KINDS, "seg", "key"]
    assert {name: (reader.fields[name].dtype, reader.fields[name].shape) for name in KINDS} == KINDS
    assert reader.classes == ("cat", "dog", "naïve 猫")
    for i, sample in enumerate(reader):
        row = row_of(i)
        assert sample["key"] == row["path"]
        assert sample["name"] == row["name"]
        assert reader.classes[sample["label"]] == row["label"]
        for field in ("first", "second", "score", "good"):
            assert sample[field] == row[field]
        for field in ("vector", "points", "boxes"):
            assert sample[field].tolist() == row[field]
        assert (sample["seg"] == i).all()
        assert sample["seg"].shape == (20 + i % 5, 24, 1)
        if layout != "lmdb":
            np.testing.assert_array_equal(sample["image"], np.asarray(Image.open(place / row["path"])))


@pytest.mark.parametrize(
    ("names", "words"),
    [(b"a\nb\na\n", "names, line 3 has 'a' again"), (b"a\n\nb\n", "line 2 has no name"), (b"a\n\xff\n", "not UTF-8")],
)
def test_classes_have_names_of_their_own(names: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "names").write_bytes(names)
    with pytest.raises(UsageError, match=words):
        classes_of(tmp_path / "names")


def test_cells_are_read_one_by_one(tmp_path: Path) -> None:
    """Cells that are lists only if they are put together are texts."""
    for cells in (["[1", "2],[3]"], ["[[1]", "[2]]", "[3],[4]"], ['["]', '"],[1]', "[2]"]):
        source = open_source(listed(tmp_path, ".csv", ["[0]", *cells, "x", "y"]), key_column="k")
        assert [source[i].fields["v"] for i in range(1, 1 + len(cells))] == cells


def test_a_changed_cell_or_mask_is_another_source(place: Path, tmp_path: Path) -> None:
    """A run that goes on with a listing of which one cell was changed, or with boxes that are read otherwise, is
    refused; touching the listing does not matter."""
    listing = write_lines(place / "mine.jsonl", [row_of(i) for i in range(3)])
    options = ("--size", "16", "--field", "boxes:xyxy")
    pack(listing, tmp_path / "s", *options)
    os.utime(listing, (1, 1))
    assert run_here("pack", "--workers", 0, *options, listing, tmp_path / "s").code == 0
    assert "the options of the source differ: " in stop_of(
        "pack", "--workers", 0, "--size", 16, "--field", "boxes:xywh", listing, tmp_path / "s"
    )
    write_lines(listing, [row_of(i) | {"first": 9} for i in range(3)])
    said = stop_of("pack", "--workers", 0, *options, listing, tmp_path / "s")
    assert "the source differs" in said
    assert "--restart" in said


def test_a_long_listing_takes_little_memory(tmp_path: Path) -> None:
    """Rows are held as arrays, also as they travel; a part has its own only."""
    save(tmp_path / "0.jpg", picture(8, 8, 0))
    rows = (f'0.jpg,n{i},{"abc"[i % 3]},{i / 3},"[{i},2,3,4]"\n' for i in range(6000))
    (tmp_path / "long.csv").write_text("path,name,label,score,box\n" + "".join(rows))
    tracemalloc.start()
    source = open_source(tmp_path / "long.csv", key_column="name")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2_400_000
    assert len(pickle.dumps(source.part(2000, 2010))) < 3000


# ---------------------------------------------------------------------------------------------- what is wrong


def test_missing_files_are_counted_and_the_first_named(small: Callable[..., Path]) -> None:
    """Where there are very many, the rest of the listing is not looked at."""
    some = "".join(f"{k}.jpg\n" for k in (7, 0, 8, 9))
    with pytest.raises(
        UsageError, match=r"line 2, .*no file 7\.jpg below .*; 3 files are missing: 7\.jpg, 8\.jpg, 9\.jpg$"
    ):
        open_source(small(f"path\n{some}"))
    many = "".join(f"gone{k}.jpg\n" for k in range(5000))
    with pytest.raises(UsageError, match=r"at least 1,000 files are missing: gone0\.jpg, .*, and 995 more$"):
        open_source(small(f"path\n{many}"))


TWO = "path,n\n0.jpg,3\n1.jpg,300\n"


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("path,n\n0.jpg,1,2\n2.jpg,1,2\n", (), ["line 2, column 3: 3 values"]),
        ("path,n\n0.jpg,1\n1.jpg,\n2.jpg,\n", (), ["line 3, column 2 (n): is empty", "float64"]),
        ('path,n\n0.jpg,"a\n', (), ["line 2, column 1: ", "quote"]),
        ("path,n\r0.jpg,1\r", (), ["line 1, column 1: ", "CR alone"]),
        ("path,image\n0.jpg,1\n", (), ["column 'image'", "rename it, for example to 'picture'"]),
        ("path,n,n\n0.jpg,1,2\n", (), ["has two columns 'n'"]),
        ("image,label\na word,1\n", (), ["line 1", "no column is named path", "--path image"]),
        ('path\n"no\n\x1b[2Jthing.jpg"\n', (), [r"no\n\x1b[2Jthing"]),
        ('{"path": 0.jpg}\n{"path": 1.jpg}\n', (), ["line 1, column 11: is not JSON"]),
        ('{"path": "0.jpg", "n": "\\ud800"}\n', (), ["line 1, column (n): half of a surrogate pair"]),
        ('{"path": "0.jpg", "n": ' + "[" * 9999 + "]" * 9999 + "}\n", (), ["line 1, column 1: is nested too deeply"]),
        ("0.jpg 1\n9.jpg 2\n", (), ["line 2, column 1 (path): there is no file 9.jpg"]),
        ("0.jpg\n1.jpg 1\n", (), ["line 2, column 1 (path): there is no file 1.jpg 1"]),
        ("0.jpg 1\n\n0.jpg 2\n", (), ["line 3, column 1 (path): '0.jpg' is on line 1 already"]),
        (TWO, ["--field", "n:uint8"], ["line 3, column 2 (n): uint8 cannot represent 300"]),
        (TWO, ["--field", "n:int64[2]"], ["line 2, column 2 (n): '3' is not an array of numbers; int64[2] was"]),
        (TWO, ["--field", "m:int64"], ["--field m: "]),
        (TWO, ["--key-column", "m"], ["--key-column m: "]),
    ],
)  # fmt: skip
def test_a_bad_listing_is_refused_with_line_and_column(
    text: str, options: list[str], words: list[str], small: Callable[..., Path], tmp_path: Path
) -> None:
    """As are a value that the said dtype cannot hold, and an option that fits nothing; in one printable line."""
    listing = small(text, f"list.{'jsonl' if text[0] == '{' else 'txt' if text[0] == '0' else 'csv'}")
    said = stop_of("pack", "--workers", 0, *options, listing, tmp_path / "store")
    assert all(word in said for word in words), said
    assert said.rstrip("\n").isprintable()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ([[{"from": "human", "value": 'h\u00e9 "x"\n'}, {"from": "gpt", "value": None}], []], "is a list of objects"),
        ([["a", "b"], ["\ud800"], []], "half of a surrogate pair"),
        (["a text", "b", {"a": 0.1}], "is not text: quote it, or"),
        ([1, 123456789012345678901234567890, [1]], "is beyond 64 bits"),
        ([[[1, 2], [3]], [[1], [2, 3]], [[1e-7], [4, 5]]], "its rows differ in length"),
        ([{"a": float("-inf")}, [float("nan")]], "is an object"),
    ],
)
def test_json_that_is_no_field_is_kept_as_text(values: list[Any], fault: str, small: Callable[..., Path]) -> None:
    """What an error advises works: `--field n:str` keeps objects and lists as JSON, of which json.loads makes the same
    again, and texts as they are; null is the empty text."""
    lines = [json.dumps({"path": f"{i}.jpg", "n": value}) for i, value in enumerate(values)]
    text = "\n".join([*lines, '{"path": "3.jpg", "n": null}']) + "\n"
    listing = small(text.replace("Infinity", "1e400"), "list.jsonl")
    with pytest.raises(BadListingError, match=f"{fault}.*--field n:str"):
        open_source(listing)
    source = open_source(listing, fields=["n:str"])
    *found, empty = (str(source[i].fields["n"]) for i in range(len(source)))
    again = [one if isinstance(value, str) else json.loads(one) for one, value in zip(found, values, strict=True)]
    assert (repr(again), empty) == (repr(values), "")


ODD = 9007199254740993
"""2 ** 53 + 1, the first whole number that no float64 is."""


def listed(root: Path, suffix: str, cells: list[str]) -> Path:
    """A listing with a column `v` of these cells, which are JSON (or empty), each beside one image, named by `key`."""
    save(root / "0.jpg", picture(8, 8, 0))
    if suffix == ".csv":
        return write_cells(root / "all.csv", [{"path": "0.jpg", "k": f"k{i}", "v": v} for i, v in enumerate(cells)])
    rows = (f'{{"path": "0.jpg", "k": "k{i}", "v": {cell or "null"}}}\n' for i, cell in enumerate(cells))
    (root / "all.jsonl").write_text("".join(rows))
    return root / "all.jsonl"


@pytest.mark.parametrize(
    ("cells", "dtype", "expected"),
    [
        ([f" {ODD}", "\t-7 "], "int64", [ODD, -7]),
        ([f"[{ODD}, 1]", f"[2, {-ODD}]"], "int64", [[ODD, 1], [2, -ODD]]),
        (["[true, false]", "[false, false]"], "bool", [[True, False], [False, False]]),
        (["inf", "-Infinity", "1e308", ""], "float64", [np.inf, -np.inf, 1e308, np.nan]),
        (["[1, 2]", f"[3, {(1 << 64) - 1}]"], "uint64", [[1, 2], [3, (1 << 64) - 1]]),
    ],
)
def test_numbers_come_back_as_they_are_written(
    cells: list[str], dtype: str, expected: list[Any], tmp_path: Path
) -> None:
    """Whole numbers keep their last digit, with a sign or blanks around them too; only what is empty is NaN."""
    source = open_source(listed(tmp_path, ".csv", cells), key_column="k")
    assert source.info.fields["v"].dtype == dtype
    values = [np.asarray(source[i].fields["v"]).tolist() for i in range(len(cells))]
    assert repr(values) == repr(np.array(expected, dtype).tolist())


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize(
    ("cells", "said", "line", "words"),
    [
        ([str(ODD), ""], "float64", 1, f"float64 cannot represent {ODD}"),
        (["0.5", str((1 << 24) + 1)], "float32", 2, "float32 cannot represent 16777217"),
        (["0.5", "1" + "0" * 400], None, 2, ": --field v:str keeps all values as text"),
        ([f"[{ODD}, 0.5]"], None, 1, f"float64, which other values need, cannot represent {ODD}: --field v:str"),
        (["[[0, 0, 4, 4.5, 16777217]]"], "xyxy", 1, "float32 cannot represent 16777217"),
        ([f"[{(1 << 63) + 1}, -1]"], None, 1, "is beyond int64, and other values are negative"),
        ([f"{(1 << 64) - 1}", "-1"], "uint64", 2, "uint64 cannot represent -1"),
        (["[true, 5]"], None, 1, "has true or false in a column of numbers: write 1 and 0"),
        (["[true, false]", "[5, 7]", "[5, 7]"], None, 2, "is neither true nor false, as the values before are"),
        ([str(ODD), *["0"] * 10_000, "0.5"], None, 1, "float64"),  # more than a block away
        (["[0.5, true]"], "float32[2]", 1, "has true or false in a column of numbers"),
    ],
)
def test_numbers_that_would_change_are_faults(
    suffix: str, cells: list[str], said: str | None, line: int, words: str, tmp_path: Path
) -> None:
    """What no number of the column's dtype is, is told with its line and column, and never rounded, cut or made
    infinite; true and false are no numbers."""
    with pytest.raises(BadListingError) as caught:
        open_source(listed(tmp_path, suffix, cells), key_column="k", fields={} if said is None else {"v": said})
    where = f"line {line + 1}, column 3 (v): " if suffix == ".csv" else f"line {line}, column (v): "
    assert where in str(caught.value)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("cells", "dtype", "expected"),
    [
        (["1", "  ", "0"], None, [1, -1, 0]),
        (["", " ", ""], None, [-1, -1, -1]),
        (["0.5", "", "2"], None, [0.5, np.nan, 2.0]),
        (["1", "", "0"], "float64", [1.0, np.nan, 0.0]),
    ],
)
def test_labels_that_are_numbers_may_be_empty(
    cells: list[str], dtype: str | None, expected: list[float], tmp_path: Path
) -> None:
    """A class that is not given is -1; a measure that is not is NaN."""
    listing = listed(tmp_path, ".csv", cells)
    source = open_source(listing, key_column="k", label_column="v", fields={"label": dtype} if dtype else None)
    labels = [np.asarray(source[i].fields["label"]) for i in range(3)]
    assert {label.dtype for label in labels} == {np.array(expected).dtype}
    np.testing.assert_array_equal(labels, expected)
    assert source.info.counts["unlabelled"] == expected.count(-1)


def test_cells_as_people_and_pandas_write_them(small: Callable[..., Path]) -> None:
    """Decimal commas between semicolons, names with zeros in front, and NaN, which is not a class."""
    text = "path;price;id;label\n0.jpg;0,5;007;NaN\n1.jpg;1,25;100;cat\n2.jpg;2,0;212;nan\n"
    source = open_source(small(text))
    rows = [source[i].fields for i in range(3)]
    assert [float(np.asarray(row["price"])) for row in rows] == [0.5, 1.25, 2.0]
    assert [row["id"] for row in rows] == ["007", "100", "212"]
    assert (source.info.classes, [int(np.asarray(row["label"])) for row in rows]) == (("cat",), [-1, 0, -1])


@pytest.mark.parametrize("form", ["xyxy", "yolo"])
def test_classes_name_those_of_boxes(form: str, small: Callable[..., Path]) -> None:
    """Without a column of labels, --classes names the classes that boxes say, wherever a row of them has it; a number
    that is none of them is a fault of its line, and so are boxes without a class."""
    row: list[float] = [1, 0, 0, 1, 1] if form == "yolo" else [0, 0, 1, 1, 1]
    at = 0 if form == "yolo" else 4

    def opened(field: str, *boxes: list[list[float]]) -> Source:
        lines = [json.dumps({"path": f"{i}.jpg", "boxes": one}) for i, one in enumerate(boxes)]
        return open_source(small("\n".join(lines), "l.jsonl"), fields=[field], classes=["cat", "dog", "owl"])

    assert opened(f"boxes:{form}", [row], []).info.classes == ("cat", "dog", "owl")
    for wrong in (3, -2, 0.5):
        bad = [*row[:at], wrong, *row[at + 1 :]]
        with pytest.raises(UsageError, match=rf"line 2, column \(boxes\): {wrong} is the class of a box; there are 3"):
            opened(f"boxes:{form}", [], [row, bad])
    with pytest.raises(UsageError, match="boxes that have classes"):
        opened("boxes:xyxy[4]", [[0, 0, 1, 1]])
    file = small("1 cat\n2 dog\n3 owl\n", "names")
    with pytest.raises(UsageError, match="counts the classes from 1"):  # or box 1 would get the second name
        open_source(
            small(json.dumps({"path": "0.jpg", "boxes": [row]}), "l.jsonl"), fields=[f"boxes:{form}"], classes=file
        )


def test_rows_of_several_listings_are_counted_over_all(tmp_path: Path) -> None:
    """Without a gap between files: the fourth row of two files of two rows is row 3."""
    for k in range(3):
        save(tmp_path / f"{k}.png", picture(8, 8, k))
    (tmp_path / "a.csv").write_text("path,n\n0.png,1\n1.png,2\n")
    (tmp_path / "b.csv").write_text("path,n\n2.png,3\nnone.png,4\n")
    with pytest.raises(BadListingError, match=r"row 3, column 1 \(path\): there is no file none\.png"):
        open_source(tmp_path / "?.csv")
    (tmp_path / "b.csv").write_text("path;n\n2.png;3\n")
    with pytest.raises(UsageError, match=r"b\.csv is written otherwise than a\.csv: pack them separately"):
        open_source(tmp_path / "?.csv")


@pytest.mark.parametrize(("first", "mark"), [(0, b""), (1, b"\xef\xbb\xbf")])
def test_class_files_may_have_the_numbers(first: int, mark: bytes, small: Callable[..., Path], tmp_path: Path) -> None:
    """UCF101's classInd.txt: "1 ApplyEyeMakeup". Labels count from its first number, and are stored from 0; a number
    that none of its lines has is an error."""
    listing = small("".join(f"{name}.jpg {number + first}\n" for name, number in enumerate((2, 0, 1))), "list.txt")
    (tmp_path / "classes").write_bytes(mark + "".join(f"{i + first} a {i}\r\n" for i in range(3)).encode())
    reader = Reader(pack(listing, tmp_path / "s", "--size", 8, "--classes", tmp_path / "classes"))
    assert (reader.classes, reader.column("label").tolist()) == (("a 0", "a 1", "a 2"), [2, 0, 1])
    for strange in (first - 1 if first else 9, first + 3):
        with pytest.raises(UsageError, match=f"line 2 is {strange}; there are 3 classes, counted from {first}"):
            open_source(small(f"0.jpg {first}\n1.jpg {strange}\n", "list.txt"), classes=tmp_path / "classes")


def test_other_numbers_in_class_files_are_names(small: Callable[..., Path], tmp_path: Path) -> None:
    """Numbers that do not count from 0 or 1 line by line, and those that labels have too, are part of the names."""
    names, listing = tmp_path / "classes", small("0.jpg 1\n1.jpg 0\n", "list.txt")
    for text in ("2 cats\n1 dog\n", "1 cat\ndog\n", "101\n102\n"):
        names.write_text(text)
        source = open_source(listing, classes=names)
        assert (source.info.classes, source[0].fields["label"]) == (tuple(text.splitlines()), 1)
    names.write_text("1 cat\n2 dog\n")
    source = open_source(small("0.jpg\t2 dog\n1.jpg\t1 cat\n", "list.txt"), classes=names)
    assert (source.info.classes, source[0].fields["label"]) == (("1 cat", "2 dog"), 1)


@pytest.mark.parametrize(
    ("text", "fields", "name", "wanted"),
    [
        ("a photo.jpg 4\n1.jpg 5\n", (), "label", [4, 5]),
        ("a photo.jpg\tSt. Mary\n1.jpg\t2007\nsub/3.jpg\t12 34\n", (), "label", [2, 1, 0]),
        ("1.jpg 12 34\n0.jpg word\n", ["label:str"], "label", ["12 34", "word"]),
        ("0.jpg 3 1 4 1\n1.jpg 5 9 2 6\n", (), "labels", [[3, 1, 4, 1], [5, 9, 2, 6]]),
    ],
)
def test_the_rest_of_a_line(text: str, fields: Any, name: str, wanted: list[Any], small: Callable[..., Path]) -> None:
    """A label; the text of an image, which is a class or stays a text where it is declared; or several numbers. A CSV
    may be such a list, too."""
    for listing in (small(text, "list.txt"), small(text, "train.csv")):
        source = open_source(listing, fields=fields)
        values = [source[i].fields[name] for i in range(len(source))]
        assert [one if isinstance(one, str) else np.asarray(one).tolist() for one in values] == wanted
