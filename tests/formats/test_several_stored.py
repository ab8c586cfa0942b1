"""Samples with several images in every format: stored, read, and found by other tools.

What is right is said by numpy, Pillow and the libraries of the formats: see `readers_by_docs`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from reading import SOAK, WAYS
from running import run_here
from several import (
    COUNT,
    LAYOUTS,
    Pixels,
    Stored,
    by_docs,
    check,
    numbers_in,
    stores_in,
)

import rawpack_packer
from rawpack import DamagedStoreError, Reader, StoreError, UsageError
from rawpack.disk.manifest import seal, unseal
from rawpack_packer.api import verify

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""No shrinking: jobs are small as they are, and each attempt packs stores."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return stores_in(tmp_path_factory.mktemp)


over_layouts = pytest.mark.parametrize("layout", [name for name in LAYOUTS if "zstd" not in name])
over_sizes = pytest.mark.parametrize("one_size", [True, False], ids=["one size", "keep"])

# ---------------------------------------------------------------------------------------------- reading


@over_sizes
@over_layouts
def test_every_image_is_stored_and_read(stored: Stored, layout: str, one_size: bool) -> None:
    """Each image of a sample has its own size, channels and dtype in every format, next to masks and boxes; other tools
    read the same."""
    store = stored(layout, one_size)
    assert numbers_in(store, layout, one_size=one_size) == list(range(COUNT))
    fields = Reader(store).fields
    kinds = {name: field.kind for name, field in fields.items() if field.in_shards}
    assert kinds == {name: "mask" if name == "seg" else "image" for name in kinds}
    assert {name for name, field in fields.items() if field.nearest is True} == {"depth", "heat"} & {*kinds}
    assert json.loads((store / "store.json").read_text())["features"] == ["several-images", "value-ranges"]


@over_layouts
def test_slices_and_batches_have_every_image(stored: Stored, layout: str) -> None:
    """A slice with a step, and batches: each field as `reader[i]` has it. Processes read memmap and LMDB, and
    the others where tests soak."""
    reader = Reader(stored(layout, True))
    samples = [reader[i] for i in range(COUNT)]
    part = reader[1:COUNT:4]
    for k, i in enumerate(range(1, COUNT, 4)):
        assert check({name: values[k] for name, values in part.items()}, layout, one_size=True) == i
    fields = [name for name, field in reader.fields.items() if field.in_slot]
    for name, way in WAYS.items():
        if name == "processes" and layout not in ("memmap", "lmdb") and not SOAK:
            continue
        seen = []
        for batch in reader.batches(8, shuffle=True, seed=1, fields=[*fields, "boxes"], **way):
            for k, i in enumerate(batch["index"].tolist()):
                seen.append(check({name: values[k] for name, values in batch.items() if name != "boxes"}, layout))
                assert all(np.array_equal(batch[field][k], samples[i][field]) for field in fields)
        assert sorted(seen) == list(range(COUNT))


def test_files_and_planes_of_every_image(stored: Stored) -> None:
    """`decode=False`, for all images or by field, gives what liblmdb has under each image's key; `decode="planes"` what
    h5py has of those that have planes."""
    store = stored("lmdb")
    reader = Reader(store)
    with lmdb.open(str(store / "shard-00000.lmdb"), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        values = {key.decode(): bytes(value) for key, value in txn.cursor()}
    first = next(iter(reader.batches(8, decode=False, workers=0)))
    for k in range(8):
        for name in ("image", "inverted", "target", "gray", "depth", "seg"):
            key = f"{k:012d}" + ("" if name == "image" else f".{name}")
            assert bytes(first[name][k]) == values[key], name
    part = next(iter(reader.batches(8, decode={"target": False, "depth": False}, workers=0)))
    assert bytes(part["target"][3]) == values["000000000003.target"]
    assert values["000000000003.target"][:2] == b"\xff\xd8"
    assert values["000000000003.depth"][:4] == b"\x89PNG"
    np.testing.assert_array_equal(part["image"][3], reader[3]["image"])
    store = stored("hdf5-planes")
    ways: tuple[Any, ...] = ("planes", {"target": "planes"})
    all_, one = (next(iter(Reader(store).batches(8, decode=way, workers=0))) for way in ways)
    with h5py.File(store / "shard-00000.h5") as shard:
        for name in ("image", "inverted", "target"):
            np.testing.assert_array_equal(all_[name], shard[name][:8])
    np.testing.assert_array_equal(one["target"], all_["target"])
    np.testing.assert_array_equal(one["inverted"][2], Reader(store)[2]["inverted"])


@pytest.mark.parametrize(("layout", "one_size"), [("memmap-zstd", False), ("zstd-planes", True)])
def test_compressed_by_zstd(stored: Stored, tmp_path: Path, layout: str, one_size: bool) -> None:
    """Each image has frames of its own, in a file of its own; converted to HDF5, other tools read the same."""
    pytest.importorskip("backports.zstd")
    store = stored(layout, one_size)
    reader = Reader(store, verify=True)
    assert {field.codec.suffix or field.encoding for field in reader.fields.values() if field.in_shards} <= {
        "zstd", "ycgco420_zstd",
    }  # fmt: skip
    assert [check(reader[i], layout, one_size=one_size) for i in range(COUNT)] == list(range(COUNT))
    assert verify(store) == []
    rawpack_packer.convert(store, tmp_path / "to", format="hdf5", workers=0)
    assert numbers_in(tmp_path / "to", layout, one_size=one_size) == list(range(COUNT))


# ---------------------------------------------------------------------------------------------- older readers


def test_a_reader_refuses_features_that_it_does_not_know(stored: Stored, tmp_path: Path) -> None:
    """By name, before it looks at anything else, and says what to do. Features that do not fit the fields are no valid
    manifest."""
    store = shutil.copytree(stored("memmap"), tmp_path / "store")
    tree = json.loads(unseal((store / "store.json").read_bytes(), "it")[0])

    def change(**changed: Any) -> None:
        (store / "store.json").write_bytes(seal(json.dumps(tree | changed, indent=1).encode()))

    change(features=["several-images", "holograms"], invented=1)
    cure = "has features that this rawpack does not know: holograms. Update it: pip install --upgrade rawpack"
    for do in (Reader, verify):
        with pytest.raises(StoreError, match=cure):
            do(store)
    ran = run_here("inspect", store)
    assert (ran.code, cure in ran.err) == (1, True), ran
    change(features=["several-images"])
    with pytest.raises(DamagedStoreError, match="its features are"):
        Reader(store)


# ---------------------------------------------------------------------------------------------- any images


@settings(max_examples=60 if SOAK else 6, phases=PHASES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    layout=st.sampled_from(["memmap", "hdf5", "hdf5-gzip", "lmdb"]),
    kinds=st.lists(
        st.tuples(
            st.sampled_from(["uint8", "uint16", "int16", "float32", "bool"]), st.integers(1, 4),
            st.tuples(st.integers(5, 9), st.integers(5, 9)), st.sampled_from(["image", "mask"]), st.booleans(),
        ), min_size=1, max_size=4,
    ),
    size=st.tuples(st.integers(5, 9), st.integers(5, 9)),
)  # fmt: skip
def test_any_images_next_to_each_other(
    tmp_path_factory: pytest.TempPathFactory, layout: str, kinds: list[Any], size: tuple[int, int]
) -> None:
    """Any dtypes, channels and sizes, alike in all samples or not: what is packed is read, and survives a conversion to
    another format; only LMDB refuses what a PNG cannot hold."""
    folder = tmp_path_factory.mktemp("any")
    random = np.random.default_rng(len(kinds) * 100 + size[0] * 10 + size[1])

    def made(dtype: str, channels: int, sides: tuple[int, int], word: str, varies: bool, i: int) -> Pixels:
        sides = size if word == "mask" else (sides[0] + i % 3 * varies, sides[1])
        return (random.random((*sides, channels)) * 250).astype(dtype)

    samples = [
        {"image": (random.random((*size, 3)) * 250).astype(np.uint8), "number": i}
        | {f"f{k}": made(*kind, i) for k, kind in enumerate(kinds)}
        for i in range(4)
    ]
    fields = {f"f{k}": kind[3] for k, kind in enumerate(kinds)}
    if layout == "lmdb" and any(kind[0] not in ("uint8", "uint16") or kind[1] not in (1, 3) for kind in kinds):
        with pytest.raises(UsageError, match="a PNG stores uint8 or uint16 of 1 or 3 channels"):
            rawpack_packer.pack(samples, folder / "s", fields=fields, workers=0, format="lmdb", image="hwc")
        return
    image = {"image": ("uint8", (None, None, 3)) if any(kind[4] for kind in kinds) else "hwc"}
    rawpack_packer.pack(samples, folder / "s", fields=fields, workers=0, **image, **LAYOUTS[layout])
    rawpack_packer.convert(folder / "s", folder / "t", format="hdf5" if layout == "memmap" else "memmap", workers=0)
    lossy = {"image", *(f"f{k}" for k, kind in enumerate(kinds) if (kind[0], kind[3]) == ("uint8", "image"))}
    for store in (folder / "s", folder / "t"):
        assert verify(store) == []
        for read in (by_docs(store), (Reader(store)[i] for i in range(4))):
            for sample, found in zip(samples, read, strict=True):
                for name, values in sample.items():
                    assert found[name].dtype == np.asarray(values).dtype
                    assert found[name].shape == np.shape(values)
                    if layout != "lmdb" or name not in lossy:
                        np.testing.assert_array_equal(found[name], values)
