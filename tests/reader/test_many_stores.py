"""Several stores read as one: formats, shards and folders of columns do not show."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import tries
from hypothesis import given, settings
from hypothesis import strategies as st

import rawpack_packer
from rawpack import Reader
from rawpack.errors import DamagedStoreError, WorkerError

STORES = ("appended", "compressed", "single")
"""Of two shards in one folder of columns and one in another; of two shards; of one, larger than what is checked of it
when it is opened."""
COUNT = 350


def sample(number: int) -> dict[str, Any]:
    """A sample, other for each number: its image, boxes (none of every third), text and numbers."""
    random = np.random.default_rng(number)
    return {
        "image": random.integers(0, 256, (10, 12, 3), np.uint8),
        "boxes": np.tile(np.array([1, 2, 5, 6, number], np.float32), (number % 3, 1)),
        "caption": f"no. {number}" * (number % 4),
        "number": number,
        "place": np.array([number, -number], np.float64),
    }


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("many")
    samples = [sample(number) for number in range(COUNT)]
    common: dict[str, Any] = {"fields": {"boxes": "xyxy"}, "workers": 0}
    options: dict[str, Any] = {"size": "keep", **common}
    rawpack_packer.pack(samples[:70], folder / "appended", format="memmap", shard_size=1, **options)
    rawpack_packer.append(samples[70:80], folder / "appended", **common)
    gzip: dict[str, Any] = {"format": "hdf5", "compression": "gzip"}
    rawpack_packer.pack(samples[80:150], folder / "compressed", shard_size=1, **gzip, **options)
    rawpack_packer.pack(samples[150:], folder / "single", format="memmap", **options)
    return [folder / name for name in STORES]


@pytest.fixture(scope="module")
def reader(paths: list[Path]) -> Reader:
    return Reader(paths)


def same(name: str, found: Any, number: int) -> bool:
    return bool(np.array_equal(found, sample(number)[name]))


@settings(max_examples=tries(120), deadline=None)
@given(rows=st.lists(st.integers(0, COUNT - 1), max_size=40))
def test_any_rows_of_several_stores(reader: Reader, rows: list[int]) -> None:
    """Any samples, in any order and repeated, come as they were packed, each field in the order that was asked for."""
    assert [len(store.manifest.shards) for store in reader._library.stores] == [3, 2, 1]
    found = reader[rows]
    assert found["index"].tolist() == rows
    for name in sample(0):
        assert all(same(name, one, number) for one, number in zip(found[name], rows, strict=True)), name
    for row in rows[:3]:
        assert all(same(name, reader[row][name], row) for name in sample(0))


def test_damage_is_told_of_the_store_that_has_it(paths: list[Path], tmp_path: Path) -> None:
    """A sample whose bytes changed is refused with the path of its store, among several; a batch names its row."""
    copies = [Path(shutil.copytree(path, tmp_path / path.name)) for path in paths]
    (shard,) = copies[2].glob("shard-*")
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    reader = Reader(copies, verify=True)
    assert same("image", reader[COUNT - 2]["image"], COUNT - 2)
    with pytest.raises(DamagedStoreError, match="single: image was changed after packing"):
        reader[COUNT - 1]
    with pytest.raises(WorkerError, match=rf"sample {COUNT - 1} .*single: image was changed after packing"):
        list(reader.batches(16, workers=0))
