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
import subprocess
import sys
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
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from folders import files_of, settled
from readers_by_docs import StoreByDocs
from reading import SOAK, WAYS
from running import environment, run_here
from store_server import serving

import rawpack_packer
from rawpack import Cache, DamagedStoreError, Reader, StoreError, UsageError
from rawpack.disk.manifest import seal, unseal
from rawpack.disk.tables import resolve
from rawpack.faces.face import inputs_and_labels
from rawpack.faces.keras import KerasBatches
from rawpack.store.store import Store
from rawpack_packer.api import verify
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import RunOptions
from rawpack_packer.recipe import make_recipe
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.sources import open_source
from rawpack_packer.testing import FormatConformance

Pixels = NDArray[Any]
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""No shrinking: jobs are small as they are, and each attempt packs stores."""
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


def check(found: Mapping[str, Any], layout: str, *, one_size: bool = True, without: str = "") -> int:
    """Fail unless a sample is the one that was packed: all images, or all but one; mask, boxes. Returns its number."""
    number = int(found["number"])
    size = SIZES[0 if one_size else number % len(SIZES)]
    image = first_of(number, size)
    for name, packed in {"image": image, **others_of(image)}.items():
        if name not in found:
            assert name == without or (name == "heat" and layout == "lmdb")
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


def test_convert_to_sizes_by_field(stored: Callable[..., Path], tmp_path: Path) -> None:
    """`--size` by field resizes each image as that one would be alone, values by the nearest pixel; one size for images
    that differ in theirs is refused for every sample, with what to write."""
    sizes = {"image": (6, 8), "inverted": (6, 8), "target": (24, 32), "gray": (12, 16), "depth": (6, 8), "heat": "keep"}
    store, words = stored("memmap"), [f"--size={name}={by_option(size)}" for name, size in sizes.items()]
    ran = run_here("convert", "-q", "--workers", 0, "--format", "hdf5", *words, store, tmp_path / "to")
    assert (ran.code, ran.err) == (0, ""), ran.err
    # The same command again finds the store finished; with another size, it is refused by name.
    again = run_here("convert", "--workers", 0, "--format", "hdf5", *words, store, tmp_path / "to")
    assert (again.code, "Nothing to do" in again.out) == (0, True), again
    other = run_here("convert", "--workers", 0, "--format", "hdf5", *words[:-1], "--size=heat=4", store, tmp_path / "to")
    assert (other.code, "--size was" in other.err) == (2, True), other
    for number, one in enumerate(by_docs(tmp_path / "to")):
        packed = {"image": first_of(number, (12, 16)), **others_of(first_of(number, (12, 16)))}
        for name, size in sizes.items():
            values = packed[name]
            if size != "keep" and name in ("depth",):
                values = values[1::2, 1::2]  # the nearest of two centers is the later one
            elif size != "keep":
                values = cv2.resize(values, size[::-1], interpolation=cv2.INTER_AREA).reshape(*size, -1)
            close = 0 if name in ("depth", "heat") else 1
            assert (one[name].dtype, one[name].shape) == (values.dtype, values.shape)
            np.testing.assert_allclose(one[name].astype(float), values, atol=close, err_msg=name)
    with pytest.raises(UsageError, match="names image, target, and the images of a sample are image, inverted, target"):
        rawpack_packer.convert(store, tmp_path / "two", size={"image": 6, "target": 24}, workers=0)
    refused = run_here("convert", "--workers", 0, "--size", "6x8", store, tmp_path / "one")
    assert refused.code in (1, 2)
    assert "--size image=" in refused.err, refused


def by_option(size: Any) -> str:
    return size if isinstance(size, str) else "x".join(map(str, size))


def test_relabel_leaves_images_alone(stored: Callable[..., Path], tmp_path: Path) -> None:
    """New labels and a new column, and the same images; a further image is no column that can be replaced."""
    store = tmp_path / "store"
    shutil.copytree(stored("hdf5"), store)
    keys = [one["key"] for one in by_docs(store)]
    (tmp_path / "new.csv").write_text("key,score\n" + "".join(f"{key},{i}.5\n" for i, key in enumerate(keys)))
    rawpack_packer.relabel(store, tmp_path / "new.csv", fields={"score": "float32"}, stale_copies=True)
    reader = Reader(store)
    for i in range(COUNT):
        assert check(reader[i], "hdf5") == i
        assert reader[i]["score"] == i + 0.5
    (tmp_path / "bad.csv").write_text("key,target\n" + "".join(f"{key},1\n" for key in keys))
    with pytest.raises(UsageError, match="target cannot be replaced: images and masks"):
        rawpack_packer.relabel(store, tmp_path / "bad.csv")


def test_splits_have_every_image(tmp_path: Path) -> None:
    """A part that is held out, and the rest: each sample is whole in the one that has it."""
    rawpack_packer.pack_splits(
        Samples(), tmp_path / "set", fields=FIELDS, holdout={"val": 0.25}, seed=1, workers=0, format="hdf5"
    )
    parts = [numbers_in(tmp_path / "set" / name, "hdf5") for name in ("train", "val")]
    assert sorted(itertools.chain(*parts)) == list(range(COUNT))
    assert min(map(len, parts)) > 5


# ---------------------------------------------------------------------------------------------- exports


def array_in(data: bytes, name: str) -> Pixels:
    """The values of an exported file, by Pillow or numpy."""
    if name.endswith(".npy"):
        values = np.load(io.BytesIO(data))
    else:
        image = Image.open(io.BytesIO(data))
        values = np.asarray(image).astype(np.uint16) if image.mode.startswith("I") else np.asarray(image)
    return values.reshape(*values.shape[:2], -1)


SUFFIXES = {"image": "", "inverted": "", "target": "", "gray": "", "depth": ".png", "heat": ".npy", "seg": ".png"}
"""Of exported files; "" for pictures, which are JPEG files in an LMDB store."""


PACKED_AGAIN = FIELDS | {"gray": "image[1]"}
"""What fields of exported files are declared as: a gray file does not say whether all of them are."""


def suffix_of(name: str, layout: str) -> str:
    return SUFFIXES[name] or (".jpg" if layout == "lmdb" else ".png")


@over_sizes
@pytest.mark.parametrize("layout", ["memmap", "lmdb", "hdf5-planes"])
def test_exported_files_pack_to_the_same_images(
    stored: Callable[..., Path], tmp_path: Path, layout: str, one_size: bool
) -> None:
    """Files: the first image is named by its key, further ones are in images/FIELD/, masks in masks/FIELD/; the listing
    packs to the same samples, files of arrays too."""
    store, out = stored(layout, one_size), tmp_path / "out"
    done = rawpack_packer.export(store, out, workers=2)
    names = [name for name in SUFFIXES if layout != "lmdb" or name != "heat"]
    assert done.files == COUNT * len(names)
    for i, line in enumerate(json.loads(text) for text in (out / "listing.jsonl").read_text().splitlines()):
        suffixes = {name: suffix_of(name, layout) for name in names}
        paths = {name: f"{'masks' if name == 'seg' else 'images'}/{name}/{i:08d}{suffixes[name]}" for name in names[1:]}
        assert {name: line[name] for name in paths} == paths
        paths["image"] = line["path"]
        assert line["path"] == f"{i:08d}{suffixes['image']}"
        sample = {name: array_in((out / path).read_bytes(), path) for name, path in paths.items()}
        assert check(sample | {"number": line["number"]}, layout, one_size=one_size) == i
    words = [f"--field={name}:{PACKED_AGAIN[name]}" for name in names[1:]]
    ran = run_here(
        "pack", "-q", "--workers", 0, "--size", "keep", "--key-column", "key", "--format", LAYOUTS[layout]["format"],
        *(["--quality", "keep"] if layout == "lmdb" else []), *words, "--field", "boxes:xyxy",
        "--classes", out / "classes.txt", out / "listing.jsonl", tmp_path / "again",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran.err
    again, before = Reader(tmp_path / "again"), Reader(store)
    assert {name: (f.kind, f.dtype, f.nearest) for name, f in again.fields.items()} == {
        name: (f.kind, f.dtype, f.nearest) for name, f in before.fields.items()
    }
    for i in range(COUNT):
        for name in before.fields:
            np.testing.assert_array_equal(again[i][name], before[i][name], name)


@pytest.mark.parametrize("layout", ["memmap", "lmdb"])
def test_exported_tar_files_pack_to_the_same_images(stored: Callable[..., Path], tmp_path: Path, layout: str) -> None:
    """WebDataset: KEY.FIELD.jpg, .png or .npy; named as members, they pack to the same samples."""
    store, out = stored(layout, False), tmp_path / "out"
    rawpack_packer.export(store, out, to="webdataset", workers=2)
    names = [name for name in SUFFIXES if layout != "lmdb" or name != "heat"]
    with tarfile.open(out / "train-000000.tar") as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    for i in range(COUNT):
        suffixes = {name: ("" if name == "image" else f".{name}") + suffix_of(name, layout) for name in names}
        sample = {name: array_in(members[f"{i:08d}{suffix}"], suffix) for name, suffix in suffixes.items()}
        about = json.loads(members[f"{i:08d}.json"])
        assert check(sample | {"number": about["number"]}, layout, one_size=False) == i
    words = [f"--field={name}={suffix[1:]}:{PACKED_AGAIN[name]}" for name, suffix in suffixes.items() if name != "image"]
    ran = run_here(
        "pack", "-q", "--workers", 0, "--size", "keep", "--format", layout, *words,
        *(["--quality", "keep"] if layout == "lmdb" else []), "--field", "json.number", "--field", "json.boxes:xyxy",
        out, tmp_path / "again",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran.err
    found = [check(one, layout, one_size=False) for one in by_docs(tmp_path / "again")]
    assert found == list(range(COUNT))
    assert sums_of(tmp_path / "again").keys() == sums_of(store).keys()


@pytest.mark.parametrize("layout", ["memmap", "lmdb"])
def test_exported_tables_pack_to_the_same_images(stored: Callable[..., Path], tmp_path: Path, layout: str) -> None:
    """Parquet: a column of files for each image, which Hugging Face datasets shows as images; it packs to the same
    samples. Arrays that are no PNG are refused by name."""
    parquet = pytest.importorskip("pyarrow.parquet")
    with pytest.raises(UsageError, match="field heat is float32"):
        rawpack_packer.export(stored("memmap"), tmp_path / "no", to="parquet")
    store, out = stored(layout, False, False), tmp_path / "out"
    rawpack_packer.export(store, out, to="parquet", workers=2)
    table = parquet.read_table(out / "train-00000-of-00001.parquet")
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    images = [name for name in SUFFIXES if name != "heat"]
    assert [name for name, feature in features.items() if feature["_type"] == "Image"] == [
        name for name in table.column_names if name in images
    ]
    for i, row in enumerate(table.to_pylist()):
        sample = {name: array_in(row[name]["bytes"], row[name]["path"]) for name in images}
        assert check(sample | {"number": row["number"]}, layout, one_size=False, without="heat") == i
    words = [f"--field={name}:{PACKED_AGAIN[name]}" for name in images[1:]]
    ran = run_here(
        "pack", "-q", "--workers", 0, "--size", "keep", "--format", layout, *words, "--field", "boxes:xyxy",
        *(["--quality", "keep"] if layout == "lmdb" else []), out, tmp_path / "again",
    )  # fmt: skip
    assert (ran.code, ran.err) == (0, ""), ran.err
    found = [check(one, layout, one_size=False, without="heat") for one in by_docs(tmp_path / "again")]
    assert found == list(range(COUNT))
    before, after = sums_of(store), sums_of(tmp_path / "again")
    assert {name: sums.tolist() for name, sums in after.items()} == {name: sums.tolist() for name, sums in before.items()}


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


@pytest.mark.parametrize("name", ["target", "depth"])
@pytest.mark.parametrize("layout", ["memmap", "hdf5", "lmdb"])
def test_damage_in_a_further_image_is_named(
    stored: Callable[..., Path], tmp_path: Path, layout: str, name: str
) -> None:
    """One bit: the full check names the sample and the image, a verifying reader refuses it, and what is made of the
    store leaves this one sample out, with the reason; all others are whole."""
    store = tmp_path / "store"
    shutil.copytree(stored(layout), store)
    file, start, end = in_file(store, layout, name, 40)
    data = bytearray(file.read_bytes())
    data[(start + end) // 2] ^= 1
    file.write_bytes(data)
    assert [(one.where, one.what) for one in verify(store)] == [
        (file.name, "was changed: its checksum does not fit"),
        ("sample 40 (00000040)", f"{name} was changed: its checksum does not fit"),
    ]
    with pytest.raises(DamagedStoreError, match=f"{name} was changed"):
        Reader(store, verify=True)[40]
    left = [i for i in range(COUNT) if i != 40]
    assert [check(Reader(store, verify=True)[i], layout) for i in left] == left
    fields = ["image", "number"]  # which are sound
    assert sum(len(batch["number"]) for batch in Reader(store, verify=True).batches(9, fields=fields)) == COUNT
    rawpack_packer.convert(store, tmp_path / "saved", max_rejects=1, workers=0)
    assert numbers_in(tmp_path / "saved", layout) == left
    (reject,) = [json.loads(line) for line in (tmp_path / "saved" / "rejects.jsonl").read_text().splitlines()]
    assert (reject["key"], reject["reason"], name in reject["detail"]) == ("00000040", "damaged", True), reject
    done = rawpack_packer.export(store, tmp_path / "out", max_rejects=1, workers=0)
    assert (done.rejects, done.samples) == ({"damaged": 1}, COUNT - 1)


@pytest.mark.parametrize("layout", ["memmap", "hdf5", "lmdb"])
def test_a_cut_file_of_a_further_image_is_named_at_once(
    stored: Callable[..., Path], tmp_path: Path, layout: str
) -> None:
    """The quick check, and opening, notice a file that is too short, and name it."""
    store = tmp_path / "store"
    shutil.copytree(stored(layout), store)
    assert verify(store, quick=True) == []
    file, _, _ = in_file(store, layout, "target", 0)
    file.write_bytes(file.read_bytes()[:-4096])
    assert {one.where for one in verify(store, quick=True)} == {file.name}
    with pytest.raises(DamagedStoreError, match=re.escape(file.name)):
        Reader(store)[0]


@pytest.mark.parametrize("layout", ["hdf5", "lmdb"])
def test_the_formats_library_compares_each_image(stored: Callable[..., Path], tmp_path: Path, layout: str) -> None:
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


# ---------------------------------------------------------------------------------------------- a kill


@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL, fork and /proc")
@pytest.mark.parametrize("layout", ["memmap", "hdf5", "lmdb"])
def test_a_killed_run_resumes_to_the_same_bytes(stored: Callable[..., Path], tmp_path: Path, layout: str) -> None:
    """Killed at some steps, the same job goes on to the bytes of an undisturbed run, with the files of every image."""
    source, options = stored("memmap", floats=False), {"size": "keep", "shard_size": "1", "format": layout}
    Job(open_source(source), make_recipe(**options), tmp_path / "undisturbed", RunOptions(0)).run()
    (tmp_path / "killed").mkdir()
    every = 1 if SOAK else 17
    ran = subprocess.run(
        [sys.executable, str(Path(__file__).parents[1] / "support" / "killed_child.py"),
         str(source), str(tmp_path / "killed"), json.dumps(options), "3", str(every)],
        capture_output=True, encoding="utf-8", env=environment(OPENBLAS_NUM_THREADS="1"), check=True,
    )  # fmt: skip
    turns = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(turns) >= 3
    for at, what, killed, again, redone in turns:
        assert (killed, again, redone) == (-9, 0, []), what
        assert settled(tmp_path / "killed" / f"{at}") == settled(tmp_path / "undisturbed"), what


# ---------------------------------------------------------------------------------------------- remote stores


@pytest.mark.parametrize("layout", ["memmap", "hdf5", "lmdb"])
def test_a_store_behind_a_url(stored: Callable[..., Path], tmp_path: Path, layout: str) -> None:
    """Every image of a store behind HTTP, by workers too; of a memmap store, only the files of the fields that are
    asked for are fetched."""
    pytest.importorskip("aiohttp", reason="rawpack[remote] is not installed")
    store = stored(layout)
    with serving() as server:
        server.put_folder("bucket/store", files_of(store))
        reader = Reader(f"{server.url}/bucket/store", cache=Cache(tmp_path / "cache", timeout=20))
        if layout == "memmap":
            batches = reader.batches(16, fields=["target", "number"], workers=0)
            assert sum(len(batch["number"]) for batch in batches) == COUNT
            fetched = {Path(path).name for _, path in server.log if "shard-" in path}
            assert fetched == {f"shard-0000{k}.target.npy" for k in range(2)}
        assert check(reader[5], layout) == 5
        seen = []
        for batch in reader.batches(16, shuffle=True, seed=2, workers=2):
            seen += [check({name: one[k] for name, one in batch.items()}, layout) for k in range(len(batch["number"]))]
        assert sorted(seen) == list(range(COUNT))
        shards = [path for _, path in server.log if "shard-" in path]
        assert {Path(path).name for path in shards} == {path.name for path in store.glob("shard-*")}
        assert len(shards) == len(set(shards)), "a file was fetched twice"


# ---------------------------------------------------------------------------------------------- several stores, clips


def test_stores_of_different_sizes(stored: Callable[..., Path], tmp_path: Path) -> None:
    """Read as one where all images are alike; mixed where some differ in size; refused by the name of the image that
    differs. A picture and values of the same dtype are not alike."""
    one, keep, other = stored("memmap"), stored("memmap", False), stored("hdf5")
    both = Reader([one, other])
    assert [check(both[i], "memmap") for i in (0, 5, COUNT, 2 * COUNT - 1)] == [0, 5, 0, COUNT - 1]
    small = tmp_path / "small"
    rawpack_packer.convert(
        one, small, size={name: 4 if name == "target" else "keep" for name in SUFFIXES if name != "seg"}, workers=0
    )
    with pytest.raises(UsageError, match=r"'target' is image uint8 \(48, 64, 3\) in the first and .*\(4, 4, 3\)"):
        Reader([one, small])
    mixed = Reader.mix([(one, 1), (small, 1)])
    assert mixed.fields["target"].shape == (None, None, 3)
    assert mixed.fields["depth"].shape == (12, 16, 1)
    for i in (3, COUNT + 3):
        np.testing.assert_array_equal(mixed[i]["depth"], others_of(first_of(3, (12, 16)))["depth"])
    assert mixed[COUNT + 3]["target"].shape == (4, 4, 3)
    fields = [name for name in mixed.fields if name not in ("target", "boxes", "key")]
    for batch in mixed.batches(8, fields=fields, workers=0):
        assert np.bincount(batch["store"]).tolist() == [4, 4]
        for k in range(8):
            check({name: values[k] for name, values in batch.items()}, "memmap", without="target")
    pairs = Reader.mix([(keep, 1), (one, 1)])
    assert check(pairs[4], "memmap", one_size=False) == check(pairs[COUNT + 4], "memmap") == 4
    with pytest.raises(UsageError, match=r"sizes of images or masks differ .*target: 48x64.*, 4x4"):
        rawpack_packer.merge([one, small], tmp_path / "merged", prefix="names", workers=0)


class Frames:
    """Frames of three videos, each with an image of another size and a depth besides the first."""

    def __init__(self) -> None:
        self.numbers = [(video, frame) for video in range(3) for frame in range(12 + video)]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> dict[str, Any]:
        video, frame = self.numbers[i]
        sample = sample_of(13 * video + frame, (12, 16), floats=False)
        return {name: sample[name] for name in ("image", "target", "depth", "seg", "number")} | {
            "video": video, "frame": frame,
        }  # fmt: skip


@pytest.mark.parametrize("layout", ["memmap", "hdf5-gzip", "lmdb", "memmap-planes"])
def test_clips_of_every_image(tmp_path: Path, layout: str) -> None:
    """A clip has all images of its frames, by `reader[i]` and in batches of all workers."""
    fields = {name: FIELDS[name] for name in ("target", "depth", "seg")}
    rawpack_packer.pack(Frames(), tmp_path / "s", fields=fields, workers=0, shard_size="1", **LAYOUTS[layout])
    clips = Reader(tmp_path / "s").clips(frames=4, stride=2)
    for i in range(len(clips)):
        assert check_clip(clips[i], layout)
    for way in WAYS.values():
        batches = clips.batches(3, shuffle=True, seed=1, **way)
        seen = [
            check_clip({name: values[k] for name, values in batch.items()}, layout)
            for batch in batches for k in range(len(batch["number"]))
        ]  # fmt: skip
        assert len({*seen}) == len(clips)


def check_clip(clip: Mapping[str, Any], layout: str) -> int:
    """The number of its first frame + 1; fails unless each frame is whole."""
    assert (clip["target"].shape, clip["depth"].shape) == ((4, 48, 64, 3), (4, 12, 16, 1))
    for k in range(4):
        frame = {name: clip[name][k] for name in ("image", "target", "depth", "seg", "number")}
        number, image = int(frame["number"]), first_of(int(frame["number"]), (12, 16))
        for name, values in {"image": image, **others_of(image)}.items():
            if name in frame:
                near = 0 if layout in EXACT or name not in PICTURES else NEAR[layout]
                assert np.abs(frame[name].astype(int) - values).mean() <= near, name
        assert number == int(clip["number"][0]) + 2 * k
    return int(clip["number"][0]) + 1


# ---------------------------------------------------------------------------------------------- older readers


def test_a_reader_refuses_features_that_it_does_not_know(stored: Callable[..., Path], tmp_path: Path) -> None:
    """By name, before it looks at anything else, and says what to do. Features that do not fit the fields are no valid
    manifest, and neither is one whose seal does not fit."""
    store = tmp_path / "store"
    shutil.copytree(stored("memmap"), store)
    text, _ = unseal((store / "store.json").read_bytes(), "it")

    def change(**changed: Any) -> None:
        tree = json.loads(text) | changed
        left = {name: value for name, value in tree.items() if value is not None}
        (store / "store.json").write_bytes(seal(json.dumps(left, indent=1).encode()))

    change(features=["several-images", "holograms"], invented=1)
    cure = "has features that this rawpack does not know: holograms. Update it: pip install --upgrade rawpack"
    for do in (Reader, verify, partial(rawpack_packer.export, folder=tmp_path / "out"), rawpack_packer.convert):
        with pytest.raises(StoreError, match=cure):
            do(store, *[tmp_path / "to"] * (do is rawpack_packer.convert))
    ran = run_here("inspect", store)
    assert (ran.code, cure in ran.err) == (1, True), ran
    for features in (None, []):
        change(features=features)
        with pytest.raises(DamagedStoreError, match="its features are"):
            Reader(store)
    change(features=["several-images"])
    assert check(Reader(store)[3], "memmap") == 3


def test_a_store_with_one_image_has_no_features(tmp_path: Path) -> None:
    """Its manifest is as before, so that every reader of version 1 opens it."""
    rawpack_packer.pack([{"image": first_of(i, (4, 4)), "seg": first_of(i, (4, 4))[..., 0]} for i in range(3)],
                        tmp_path / "store", fields={"seg": "mask"}, workers=0)  # fmt: skip
    tree = json.loads((tmp_path / "store" / "store.json").read_text())
    assert "features" not in tree
    assert "sizes" not in tree["recipe"]
    assert all("nearest" not in field for field in tree["fields"].values())


# ---------------------------------------------------------------------------------------------- names on the disk


def test_where_further_images_are(stored: Callable[..., Path]) -> None:
    """As docs/format says: a file per image in memmap stores, a data set of HDF5 with its own attributes, keys of LMDB
    that end with the name."""
    assert {path.name for path in stored("memmap").glob("shard-00000*")} == {
        "shard-00000.npy", *(f"shard-00000.{name}.npy" for name in SUFFIXES if name != "image"),
    }  # fmt: skip
    assert np.load(stored("memmap") / "shard-00000.heat.npy").shape == (64, 12, 16, 2)
    with h5py.File(stored("hdf5") / "shard-00000.h5") as shard:
        about = {name: dict(shard[name].attrs) for name in SUFFIXES}
    assert about == {
        name: {"how_to_read": f"{name}[i] is {'mask' if name == 'seg' else 'image'} i: height, width, channels."}
        | ({"color": ("grey" if name == "gray" else "RGB") + ", uint8, 0 to 255"} if name in PICTURES else {})
        for name in SUFFIXES
    }
    with h5py.File(stored("hdf5", False) / "shard-00000.h5") as shard:
        start, (h, w, c) = shard["target_start"][5], shard["target_shape"][5]
        found = shard["target"][start : start + h * w * c].reshape(h, w, c)
        np.testing.assert_array_equal(found, others_of(first_of(5, SIZES[5 % 3]))["target"])
        for name in ("target", "depth", "seg"):
            how = shard[name].attrs["how_to_read"]
            assert f"{name}[{name}_start[i] : {name}_start[i] + h * w * c].reshape(h, w, c)" in how
    with lmdb.open(str(stored("lmdb") / "shard-00000.lmdb"), subdir=False, readonly=True, lock=False) as env:
        with env.begin() as txn:
            names = [key.decode() for key, _ in txn.cursor()]
    of_a_row = ["", *(f".{name}" for name in sorted(SUFFIXES) if name not in ("image", "heat"))]
    assert names == [f"{row:012d}{name}" for row in range(64) for name in of_a_row]


# ---------------------------------------------------------------------------------------------- faces


def test_faces_without_a_framework(stored: Callable[..., Path]) -> None:
    """MXNet's iterator, Keras's data set and a queue have the images that are named, each with its own shape and
    dtype."""
    reader, options = Reader(stored("memmap")), {"shuffle": True, "workers": 0}
    data = reader.batches(8, seed=1, **options).data_iter(data={"low": "image", "high": "target", "z": "depth"}, label="number")
    shapes = {desc.name: (desc.shape, np.dtype(desc.dtype), desc.layout) for desc in data.provide_data}
    assert shapes == {
        "low": ((8, 3, 12, 16), np.dtype(np.uint8), "NCHW"), "high": ((8, 3, 48, 64), np.dtype(np.uint8), "NCHW"),
        "z": ((8, 1, 12, 16), np.dtype(np.uint16), "NCHW"),
    }  # fmt: skip
    for batch in data:
        images = [np.moveaxis(one, 1, -1) for one in batch.data]
        check_batch(dict(zip(("image", "target", "depth"), images, strict=True)), batch.label[0])
    feed = reader.batches(8, seed=2, **options)._feed
    form, fields = inputs_and_labels(feed, {"a": "image", "b": "inverted"}, ("target", "heat"), None)
    for given, wanted in KerasBatches(feed, form, [*fields, "number"]):  # type: ignore[attr-defined]
        assert {*given} == {"a", "b"}
        np.testing.assert_array_equal(given["b"], 255 - given["a"])
        np.testing.assert_array_equal(wanted[0], given["a"].repeat(4, 1).repeat(4, 2))
        assert wanted[1].dtype == np.float32
    queue = reader.batches(8, seed=3, **options).queue(epochs=1)
    assert sum(check_batch(batch, batch["number"]) for batch in queue) == COUNT


def check_batch(batch: Mapping[str, Any], numbers: Any) -> int:
    """How many samples a batch has, each with the images of its number."""
    for k, number in enumerate(np.asarray(numbers).tolist()):
        image = first_of(number, (12, 16))
        for name, values in {"image": image, **others_of(image)}.items():
            if name in batch:
                found = np.asarray(batch[name][k])
                np.testing.assert_array_equal(found, values, name)
                assert found.dtype == values.dtype
    return len(numbers)


def test_tensors_of_torch(stored: Callable[..., Path]) -> None:
    """Each image has its channels first and its own dtype; `dtype=` converts pictures, and leaves values as they are,
    which a half would not hold."""
    torch = pytest.importorskip("torch")
    reader = Reader(stored("memmap"))
    for batch in reader.batches(16, workers=0).torch():
        images = {name: batch[name].movedim(1, -1).numpy() for name in SUFFIXES}
        check_batch(images, batch["number"])
    batch = next(iter(reader.batches(16, workers=0).torch(dtype="float16")))
    halves = {name for name in SUFFIXES if batch[name].dtype == torch.float16}
    assert halves == {*PICTURES}
    np.testing.assert_array_equal(
        batch["depth"][3].movedim(0, -1).numpy(), others_of(first_of(3, (12, 16)))["depth"]
    )


def test_arrays_of_jax(stored: Callable[..., Path]) -> None:
    """Each image has its own shape and dtype."""
    pytest.importorskip("jax")
    for batch in Reader(stored("memmap")).batches(16, workers=0).jax():
        assert check_batch(batch, batch["number"]) == len(batch["number"])


# ---------------------------------------------------------------------------------------------- the contract of formats


class TestFurtherImages(FormatConformance):
    """Formats keep their contract where samples have further images."""

    def pack(self, images: Sequence[Pixels], folder: Path) -> Path:
        samples = [{"image": image, **others_of(image)} for image in images]
        rawpack_packer.pack(
            samples, folder / "store", fields={name: FIELDS[name] for name in SUFFIXES if name != "image"},
            image=("uint8", images[0].shape if len({one.shape for one in images}) == 1 else (None, None, 3)),
            format="hdf5", workers=0, shard_size="1",
        )  # fmt: skip
        return folder / "store"

    def read_back(self, store: Path) -> Iterable[Pixels]:
        for sample in by_docs(store):
            for name, values in others_of(sample["image"]).items():
                np.testing.assert_array_equal(sample[name], values)
            yield sample["image"]


@settings(max_examples=60 if SOAK else 6, phases=PHASES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    layout=st.sampled_from([*EXACT, "lmdb"]),
    kinds=st.lists(
        st.tuples(
            st.sampled_from(["uint8", "uint16", "int16", "float32", "bool"]), st.integers(1, 5),
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
        with pytest.raises(UsageError, match="a PNG holds uint8 or uint16 of 1 or 3 channels|field f"):
            rawpack_packer.pack(samples, tmp_path_factory.mktemp("no") / "s", fields=fields, workers=0, format="lmdb", image="hwc")
        return
    folder = tmp_path_factory.mktemp("any")
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
