"""DataFrames, Hugging Face datasets and the labels of Python datasets become what the same table in a file does."""

from __future__ import annotations

import csv
import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture
from PIL import Image
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


def in_memory(form: str, columns: dict[str, list[Any]]) -> Any:
    """The same table in any form."""
    if form == "columns":
        return columns
    if form in ("records", "dataset", "stream"):
        records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {"records": list, "dataset": Lazy, "stream": iter}[form](records)
    if form.endswith("arrow"):
        table = pytest.importorskip("pyarrow").table(columns)
        return table.to_pandas() if form == "pandas of arrow" else table
    return pytest.importorskip(form).DataFrame(columns)


def files(count: int) -> list[bytes]:
    return [encoded(picture(4, 4, i)) for i in range(count)]


@pytest.mark.parametrize(
    ("form", "label", "workers"),
    [
        ("columns", "breed", 0),
        ("dataset", "label", 2),
        ("dataset", "breed", 0),
        ("pandas", "label", 0),
        ("polars", "breed", 0),
    ],
)
def test_text_labels_are_the_classes_of_the_same_csv(
    form: str, label: str, workers: int, paths: list[str], tmp_path: Path
) -> None:
    """Of the column of that name, or of another one that is named."""
    with (tmp_path / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *zip(paths, BREEDS, strict=True)])
    source = in_memory(form, {"image": paths, label: BREEDS, "age": [*range(N)]})
    named = {} if label == "label" else {"label_column": label}
    reader = packed(source, tmp_path / "s", size="keep", workers=workers, **named)
    for one in (packed(tmp_path / "table.csv", tmp_path / "csv"), reader):
        assert one.classes == ("Zwergspitz", "beagle", "corgi", "pug")
        assert one.column("label").tolist() == [3, -1, 1, 3, 2, 0]
    assert [*reader.fields] == ["image", "label", "age", "key"]
    assert reader.column("age").tolist() == [*range(N)]
    for i, sample in enumerate(reader):
        np.testing.assert_array_equal(sample["image"], picture(9, 8, i))
    with pytest.raises(UsageError, match="has no 'race'"):
        packed(source, tmp_path / "no", label_column="race")


def test_labels_of_tuples_that_are_texts(tmp_path: Path) -> None:
    """A sample that cannot be read is rejected, and no class is lost; texts may be in `targets` instead, or have
    another name."""
    samples: list[Any] = [(picture(4, 4, i), label) for i, label in enumerate(["b", "a", "c"])]
    reader = packed(Lazy([samples[0], None, *samples[1:]]), tmp_path / "s", max_rejects=1)
    assert (reader.classes, reader.column("label").tolist()) == (("a", "b", "c"), [1, 0, 2])
    known: Any = Lazy(samples)
    known.targets = ("b", "a", "c")
    assert packed(known, tmp_path / "known", size=8).classes == ("a", "b", "c")
    named = packed(samples, tmp_path / "named", names=("image", "breed"), label_column="breed")
    assert named.column("label").tolist() == [1, 0, 2]


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_values_that_are_missing_in_frames(module: str, tmp_path: Path) -> None:
    """A number of a class is -1, a text empty; a column of images that has another name must be named."""
    columns = {"picture": files(3), "label": [1, None, 0], "note": ["a", None, "c"], "score": [0.5, 1.5, 2.5]}
    frame = in_memory(module, columns)
    with pytest.raises(UsageError, match=r"none is called image, path, file_name.*names={'image': 'COLUMN'}"):
        packed(in_memory(module, {"note": ["a", "b", "c"]}), tmp_path / "no")
    reader = packed(frame, tmp_path / "s", names={"image": "picture"})
    assert reader.column("label").tolist() == [1, -1, 0]
    assert list(reader.column("note")) == ["a", "", "c"]
    np.testing.assert_array_equal(reader.column("score"), [0.5, 1.5, 2.5])


@pytest.mark.parametrize("module", ["pandas", "polars", "arrow"])
def test_the_keys_of_a_frame_are_its_paths(module: str, paths: list[str], tmp_path: Path) -> None:
    """Or the column `key`; where one is missing or there twice, the numbers of rows are, which the summary says."""

    def keys(said: str, **columns: list[Any]) -> list[str]:
        source = open_dataset(in_memory(module, {"path": paths, "age": [*range(N)], **columns}))
        assert any(said in one for one in source.info.problems) if said else not source.info.problems
        return [source.key(i) for i in range(N)]

    numbers = [f"{i:08}" for i in range(N)]
    not_paths, not_column = ("keys are the numbers of rows, not the " + what for what in ("paths: ", "column 'key': "))
    assert keys("") == paths
    assert keys("", key=[*"abcdef"]) == [*"abcdef"]
    assert keys(f"{not_paths}row 5 has '{paths[0]}', as row 0 has", path=[*paths[:-1], paths[0]]) == numbers
    assert keys(f"{not_column}row 5 has no text", key=[1, 2, 3, 4, 5, None]) == numbers
    frame = in_memory(module, {"path": paths, "age": [*range(N)]})
    with pytest.raises(UsageError, match=r"call that column 'key', or pass keys=source\['age'\]"):
        packed(frame, tmp_path / "no", key_column="age")
    reader = packed(frame, tmp_path / "keys", keys=[str(one) for one in frame["age"]])
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


@pytest.mark.parametrize(
    ("form", "odd"),
    [
        *((form, [BIG, 0.5]) for form in ("records", "columns", "stream")),
        ("records", [2**63 + 1, -1]),
        ("records", [np.int64(BIG), 0.5]),
    ],
)
def test_lists_of_numbers_that_numpy_would_round_are_refused(form: str, odd: list[Any], tmp_path: Path) -> None:
    """As the first value, and as a later one, where the sample is rejected."""
    columns = {"image": [picture(4, 4, i) for i in range(3)], "x": [odd, [1.0, 2.0], [3.0, 4.0]]}
    with pytest.raises(UsageError, match=r"its first value is list.*fields=\{'x': 'str'\}"):
        packed(in_memory(form, columns), tmp_path / "no")
    columns["x"] = [[1.0, 2.0], odd, [3.0, 4.0]]
    reader = packed(in_memory(form, columns), tmp_path / "s", max_rejects=1)
    np.testing.assert_array_equal(reader.column("x"), [[1.0, 2.0], [3.0, 4.0]])


def test_names_of_classes_that_begin_with_numbers(tmp_path: Path) -> None:
    """As those of UCF101: labels that are numbers count from 0, so that a file of names that counts from 1 is refused;
    for labels that are texts, the numbers do not matter."""
    (tmp_path / "from 1").write_text("1 cat\n2 dog\n3 owl\n")
    (tmp_path / "from 0").write_text("0 cat\n1 dog\n2 owl\n")
    numbers, texts = ({"image": files(3), "label": one} for one in ([1, 2, 1], ["dog", "owl", "dog"]))
    with pytest.raises(UsageError, match="counts the classes from 1, as '1 cat' says, and these numbers count from 0"):
        packed(numbers, tmp_path / "no", classes=tmp_path / "from 1")
    for source, names in ((numbers, "from 0"), (texts, "from 1")):
        reader = packed(source, tmp_path / f"s {names}", classes=tmp_path / names)
        assert (reader.classes, reader.column("label").tolist()) == (("cat", "dog", "owl"), [1, 2, 1])


@pytest.mark.parametrize("form", ["polars", "arrow"])
def test_lists_of_frames_are_not_rounded(form: str, tmp_path: Path) -> None:
    """polars and Arrow give such with a missing number as floats. Among lists of different lengths, a whole number that
    the dtype of all would round is refused, wherever the numbers are that make it so."""
    frame = in_memory(form, {"image": files(3), "x": [[1, 2], [BIG, None], [BIG, 4]]})
    assert packed(frame, tmp_path / "s", max_rejects=1).column("x").tolist() == [[1, 2], [BIG, 4]]
    frame = in_memory("pandas", {"image": files(4), "x": [[-1, 2], [BIG], [0.5], []]})
    with pytest.raises(UsageError, match=f"column 'x', row 1: float64, which fits all .*cannot represent .*{BIG}"):
        packed(frame, tmp_path / "no")


@pytest.mark.parametrize("form", ["arrow", "polars", "pandas", "pandas of arrow"])
def test_a_category_that_is_missing_is_none(form: str, tmp_path: Path) -> None:
    """And never the last one, which an Arrow dictionary as an array has in its place."""
    column: Any = ["b", None, "a", "b"]
    if form == "polars":
        polars = pytest.importorskip("polars")
        column = polars.Series(column, dtype=polars.Categorical)
    elif form == "pandas":
        column = pytest.importorskip("pandas").Categorical(column)
    else:
        column = pytest.importorskip("pyarrow").array(column).dictionary_encode()
    if form == "pandas of arrow":
        pandas = pytest.importorskip("pandas")
        column = pandas.Series(column, dtype=pandas.ArrowDtype(column.type))
    source = in_memory(form.partition(" ")[0], {"image": files(4), "label": column})
    assert packed(source, tmp_path / "s").column("label").tolist() == [1, -1, 0, 1]


@pytest.mark.parametrize("form", ["records", "polars"])
def test_datasets_in_memory_are_split_by_a_column(form: str, paths: list[str], tmp_path: Path) -> None:
    """All splits get all classes; of what the column lacks, nothing is packed."""
    sets, scene = ["train", "val", "train", "val", "train", "test"], [1, 2, 3, 4, 5, 6]
    source = in_memory(form, {"image": paths, "set": sets, "scene": scene, "label": BREEDS})
    rawpack_packer.pack_splits(source, tmp_path / "set", split_by="set", workers=0)
    for split in ("train", "val", "test"):
        reader = Reader(tmp_path / "set", split=split)
        assert reader.classes == ("Zwergspitz", "beagle", "corgi", "pug")
        assert reader.column("scene").tolist() == [scene[i] for i in range(N) if sets[i] == split]


STAMP = dt.datetime(2026, 11, 28, 8, 15, 0, 250_000)
ZONED = STAMP.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))
TIMES: dict[str, tuple[list[Any], list[str]]] = {
    "stamp": ([STAMP, None, STAMP.replace(microsecond=0)], ["2026-11-28T08:15:00.25", "", "2026-11-28T08:15:00"]),
    "zoned": ([ZONED] * 3, ["2026-11-28T08:15:00.25+01:00"] * 3),
    "day": ([dt.date(2026, 11, 28), None, dt.date(1, 2, 3)], ["2026-11-28", "", "0001-02-03"]),
    "clock": ([dt.time(8, 15), dt.time(8, 15, 0, 500), dt.time(23)], ["08:15:00", "08:15:00.0005", "23:00:00"]),
    "took": ([dt.timedelta(seconds=90.5), dt.timedelta(0), -dt.timedelta(days=2)], ["PT90.5S", "PT0S", "-PT172800S"]),
    "price": ([*map(Decimal, ("1.50", "3.00", "-0.10"))], ["1.50", "3.00", "-0.10"]),
}
"""Name -> the values of a column, and what ISO 8601 says of them."""


@pytest.mark.parametrize("form", ["pandas", "arrow", "records"])
def test_times_and_decimals_are_text(form: str, tmp_path: Path) -> None:
    """ISO 8601 with a T, whatever they come in. Unasked, points in time of tables are; all else is refused with a cure
    that works. A sample of a list needs each value."""

    def source_of(*names: str) -> Any:
        return in_memory(form, {"image": files(3), **{name: TIMES[name][0] for name in names}})

    names = [name for name in TIMES if form != "records" or None not in TIMES[name][0]]
    reader = packed(source_of(*names), tmp_path / "s", fields=dict.fromkeys(names, "str"))
    assert {name: [*reader.column(name)] for name in names} == {name: TIMES[name][1] for name in names}
    points = ["stamp", "zoned", "day"] if form != "records" else []
    if points:
        reader = packed(source_of(*points), tmp_path / "points")
        assert all([*reader.column(name)] == TIMES[name][1] for name in points)
    for name in TIMES.keys() - {*points}:
        with pytest.raises(UsageError, match=re.escape(f"fields={{'{name}': 'str'}}")):
            packed(source_of(name), tmp_path / "no")


@pytest.mark.parametrize("form", ["pandas", "polars", "csv"])
def test_a_bool_that_is_missing(form: str, paths: list[str], tmp_path: Path) -> None:
    """It is refused, and text has it as an empty one."""
    columns: dict[str, Any] = {"image": files(3), "x": [True, None, False]}
    source: Any = tmp_path / "t.csv"
    if form == "csv":
        source.write_text(f"path,x\n{paths[0]},true\n{paths[1]},\n{paths[2]},false\n")
    else:
        source = in_memory(form, columns)
    with pytest.raises((UsageError, PackError), match=r"bool.*fields=\{'x': 'str'\} \(empty\)"):
        packed(source, tmp_path / "no")
    assert [*packed(source, tmp_path / "s", fields={"x": "str"}).column("x")] == ["true", "", "false"]


ONE_HOT = np.eye(4)[[3, 0, 1, 0, 2, 3]] * np.array([1, 1, 1, 0, 1, 1])[:, None]


@pytest.mark.parametrize("form", ["columns", "dataset"])
def test_one_hot_labels_are_refused_with_what_numbers_them(form: str, tmp_path: Path) -> None:
    """Whatever has them; without the word, they are stored as they are."""
    source = in_memory(form, {"image": files(N), "y": [*ONE_HOT]})
    with pytest.raises(UsageError, match="one-hot labels are numbered before packing") as error:
        packed(source, tmp_path / "s", label_column="y:onehot")
    numbers = eval(str(error.value).partition("in NumPy, ")[2], {"np": np, "y": ONE_HOT})
    assert numbers.tolist() == [3, 0, 1, -1, 2, 3]
    assert len(packed(source, tmp_path / "kept")) == N


@pytest.mark.parametrize(
    ("form", "first", "number"), [("pandas", False, int), ("pandas of arrow", None, float), ("polars", True, float)]
)
def test_lists_of_different_lengths_are_ragged(form: str, first: bool | None, number: type, tmp_path: Path) -> None:
    """As in listings, whatever the first one is, full, empty or missing; a missing one is an array of length 0. Of
    lists of four numbers the summary says that nobody declared them as boxes."""
    of = [None if first is None else [1, 2] * first, [2, 3, 4], None, []]

    def lists(make: Any) -> list[Any]:
        return [one if one is None else [make(n) for n in one] for one in of]

    columns = {"x": lists(number), "pairs": lists(lambda n: [number(n)] * 2), "text": lists(str)}
    source = in_memory(form, {"image": files(len(of)), **columns, "bbox": lists(lambda n: [n, n, n, n])})
    reader = packed(source, tmp_path / "s", size="keep", fields={"text": "str[?]"} if number is int else None)
    (batch,) = reader.batches(len(of), fields=[*columns], workers=0)
    for name, values in columns.items():
        assert [[*one] if name == "text" else one.tolist() for one in batch[name]] == [one or [] for one in values]
    assert {one.dtype for name in ("x", "pairs") for one in batch[name]} == {np.dtype(number)}
    assert {one.shape[1:] for one in batch["pairs"]} == {(2,)}
    assert "'bbox' is stored as plain numbers" in " ".join(open_dataset(source).info.problems)


def test_objects_that_are_missing_in_pandas(tmp_path: Path) -> None:
    """None among bools, whole numbers and floats of a column of objects is what it is in one of numbers."""
    pandas = pytest.importorskip("pandas")

    def frame(**columns: list[Any]) -> Any:
        series = {name: pandas.Series(values, dtype=object) for name, values in columns.items()}
        return pandas.DataFrame({"image": files(3), **series})

    for values, what in (([True, None, False], "bool"), ([1, None, 2], "whole numbers")):
        with pytest.raises(UsageError, match=f"column 'x' of {what} has no value in row 1"):
            packed(frame(x=values), tmp_path / "no")
    floats = packed(frame(x=[1.5, None, 2]), tmp_path / "floats").column("x")
    np.testing.assert_array_equal(floats, [1.5, np.nan, 2])
    source = frame(label=[BIG, None, 3], x=[4, None, 5], boxes=[[[1, 1, 3, 3, 7]], None, [[0, 0, 2, 2, 8]]])
    reader = packed(source, tmp_path / "all", fields={"x": "float64", "boxes": "xyxy"}, size="keep")
    np.testing.assert_array_equal(reader.column("x"), [4, np.nan, 5])
    assert (reader.fields["label"].dtype, reader.column("label").tolist()) == ("int64", [BIG, -1, 3])
    assert [one.tolist() for one in reader.column("boxes")] == [[[1, 1, 3, 3, 7]], [], [[0, 0, 2, 2, 8]]]
    with pytest.raises(UsageError, match="two columns 'x': rename one"):
        packed(pandas.concat([source, source[["x"]]], axis=1), tmp_path / "no")
