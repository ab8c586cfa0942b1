"""DataFrames, Hugging Face datasets and the labels of Python datasets become what the same table in a file does."""

from __future__ import annotations

import csv
import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
from pictures import encoded, picture
from PIL import Image
from reading import SOAK
from running import reader_of as packed

import rawpack_packer
from rawpack import Reader
from rawpack.errors import PackError, UsageError
from rawpack_packer.sources import open_dataset

BREEDS = ["pug", "", "beagle", "pug", "corgi", "Zwergspitz"]
N = len(BREEDS)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    found = [tmp_path / f"{i}.png" for i in range(N)]
    for i, path in enumerate(found):
        Image.fromarray(picture(9, 8, i)).save(path)
    return [*map(str, found)]


class Lazy:
    """A dataset that says nothing of its labels, and reads a sample when it is asked for."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> Any:
        if self.samples[i] is None:
            raise OSError("no such sample")
        return self.samples[i]


def pairs(one: list[Any], two: list[Any], three: list[Any]) -> list[tuple[Any, Any, Any]]:
    """Enough combinations of the values of three parameters that each two values occur together; all in a long run."""
    return [
        (a, b, c) for i, a in enumerate(one) for j, b in enumerate(two) for k, c in enumerate(three)
        if SOAK or k == (i + j) % len(three)
    ]  # fmt: skip


def rows_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def in_memory(form: str, columns: dict[str, list[Any]]) -> Any:
    """The same table in any form."""
    if form in ("records", "columns", "dataset"):
        return {"records": rows_of(columns), "columns": columns, "dataset": Lazy(rows_of(columns))}[form]
    if form.endswith("arrow"):
        table = pytest.importorskip("pyarrow").table(columns)
        return table.to_pandas() if form == "pandas of arrow" else table
    return pytest.importorskip(form).DataFrame(columns)


def files(count: int) -> list[bytes]:
    return [encoded(picture(4, 4, i)) for i in range(count)]


@pytest.mark.parametrize(
    ("form", "workers"),
    [
        *((form, 0) for form in ("records", "columns", "dataset", "pandas", "polars")),
        *((form, 2) for form in ("records", "columns", "dataset", "pandas", "polars") if SOAK or form == "dataset"),
    ],
)
def test_text_labels_are_the_classes_of_the_same_csv(form: str, workers: int, paths: list[str], tmp_path: Path) -> None:
    """In whatever form they are, and read by workers: of one form, or of each in a long run."""
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *zip(paths, BREEDS, strict=True)])
    wanted = packed(tmp_path / "table.csv", tmp_path / "csv", size="keep")
    source = in_memory(form, {"image": paths, "label": BREEDS})
    reader = packed(source, tmp_path / "s", size="keep", workers=workers)
    assert reader.classes == wanted.classes == ("Zwergspitz", "beagle", "corgi", "pug")
    assert reader.column("label").tolist() == wanted.column("label").tolist() == [3, -1, 1, 3, 2, 0]
    for i in range(N):
        np.testing.assert_array_equal(reader[i]["image"], picture(9, 8, i))


@pytest.mark.parametrize("form", ["records", "columns", "dataset", "pandas", "polars"])
def test_another_column_of_labels_is_named(form: str, paths: list[str], tmp_path: Path) -> None:
    source = in_memory(form, {"image": paths, "breed": BREEDS, "age": list(range(N))})
    reader = packed(source, tmp_path / "s", label_column="breed")
    assert (reader.classes, reader.column("label").tolist()) == (
        ("Zwergspitz", "beagle", "corgi", "pug"),
        [3, -1, 1, 3, 2, 0],
    )
    assert reader.column("age").tolist() == list(range(N))
    assert "breed" not in reader.fields
    with pytest.raises(UsageError, match="has no 'race'"):
        packed(source, tmp_path / "no", label_column="race")


def test_a_label_column_among_the_names_of_tuples(tmp_path: Path) -> None:
    given = [(label, picture(4, 4, 0)) for label in BREEDS]
    reader = packed(given, tmp_path / "s", names=("breed", "image"), label_column="breed")
    assert reader.column("label").tolist() == [3, -1, 1, 3, 2, 0]
    with pytest.raises(UsageError, match=r"label_column='race': names= has no 'race'"):
        packed(given, tmp_path / "no", names=("breed", "image"), label_column="race")


def test_labels_of_samples_that_raise_and_targets_that_are_texts(tmp_path: Path) -> None:
    """A sample that cannot be read is rejected, and no class is lost; texts in `targets` spare the reading."""
    samples: list[Any] = [(picture(4, 4, i), label) for i, label in enumerate(["b", "a", "c"])]
    reader = packed(Lazy([samples[0], None, *samples[1:]]), tmp_path / "s", max_rejects=1)
    assert (reader.classes, reader.column("label").tolist()) == (("a", "b", "c"), [1, 0, 2])

    class Known(Lazy):
        targets = ("b", "a", "c")
        asked = 0

        def __getitem__(self, i: int) -> Any:
            self.asked += 1
            return super().__getitem__(i)

    known = Known(samples)
    assert packed(known, tmp_path / "known", size=8).classes == ("a", "b", "c")


@pytest.mark.parametrize("module", ["pandas", "polars"])
@pytest.mark.parametrize("guise", ["path", "bytes", "pillow", "array"])
def test_images_of_frames(module: str, guise: str, paths: list[str], tmp_path: Path) -> None:
    made: dict[str, Any] = {
        "path": lambda i: paths[i],
        "bytes": lambda i: Path(paths[i]).read_bytes(),
        "pillow": lambda i: Image.open(paths[i]),
        "array": lambda i: picture(9, 8, i),
    }
    frames, images = pytest.importorskip(module), [made[guise](i) for i in range(N)]
    if module == "polars" and guise in ("pillow", "array"):
        images = frames.Series("image", images, dtype=frames.Object)
    name = "file_name" if guise == "path" else "image"
    keys = [f"k{i}" for i in range(N)]
    frame = frames.DataFrame({"key": keys, name: images, "label": [2, 0, 1, 2, 0, 1]})
    reader = packed(frame, tmp_path / "s", size="keep", format="memmap")
    assert [reader[i]["key"] for i in range(N)] == keys
    assert reader.column("label").tolist() == [2, 0, 1, 2, 0, 1]
    for i in range(N):
        np.testing.assert_array_equal(reader[i]["image"], picture(9, 8, i))


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_values_that_are_missing_in_frames(module: str, tmp_path: Path) -> None:
    """A number of a class is -1, a text empty; a time is a text."""
    frames = pytest.importorskip(module)
    times = np.array(["2020-01-02", "2021-03-04", "2022-05-06"], "datetime64[us]")
    columns = {"label": [1, None, 0], "note": ["a", None, "c"], "when": times, "score": [0.5, 1.5, 2.5]}
    files = [tmp_path / f"{i}.png" for i in range(3)]
    for path in files:
        Image.fromarray(picture(4, 4, 0)).save(path)
    frame = frames.DataFrame({"picture": [*map(str, files)], **columns})
    with pytest.raises(UsageError, match=r"none is called image, path, file_name.*names={'image': 'COLUMN'}"):
        packed(frames.DataFrame({"note": ["a", "b", "c"]}), tmp_path / "no")
    reader = packed(frame, tmp_path / "s", names={"image": "picture"})
    assert reader.column("label").tolist() == [1, -1, 0]
    assert list(reader.column("note")) == ["a", "", "c"]
    assert [text[:10] for text in reader.column("when")] == ["2020-01-02", "2021-03-04", "2022-05-06"]
    np.testing.assert_array_equal(reader.column("score"), [0.5, 1.5, 2.5])


@pytest.mark.parametrize("module", ["pandas", "polars", "arrow"])
def test_missing_files_of_frames_are_named_as_those_of_listings(module: str, paths: list[str], tmp_path: Path) -> None:
    names = [paths[0], *(f"{tmp_path}/gone{k}.png" for k in range(7)), paths[1]]
    frame = in_memory(module, {"path": names})
    (tmp_path / "list.csv").write_text("path\n" + "\n".join(names))
    told = f"7 files are missing: {', '.join(names[1:6])}, and 2 more"
    for source, where in ((frame, "image of sample 1"), (tmp_path / "list.csv", "line 3, column 1 (path)")):
        with pytest.raises(UsageError) as refused:
            packed(source, tmp_path / "s", max_rejects=100)
        assert f"{where}: there is no file {names[1]}; {told}" in str(refused.value)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("module", ["pandas", "polars", "arrow"])
def test_the_keys_of_a_frame_are_its_paths(module: str, paths: list[str], tmp_path: Path) -> None:
    columns = {"path": paths, "age": list(range(N))}

    def frame(**other: list[Any]) -> Any:
        return in_memory(module, {**columns, **other})

    done = rawpack_packer.pack(frame(), tmp_path / "s", workers=0)
    assert [sample["key"] for sample in Reader(tmp_path / "s")] == paths
    assert not done.info.problems
    numbers = [f"{i:08}" for i in range(N)]
    for name, odd, what in (
        ("twice", paths[0], f"row 5 has '{paths[0]}', as row 0 has"),
        ("missing", None, "row 5 has no text"),
    ):
        done = rawpack_packer.pack(frame(path=[*paths[:-1], odd]), tmp_path / name, workers=0, max_rejects=1)
        assert f"keys are the numbers of rows, not the paths: {what}" in str(done)
        assert [sample["key"] for sample in Reader(tmp_path / name)] == numbers[: len(Reader(tmp_path / name))]
    named = rawpack_packer.pack(frame(key=[*"abcdef"]), tmp_path / "named", workers=0)
    assert not named.info.problems
    assert [sample["key"] for sample in Reader(tmp_path / "named")] == [*"abcdef"]
    for number, (odd, what) in enumerate((("a", "row 5 has 'a', as row 0 has"), (None, "row 5 has no text"))):
        done = rawpack_packer.pack(frame(key=[*"abcde", odd]), tmp_path / f"odd{number}", workers=0)
        assert f"keys are the numbers of rows, not the column 'key': {what}" in str(done)
        assert [sample["key"] for sample in Reader(tmp_path / f"odd{number}")] == numbers
    assert "row 5 has no text" in str(rawpack_packer.pack(frame(key=[1, 2, 3, 4, 5, None]), tmp_path / "n", workers=0))
    with pytest.raises(UsageError, match=r"call that column 'key', or pass keys=source\['age'\]"):
        packed(frame(), tmp_path / "no", key_column="age")
    reader = packed(frame(), tmp_path / "keys", keys=[str(one) for one in frame()["age"]])
    assert [sample["key"] for sample in reader] == [*"012345"]


BIG = 2**60 + 1
"""No float64 can represent it."""


def frames_with(module: str, name: str, values: list[Any], dtype: str) -> Any:
    """A table with three images and a column of whole numbers."""
    images = files(len(values))
    if module.startswith("pandas"):
        pandas = pytest.importorskip("pandas")
        kind = dtype if module == "pandas" else f"{dtype.lower()}[pyarrow]"
        return pandas.DataFrame({"image": images}).assign(**{name: pandas.array(values, dtype=kind)})
    if module == "polars":
        polars = pytest.importorskip("polars")
        return polars.DataFrame({"image": images, name: polars.Series(values, dtype=getattr(polars, dtype))})
    arrow = pytest.importorskip("pyarrow")
    return arrow.table({"image": images, name: arrow.array(values, getattr(arrow, dtype.lower())())})


@pytest.mark.parametrize("module", ["pandas", "pandas of arrow", "polars", "arrow"])
def test_whole_numbers_of_frames_stay_what_they_are(module: str, tmp_path: Path) -> None:
    """The same rule as for a CSV: no whole number is rounded; a missing one needs a declaration, or is no class."""
    reader = packed(frames_with(module, "label", [BIG, None, 3], "Int64"), tmp_path / "label")
    assert (reader.fields["label"].dtype, reader.column("label").tolist()) == ("int64", [BIG, -1, 3])
    reader = packed(frames_with(module, "x", [2**64 - 1, 0, 3], "UInt64"), tmp_path / "whole")
    assert reader.column("x").tolist() == [2**64 - 1, 0, 3]
    small = frames_with(module, "x", [5, None, 3], "Int64")
    reader = packed(small, tmp_path / "floats", fields={"x": "float64"})
    np.testing.assert_array_equal(reader.column("x"), [5, np.nan, 3])
    with pytest.raises(UsageError, match=r"'x' of whole numbers has no value in row 1.*fields=\{'x': 'float64'\}"):
        packed(small, tmp_path / "no")
    with pytest.raises(UsageError, match=f"'x', row 0: float64 cannot represent {BIG}"):
        packed(frames_with(module, "x", [BIG, None, 3], "Int64"), tmp_path / "no", fields={"x": "float64"})
    with pytest.raises(UsageError, match=f"the label of row 0 is {2**63}; labels are int64"):
        packed(frames_with(module, "label", [2**63, None, 3], "UInt64"), tmp_path / "no")


@pytest.mark.parametrize("form", ["records", "columns", "dataset", "pandas", "stream"])
@pytest.mark.parametrize("odd", [[BIG, 0.5], [2**63 + 1, -1], [np.int64(BIG), 0.5]], ids=str)
def test_lists_of_numbers_that_numpy_would_round_are_refused(form: str, odd: list[Any], tmp_path: Path) -> None:
    """As the first value, and as a later one, where the sample is rejected."""
    for first, stored in ((odd, None), ([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]])):
        columns = {"image": [picture(4, 4, i) for i in range(3)], "x": [first, odd, [3.0, 4.0]]}
        source = iter(rows_of(columns)) if form == "stream" else in_memory(form, columns)
        if stored is None:
            with pytest.raises(UsageError, match=r"its first value is list.*fields=\{'x': 'str'\}"):
                packed(source, tmp_path / "no")
        else:
            reader = packed(source, tmp_path / "s", max_rejects=1)
            np.testing.assert_array_equal(reader.column("x"), stored)


@pytest.mark.parametrize("form", ["records", "columns", "dataset", "pandas", "polars"])
def test_names_of_classes_that_begin_with_numbers(form: str, tmp_path: Path) -> None:
    """As those of UCF101: labels that are numbers count from 0, so that a file of names that counts from 1 is refused;
    for labels that are texts, the numbers do not matter."""
    images: list[Any] = [picture(4, 4, i) for i in range(3)]
    if form == "polars":  # has no arrays of several axes among objects
        images = [encoded(one) for one in images]
    (tmp_path / "from 1").write_text("1 cat\n2 dog\n3 owl\n")
    (tmp_path / "from 0").write_text("0 cat\n1 dog\n2 owl\n")
    numbers = in_memory(form, {"image": images, "label": [1, 2, 1]})
    with pytest.raises(UsageError, match="counts the classes from 1, as '1 cat' says, and these numbers count from 0"):
        packed(numbers, tmp_path / "no", classes=tmp_path / "from 1")
    reader = packed(numbers, tmp_path / "numbers", classes=tmp_path / "from 0")
    assert (reader.classes, reader.column("label").tolist()) == (("cat", "dog", "owl"), [1, 2, 1])
    texts = in_memory(form, {"image": images, "label": ["dog", "owl", "dog"]})
    reader = packed(texts, tmp_path / "texts", classes=tmp_path / "from 1")
    assert (reader.classes, reader.column("label").tolist()) == (("cat", "dog", "owl"), [1, 2, 1])


def test_lists_of_frames_with_a_missing_number_are_not_rounded(tmp_path: Path) -> None:
    """polars and Arrow give such lists as floats."""
    polars = pytest.importorskip("polars")
    images = files(3)
    frame = polars.DataFrame({"image": images, "x": [[1, 2], [BIG, None], [BIG, 4]]})
    for number, source in enumerate((frame, frame.to_arrow())):
        reader = packed(source, tmp_path / str(number), max_rejects=1)
        assert reader.column("x").tolist() == [[1, 2], [BIG, 4]]


def test_categories_and_columns_that_have_one_name(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"image": [picture(4, 4, i) for i in range(3)]})
    frame["label"] = pandas.Categorical(["b", "a", "b"])
    reader = packed(frame, tmp_path / "s")
    assert (reader.classes, reader.column("label").tolist()) == (("a", "b"), [1, 0, 1])
    with pytest.raises(UsageError, match="two columns 'label': rename one"):
        packed(pandas.concat([frame, frame[["label"]]], axis=1), tmp_path / "no")


@pytest.mark.parametrize("form", ["arrow", "polars", "pandas", "pandas of arrow"])
@pytest.mark.parametrize("values", [["b", None, "a", "b"], [7, None, 3, 7]])
def test_a_category_that_is_missing_is_none(form: str, values: list[Any], tmp_path: Path) -> None:
    """And never the last one, which an Arrow dictionary as an array has in its place."""
    module = pytest.importorskip({"arrow": "pyarrow"}.get(form.partition(" ")[0], form.partition(" ")[0]))
    images = files(len(values))
    if form == "arrow":
        source = module.table({"image": images, "label": module.array(values).dictionary_encode()})
    elif form == "polars":
        if isinstance(values[0], int):
            pytest.skip("polars has categories of texts")
        source = module.DataFrame({"image": images, "label": module.Series(values, dtype=module.Categorical)})
    elif form == "pandas":
        source = module.DataFrame({"image": images, "label": module.Categorical(values)})
    else:
        arrow = pytest.importorskip("pyarrow")
        column = arrow.array(values).dictionary_encode()
        source = module.DataFrame(
            {"image": images, "label": module.Series(column, dtype=module.ArrowDtype(column.type))}
        )
    reader = packed(source, tmp_path / "s")
    of = {"b": 1, "a": 0, 7: 7, 3: 3, None: -1}
    assert reader.column("label").tolist() == [of[one] for one in values]


def test_keys_that_are_bytes_are_texts(tmp_path: Path) -> None:
    """As those of an LMDB: a, and not b'a'; what is no UTF-8 is refused."""
    images = [picture(4, 4, i) for i in range(2)]
    assert [one["key"] for one in packed(images, tmp_path / "s", keys=[b"a", "é".encode()])] == ["a", "é"]
    with pytest.raises(UsageError, match=r"keys\[1\] is '\\udcff', which UTF-8 cannot encode"):
        packed(images, tmp_path / "no", keys=[b"a", b"\xff"])
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"image": images, "key": [b"a", b"b"]})
    assert [one["key"] for one in packed(frame, tmp_path / "frame")] == ["a", "b"]


def test_frames_are_split(tmp_path: Path) -> None:
    """Both splits get all classes; and of one frame, a share of each class can be held out."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"image": [picture(4, 4, i) for i in range(20)], "label": ["b", "a"] * 10})
    rawpack_packer.pack_splits({"train": frame, "val": frame.iloc[::2]}, tmp_path / "two", workers=0)
    assert Reader(tmp_path / "two" / "val").classes == ("a", "b")
    assert Reader(tmp_path / "two" / "val").column("label").tolist() == [1] * 10
    rawpack_packer.pack_splits(frame, tmp_path / "held", holdout={"val": 0.2}, workers=0)
    assert sorted(Reader(tmp_path / "held" / "val").column("label").tolist()) == [0, 0, 1, 1]


@pytest.mark.parametrize("form", ["records", "columns", "pandas", "polars"])
def test_datasets_in_memory_are_split_by_a_column(form: str, paths: list[str], tmp_path: Path) -> None:
    sets, scene = ["train", "val", "train", "val", "train", "test"], [1, 2, 3, 4, 5, 6]
    source = in_memory(form, {"image": paths, "set": sets, "scene": scene, "label": BREEDS})
    rawpack_packer.pack_splits(source, tmp_path / "set", split_by="set", workers=0)
    for split in ("train", "val", "test"):
        of_split = [i for i in range(N) if sets[i] == split]
        assert Reader(tmp_path / "set", split=split).column("scene").tolist() == [scene[i] for i in of_split]
    by = "scene=train:1-3,val:4+5-6"
    rawpack_packer.pack_splits(source, tmp_path / "scene", split_by=by, workers=0)
    assert Reader(tmp_path / "scene", split="val").column("scene").tolist() == [4, 5, 6]
    by = "label=train:pug+corgi,val:beagle+Zwergspitz"
    with pytest.raises(UsageError, match="label is empty"):
        rawpack_packer.pack_splits(source, tmp_path / "no", split_by=by, workers=0)
    with pytest.raises(UsageError, match=r"no such column that is known now: it has [a-z, ]*set, scene"):
        rawpack_packer.pack_splits(source, tmp_path / "no", split_by="fold", workers=0)


def test_groups_by_numbers_of_which_one_is_missing(paths: list[str], tmp_path: Path) -> None:
    """pandas makes floats of them, which are no names of groups: the cure works."""
    subject = [1, None, 2, 2, 3, 3]
    source = pytest.importorskip("pandas").DataFrame({"image": paths, "subject": subject, "row": range(N)})
    with pytest.raises(UsageError, match=r"neither texts nor whole numbers: declare fields={'subject': 'str'}"):
        rawpack_packer.pack_splits(source, tmp_path / "no", holdout="val=2", group_by="subject", workers=0)
    sets = tmp_path / "sets"
    rawpack_packer.pack_splits(source, sets, holdout="val=2", group_by="subject", fields={"subject": "str"}, workers=0)
    parts = [{subject[row] for row in Reader(sets, split=split).column("row")} for split in ("train", "val")]
    assert (parts[0] & parts[1], len(parts[1]), parts[0] | parts[1]) == (set(), 2, {*subject})


STAMP = dt.datetime(2026, 11, 28, 8, 15, 0, 250_000)
PARIS = dt.timezone(dt.timedelta(hours=1))
TIMES: dict[str, tuple[list[Any], list[str]]] = {
    "stamp": ([STAMP, None, STAMP.replace(microsecond=0)], ["2026-11-28T08:15:00.25", "", "2026-11-28T08:15:00"]),
    "zoned": ([STAMP.replace(tzinfo=PARIS)] * 3, ["2026-11-28T08:15:00.25+01:00"] * 3),
    "day": ([dt.date(2026, 11, 28), None, dt.date(1, 2, 3)], ["2026-11-28", "", "0001-02-03"]),
    "clock": ([dt.time(8, 15), dt.time(8, 15, 0, 500), dt.time(23)], ["08:15:00", "08:15:00.0005", "23:00:00"]),
    "took": ([dt.timedelta(seconds=90.5), dt.timedelta(0), -dt.timedelta(days=2)], ["PT90.5S", "PT0S", "-PT172800S"]),
    "price": ([Decimal("1.50"), Decimal(3), Decimal("-0.10")], ["1.50", "3.00", "-0.10"]),
}
"""Name -> the values of a column, and what ISO 8601 says of them."""


def source_of_times(form: str, name: str, folder: Path) -> Any:
    values, images = TIMES[name][0], [folder / f"{i}.png" for i in range(3)]
    for i, path in enumerate(images):
        Image.fromarray(picture(4, 4, i)).save(path)
    if name == "price" and form in ("pandas", "records"):
        values = [one.quantize(Decimal("1.00")) for one in values]
    paths = [*map(str, images)]
    if form in ("parquet", "listing", "arrow"):
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        column = arrow.array(values, arrow.timestamp("us", "+01:00")) if name == "zoned" else arrow.array(values)
        table = arrow.table({"path" if form == "listing" else "image": paths, "x": column})
        if form == "parquet":
            table = table.set_column(0, "image", [[path.read_bytes() for path in images]])
        parquet.write_table(table, folder / "t.parquet")
        return table if form == "arrow" else folder / "t.parquet"
    if form == "records":
        return [{"image": path, "x": value} for path, value in zip(paths, values, strict=True)]
    library = pytest.importorskip(form)
    if form == "polars" and name == "zoned":
        column = library.Series(values).dt.convert_time_zone("Europe/Paris")
        return library.DataFrame({"image": paths, "x": column})
    return library.DataFrame({"image": paths, "x": values})


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("form", ["pandas", "polars", "arrow", "parquet", "listing", "records"])
def test_times_and_decimals_that_are_asked_for_as_text(form: str, name: str, tmp_path: Path) -> None:
    """ISO 8601 with a T, whatever they come in."""
    if form == "records" and None in TIMES[name][0]:
        pytest.skip("a sample of a list needs each value")
    source = source_of_times(form, name, tmp_path)
    reader = packed(source, tmp_path / "s", fields={"x": "str"})
    assert [*reader.column("x")] == TIMES[name][1]


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow", "parquet", "listing", "records"])
def test_times_that_are_not_asked_for(form: str, tmp_path: Path) -> None:
    """Points in time of tables in memory are text; all else is refused, or left out, with a cure that works."""
    for name, (values, texts) in TIMES.items():
        place = tmp_path / name
        place.mkdir()
        source = source_of_times(form, name, place)
        if form in ("pandas", "polars", "arrow") and name in ("stamp", "zoned", "day"):
            assert [*packed(source, place / "s").column("x")] == texts
        elif form == "parquet":
            done = rawpack_packer.pack(source, place / "s", workers=0)
            assert "fields={'x': 'str'} stores it as text" in str(done)
        else:
            with pytest.raises(UsageError, match=r"fields=\{'x': 'str'\}"):
                packed(source, place / "s")
        assert len(values) == 3


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow", "parquet", "csv"])
def test_a_bool_that_is_missing(form: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"key_column": "key"} if form == "csv" else {}
    (image,) = files(1)
    (tmp_path / "0.png").write_bytes(image)
    if form == "csv":
        (tmp_path / "t.csv").write_text("path,key,x\n0.png,a,true\n0.png,b,\n0.png,c,false\n")
        source: Any = tmp_path / "t.csv"
    elif form == "pandas":
        pandas = pytest.importorskip("pandas")
        source = pandas.DataFrame({"image": [image] * 3, "x": pandas.array([True, None, False], dtype="boolean")})
    elif form == "polars":
        source = pytest.importorskip("polars").DataFrame({"image": [image] * 3, "x": [True, None, False]})
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = arrow.table({"image": [image] * 3, "x": [True, None, False]})
        parquet.write_table(table, tmp_path / "t.parquet")
        source = table if form == "arrow" else tmp_path / "t.parquet"
    with pytest.raises((UsageError, PackError), match=r"bool.*fields=\{'x': 'str'\} \(empty\)"):
        packed(source, tmp_path / "no", **options)
    reader = packed(source, tmp_path / "s", fields={"x": "str"}, **options)
    assert [*reader.column("x")] == ["true", "", "false"]


@pytest.mark.parametrize("labels", ["classes", "texts"])
def test_a_hugging_face_dataset_keeps_its_classes(labels: str, paths: list[str], tmp_path: Path) -> None:
    """The only column of images and the only one with classes are found by their types, whatever they are called."""
    datasets = pytest.importorskip("datasets")
    kind = datasets.ClassLabel(names=["pug", "corgi", "boxer"]) if labels == "classes" else datasets.Value("string")
    features = datasets.Features({"img": datasets.Image(), "breed": kind, "age": datasets.Value("int64")})
    values = [2, 0, None, 1, 0, 2] if labels == "classes" else ["x", "pug", None, "b", "pug", "x"]
    columns = {"img": paths, "breed": values, "age": list(range(N))}
    data = datasets.Dataset.from_dict(columns, features=features)
    reader = packed(data, tmp_path / "s", **({} if labels == "classes" else {"label_column": "breed"}))
    if labels == "classes":
        assert reader.classes == ("pug", "corgi", "boxer")
        assert reader.column("label").tolist() == [2, 0, -1, 1, 0, 2]
    else:
        assert reader.classes == ("b", "pug", "x")
        assert reader.column("label").tolist() == [2, 1, -1, 0, 1, 2]
    assert reader.column("age").tolist() == list(range(N))
    np.testing.assert_array_equal(reader[1]["image"], picture(9, 8, 1))


ONE_HOT = np.eye(4)[[3, 0, 1, 0, 2, 3]] * np.array([1, 1, 1, 0, 1, 1])[:, None]
NUMBERS = [3, 0, 1, -1, 2, 3]


@pytest.mark.parametrize("form", ["npz", "npy", "hdf5", "parquet", "csv", "columns", "dataset", "tuples"])
def test_one_hot_labels_are_refused_with_what_numbers_them(form: str, tmp_path: Path) -> None:
    """Whatever has them; without the word, they are stored as they are."""
    images = np.stack([picture(9, 8, i) for i in range(N)])
    path, word = tmp_path / f"data.{form}", "y:onehot"
    source: Any = path
    if form == "npz":
        np.savez(path, x=images, y=ONE_HOT)
    elif form == "npy":
        source, word = tmp_path / "x_train.npy", ":onehot"
        np.save(source, images)
        np.save(tmp_path / "y_train.npy", ONE_HOT)
    elif form == "hdf5":
        with h5py.File(path, "w") as file:
            file["x"], file["y"] = images, ONE_HOT
    elif form == "parquet":
        pq = pytest.importorskip("pyarrow.parquet")
        files = [encoded(one) for one in images]
        pq.write_table(pytest.importorskip("pyarrow").table({"image": files, "y": ONE_HOT.tolist()}), path)
    elif form == "csv":
        word = "a,b,c,d:onehot"
        rows = [f"{i}.png,{','.join(map(str, row))}" for i, row in enumerate(ONE_HOT)]
        path.write_text("\n".join(["path,a,b,c,d", *rows]))
        for i, image in enumerate(images):
            cv2.imwrite(str(tmp_path / f"{i}.png"), image)
    elif form == "columns":
        source = {"image": images, "y": ONE_HOT}
    elif form == "dataset":
        source = Lazy([{"image": image, "y": row} for image, row in zip(images, ONE_HOT, strict=True)])
    else:
        source, word = [*zip(images, ONE_HOT, strict=True)], ":onehot"
    with pytest.raises(UsageError, match="one-hot labels are numbered before packing") as error:
        packed(source, tmp_path / "s", label_column=word)
    numbers = eval(str(error.value).partition("in NumPy, ")[2], {"np": np, "y": ONE_HOT})
    assert numbers.tolist() == NUMBERS
    assert len(packed(source, tmp_path / "kept")) == N


@pytest.mark.parametrize(
    ("form", "first", "number"), pairs(["pandas", "polars", "arrow"], [[], [1], None], [int, float, bool])
)
def test_lists_of_different_lengths_are_ragged(form: str, first: Any, number: type, tmp_path: Path) -> None:
    """As in listings, whatever the first one is; a missing one is an array of length 0."""
    values = [first, [2, 3], None, [4, 5, 6], []]
    values = [None if one is None else [number(n) for n in one] for one in values]
    reader = packed(in_memory(form, {"image": files(len(values)), "x": values}), tmp_path / "s")
    (batch,) = reader.batches(len(values), fields=["x"], workers=0)
    assert [one.tolist() for one in batch["x"]] == [one or [] for one in values]
    assert {one.dtype for one in batch["x"]} == {np.dtype({int: "int64", float: "float64", bool: "bool"}[number])}


@pytest.mark.parametrize("odd", [[2**60 + 1], [2**60 + 1, 0.5], [2**63 + 1]])
def test_lists_of_different_lengths_are_not_rounded(odd: list[Any], tmp_path: Path) -> None:
    """A whole number that the dtype of all lists would round is refused, wherever the numbers are that make it so."""
    pandas = pytest.importorskip("pandas")
    (image,) = files(1)
    frame = pandas.DataFrame({"image": [image] * 4, "x": [[-1, 2], odd, [0.5], []]})
    with pytest.raises(UsageError, match=f"column 'x', row 1: float64, which fits all .*cannot represent .*{odd[0]}"):
        packed(frame, tmp_path / "no")


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow"])
def test_lists_of_lists_of_different_lengths(form: str, tmp_path: Path) -> None:
    columns = {"image": files(2), "x": [[[1], [2, 3]], [[4]]]}
    source = in_memory(form, columns)
    with pytest.raises(UsageError, match=r"Store it as JSON text by fields={'x': 'str'}"):
        packed(source, tmp_path / "no")
    assert packed(source, tmp_path / "s", fields={"x": "str"}).column("x") == ["[[1], [2, 3]]", "[[4]]"]


@pytest.mark.parametrize(
    ("form", "first", "number"),
    pairs(["pandas", "pandas of arrow", "polars", "arrow"], [[], [[1, 2]], None], [int, float]),
)
def test_lists_of_pairs_that_differ_in_length_are_ragged(form: str, first: Any, number: type, tmp_path: Path) -> None:
    """As in listings: points, or boxes, of which the summary says that nobody declared them."""
    values = [first, [[2, 3], [4, 5]], None, [[4, 5], [6, 7], [8, 9]], []]
    values = [None if one is None else [[number(n) for n in pair] for pair in one] for one in values]
    images = files(len(values))
    columns = {"image": images, "x": values, "bbox": [one and [[*pair, *pair] for pair in one] for one in values]}
    source = in_memory(form, columns)
    reader = packed(source, tmp_path / "s")
    (batch,) = reader.batches(len(values), fields=["x"], workers=0)
    assert [one.tolist() for one in batch["x"]] == [one or [] for one in values]
    assert {(one.dtype, one.shape[1:]) for one in batch["x"]} == {(np.dtype("int64" if number is int else "f8"), (2,))}
    assert "'bbox' is stored as plain numbers" in " ".join(open_dataset(source).info.problems)
    boxes = packed(source, tmp_path / "boxes", fields={"bbox": "xyxy[4]"}, size="keep")
    assert boxes.fields["bbox"].is_boxes


def test_large_labels_among_objects_are_not_rounded(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series([BIG, None, 3], dtype=object)
    frame = pandas.DataFrame({"image": [picture(4, 4, i) for i in range(3)], "label": labels})
    reader = packed(frame, tmp_path / "s")
    assert (reader.fields["label"].dtype, reader.column("label").tolist()) == ("int64", [BIG, -1, 3])


@pytest.mark.parametrize(
    ("form", "first", "declared"),
    pairs(["pandas", "polars", "arrow", "pandas of arrow"], [[], ["a", "b"], None], [None, {"x": "str[?]"}]),
)
def test_lists_of_texts_in_frames(form: str, first: Any, declared: Any, tmp_path: Path) -> None:
    """Of each library, also where pandas has read them as arrays, and whatever the first one is; a missing one is
    empty."""
    values = [first, ["c"], None, ["d", "e", "f"], []]
    columns = {"image": files(len(values)), "x": values}
    reader = packed(in_memory(form, columns), tmp_path / "s", fields=declared)
    assert reader.column("x") == [one or [] for one in values]


def test_objects_that_are_missing_in_pandas(tmp_path: Path) -> None:
    """None among bools, whole numbers and floats of a column of objects is what it is in one of numbers."""
    pandas = pytest.importorskip("pandas")
    (image,) = files(1)
    for values, what in (([True, None, False], "bool"), ([1, None, 2], "whole numbers")):
        frame = pandas.DataFrame({"image": [image] * 3, "x": pandas.Series(values, dtype=object)})
        with pytest.raises(UsageError, match=f"column 'x' of {what} has no value in row 1"):
            packed(frame, tmp_path / "no")
    for k, fields in enumerate([None, {"x": "float32"}, {"x": "float64"}]):
        frame = pandas.DataFrame({"image": [image] * 3, "x": pandas.Series([1.5, None, 2], dtype=object)})
        np.testing.assert_array_equal(packed(frame, tmp_path / f"{k}", fields=fields).column("x"), [1.5, np.nan, 2])
    columns = {"label": [1, None, 0], "x": [4, None, 5], "boxes": [[[1, 1, 3, 3, 7]], None, [[0, 0, 2, 2, 8]]]}
    columns = {name: pandas.Series(values, dtype=object) for name, values in columns.items()}
    frame = pandas.DataFrame({"image": [image] * 3, **columns})
    with pytest.raises(UsageError, match="column 'x' of whole numbers has no value in row 1"):
        packed(frame, tmp_path / "no", fields={"x": "int16", "boxes": "xyxy"})
    reader = packed(frame, tmp_path / "all", fields={"x": "float64", "boxes": "xyxy"}, size="keep")
    np.testing.assert_array_equal(reader.column("x"), [4, np.nan, 5])
    assert reader.column("label").tolist() == [1, -1, 0]
    assert [one.tolist() for one in reader.column("boxes")] == [[[1, 1, 3, 3, 7]], [], [[0, 0, 2, 2, 8]]]
