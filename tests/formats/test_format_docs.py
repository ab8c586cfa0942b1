"""The format documentation holds: stores of every kind are read by it alone, and give what `rawpack.Reader` gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import readers_by_docs as by_docs
from numpy.typing import NDArray
from PIL import Image
from running import pack

import rawpack_packer
from rawpack import Reader
from rawpack_packer import recipe

SHARDS = ("--shard-size", "64KiB")
"""So little that images of one size make more than one shard: the least that a shard is cut for is 64 samples."""
COUNT = 66
"""Images in the source."""

STORES: dict[str, tuple[str, ...]] = {
    "memmap_fixed": ("--size", "20x24", *SHARDS),
    "memmap_keep": ("--size", "keep"),
    "hdf5_chunk_7": ("--format", "hdf5", "--size", "24", "--chunk", "7", *SHARDS),
    "hdf5_keep_gzip": ("--format", "hdf5", "--size", "keep", "--compression", "gzip"),
    "memmap_yuv420_keep": ("--size", "keep", "--color", "ycgco420"),
    "hdf5_yuv420_gzip": ("--format", "hdf5", "--size", "19", "--compression", "gzip", "--color", "ycgco420"),
    "lmdb_fixed": ("--format", "lmdb", "--size", "24", *SHARDS),
    "lmdb_gray": ("--format", "lmdb", "--size", "24", "--color", "gray"),
    "lmdb_keep": ("--format", "lmdb", "--size", "keep"),
    "lmdb_as_they_are": ("--format", "lmdb", "--size", "keep", "--quality", "keep"),
}
FIELDS: dict[str, dict[str, Any]] = {
    "fields_memmap": {"size": "12x16"},
    "fields_hdf5": {"format": "hdf5", "size": "12x16", "chunk": 7},
    "fields_hdf5_keep_gzip": {"format": "hdf5", "compression": "gzip"},
    "fields_lmdb_keep": {"format": "lmdb"},
}
"""Stores of samples with fields of every kind -> how they are packed."""
SEVERAL_SHARDS = ("memmap_fixed", "hdf5_chunk_7", "lmdb_fixed", "memmap_keep", "hdf5_keep_gzip")


def make_photos(folder: Path) -> None:
    """Two classes of small pictures of many sizes: JPEGs in colour and grey, a PNG, two files that are no image."""
    rng = np.random.default_rng(7)
    for i in range(COUNT):
        path = folder / ("cats", "dögs 犬")[i * 2 // COUNT] / f"{i:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(18, 40, 2).tolist()
        y, x = np.mgrid[0:height, 0:width]
        colour = np.stack([x * 5 + i, y * 4 + 2 * i, 255 - (x + y) * 3], axis=2).astype(np.uint8)
        picture = Image.fromarray(colour)
        if i % 10 == 3:
            picture = picture.convert("L")
        picture.save(path, quality=90, progressive=i % 7 == 0)
    # One large enough to span several chunks of 1 MiB, and stored exactly.
    Image.fromarray(rng.integers(0, 256, (600, 620, 3), np.uint8)).save(folder / "cats" / "large.png")
    (folder / "cats" / "0000b.jpg").write_bytes(b"")
    whole = (folder / "cats" / "0001.jpg").read_bytes()
    (folder / "dögs 犬" / "zz.jpg").write_bytes(whole[: len(whole) // 2])


def samples_with_fields(count: int = COUNT) -> list[dict[str, Any]]:
    """Samples with a field of every kind, and images of different sizes."""
    rng = np.random.default_rng(11)
    samples = []
    for i in range(count):
        height, width = rng.integers(10, 30, 2).tolist()
        samples.append(
            {
                "image": rng.integers(0, 256, (height, width, 3)).astype(np.uint8),
                "label": i % 2,
                "number": i * (1 << 40),
                "score": np.float16(i / 8),
                "yes": i % 3 == 0,
                "vector": rng.random((2, 3)).astype(np.float32),
                "boxes": rng.integers(-90, 90, (i % 4, 5)).astype(np.int16),
                "words": f"naïve 文 {i}" * (i % 3),
                "mask": rng.integers(0, 4, (height, width)).astype(np.uint8),
                "colours": rng.integers(0, 256, (height, width, 3)).astype(np.uint8),
                "depth": rng.integers(0, 1 << 16, (height, width)).astype(np.uint16),
            }
        )
    return samples


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stores of every kind, packed by the command, with the names of STORES."""
    folder = tmp_path_factory.mktemp("stores")
    make_photos(folder / "photos")
    # A shard of different sizes is cut for 1,024 images: here for as few as of one size.
    with mock.patch.object(recipe, "_KEEP_PART", 64):
        for name, words in STORES.items():
            pack(folder / "photos", folder / name, "--max-rejects", 2, *words)
    for name, options in FIELDS.items():
        fields = {"boxes": "int16[?,5]", "mask": "mask", "colours": "mask", "depth": "mask"}
        rawpack_packer.pack(
            samples_with_fields(), folder / name, image=("uint8", (None, None, 3)), fields=fields,
            classes=["cat", "dog"], workers=0, shard_size="1", **options,
        )  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def read_by_docs(stores: Path) -> dict[str, NDArray[Any]]:
    """What the documentation's readers read from all stores, in a process that cannot import rawpack."""
    out = stores / "read.npz"
    done = subprocess.run(
        [sys.executable, by_docs.__file__, str(out), *STORES, *FIELDS],
        cwd=stores, env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stdout + done.stderr
    with np.load(out) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", STORES)
def test_the_documentation_reads_what_the_reader_reads(
    name: str, stores: Path, read_by_docs: dict[str, NDArray[Any]]
) -> None:
    """Keys, labels and every pixel that a reader written from `docs/format/` finds are those of `rawpack.Reader`."""
    reader = Reader(stores / name)
    keys, labels, shapes, pixels = (
        read_by_docs[f"{name}/{what}"] for what in ("keys", "labels", "shapes", "pixels")
    )  # fmt: skip
    assert len(reader) == len(keys) == 1 + COUNT
    ends = np.cumsum(shapes.prod(axis=1))
    assert ends[-1] == len(pixels)
    for i in range(len(reader)):
        sample = reader[i]
        assert (sample["key"], sample["label"]) == (keys[i], labels[i])
        assert sample["image"].shape == tuple(shapes[i])
        found = pixels[ends[i] - sample["image"].size : ends[i]].astype(int)
        # The documentation's formula says nothing of the rounding on the way.
        assert np.abs(found - sample["image"].reshape(-1)).max() == 0


@pytest.mark.parametrize("name", FIELDS)
def test_the_documentation_reads_every_kind_of_field(
    name: str, stores: Path, read_by_docs: dict[str, NDArray[Any]]
) -> None:
    """Numbers, vectors, texts, ragged fields and masks that a reader written from `docs/format/` finds are those of
    `rawpack.Reader`, also where there are two shards."""
    reader = Reader(stores / name)
    samples = [reader[i] for i in range(len(reader))]
    assert len(by_docs.read_sealed(stores / name / "store.json")[0]["shards"]) == (1 if "keep" in name else 2)
    names = set(reader.fields) - {"image", "label", "key"}
    assert names == {"number", "score", "yes", "vector", "boxes", "words", "mask", "colours", "depth"}
    for field in names:
        whole, shapes, at = read_by_docs[f"{name}/{field}"], read_by_docs[f"{name}/{field}/shapes"], 0
        for i, sample in enumerate(samples):
            value = np.asarray(sample[field])
            assert value.shape == tuple(shapes[i].astype(int))
            np.testing.assert_array_equal(value.reshape(-1), whole[at : at + value.size])
            at += value.size
        assert at == len(whole)
        if reader.fields[field].kind != "text":
            assert whole.dtype == np.dtype(reader.fields[field].dtype)


def test_the_stores_cover_what_the_documentation_describes(stores: Path) -> None:
    """These stores have several shards, several chunks, rejects and files passed through: no case is idle."""
    for name in SEVERAL_SHARDS:
        assert len(by_docs.read_sealed(stores / name / "store.json")[0]["shards"]) > 1
    keep = by_docs.read_sealed(stores / "hdf5_keep_gzip" / "store.json")[0]
    assert keep["shards"][0]["fields"]["image"]["chunks"] > 1
    assert by_docs.read_sealed(stores / "lmdb_as_they_are" / "store.json")[0]["counts"]["passed_through"] == COUNT
    rejects = by_docs.read_rejects(stores / "memmap_fixed")
    assert [(one["key"], one["reason"]) for one in rejects] == [
        ("cats/0000b.jpg", "empty"),
        ("dögs 犬/zz.jpg", "truncated"),
    ]


def test_a_changed_store_breaks_its_seal(stores: Path, tmp_path: Path) -> None:
    """The documented check of the manifest refuses one with any other byte."""
    data = (stores / "memmap_fixed" / "store.json").read_bytes()
    for at in range(0, len(data), 101):
        (tmp_path / "store.json").write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises((AssertionError, ValueError)):
            by_docs.read_sealed(tmp_path / "store.json")
