"""Every format keeps the same promises: one suite over all of them.

What is right is said by Pillow, numpy, os.walk and the libraries of the formats, never by rawpack.
"""

from __future__ import annotations

import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pictures import Pixels, save
from PIL import Image
from readers_by_docs import StoreByDocs
from reading import SOAK
from running import FORMATS, Packed, pack

import rawpack_packer
from rawpack import DamagedStoreError, Reader, UsageError, Workers
from rawpack.disk.manifest import Field, Placement
from rawpack.formats.codecs.deflate import DeflatedRows
from rawpack.formats.field_reader import ShardField
from rawpack_packer.testing import FormatConformance

SIZE = 48
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""No shrinking: jobs are small as they are, and each attempt packs a store."""


# ---------------------------------------------------------------------------------------------- what is right


@dataclass(frozen=True)
class Truth:
    """What a folder holds, as a plain walk sees it."""

    root: Path
    keys: list[str]
    classes: list[str]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.keys)


@cache
def truth_of(root: Path) -> Truth:
    """Files in path order, part by part as UTF-8 bytes; labels by the sorted folders of the first level."""
    keys = []
    for folder, _, names in os.walk(root):
        keys += [(Path(folder) / name).relative_to(root).as_posix() for name in names]
    keys.sort(key=lambda key: [part.encode() for part in key.split("/")])
    classes = sorted((path.name for path in root.iterdir() if path.is_dir()), key=str.encode)
    labels = [classes.index(key.split("/")[0]) if "/" in key else -1 for key in keys]
    return Truth(root, keys, classes, labels)


@cache
def decoded(path: Path, color: str) -> Pixels:
    """An image file by Pillow: (H, W, 3) RGB or (H, W, 1) grey."""
    with Image.open(path) as image:
        if color != "gray":
            return np.asarray(image.convert("RGB"))
        if image.format == "JPEG":
            image.draft("L", image.size)
        return np.asarray(image.convert("L"))[..., None]


@cache
def weights(stored: int, wanted: int) -> NDArray[np.float64]:
    """(wanted, stored): how much of each pixel goes into each new one. Averages where it shrinks, else bilinear."""
    matrix = np.zeros((wanted, stored))
    step = stored / wanted
    for i in range(wanted):
        if step >= 1:
            for j in range(int(i * step), min(stored, math.ceil((i + 1) * step))):
                matrix[i, j] = max(0.0, min(j + 1, (i + 1) * step) - max(j, i * step)) / step
        else:
            at = min(max((i + 0.5) * step - 0.5, 0), stored - 1)
            low = min(int(at), stored - 2)
            matrix[i, low : low + 2] = 1 - (at - low), at - low
    return matrix


@cache
def resized(path: Path, color: str) -> NDArray[np.float64]:
    """An image file as stores of one size hold it: scaled to cover and centre-cropped, with torchvision's rounding;
    exact, not rounded to whole levels."""
    pixels = decoded(path, color)
    height, width, _ = pixels.shape
    tall, wide = max(SIZE, height * SIZE // width), max(SIZE, width * SIZE // height)
    rows = np.tensordot(weights(height, tall), pixels.astype(np.float64), 1)
    whole = np.matmul(weights(width, wide), rows)
    top, left = round((tall - SIZE) / 2), round((wide - SIZE) / 2)
    cut: NDArray[np.float64] = whole[top : top + SIZE, left : left + SIZE]
    return cut


def worst(a: NDArray[Any], b: NDArray[Any]) -> float:
    """The largest difference of two images of one shape, in levels."""
    assert a.shape == b.shape
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())


def psnr(a: NDArray[Any], b: NDArray[Any]) -> float:
    error = float(np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2))
    return math.inf if not error else 10 * math.log10(255**2 / error)


# ---------------------------------------------------------------------------------------------- the stores


@dataclass(frozen=True)
class Case:
    """One store of the suite."""

    path: Path
    layout: str
    size: str
    color: str
    truth: Truth

    @property
    def keep(self) -> bool:
        return self.size == "keep"

    def resized(self, i: int) -> NDArray[np.float64]:
        """Image i of one size, before any JPEG encoding."""
        return resized(self.truth.root / self.truth.keys[i], self.color)

    def expected(self, i: int) -> NDArray[Any]:
        """Image i before any JPEG encoding."""
        return decoded(self.truth.root / self.truth.keys[i], self.color) if self.keep else self.resized(i)


ALL = [
    *((layout, "48", "rgb") for layout in FORMATS),
    *((layout, "keep", "rgb") for layout in FORMATS if layout != "hdf5-chunk4"),
    *(("memmap", size, "gray") for size in ("48", "keep")),
    *(("lmdb", size, "gray") for size in ("48", "keep")),
    *(("hdf5-chunk4", "48", "ycgco420"), ("hdf5-gzip", "keep", "ycgco420")),
]


@pytest.fixture(params=ALL, ids="-".join)
def case(request: pytest.FixtureRequest, packed: Packed, images: Path) -> Case:
    layout, size, color = request.param
    return Case(packed(layout, "--size", size, "--color", color), layout, size, color, truth_of(images))


# ---------------------------------------------------------------------------------------------- single samples


def test_every_image_is_the_file_brought_to_the_recipe(case: Case) -> None:
    """Pixels are what Pillow decodes, resized by exact averaging; an lmdb store adds JPEG loss and nothing else, planes
    the blur of their color. Samples come in path order, with their keys, and labels as torchvision numbers folders."""
    reader, quality = Reader(case.path), []
    assert [*reader.column("key")] == case.truth.keys
    assert reader.column("label").tolist() == case.truth.labels
    assert reader.class_to_idx == {name: i for i, name in enumerate(case.truth.classes)}
    for i in range(len(case.truth)):
        image, expected = reader[i]["image"], case.expected(i)
        if case.layout == "lmdb" or case.color == "ycgco420":
            assert image.shape == expected.shape
            quality.append(psnr(image, expected))
        else:
            assert worst(image, expected) <= 2, case.truth.keys[i]
    assert not quality or (np.mean(quality) > 30 and min(quality) > 25)


# ---------------------------------------------------------------------------------------------- batches


def test_batches_hold_the_samples(case: Case) -> None:
    """Here, by threads and, of images of different sizes, by processes: each array of a batch has the samples that
    `index` names, in the same order, and may be written to. Different sizes need an image size, and the error says so.
    Processes that read images of one size are in the suite of formats below."""
    reader = Reader(case.path)
    if case.keep:
        with pytest.raises(UsageError, match=r"different sizes.*image_size=224"):
            reader.batches(4)
    orders, singles = set(), [sample["image"] for sample in reader]
    for workers in (0, Workers(2, backend="thread"), *[Workers(2, backend="process")] * case.keep):
        size = {"image_size": SIZE} if case.keep else {}
        batches = list(reader.batches(16, shuffle=True, seed=2, workers=workers, **size))
        rows = [row for batch in batches for row in batch["index"].tolist()]
        assert sorted(rows) == list(range(len(case.truth)))
        assert [label for batch in batches for label in batch["label"].tolist()] == [case.truth.labels[i] for i in rows]
        for i, image in zip(rows, (image for batch in batches for image in batch["image"]), strict=True):
            if case.keep:
                assert psnr(image, case.resized(i)) > 22, i
            else:
                np.testing.assert_array_equal(image, singles[i])
        orders.add(tuple(rows))
        for array in (array for batch in batches for array in batch.values()):
            assert array.flags.c_contiguous
            array[:] = 1
    assert len(orders) == 1


# ---------------------------------------------------------------------------------------------- the public suite


class _OwnFormat(FormatConformance):
    """The suite that `rawpack_packer.testing` has for anybody's format, for one of our own."""

    layout: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    def pack(self, images: Sequence[Pixels], folder: Path) -> Path:
        kind = None if len({image.shape for image in images}) == 1 else ("uint8", (None, None, 3))
        samples = [{"image": image} for image in images]
        options = {"format": self.layout.split("-")[0], "shard_size": "1", "workers": 0, **self.options}
        rawpack_packer.pack(samples, folder / "store", image=kind, **options)
        return folder / "store"

    def read_back(self, store: Path) -> Iterator[Pixels]:
        return (sample.image for sample in StoreByDocs(store).samples())


class TestMemmap(_OwnFormat):
    layout = "memmap"


class TestHdf5(_OwnFormat):
    layout = "hdf5"


class TestHdf5Compressed(_OwnFormat):
    """hdf5 with chunks of four images, compressed, keeps them."""

    layout = "hdf5-gzip"
    different_sizes = False
    options: ClassVar[dict[str, Any]] = {"compression": "gzip", "chunk": 4}


class TestHdf5CompressedSizes(_OwnFormat):
    """hdf5 with images of different sizes, compressed, keeps them."""

    layout = "hdf5-gzip"
    one_size = False
    options: ClassVar[dict[str, Any]] = {"compression": "gzip"}


class TestLmdb(_OwnFormat):
    """lmdb keeps them, but for what JPEG loses."""

    layout = "lmdb"

    def check_image(self, read: Pixels, packed: Pixels) -> None:
        assert psnr(read, packed) > 25

    def check_read_back(self, read: Pixels, other: Pixels) -> None:
        assert worst(read, other) <= 2  # decoders of JPEG differ by a level or two


# ---------------------------------------------------------------------------------------------- round trips


JOBS = st.fixed_dictionaries(
    {
        "layout": st.sampled_from(sorted(FORMATS)),
        "size": st.none() | st.tuples(st.integers(1, 9), st.integers(1, 9)),
        "gray": st.booleans(),
        "count": st.sampled_from([1, 2, 3, 63, 64, 65, 128, 130]),
        "shard_size": st.sampled_from(["1", "16KiB", "1MiB"]),
        "seed": st.integers(0, 2**32),
    }
)


@settings(max_examples=60 if SOAK else 8, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=PHASES)
@given(JOBS)
def test_what_is_packed_comes_back(job: dict[str, Any]) -> None:
    """For any count, size, color and shard size: the images of the folder, each once. The files are PNGs of the stored
    size, so that raw formats must give back every bit."""
    random = np.random.default_rng(job["seed"])
    size = job["size"] or ((3, 4) if job["layout"] == "hdf5-chunk4" else None)
    with tempfile.TemporaryDirectory() as folder:
        images = dict[str, Pixels]()
        for i in range(job["count"]):
            height, width = size or random.integers(1, 10, 2).tolist()
            pixels = random.integers(0, 256, (height, width, 1 if job["gray"] else 3)).astype(np.uint8)
            images[f"{i % 3}/{i:04d}.png"] = pixels
            save(Path(folder) / "source" / f"{i % 3}" / f"{i:04d}.png", pixels[..., 0] if job["gray"] else pixels)
        options = [*FORMATS[job["layout"]], "--shard-size", job["shard_size"]]
        options += ["--size", "{}x{}".format(*size) if size else "keep", "--color", "gray" if job["gray"] else "rgb"]
        reader = Reader(pack(Path(folder) / "source", Path(folder) / "store", *options))
        assert [*reader.column("key")] == sorted(images)
        for sample in reader:
            pixels = images[sample["key"]]
            assert sample["image"].shape == pixels.shape
            if job["layout"] != "lmdb":
                np.testing.assert_array_equal(sample["image"], pixels)


@pytest.mark.parametrize("missing", [1, 4, 5])
def test_a_compressed_chunk_that_is_cut_off_is_refused(missing: int) -> None:
    """Also where all of its pixels are there, and only the checksum behind them is not."""
    packed = zlib.compress(bytes(range(12)))
    data = np.frombuffer(packed[: len(packed) - missing], np.uint8)
    field = Field(kind="image", dtype="uint8", shape=(2, 3, 1), encoding="deflate")
    index = {"chunk": np.array([[0, len(data)]])}
    rows = DeflatedRows(ShardField("shard", data, 2, field, Placement(bytes=12, chunks=1, chunk_bytes=12), index))
    with pytest.raises(DamagedStoreError, match="is cut off"):
        rows.stored(0)
