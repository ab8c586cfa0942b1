"""The same question, asked of every kind of source: all answer alike, or the table says why a kind cannot be asked."""

from __future__ import annotations

import io
import json
import re
import shlex
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archived import tar, zipped
from PIL import Image
from running import run_here
from tfrecords import tfrecord

from rawpack import Reader
from rawpack.errors import UsageError
from rawpack_packer.sources.base import Source
from rawpack_packer.sources.dataset import open_dataset
from rawpack_packer.sources.doubts import SplitColumnError, add_doubts, refuse_split_column
from rawpack_packer.sources.folder import DividedError
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.registry import kinds_at, open_source

Columns = dict[str, list[Any]]


def _png(i: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4), (i, 0, 0)).save(file, "PNG")
    return file.getvalue()


def _files(root: Path, count: int) -> list[str]:
    for i in range(count):
        (root / f"{i}.png").write_bytes(_png(i))
    return [f"{i}.png" for i in range(count)]


def _csv(root: Path, columns: Columns) -> Source:
    columns = {"path": _files(root, len(next(iter(columns.values())))), **columns}
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    (root / "t.csv").write_text("\ufeff" + "\n".join(rows) + "\n", "utf-8")
    return open_source(root / "t.csv")


def _jsonl(root: Path, columns: Columns) -> Source:
    columns = {"path": _files(root, len(next(iter(columns.values())))), **columns}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (root / "t.jsonl").write_text("\ufeff" + "".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return open_source(root / "t.jsonl")


def _parquet(root: Path, columns: Columns) -> Source:
    images = [_png(i) for i in range(len(next(iter(columns.values()))))]
    pq.write_table(pa.table({"image": images, **columns}), root / "t.parquet")
    return open_source(root / "t.parquet")


def _tfrecord(root: Path, columns: Columns) -> Source:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    encoded = [{name: one.encode() if isinstance(one, str) else one for name, one in row.items()} for row in rows]
    (root / "t.tfrecord").write_bytes(tfrecord([{"image": _png(i), **row} for i, row in enumerate(encoded)]))
    return open_source(root / "t.tfrecord")


def _npz(root: Path, columns: Columns) -> Source:
    count = len(next(iter(columns.values())))
    images: Any = np.zeros((count, 4, 4, 3), np.uint8)
    np.savez(root / "t.npz", image=images, **{name: np.array(one) for name, one in columns.items()})
    return open_source(root / "t.npz")


def _hdf5(root: Path, columns: Columns) -> Source:
    with h5py.File(root / "t.h5", "w") as file:
        file["image"] = np.zeros((len(next(iter(columns.values()))), 4, 4, 3), np.uint8)
        for name, values in columns.items():
            file[name] = values
    return open_source(root / "t.h5")


def _chunk(head: list[int], samples: list[list[bytes]], skip: int, config: bytes = b"") -> bytes:
    """A file of samples, each with the lengths of its values but for the first `skip`, which have 8 bytes, before
    them. head: what is before the offsets of the samples."""
    encoded = [struct.pack(f"<{len(row) - skip}I", *map(len, row[skip:])) + b"".join(row) for row in samples]
    first = 4 * (len(head) + len(samples) + 1) + len(config)
    ends = [first + sum(map(len, encoded[:i])) for i in range(len(samples) + 1)]
    return struct.pack(f"<{len(head) + len(ends)}I", *head, *ends) + config + b"".join(encoded)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else struct.pack("<q", value)


def _mds(root: Path, columns: Columns) -> Source:
    """Streaming's shards: numbers take 8 bytes, and have no length before them."""
    columns = dict(sorted(columns.items(), key=lambda column: isinstance(column[1][0], str)))
    count, whole = len(next(iter(columns.values()))), sum(not isinstance(values[0], str) for values in columns.values())
    samples = [[*(_bytes(values[i]) for values in columns.values()), _png(i)] for i in range(count)]
    data = _chunk([count], samples, whole, b"{}")
    (root / "shard.00000.mds").write_bytes(data)
    about = {
        "column_names": [*columns, "image"],
        "column_encodings": [*("str" if isinstance(values[0], str) else "int" for values in columns.values()), "png"],
        "column_sizes": [8] * whole + [None] * (len(columns) + 1 - whole),
        "compression": None, "format": "mds", "hashes": [], "samples": count, "size_limit": 1 << 26, "version": 2,
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}}, "zip_data": None,
    }  # fmt: skip
    (root / "index.json").write_text(json.dumps({"version": 2, "shards": [about]}))
    return open_source(root)


def _litdata(root: Path, columns: Columns) -> Source:
    count = len(next(iter(columns.values())))
    data = _chunk([count], [[_png(i), *(_bytes(values[i]) for values in columns.values())] for i in range(count)], 0)
    (root / "chunk-0-0.bin").write_bytes(data)
    formats = ["jpeg", *("str" if isinstance(values[0], str) else "int" for values in columns.values())]
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    tree = {"type": "builtins.dict", "context": json.dumps(["image", *columns]), "children_spec": [leaf] * len(formats)}
    config = {"data_format": formats, "data_spec": json.dumps([1, tree]), "item_loader": "PyTreeLoader"}
    chunk = {"chunk_bytes": len(data), "chunk_size": count, "dim": None, "filename": "chunk-0-0.bin"}
    (root / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))
    return open_source(root)


def _columns(root: Path, columns: Columns) -> Source:
    return open_dataset({"image": np.zeros((len(next(iter(columns.values()))), 4, 4, 3), np.uint8), **columns})


def _samples(root: Path, columns: Columns) -> Source:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return open_dataset([{"image": Image.new("RGB", (4, 4)), **row} for row in rows])


DOORS: dict[str, Callable[[Path, Columns], Source]] = {
    "csv": _csv, "jsonl": _jsonl, "parquet": _parquet, "tfrecord": _tfrecord, "npz": _npz, "hdf5": _hdf5,
    "mds": _mds, "litdata": _litdata, "columns": _columns, "samples": _samples,
}  # fmt: skip
MEMORY = ("columns", "samples")


def _members(columns: Columns) -> dict[str, bytes]:
    return {f"{name}/{i}.png": _png(i) for i, name in enumerate(columns["label"])}


def _folder(root: Path, columns: Columns) -> Source:
    for name, data in _members(columns).items():
        (root / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "set" / name).write_bytes(data)
    return open_source(root / "set")


def _tar(root: Path, columns: Columns) -> Source:
    (root / "set.tar").write_bytes(tar(_members(columns)))
    return open_source(root / "set.tar")


def _zip(root: Path, columns: Columns) -> Source:
    (root / "set.zip").write_bytes(zipped(_members(columns)))
    return open_source(root / "set.zip")


def _webdataset(root: Path, columns: Columns) -> Source:
    """The label in .cls, all else in .json."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    members = dict[str, bytes | str]()
    for i, row in enumerate(rows):
        members[f"{i}.png"] = _png(i)
        members |= {f"{i}.cls": str(row.pop("label"))} if "label" in row else {}
        members |= {f"{i}.json": json.dumps(row)} if row else {}
    (root / "set.tar").write_bytes(tar(members))
    return open_source(root / "set.tar", "webdataset")


OF_FOLDERS = {"folder": _folder, "tar": _tar, "zip": _zip}
"""Kinds whose labels are the names of folders, and which have no columns."""
LABELED: dict[str, Callable[[Path, Columns], Source]] = {**DOORS, **OF_FOLDERS, "webdataset": _webdataset}
NAMES = ("label", "Label", "class", "CLASS_NAME", "category_id", "target", "y", "classId", "cls")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_a_label_column(door: str, name: str, tmp_path: Path) -> None:
    source = DOORS[door](tmp_path, {name: [3, 1, 2]})
    assert [*source.info.fields] == ["label"]
    assert [int(source[i].fields["label"]) for i in range(3)] == [3, 1, 2]


@pytest.mark.parametrize("door", DOORS)
def test_what_is_none(door: str, tmp_path: Path) -> None:
    """Beside x, y is where something is; `label` itself comes before other names."""
    assert {*DOORS[door](tmp_path, {"x": [3, 1, 2], "y": [1, 2, 3]}).info.fields} == {"x", "y"}
    assert {*DOORS[door](tmp_path, {"class": [3, 1, 2], "label": [1, 2, 3]}).info.fields} == {"class", "label"}


@pytest.mark.parametrize("door", LABELED)
def test_names_of_classes(door: str, tmp_path: Path) -> None:
    name = "class" if door in DOORS else "label"
    source = LABELED[door](tmp_path, {name: ["cat", "dog", "cat"]})
    assert (source.info.classes, sorted(int(source[i].fields["label"]) for i in range(3))) == (
        ("cat", "dog"),
        [0, 0, 1],
    )


@pytest.mark.parametrize("door", LABELED)
@pytest.mark.parametrize(
    ("names", "line"),
    [(["7", "8", "10"], "class 10 has the label 0"), (["Oak", "a", "oak"], "Oak and oak differ in case only")],
)
def test_names_that_may_be_a_mistake(door: str, names: list[str], line: str, tmp_path: Path) -> None:
    source = LABELED[door](tmp_path, {"label": names})
    if door in MEMORY:
        add_doubts(source, {})
    as_numbers = door in ("csv", "webdataset") and names[0].isdecimal()  # in text files, they are numbers
    assert (line in " ".join(source.info.doubts)) != as_numbers


SILENT = dict.fromkeys(MEMORY, "a program says what it gives")


@pytest.mark.parametrize("door", [*DOORS, "webdataset"])
@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"tree": ["oak", "elm", "elm"] * 3, "n": [*range(9)]}, True),
        ({"kind_of_it": [5, 7, 5] * 3, "words": [f"text {i}" for i in range(9)]}, True),
        ({"tree": ["oak", "elm", "elm"] * 3, "weather": ["sun", "rain", "sun"] * 3}, False),  # which is not clear
        ({"words": [f"text {i}" for i in range(9)], "same": ["x"] * 9}, False),
        ({"label": [1, 0, 1] * 3, "tree": ["oak", "elm", "elm"] * 3}, False),
    ],
)
def test_what_may_be_the_label(door: str, columns: Columns, line: bool, tmp_path: Path) -> None:
    """Whatever it is called: the only column of few values that occur again, where no name says which it is."""
    if door == "hdf5" and "kind_of_it" in columns:
        pytest.skip("the only whole numbers of an HDF5 file are the label")
    problems = " ".join(DOORS.get(door, _webdataset)(tmp_path, columns).info.problems)
    name, *_ = columns
    cure = f"--field label=json.{name}" if door == "webdataset" else f"--label-column {name}"
    assert (cure in problems) == (line and not SILENT.get(door))


@pytest.mark.parametrize("door", [*DOORS, *OF_FOLDERS])
@pytest.mark.parametrize("values", [["train", "val", "train"], ["Training", "", "PublicTest"]])
def test_what_divides(door: str, values: list[str], tmp_path: Path) -> None:
    """A column of splits, or folders; of shards, names of files. A sample may be in none."""
    if door in OF_FOLDERS:
        with pytest.raises(DividedError, match="splits"):
            OF_FOLDERS[door](tmp_path, {"label": ["train", "val", "train"]})
        return
    with pytest.raises(SplitColumnError, match=r"column part of .* has the splits") as refused:
        refuse_split_column(DOORS[door](tmp_path, {"part": values, "n": [1, 2, 3]}), None, {})
    assert ("other:" in str(refused.value)) == ("" in values)


BLANKS = {
    **dict.fromkeys(("csv", "jsonl"), ""),
    **dict.fromkeys(
        ("parquet", "tfrecord", "npz", "hdf5", "mds", "litdata"), "texts of binary files are as they were written"
    ),
    **dict.fromkeys(("columns", "samples"), "texts in memory are as they were given"),
}


@pytest.mark.parametrize("door", DOORS)
def test_blanks_around_names(door: str, tmp_path: Path) -> None:
    source = DOORS[door](tmp_path, {"label": [" cat", "cat", "dog "]})
    assert source.info.classes == (("cat", "dog") if not BLANKS[door] else (" cat", "cat", "dog "))
    assert any("are one, 'cat'" in one for one in source.info.problems) != bool(BLANKS[door])


@pytest.mark.parametrize("name", ["path", "File Name", "image", "Photo", "where"])
@pytest.mark.parametrize("end", ["csv", "jsonl", "parquet"])
def test_what_is_a_path_column(end: str, name: str, tmp_path: Path) -> None:
    """All other kinds hold their images themselves."""
    columns = {name: _files(tmp_path, 3), "label": [3, 1, 2]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if end == "parquet":
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    else:
        lines = [",".join(columns), *(",".join(map(str, one.values())) for one in rows)]
        (tmp_path / f"t.{end}").write_text("\n".join(map(json.dumps, rows) if end == "jsonl" else lines) + "\n")
    source = open_source(tmp_path / f"t.{end}")
    assert (source.info.kind, len(source), [*source.info.fields]) == ("listing", 3, ["label"])


RECORDS = {"tfrecord": "data.tfrecord", "recordio": "data.rec", "webdataset": "data.tar"}
"""Kind -> the name of a file of records."""


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize(
    ("others", "size", "packs"),
    [
        ({"data.anything": 10}, 10, True),
        ({"data.tfindex": 5 << 20, "data.sums": 5 << 20}, 10, True),  # named as the records
        ({"made.by": 10, "LICENSE": 100, "notes.pdf": 1000}, 10, True),
        ({"made.by": 3 << 20}, 4 << 20, True),
        ({"made.by": 3 << 20}, 2 << 20, False),
        ({"data.jpg": 1}, 10, False),
        ({"other.mp4": 1}, 10, False),
    ],
)
def test_what_may_lie_beside_files_of_records(
    kind: str, others: dict[str, int], size: int, packs: bool, tmp_path: Path
) -> None:
    for name, count in {RECORDS[kind]: size, **others}.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(count)
    assert (kind in kinds_at(Listing(tmp_path))) == packs
    (tmp_path / "folder").mkdir()
    assert kind not in kinds_at(Listing(tmp_path))


def _csv_of(root: Path, name: str, head: str = "path,label") -> None:
    (root / f"{name}.png").write_bytes(_png(len(name)))
    (root / f"{name}.csv").write_text(f"{head}\n{name}.png,{name[0]}\n")


@pytest.mark.parametrize("pattern", ["[a-z].csv", "b.csv::a.csv", "a.csv", "[b]*.csv", "*.jsonl", "{1..2}.csv"])
def test_a_pattern_is_the_listings_that_it_names(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        _csv_of(tmp_path, name)
        rows = {"label": name, "path": f"{name}.png"} if name == "b" else {"path": f"{name}.png", "label": name}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(rows) + "\n")
    for number, name in (("1", "b"), ("2", "a")):
        (tmp_path / f"{number}.csv").write_text((tmp_path / f"{name}.csv").read_text())
    source = open_source(pattern)
    names = {"b.csv::a.csv": "ba", "a.csv": "a", "[b]*.csv": "b", "{1..2}.csv": "ba"}.get(pattern, "ab")
    assert [source[i].key for i in range(len(source))] == [f"{name}.png" for name in names]
    assert source.info.classes == tuple(sorted(names))
    labels = source.labels
    assert labels is not None
    assert [source.info.classes[k] for k in labels.tolist()] == [*names]
    assert len(source.info.paths) == len(names)


@pytest.mark.parametrize(("name", "most"), [("part{}.h5", 3), ("x-{}.hdf5", 2), ("{}.npz", 3)])
def test_files_of_one_other_kind_are_packed_one_by_one(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal of the folder prints the commands, and they pack all."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set").mkdir()
    for k in range(most):
        arrays = {"images": np.full((2, 8, 8, 3), k, np.uint8), "labels": np.array([k, 0])}
        if name.endswith("npz"):
            np.savez(tmp_path / "set" / name.format(k), **arrays)  # type: ignore[arg-type]
            continue
        with h5py.File(tmp_path / "set" / name.format(k), "w") as file:
            file.update(arrays)
    ran = run_here("pack", "--workers", 0, "set", "store")
    assert (ran.code, f"contains {most} other files" in ran.err) == (2, True), ran.err
    first, append = re.findall("`rawpack ([^`]+)`", ran.err)
    assert run_here(*shlex.split(first), "--workers", 0).code == 0
    for k in range(1, most):
        words = shlex.split(append.replace(name.format(1), name.format(k)))
        assert run_here(*words, "--workers", 0).code == 0
    assert [int(sample["label"]) for sample in Reader("store/")] == [n for k in range(most) for n in (k, 0)]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("*.csv", "c.csv has other columns than a.csv"),
        ("a.*", "names {}/a.png too, which is no listing"),
        ("t*/*.csv", "names several splits, train.csv, val.csv"),
        ("u*/*.csv", "names listings in several folders: --images"),
        (
            "t*.npy",
            "names t0.npy, t1.npy, and a source of kind arrays is one path: `rawpack pack t0.npy store/` packs the "
            "first, and `rawpack append t1.npy store/` adds the other",
        ),
        ("t{0..3}.npy", "names t0.npy, t1.npy, and a source of kind arrays is one path"),
        ("t{1..3}.npy", "of kind arrays is one path: name t1.npy"),
        ("u?", "names u1, u2, and a source of kind folder is one path"),
        ("nothing*.csv", "there is no file or folder"),
    ],
)
def test_what_a_pattern_cannot_name(
    pattern: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, name in (("", "a"), ("t", "train"), ("t", "val"), ("u1", "a"), ("u2", "b")):
        (tmp_path / folder).mkdir(exist_ok=True)
        _csv_of(tmp_path / folder, name)
    _csv_of(tmp_path, "c", "path,class")
    for k in range(2):
        np.save(tmp_path / f"t{k}.npy", np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(UsageError) as refused:
        open_source(pattern)
    assert message.replace("{}", str(tmp_path)) in str(refused.value)
