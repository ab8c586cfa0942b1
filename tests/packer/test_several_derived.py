"""What is done to finished stores keeps all images of their samples: appends, conversions, exports, damage, kills.

What is right is said by numpy, Pillow and the libraries of the formats: see `readers_by_docs`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import h5py
import lmdb
import numpy as np
import pytest
from folders import flip, rejects_of
from running import run_here, stop_of
from several import (
    COUNT,
    EXACT,
    FIELDS,
    LAYOUTS,
    NEAR,
    PICTURES,
    Pixels,
    Samples,
    Stored,
    by_docs,
    check,
    fields_of,
    first_of,
    numbers_in,
    others_of,
    stores_in,
)

import rawpack_packer
from rawpack import DamagedStoreError, Reader, UsageError
from rawpack.disk.tables import resolve
from rawpack.store.store import Store
from rawpack_packer.api import verify
from rawpack_packer.recipe.tables import output_format


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return stores_in(tmp_path_factory.mktemp)


# ---------------------------------------------------------------------------------------------- what is done to stores


@pytest.mark.parametrize(("layout", "one_size"), [("memmap", False), ("lmdb", False), ("memmap-planes", True)])
def test_append_merge_subset(stored: Stored, tmp_path: Path, layout: str, one_size: bool) -> None:
    """A store that has grown, one that was merged, and a part of it: each has all images of its samples."""
    store = tmp_path / "store"
    shutil.copytree(stored(layout, one_size), store)
    more = Samples(range(100, 103), one_size=one_size, floats=layout != "lmdb")
    image = {} if one_size else {"image": ("uint8", (None, None, 3))}
    rawpack_packer.append(more, store, fields=fields_of(floats=layout != "lmdb"), workers=0, **image)
    numbers = [*range(COUNT), 100, 101, 102]
    assert numbers_in(store, layout, one_size=one_size) == numbers
    rawpack_packer.subset(store, tmp_path / "part", rows=[3, 5, COUNT, COUNT + 2], workers=0)
    assert numbers_in(tmp_path / "part", layout, one_size=one_size) == [3, 5, 100, 102]
    rawpack_packer.merge([tmp_path / "part", stored(layout, one_size)], tmp_path / "both", prefix="names", workers=0)
    assert numbers_in(tmp_path / "both", layout, one_size=one_size) == [3, 5, 100, 102, *range(COUNT)]
    if layout in EXACT:
        return
    # Files and planes pass through unchanged.
    before, after = (sums_of(path) for path in (store, tmp_path / "part"))
    assert before.keys() == after.keys()
    for name in before:
        assert after[name].tolist() == before[name][[3, 5, COUNT, COUNT + 2]].tolist(), name


def sums_of(store: Path) -> dict[str, Pixels]:
    """The checksums of what is stored of each image and mask."""
    manifest = json.loads((store / "store.json").read_text())
    names = [name for name, field in manifest["fields"].items() if field["kind"] in ("image", "mask")]
    folders = [store / one["folder"] for one in manifest["columns"]]
    return {name: np.concatenate([np.load(folder / f"{name}.xxh3.npy") for folder in folders]) for name in names}


@pytest.mark.parametrize(
    ("was", "layout", "one_size"),
    [
        ("memmap", "hdf5-gzip", True), ("hdf5-gzip", "lmdb", True), ("lmdb", "hdf5-planes", False),
        ("hdf5-planes", "memmap", True),
    ],
)  # fmt: skip
def test_convert_from_and_to_each_format(stored: Stored, tmp_path: Path, was: str, layout: str, one_size: bool) -> None:
    """Converted to another format, every image is as it was: exactly, but for pictures in JPEG files or planes."""
    store = stored(was, one_size)
    if layout == "lmdb" and was != "lmdb":
        with pytest.raises(UsageError, match=r"a PNG stores uint8 or uint16 .*not 'heat', which is float32"):
            rawpack_packer.convert(store, tmp_path / "to", workers=0, **LAYOUTS[layout])
        store = stored(was, one_size, floats=False)
    rawpack_packer.convert(store, tmp_path / "to", workers=0, **LAYOUTS[layout])
    worst = max((one for one in (was, layout) if one in NEAR), key=lambda one: NEAR[one], default=layout)
    found = [check(one, worst if worst in NEAR else layout, one_size=one_size) for one in by_docs(tmp_path / "to")]
    assert found == list(range(COUNT))
    assert verify(tmp_path / "to") == []


def test_convert_to_sizes_by_field(stored: Stored, tmp_path: Path) -> None:
    """`--size` by field resizes each image as that one would be alone, values by the nearest pixel; one size for images
    that differ in theirs is refused for every sample, with what to write."""
    sizes: dict[str, Any] = {
        "image": (6, 8), "inverted": (6, 8), "target": (24, 32), "gray": (12, 16), "depth": (6, 8), "heat": "keep",
    }  # fmt: skip
    store = stored("memmap")
    words = [f"--size={name}={size if size == 'keep' else '{}x{}'.format(*size)}" for name, size in sizes.items()]
    ran = run_here("convert", "-q", "--workers", 0, "--format", "hdf5", *words, store, tmp_path / "to")
    assert (ran.code, ran.err) == (0, ""), ran.err
    for number, one in enumerate(by_docs(tmp_path / "to")):
        packed = {"image": first_of(number, (12, 16)), **others_of(first_of(number, (12, 16)))}
        for name, size in sizes.items():
            values = packed[name]
            if name == "depth":
                values = values[1::2, 1::2]  # the nearest of two centers is the later one
            elif size != "keep":
                values = cv2.resize(values, size[::-1], interpolation=cv2.INTER_AREA).reshape(*size, -1)
            close = 0 if name in ("depth", "heat") else 1
            assert (one[name].dtype, one[name].shape) == (values.dtype, values.shape)
            np.testing.assert_allclose(one[name].astype(float), values, atol=close, err_msg=name)
    for size, said in (("image=6,target=24", "sizes for image, target, and the images"), ("6x8", "--size image=")):
        assert said in stop_of("convert", "--workers", 0, "--size", size, store, tmp_path / "no")


# ---------------------------------------------------------------------------------------------- exports


PACKED_AGAIN = FIELDS | {"gray": "image[1]"}
"""What fields of exported files are declared as: a gray file does not say whether all of them are."""


def suffixes_of(layout: str) -> dict[str, str]:
    """Of exported files: pictures are JPEG files in an LMDB store, which has no floats."""
    picture = ".jpg" if layout == "lmdb" else ".png"
    found = {**dict.fromkeys(PICTURES, picture), "depth": ".png", "heat": ".npy", "seg": ".png"}
    return {name: suffix for name, suffix in found.items() if layout != "lmdb" or name != "heat"}


def pack_again(layout: str, named: dict[str, str], *args: object) -> None:
    """Pack what was exported. named: by what `--field` is given -> a field."""
    words = [f"--field={word}:{PACKED_AGAIN[name]}" for word, name in named.items() if name != "image"]
    words += ["--quality", "keep"] if layout == "lmdb" else []
    ran = run_here("pack", "-q", "--workers", 0, "--size", "keep", "--format", LAYOUTS[layout]["format"], *words, *args)
    assert (ran.code, ran.err) == (0, ""), ran.err


@pytest.mark.parametrize(("layout", "one_size"), [("memmap", False), ("lmdb", False), ("hdf5-planes", True)])
def test_exported_files_pack_to_the_same_images(stored: Stored, tmp_path: Path, layout: str, one_size: bool) -> None:
    """Files, also of arrays: the listing of them packs to the same samples."""
    store, out = stored(layout, one_size), tmp_path / "out"
    done = rawpack_packer.export(store, out, workers=2)
    suffixes = suffixes_of(layout)
    assert done.files == COUNT * len(suffixes)
    options = ("--key-column", "key", "--field", "boxes:xyxy", "--classes", out / "classes.txt")
    pack_again(layout, {name: name for name in suffixes}, *options, out / "metadata.jsonl", tmp_path / "again")
    again, before = Reader(tmp_path / "again"), Reader(store)
    assert {name: (f.kind, f.dtype, f.nearest) for name, f in again.fields.items()} == {
        name: (f.kind, f.dtype, f.nearest) for name, f in before.fields.items()
    }
    for i in range(COUNT):
        one, other = again[i], before[i]
        for name in before.fields:
            np.testing.assert_array_equal(one[name], other[name], name)


def test_exported_tar_files_pack_to_the_same_images(stored: Stored, tmp_path: Path) -> None:
    """WebDataset: KEY.FIELD.jpg, .png or .npy; named as members, they pack to the same samples."""
    store, out = stored("memmap", False), tmp_path / "out"
    rawpack_packer.export(store, out, to="webdataset", workers=2)
    suffixes = {name: ("" if name == "image" else f".{name}") + end for name, end in suffixes_of("memmap").items()}
    named = {f"{name}={suffix[1:]}": name for name, suffix in suffixes.items()}
    pack_again("memmap", named, "--field", "json.number", "--field", "json.boxes:xyxy", out, tmp_path / "again")
    assert [check(one, "memmap", one_size=False) for one in by_docs(tmp_path / "again")] == list(range(COUNT))
    assert sums_of(tmp_path / "again").keys() == sums_of(store).keys()


def test_exported_tables_pack_to_the_same_images(stored: Stored, tmp_path: Path) -> None:
    """Parquet: a column of files for each image, which Hugging Face datasets shows as images; it packs to the same
    samples. Arrays that are no PNG are refused by name."""
    parquet = pytest.importorskip("pyarrow.parquet")
    with pytest.raises(UsageError, match="field heat is float32"):
        rawpack_packer.export(stored("memmap"), tmp_path / "no", to="parquet")
    store, out, images = stored("lmdb", False), tmp_path / "out", suffixes_of("lmdb")
    rawpack_packer.export(store, out, to="parquet", workers=2)
    metadata = parquet.read_schema(out / "train-00000-of-00001.parquet").metadata
    features = json.loads(metadata[b"huggingface"])["info"]["features"]
    assert {name for name, feature in features.items() if feature["_type"] == "Image"} == images.keys()
    pack_again("lmdb", {name: name for name in images}, "--field", "boxes:xyxy", out, tmp_path / "again")
    assert [check(one, "lmdb", one_size=False) for one in by_docs(tmp_path / "again")] == list(range(COUNT))
    before, after = sums_of(store), sums_of(tmp_path / "again")
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


# ---------------------------------------------------------------------------------------------- damage


def in_file(store: Path, layout: str, name: str, row: int) -> tuple[Path, int, int]:
    """The file of the first shard, and where an image begins and ends in it: as the format's own library finds it."""
    file = store / {"memmap": f"shard-00000.{name}.npy", "hdf5": "shard-00000.h5", "lmdb": "shard-00000.lmdb"}[layout]
    if layout == "lmdb":
        with lmdb.open(str(file), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
            value = bytes(txn.get(b"%012d.%s" % (row, name.encode())))
    elif layout == "hdf5":
        with h5py.File(file) as shard:
            value = shard[name][row].tobytes()
    else:
        value = np.load(file)[row].tobytes()
    data = file.read_bytes()
    assert data.count(value) == 1
    return file, data.find(value), data.find(value) + len(value)


@pytest.mark.parametrize(("layout", "name"), [("memmap", "target"), ("hdf5", "depth"), ("lmdb", "target")])
def test_damage_in_a_further_image_is_named(stored: Stored, tmp_path: Path, layout: str, name: str) -> None:
    """One bit: the full check names the sample and the image, a verifying reader refuses it, and what is made of the
    store leaves this one sample out, with the reason; all others are whole."""
    store = tmp_path / "store"
    shutil.copytree(stored(layout), store)
    file, start, end = in_file(store, layout, name, 7)
    flip(file, (start + end) // 2)
    assert [(one.where, one.what) for one in verify(store)] == [
        (file.name, "was changed: its checksum does not fit"),
        ("sample 7 (00000007)", f"{name} was changed: its checksum does not fit"),
    ]
    reader = Reader(store, verify=True)
    with pytest.raises(DamagedStoreError, match=f"{name} was changed"):
        reader[7]
    left = [i for i in range(COUNT) if i != 7]
    assert [check(reader[i], layout) for i in left] == left
    rawpack_packer.convert(store, tmp_path / "saved", max_rejects=1, workers=0)
    assert numbers_in(tmp_path / "saved", layout) == left
    (reject,) = rejects_of(tmp_path / "saved")
    assert (reject["key"], reject["reason"], name in reject["detail"]) == ("00000007", "damaged", True), reject
    done = rawpack_packer.export(store, tmp_path / "out", max_rejects=1, workers=0)
    assert (done.rejects, done.samples) == ({"damaged": 1}, COUNT - 1)


@pytest.mark.parametrize("layout", ["hdf5", "lmdb"])
def test_the_formats_library_compares_each_image(stored: Stored, tmp_path: Path, layout: str) -> None:
    """h5py and liblmdb look at each image by its own name, not only at the first."""
    store, copy = Store(stored(layout)), tmp_path / "copy"
    shutil.copyfile(in_file(store.path, layout, "target", 0)[0], copy)
    compare = resolve(output_format(layout).compare)
    names = [name for name, field in store.fields.items() if field.in_shards]
    assert [compare(store, 0, name, copy) for name in names] == [None] * len(names)
    if layout == "hdf5":
        with h5py.File(copy, "r+") as shard:
            shard["target"][3, 0, 0, 0] ^= 1
    else:
        with lmdb.open(str(copy), subdir=False, lock=False) as env, env.begin(write=True) as txn:
            txn.put(b"000000000003.target", b"no JPEG")
    found = {name: compare(store, 0, name, copy) for name in names}
    assert {name for name, what in found.items() if what} == {"target"}
    assert "differ at row 3" in found["target"]


@pytest.mark.parametrize(("large", "k"), [("target", 2), ("image", 4)])
def test_sizes_by_field_cut_the_same_part_out_of_all_images(tmp_path: Path, large: str, k: int) -> None:
    """Where one image is a whole number of times as large as another one, before and after packing, the larger one
    shows just what the smaller one does: each pixel of that is k by k of its own. Masks and boxes go with `image`."""
    samples = []
    for height, width in ((32, 33), (33, 32), (32, 35), (45, 32), (32, 60)):
        small = np.zeros((height, width, 3), np.uint8)
        small[..., 1], small[..., 2] = np.arange(height)[:, None], np.arange(width)
        whole = small.repeat(k, 0).repeat(k, 1)
        first, other = (small, whole) if large == "target" else (whole, small)
        boxes = np.array([[0, 0, first.shape[1], first.shape[0], 1]], np.float32)
        depth = other[..., :1].astype(np.uint16) + other[..., 2:]
        samples.append({"image": first, "target": other, "depth": depth, "mask": first, "boxes": boxes})
    one, two = (32, 32 * k) if large == "target" else (32 * k, 32)
    size = {"image": one, "target": two, "depth": two}
    fields = {"target": "image", "depth": "image", "mask": "mask", "boxes": "xyxy"}
    rawpack_packer.pack(samples, tmp_path / "s", workers=0, size=size, fields=fields, classes=None)
    reader = Reader(tmp_path / "s")
    for sample in (reader[i] for i in range(len(samples))):
        few, many = (sample["image"], sample["target"]) if large == "target" else (sample["target"], sample["image"])
        np.testing.assert_array_equal(many, few.repeat(k, 0).repeat(k, 1))
        np.testing.assert_array_equal(sample["mask"], sample["image"])
        np.testing.assert_array_equal(sample["depth"][..., 0], sample["target"][..., 2].astype(np.uint16))
        assert sample["boxes"].tolist() == [[0, 0, one, one, 1]]
        assert few.shape == (32, 32, 3)
