"""Samples with several images, masks and boxes: what each image is of the first stays so in every format, through
everything that is done to a finished store.

What is right is said by numpy, Pillow and the libraries of the formats: see `readers_by_docs`.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import h5py
import lmdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from readers_by_docs import StoreByDocs
from reading import WAYS
from running import run_here

import rawpack_packer
from rawpack import DamagedStoreError, Reader, StoreError, UsageError
from rawpack.disk.manifest import seal, unseal
from rawpack_packer.api import verify
from rawpack_packer.testing import FormatConformance

Pixels = NDArray[Any]
COUNT = 67
"""Samples: three more than the smallest shard holds."""
SIZES = ((12, 16), (9, 7), (16, 5))
FIELDS: dict[str, Any] = {
    "inverted": "image", "target": "image", "gray": "image", "depth": "image", "heat": "image", "seg": "mask",
    "boxes": "xyxy",
}  # fmt: skip
LAYOUTS: dict[str, dict[str, Any]] = {
    "memmap": {"format": "memmap"},
    "hdf5": {"format": "hdf5"},
    "hdf5-gzip": {"format": "hdf5", "compression": "gzip"},
    "lmdb": {"format": "lmdb", "quality": 95, "subsampling": "4:4:4"},
    "memmap-planes": {"format": "memmap", "color": "ycgco420"},
    "hdf5-planes": {"format": "hdf5", "compression": "gzip", "color": "ycgco420"},
}
EXACT = ("memmap", "hdf5", "hdf5-gzip")
"""Layouts that keep all pixels."""
PICTURES = ("image", "inverted", "target", "gray")
NEAR = {"lmdb": 6, "memmap-planes": 4, "hdf5-planes": 4}
"""How far a picture may be from what was packed, on average. Pictures of different samples differ by more than 20."""


# ---------------------------------------------------------------------------------------------- what is right


def first_of(number: int, size: tuple[int, int]) -> Pixels:
    """The first image of a sample: smooth, so that JPEG keeps it about as it is, and dark or bright by its number."""
    y, x = np.mgrid[: size[0], : size[1]]
    planes = [y * 3 + number * 37 % 180, x * 2 + number * 61 % 190, y + x + number * 23 % 170]
    return np.stack(planes, axis=2).clip(0, 255).astype(np.uint8)


def others_of(image: Pixels) -> dict[str, Pixels]:
    """What the other images, and the mask, of a sample are, by its first image."""
    return {
        "inverted": 255 - image,
        "target": image.repeat(4, axis=0).repeat(4, axis=1),
        "gray": image[..., 1:2],
        "depth": (image.sum(axis=2, keepdims=True) * 77).astype(np.uint16),
        "heat": image[..., :2].astype(np.float32) / 255 - 0.5,
        "seg": image[..., :1] // 32,
    }


def sample_of(number: int, size: tuple[int, int], *, floats: bool = True) -> dict[str, Any]:
    """A sample as the packer gets it. floats: with `heat`, which LMDB cannot hold."""
    image = first_of(number, size)
    others = {name: value for name, value in others_of(image).items() if floats or name != "heat"}
    boxes = np.array([[1, 2, 4, 5, number % 2]] * (number % 3), np.float32).reshape(-1, 5)
    return {"image": image, **others, "boxes": boxes, "number": number, "label": number % 2}


class Samples:
    """Samples of one size, or of several, as a dataset."""

    classes = ("even", "odd")

    def __init__(self, numbers: Iterable[int] = range(COUNT), *, one_size: bool = True, floats: bool = True) -> None:
        self.numbers, self._sizes, self._floats = list(numbers), SIZES[: 1 if one_size else None], floats

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> dict[str, Any]:
        number = self.numbers[i]
        return sample_of(number, self._sizes[number % len(self._sizes)], floats=self._floats)


def check(found: Mapping[str, Any], layout: str, *, one_size: bool = True, sizes: Any = None) -> int:
    """Fail unless a sample is the one that was packed: images, mask, boxes. Returns its number."""
    number = int(found["number"])
    size = SIZES[0 if one_size else number % len(SIZES)]
    image = first_of(number, size)
    for name, packed in {"image": image, **others_of(image)}.items():
        if name not in found:
            assert name == "heat"
            continue
        read = found[name]
        assert (read.dtype, read.shape) == (packed.dtype, packed.shape), name
        if layout in EXACT or name not in PICTURES or (name == "gray" and "planes" in layout):
            np.testing.assert_array_equal(read, packed, name)
        else:
            assert np.abs(read.astype(int) - packed).mean() < NEAR[layout], name
    if "boxes" in found:
        np.testing.assert_array_equal(found["boxes"], sample_of(number, size)["boxes"])
    return number


def fields_of(*, floats: bool) -> dict[str, Any]:
    """What fields are declared as."""
    return {name: kind for name, kind in FIELDS.items() if floats or name != "heat"}


def pack(folder: Path, layout: str, *, one_size: bool = True, floats: bool | None = None, **options: Any) -> Path:
    """A store of all samples, of several shards."""
    store, floats = folder / f"{layout}-{'one' if one_size else 'keep'}", layout != "lmdb" if floats is None else floats
    given, fields = Samples(one_size=one_size, floats=floats), fields_of(floats=floats)
    image = {} if one_size else {"image": ("uint8", (None, None, 3)), "size": "keep"}
    made = rawpack_packer.pack(
        given, store, fields=fields, workers=0, shard_size="1", **image, **LAYOUTS[layout], **options
    )
    assert made.manifest.rejects.count == 0
    return store


def by_docs(store: Path) -> Iterator[dict[str, Any]]:
    """The samples of a store, read by the documentation of its format, without rawpack."""
    for one in StoreByDocs(store).samples():
        yield {"image": one.image, "label": one.label, "key": one.key, **one.masks, **one.others}


def numbers_in(store: Path, layout: str, *, one_size: bool = True) -> list[int]:
    """The numbers of the samples, each of which is whole: by the documentation, and by `reader[i]`."""
    found = [check(one, layout, one_size=one_size) for one in by_docs(store)]
    reader = Reader(store, verify=True)
    assert [check(reader[i], layout, one_size=one_size) for i in range(len(reader))] == found
    assert verify(store) == []
    return found


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`stored("lmdb", one_size=False)`: a store of `Samples`, packed once."""
    stores: dict[tuple[str, bool, bool], Path] = {}

    def get(layout: str, one_size: bool = True, floats: bool = True) -> Path:
        kind = layout, one_size, floats and layout != "lmdb"
        if kind not in stores:
            stores[kind] = pack(tmp_path_factory.mktemp("stored"), layout, one_size=one_size, floats=kind[2])
        return stores[kind]

    return get


over_layouts = pytest.mark.parametrize("layout", LAYOUTS)
over_sizes = pytest.mark.parametrize("one_size", [True, False], ids=["one size", "keep"])


# ---------------------------------------------------------------------------------------------- reading


@over_sizes
@over_layouts
def test_every_image_is_stored_and_read(stored: Callable[..., Path], layout: str, one_size: bool) -> None:
    """Each image of a sample has its own size, channels and dtype in every format, next to masks and boxes; other tools
    read the same."""
    store = stored(layout, one_size)
    assert numbers_in(store, layout, one_size=one_size) == list(range(COUNT))
    fields = Reader(store).fields
    kinds = {name: field.kind for name, field in fields.items() if field.in_shards}
    assert kinds == {name: "mask" if name == "seg" else "image" for name in kinds}
    assert {name for name, field in fields.items() if field.nearest is True} == {"depth", "heat"} & {*kinds}
    assert json.loads((store / "store.json").read_text())["features"] == ["several-images"]


@over_sizes
@over_layouts
def test_slices_batches_and_files_have_every_image(stored: Callable[..., Path], layout: str, one_size: bool) -> None:
    """`reader[2:5]`, batches of all workers, the files of an LMDB store and the planes of those that have them: each
    field as `reader[i]` has it."""
    reader = Reader(stored(layout, one_size))
    samples = [reader[i] for i in range(COUNT)]
    part = reader[5:60:7]
    for k, i in enumerate(range(5, 60, 7)):
        assert check({name: values[k] for name, values in part.items()}, layout, one_size=one_size) == i
    fields = [name for name, field in reader.fields.items() if field.in_slot]
    if not one_size:
        return
    for way in WAYS.values():
        seen = []
        for batch in reader.batches(16, shuffle=True, seed=1, fields=[*fields, "boxes"], **way):
            assert {*fields} <= {*batch}
            for k, i in enumerate(batch["index"].tolist()):
                seen.append(check({name: values[k] for name, values in batch.items() if name != "boxes"}, layout))
                for name in fields:
                    np.testing.assert_array_equal(batch[name][k], samples[i][name])
        assert sorted(seen) == list(range(COUNT))


def test_files_of_every_image(stored: Callable[..., Path]) -> None:
    """`decode=False`, for all images or by field, gives what liblmdb has under each image's key."""
    store = stored("lmdb")
    reader = Reader(store)
    with lmdb.open(str(store / "shard-00000.lmdb"), subdir=False, readonly=True, lock=False) as env, env.begin() as txn:
        values = {key.decode(): bytes(value) for key, value in txn.cursor()}
    first = next(iter(reader.batches(16, decode=False, workers=0)))
    for k in range(16):
        for name in ("image", "inverted", "target", "gray", "depth", "seg"):
            key = f"{k:012d}" + ("" if name == "image" else f".{name}")
            assert bytes(first[name][k]) == values[key], name
    part = next(iter(reader.batches(16, decode={"target": False, "depth": False}, workers=0)))
    assert bytes(part["target"][3]) == values["000000000003.target"]
    assert values["000000000003.target"][:2] == b"\xff\xd8"
    assert values["000000000003.depth"][:4] == b"\x89PNG"
    np.testing.assert_array_equal(part["image"][3], reader[3]["image"])


@pytest.mark.parametrize("layout", ["memmap-planes", "hdf5-planes"])
def test_planes_of_every_image(stored: Callable[..., Path], layout: str) -> None:
    """`decode="planes"` gives the planes of each image that has them, by field those of one; other images are as they
    are."""
    store = stored(layout)
    shapes, reader = {"image": 12 * 16 * 3 // 2, "inverted": 12 * 16 * 3 // 2, "target": 48 * 64 * 3 // 2}, Reader(store)
    batch = next(iter(reader.batches(16, decode="planes", workers=0)))
    for name, size in shapes.items():
        assert batch[name].shape == (16, size)
        if layout == "memmap-planes":
            file = store / f"shard-00000{'' if name == 'image' else '.' + name}.npy"
            np.testing.assert_array_equal(batch[name], np.load(file)[:16])
        else:
            with h5py.File(store / "shard-00000.h5") as shard:
                np.testing.assert_array_equal(batch[name], shard[name][:16])
    assert (batch["gray"].shape, batch["depth"].dtype) == ((16, 12, 16, 1), np.uint16)
    one = next(iter(reader.batches(16, decode={"target": "planes"}, workers=0)))
    np.testing.assert_array_equal(one["target"], batch["target"])
    np.testing.assert_array_equal(one["inverted"][2], reader[2]["inverted"])


# ---------------------------------------------------------------------------------------------- what is done to stores


@over_sizes
@pytest.mark.parametrize("layout", ["memmap", "hdf5-gzip", "lmdb", "memmap-planes"])
def test_append_merge_subset(stored: Callable[..., Path], tmp_path: Path, layout: str, one_size: bool) -> None:
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


@pytest.mark.parametrize("one_size", [True, False], ids=["one size", "keep"])
@pytest.mark.parametrize(("was", "layout"), [*itertools.permutations(["memmap", "hdf5-gzip", "lmdb", "hdf5-planes"], 2)])
def test_convert_each_format_to_each(
    stored: Callable[..., Path], tmp_path: Path, was: str, layout: str, one_size: bool
) -> None:
    """Converted to another format, every image is as it was: exactly, but for pictures in JPEG files or planes."""
    store = stored(was, one_size)
    if layout == "lmdb" and was != "lmdb":
        with pytest.raises(UsageError, match="a PNG holds uint8 or uint16 .*not 'heat', which is float32"):
            rawpack_packer.convert(store, tmp_path / "to", workers=0, **LAYOUTS[layout])
        store = stored(was, one_size, floats=False)
    rawpack_packer.convert(store, tmp_path / "to", workers=0, **LAYOUTS[layout])
    worst = max((one for one in (was, layout) if one in NEAR), key=lambda one: NEAR[one], default=layout)
    found = [check(one, worst if worst in NEAR else layout, one_size=one_size) for one in by_docs(tmp_path / "to")]
    assert found == list(range(COUNT))
    assert verify(tmp_path / "to") == []
