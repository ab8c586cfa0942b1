"""All kinds of source answer the same questions alike: a user who knows one knows the others."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archived import tar
from pictures import encoded
from PIL import Image
from running import run_here

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack_packer.sources import DatasetSource, Source, open_source

SIDE = 12


def png(shade: int) -> bytes:
    return encoded(np.full((SIDE, SIDE, 3), (shade, 0, 9), np.uint8))


def rows_of_csv(path: Path, columns: dict[str, Sequence[Any]], images: Sequence[bytes]) -> Path:
    for i, image in enumerate(images):
        (path / f"{i}.png").write_bytes(image)
    with (path / "list.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["path", *columns])
        out.writerows([f"{i}.png", *(values[i] for values in columns.values())] for i in range(len(images)))
    return path / "list.csv"


def rows_of_jsonl(path: Path, columns: dict[str, Sequence[Any]], images: Sequence[bytes]) -> Path:
    for i, image in enumerate(images):
        (path / f"{i}.png").write_bytes(image)
    rows = [{"path": f"{i}.png"} | {name: values[i] for name, values in columns.items()} for i in range(len(images))]
    (path / "list.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path / "list.jsonl"


def rows_of_parquet(path: Path, columns: dict[str, Sequence[Any]], images: Sequence[bytes]) -> Path:
    table = {"image": pa.array(list(images), pa.binary()), **{name: list(values) for name, values in columns.items()}}
    pq.write_table(pa.table(table), path / "table.parquet")
    return path / "table.parquet"


def rows_of_hdf5(path: Path, columns: dict[str, Sequence[Any]], images: Sequence[bytes]) -> Path:
    with h5py.File(path / "set.h5", "w") as file:
        kept = file.create_dataset("image", len(images), h5py.vlen_dtype(np.uint8))
        for i, image in enumerate(images):
            kept[i] = np.frombuffer(image, np.uint8)
        for name, values in columns.items():
            file[name] = list(values)
    return path / "set.h5"


def rows_of_npz(path: Path, columns: dict[str, Sequence[Any]], images: Sequence[bytes]) -> Path:
    pixels = np.array([np.asarray(Image.open(io.BytesIO(image))) for image in images], np.uint8)
    np.savez(path / "set.npz", image=pixels, **{name: np.array(values) for name, values in columns.items()})
    return path / "set.npz"


def rows_of_columns(path: Path, columns: dict[str, Sequence[Any]], images: Sequence[bytes]) -> dict[str, Any]:
    pixels = [np.asarray(Image.open(io.BytesIO(image))) for image in images]
    return {"image": pixels, **{name: list(values) for name, values in columns.items()}}


TABLES: dict[str, Callable[[Path, dict[str, Sequence[Any]], Sequence[bytes]], Any]] = {
    "csv": rows_of_csv,
    "jsonl": rows_of_jsonl,
    "parquet": rows_of_parquet,
    "hdf5": rows_of_hdf5,
    "npz": rows_of_npz,
    "columns": rows_of_columns,
}
FILES = [name for name in TABLES if name != "columns"]


def shards(path: Path, labels: Sequence[str], images: Sequence[bytes]) -> Path:
    members: dict[str, bytes | str] = {}
    for i, (label, image) in enumerate(zip(labels, images, strict=True)):
        members |= {f"{i}.png": image, f"{i}.cls": label}
    (path / "set.tar").write_bytes(tar(members))
    return path / "set.tar"


def class_folders(path: Path, labels: Sequence[str], images: Sequence[bytes]) -> Path:
    for i, (label, image) in enumerate(zip(labels, images, strict=True)):
        (path / "set" / label).mkdir(parents=True, exist_ok=True)
        (path / "set" / label / f"{i}.png").write_bytes(image)
    return path / "set"


def with_labels(kind: str, path: Path, labels: Sequence[str], images: Sequence[bytes]) -> Any:
    return shards(path, labels, images) if kind == "webdataset" else TABLES[kind](path, {"label": labels}, images)


def opened(source: Any, **options: Any) -> Source:
    return open_source(source, **options) if isinstance(source, Path) else DatasetSource(source, **options)


@pytest.mark.parametrize("kind", [*TABLES, "webdataset"])
def test_labels_that_are_texts_are_names_of_classes(kind: str, tmp_path: Path) -> None:
    """Sorted, and numbered in that order."""
    labels, images = ["dog", "cat", "dog"], [png(i) for i in range(3)]
    source = opened(with_labels(kind, tmp_path, labels, images))
    assert source.info.classes == ("cat", "dog")
    assert [int(source[i].fields["label"]) for i in range(3)] == [1, 0, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [*TABLES, "webdataset"])
def test_texts_must_be_among_the_classes(kind: str, tmp_path: Path) -> None:
    """Where the user names all classes, a label that is none of them is refused, and named."""
    labels, images = ["dog", "cat", "eel"], [png(i) for i in range(3)]
    made = (
        shards(tmp_path, labels, images) if kind == "webdataset" else TABLES[kind](tmp_path, {"label": labels}, images)
    )
    with pytest.raises(UsageError, match=r"'eel'.* is none of the 2 classes"):
        opened(made, classes=["cat", "dog"])


@pytest.mark.parametrize("kind", [*FILES, "webdataset"])
def test_labels_that_are_numbers_have_the_names_that_are_given(kind: str, tmp_path: Path) -> None:
    """A number beyond them is refused; a class without samples is empty."""
    images = [png(i) for i in range(3)]
    if kind == "webdataset":
        made = shards(tmp_path, ["2", "0", "2"], images)
    else:
        made = TABLES[kind](tmp_path, {"label": [2, 0, 2]}, images)
    info = opened(made, classes=["a", "b", "c"]).info
    assert (info.classes, info.empty_classes) == (("a", "b", "c"), ("b",))
    assert (info.counts["unlabelled"], info.counts["empty_classes"]) == (0, 1)
    with pytest.raises(UsageError, match=r"\b2; there are 2 classes, counted from 0"):
        opened(made, classes=["a", "b"])


@pytest.mark.parametrize("kind", FILES)
def test_another_column_may_have_the_labels(kind: str, tmp_path: Path) -> None:
    """It is named by one option, whose error is the same where there is no such column."""
    made = TABLES[kind](tmp_path, {"species": ["dog", "cat"], "n": [1, 2]}, [png(0), png(1)])
    source = opened(made, label_column="species")
    assert (source.info.classes, int(source[0].fields["label"])) == (("cat", "dog"), 1)  # type: ignore[arg-type]
    assert set(source.info.fields) == {"label", "n"}
    with pytest.raises(UsageError, match=r"--label-column nothing: .* has no such column: it has .*species"):
        opened(made, label_column="nothing")


@pytest.mark.parametrize("kind", ["parquet", "hdf5", "npz"])
def test_of_several_columns_that_may_be_images_one_called_image_is(kind: str, tmp_path: Path) -> None:
    """Without such a name, the user is asked."""
    images = [png(1), png(2)]
    pixels = [np.asarray(Image.open(io.BytesIO(one))) for one in images]
    others = list(images) if kind == "parquet" else pixels
    assert len(opened(TABLES[kind](tmp_path, {"depth": others}, images))) == 2
    made = TABLES[kind](tmp_path, {"left": others, "right": others}, images)
    if kind == "hdf5":
        with h5py.File(made, "r+") as file:
            file.move("image", "middle")
    elif kind == "npz":
        np.savez(made, left=np.array(pixels), right=np.array(pixels))
    else:
        pq.write_table(pq.read_table(made).rename_columns(["middle", "left", "right"]), made)
    with pytest.raises(UsageError, match=r"(?s)several columns of images.*left.*right"):
        opened(made)


@pytest.mark.parametrize("kind", FILES)
def test_keys_are_those_of_a_column(kind: str, tmp_path: Path) -> None:
    """It is named by one option; keys that are not unique are refused, and one of them is named."""
    images = [png(0), png(1)]
    source = opened(TABLES[kind](tmp_path, {"name": ["x", "y"]}, images), key_column="name")
    assert [source.key(i) for i in range(2)] == ["x", "y"]
    with pytest.raises(UsageError, match=r"\bx\b"):
        opened(TABLES[kind](tmp_path, {"name": ["x", "x"]}, images), key_column="name")
    with pytest.raises(UsageError, match="nothing"):
        opened(TABLES[kind](tmp_path, {"name": ["x", "y"]}, images), key_column="nothing")


def packed_with_one_broken(kind: str, path: Path) -> Any:
    images, labels = [png(0), b"no image at all", png(2)], ["0", "1", "2"]
    if kind in ("csv", "jsonl", "parquet", "hdf5"):
        return TABLES[kind](path, {"label": [0, 1, 2]}, images)
    if kind == "webdataset":
        return shards(path, labels, images)
    if kind == "lmdb":
        with lmdb.open(str(path / "set.lmdb"), map_size=1 << 20) as made, made.begin(write=True) as values:
            for name, image in zip(labels, images, strict=True):
                values.put(name.encode(), image)
        return path / "set.lmdb"
    folder = class_folders(path, labels, images)
    if kind == "tar":
        with tarfile.open(path / "set.tar", "w") as archive:
            archive.add(folder, ".")
        return path / "set.tar"
    if kind == "zip":
        with zipfile.ZipFile(path / "set.zip", "w") as zipped:
            for file in sorted(folder.rglob("*.png")):
                zipped.write(file, file.relative_to(folder))
        return path / "set.zip"
    return folder


@pytest.mark.parametrize("kind", ["folder", "tar", "zip", "webdataset", "lmdb", "csv", "jsonl", "parquet", "hdf5"])
def test_an_entry_that_is_no_image_is_rejected(kind: str, tmp_path: Path) -> None:
    """With one reason, whatever it is in, and the others are packed; more rejects than allowed end the job."""
    (tmp_path / "in").mkdir()
    made, store = packed_with_one_broken(kind, tmp_path / "in"), tmp_path / "store"
    ran = run_here("pack", "--workers", 0, "--size", 8, "--max-rejects", 0, made, store)
    assert (ran.code, "not_an_image" in ran.err) == (1, True), ran
    rawpack_packer.pack(made, tmp_path / "other", size=8, workers=0, max_rejects=1)
    reader = Reader(tmp_path / "other")
    assert len(reader) == 2
    rejected = next((tmp_path / "other").rglob("rejects*")).read_text()
    assert rejected.count("not_an_image") == 1


@pytest.mark.parametrize("kind", ["folder", "tar", "lmdb"])
def test_a_name_that_is_not_utf8_is_rejected(kind: str, tmp_path: Path) -> None:
    """With one reason, and the others are packed."""
    (tmp_path / "in").mkdir()
    path, bad = tmp_path / "in", b"b\xff.png"
    made = path / f"set.{kind}"
    if kind == "folder":
        made.mkdir()
        (made / "a.png").write_bytes(png(1))
        Path(bytes(made).decode() + "/" + bad.decode("utf-8", "surrogateescape")).write_bytes(png(2))
    elif kind == "tar":
        with tarfile.open(made, "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
            for name in ("x/a.png", "x/" + bad.decode("utf-8", "surrogateescape")):
                member = tarfile.TarInfo(name)
                member.size = len(png(1))
                archive.addfile(member, io.BytesIO(png(1)))
    else:
        with lmdb.open(str(made), map_size=1 << 20) as written, written.begin(write=True) as values:
            values.put(b"a.png", png(1))
            values.put(bad, png(2))
    rawpack_packer.pack(made, tmp_path / "store", size=8, workers=0, max_rejects=1)
    assert len(Reader(tmp_path / "store")) == 1
    assert next((tmp_path / "store").rglob("rejects*")).read_text().count("bad_name") == 1


def empty_source(kind: str, path: Path) -> Any:
    if kind in TABLES and kind not in ("hdf5", "npz"):
        return TABLES[kind](path, {"label": []}, [])
    if kind == "npz":
        np.savez(path / "a.npz", image=np.zeros((0, 4, 4, 3), np.uint8))
        return path / "a.npz"
    if kind == "hdf5":
        with h5py.File(path / "a.h5", "w") as file:
            file["image"] = np.zeros((0, 4, 4, 3), np.uint8)
        return path / "a.h5"
    if kind == "tar":
        tarfile.open(path / "a.tar", "w").close()
        return path / "a.tar"
    if kind == "zip":
        zipfile.ZipFile(path / "a.zip", "w").close()
        return path / "a.zip"
    if kind == "lmdb":
        lmdb.open(str(path / "a.lmdb")).close()
        return path / "a.lmdb"
    (path / "a").mkdir()
    return path / "a"


@pytest.mark.parametrize("kind", [*TABLES, "folder", "tar", "zip", "lmdb"])
def test_a_source_without_samples_is_refused(kind: str, tmp_path: Path) -> None:
    """Nothing is written, and the source is named."""
    (tmp_path / "in").mkdir()
    made = empty_source(kind, tmp_path / "in")
    with pytest.raises(UsageError) as refused:
        rawpack_packer.pack(made, tmp_path / "store", workers=0)
    assert (made.name if isinstance(made, Path) else "dict") in str(refused.value)
    assert not (tmp_path / "store").exists()
