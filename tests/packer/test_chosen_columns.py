"""What tables take as labels and keys, where the first guess would be wrong: each is kept as it is, or refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pictures import encoded

import rawpack_packer
from rawpack import PackError, Reader, UsageError
from rawpack_packer.sources import open_source

N = 6
PIXELS = np.arange(N, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(9, 2).repeat(3, 3)
TEXTS = np.array(["b", "a", "c", "a", "", "b"])


def png(shade: int) -> bytes:
    return encoded(np.full((8, 8, 3), (shade, 0, 9), np.uint8))


def packed(source: Any, tmp_path: Path, **options: Any) -> Reader:
    rawpack_packer.pack(source, tmp_path / "store", workers=0, restart=True, **options)
    return Reader(tmp_path / "store")


def npz(tmp_path: Path, **arrays: Any) -> Path:
    np.savez(tmp_path / "set.npz", **{"image": PIXELS, **arrays})
    return tmp_path / "set.npz"


def hdf5(tmp_path: Path, **data_sets: Any) -> Path:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["image"] = PIXELS
        for name, values in data_sets.items():
            file[name.replace("__", "/")] = values
    return tmp_path / "set.h5"


def parquet(path: Path, start: int = 0, **columns: Any) -> Path:
    images = pa.array([png(start + i) for i in range(N)], pa.binary())
    pq.write_table(pa.table({"image": images, **columns}), path)
    return path


def values(reader: Reader, name: str) -> list[Any]:
    return [value.tolist() if isinstance(value := reader[i][name], np.generic) else value for i in range(len(reader))]


def test_measurements_in_an_idx_file_are_not_cut_to_whole_numbers(tmp_path: Path) -> None:
    (tmp_path / "t-images").write_bytes(struct.pack(">I3I", 0x803, N, 4, 5) + bytes(N * 20))
    (tmp_path / "t-labels").write_bytes(struct.pack(">II6f", 0xD01, N, *(i / 2 for i in range(N))))
    reader = packed(tmp_path / "t-images", tmp_path)
    assert values(reader, "label") == [i / 2 for i in range(N)]


@pytest.mark.parametrize("made", [npz, hdf5])
def test_keys_that_are_no_keys(made: Any, tmp_path: Path) -> None:
    """Whole numbers and texts name samples; measurements and rows of numbers do not."""
    source = made(tmp_path, whole=np.arange(N) + 7, half=np.arange(N) / 2, rows=np.zeros((N, 2), int))
    assert values(packed(source, tmp_path, key_column="whole"), "key") == [str(i + 7) for i in range(N)]
    for name in ("half", "rows"):
        with pytest.raises(UsageError, match=rf"key_column='{name}'.*keys are texts or whole numbers"):
            packed(source, tmp_path, key_column=name)


@pytest.mark.parametrize("made", [npz, hdf5])
def test_a_key_column_that_nobody_named_may_have_doubles(made: Any, tmp_path: Path) -> None:
    """It is then no key, as the summary says; named, it is refused with the first double."""
    source = made(tmp_path, key=np.array([b"a", b"a", b"b", b"b", b"c", b""]))
    assert values(packed(source, tmp_path), "key") == [f"{i:08}" for i in range(N)]
    said = "keys are the numbers of rows, not the texts of 'key': row 1 has 'a', as row 0 has"
    assert open_source(source).info.problems == (said,)
    with pytest.raises(UsageError, match="row 1 has 'a', as row 0 has"):
        packed(source, tmp_path, key_column="key")


@pytest.mark.parametrize("kind", ["npz", "hdf5", "parquet"])
def test_a_column_of_texts_is_the_label_whatever_its_name(kind: str, tmp_path: Path) -> None:
    """`--label-column breed` works alike for every kind of table: its texts, also as bytes, are the classes, sorted, an
    empty one is none, and the column is no field besides."""
    source: Path
    if kind == "npz":
        source = npz(tmp_path, breed=TEXTS.astype("S"), n=np.arange(N))
    elif kind == "hdf5":
        source = hdf5(tmp_path, breed=TEXTS.astype("S"), n=np.arange(N))
    else:
        source = parquet(tmp_path / "t.parquet", breed=pa.array(TEXTS.tolist()).dictionary_encode(), n=range(N))
    table = open_source(source, label_column="breed")
    assert table.info.classes == ("a", "b", "c")
    fields = [table.part(i, i + 1)[0].fields for i in range(N)]
    assert [int(one["label"]) for one in fields] == [1, 0, 2, 0, -1, 1]  # type: ignore[call-overload]
    assert [int(one["n"]) for one in fields] == list(range(N))  # type: ignore[call-overload]
    assert {*table.info.fields} == {"label", "n"}


def test_data_sets_with_one_last_name(tmp_path: Path) -> None:
    """Of those in groups, none is taken as the label, and each has a name of its own; one called `label` that is in no
    group is. A slash may come first."""
    source = hdf5(tmp_path, a__label=np.arange(N), b__label=np.arange(N) % 2)
    reader = packed(source, tmp_path)
    assert (values(reader, "a_label"), values(reader, "b_label")) == (list(range(N)), [0, 1] * 3)
    assert "label" not in reader[0] or set(values(reader, "label")) == {-1}
    assert values(packed(source, tmp_path, label_column="/b/label"), "label") == [0, 1] * 3
    assert values(packed(source, tmp_path, array="image=/image,label=/b/label"), "label") == [0, 1] * 3
    (tmp_path / "more").mkdir()
    reader = packed(hdf5(tmp_path / "more", label=np.arange(N), meta__label=np.arange(N) * 10), tmp_path)
    assert (values(reader, "label"), values(reader, "meta_label")) == (list(range(N)), [i * 10 for i in range(N)])


def test_another_label_beside_a_column_called_label(tmp_path: Path) -> None:
    """The message names a way that works; images are no labels."""
    source = npz(tmp_path, label=np.arange(N), y=np.arange(N) * 2)
    with pytest.raises(UsageError, match=r"has a column 'label' too: .*array='image=image,label=y'"):
        packed(source, tmp_path, label_column="y")
    assert values(packed(source, tmp_path, array="image=image,label=y"), "label") == [i * 2 for i in range(N)]
    with pytest.raises(UsageError, match="label_column='image'"):
        packed(source, tmp_path, label_column="image")


@pytest.mark.parametrize(("first", "second"), [(pa.int8(), pa.int64()), (pa.string(), pa.large_string())])
def test_parquet_files_whose_labels_differ_in_type(first: pa.DataType, second: pa.DataType, tmp_path: Path) -> None:
    """Writers choose types by what a shard holds. The files are one table, or are refused by name."""
    (tmp_path / "set").mkdir()
    labels = ["a", "b", "a"] * 2 if pa.types.is_string(first) else [0, 1, 0] * 2
    parquet(tmp_path / "set/0.parquet", 0, label=pa.array(labels, first))
    parquet(tmp_path / "set/1.parquet", 50, label=pa.array(labels, second))
    assert values(packed(tmp_path / "set", tmp_path), "label") == [0, 1, 0, 0, 1, 0] * 2


def test_a_label_in_parquet_that_is_declared_as_text(tmp_path: Path) -> None:
    """It stays the text that it is, and there are no classes; bytes are none of both."""
    reader = packed(parquet(tmp_path / "t.parquet", label=pa.array(TEXTS.tolist())), tmp_path, fields={"label": "str"})
    assert (values(reader, "label"), reader.classes) == (TEXTS.tolist(), None)
    source = parquet(tmp_path / "t.parquet", label=pa.array([b"\xff"] * N, pa.binary()))
    with pytest.raises(UsageError, match="labels are numbers or names"):
        packed(source, tmp_path)


def test_a_first_sample_without_a_label(tmp_path: Path) -> None:
    """It is rejected, as any other without one, and does not decide what labels are."""
    samples = [{"image": PIXELS[i], "label": None if i == 0 else i} for i in range(N)]
    with pytest.raises(PackError, match="00000000: label is NoneType"):
        packed(samples, tmp_path)
    assert values(packed(samples, tmp_path, max_rejects=1), "label") == [1, 2, 3, 4, 5]
