"""Rows of many shards in one call: whatever their offsets, sizes and stores, each row is the one that was asked for."""

from __future__ import annotations

import gc
import os
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import WAYS, Truth, descriptors
from running import FORMATS, Packed

from rawpack import Reader
from rawpack.formats.gather import Gather, RawShard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranges of addresses are reserved on Linux only")

PAGE = 4096
RAW = ("memmap", "hdf5", "hdf5-chunk4", "memmap")


@settings(max_examples=25)
@given(
    values=st.integers(1, 9000),
    shards=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=5),
    at=st.integers(0, 20_000),
    kind=st.sampled_from(["u1", "<u2", "<f4", "<f8"]),
    data=st.data(),
)
def test_any_shards(
    tmp_path_factory: pytest.TempPathFactory,
    values: int,
    shards: list[tuple[int, int]],
    at: int,
    kind: str,
    data: st.DataObject,
) -> None:
    """Shards of any size, whose first rows lie at any offsets that fit together, give the rows that files hold: also
    where values of several bytes are not aligned in memory, as in an HDF5 file with several datasets."""
    folder = tmp_path_factory.mktemp("shards")
    random, dtype = np.random.default_rng(values), np.dtype(kind)
    row = values * dtype.itemsize
    # Offsets fit where they differ by what pages and rows can be put together to.
    common = np.gcd(row, PAGE).item()
    plain: list[bytes] = []
    found: list[RawShard] = []
    for number, (rows, further) in enumerate(shards):
        offset = at + further * common
        pixels = random.integers(0, 256, rows * row, np.uint8).tobytes()
        path = folder / str(number)
        path.write_bytes(bytes(offset) + pixels + b"end")
        plain += [pixels[i * row : (i + 1) * row] for i in range(rows)]
        found.append(RawShard(rows, path.stat().st_size, offset, lambda path=path: (os.open(path, os.O_RDONLY), 0)))
    gc.collect()  # of what other tests left
    before = descriptors()
    gather = Gather(found, dtype, (values,), random_access=False)
    for _ in range(3):
        asked = data.draw(st.lists(st.integers(0, len(plain) - 1), max_size=8))
        out = np.full((len(asked), values), 7, dtype)
        gather.read_into(np.array(asked, np.int64), out)
        assert [one.tobytes() for one in out] == [plain[i] for i in asked]
    for wrong in (-1, len(plain)):
        with pytest.raises(IndexError):
            gather.read_into(np.array([0, wrong]), np.empty((2, values), dtype))
    assert descriptors() <= before


@pytest.mark.parametrize("layouts", [["memmap"], ["hdf5-chunk4"], RAW], ids=str)
@pytest.mark.parametrize("preload", [False, True])
def test_raw_stores_are_read_right(packed: Packed, layouts: list[str], preload: bool) -> None:
    """Of one store or several formats, whose rows begin at different offsets; preloaded or not."""
    truth = Truth(packed("memmap", "--size", 48))
    reader = Reader([packed(layout, "--size", 48) for layout in layouts], preload=preload)
    assert len(reader._library.stores[0].manifest.shards) > 1
    for way in WAYS.values():
        batches = list(reader.batches(32, shuffle=True, **way))
        assert sum(len(batch["index"]) for batch in batches) == len(truth) * len(layouts)
        assert all(truth.holds(batch | {"index": batch["index"] % len(truth)}) for batch in batches)


@pytest.mark.parametrize(("size", "way"), [(48, "here"), (64, "processes")])
def test_other_stores_are_read_one_after_another(packed: Packed, size: int, way: str) -> None:
    """Stores that allow no common stride (64 pixels a side: whole pages), or that are compressed, give the same; a JPEG
    store among them is decoded into its places, to what it gives alone."""
    truth = Truth(packed("memmap", "--size", size))
    layouts, length = [layout for layout in FORMATS if layout != "lmdb"], len(truth)
    stores = [packed(layout, "--size", size) for layout in (*layouts, "lmdb")]
    jpeg, rows = Reader(stores[-1]), list[int]()
    for batch in Reader(stores, preload=way == "here").batches(32, shuffle=True, **WAYS[way]):
        rows += batch["index"].tolist()
        raw = batch["index"] < len(layouts) * length
        exact = {"index": batch["index"][raw] % length, "image": batch["image"][raw], "label": batch["label"][raw]}
        assert truth.holds(exact)
        for row, image in zip(batch["index"][~raw] % length, batch["image"][~raw], strict=True):
            assert np.array_equal(image, jpeg[row]["image"])
    assert sorted(rows) == list(range(len(stores) * length))
