"""Every format keeps the same promises: one suite over all of them.

What is right is said by Pillow, numpy, os.walk and the libraries of the formats, never by rawpack.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import h5py
import lmdb
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pictures import Pixels, save
from PIL import Image
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


def triangles(old: int, new: int) -> NDArray[np.float64]:
    """How a reader makes `new` pixels of `old` ones: where they shrink, by a triangle as wide as two new pixels."""
    if new >= old:
        return weights(old, new)
    wide = old / new
    apart = np.abs(np.arange(old) + 0.5 - (np.arange(new)[:, None] + 0.5) * wide)
    heights: NDArray[np.float64] = (1 - apart / wide).clip(0)
    return heights / heights.sum(axis=1, keepdims=True)


def fitted(
    pixels: Pixels, target: tuple[int, int], weights: Callable[[int, int], NDArray[np.float64]] = weights
) -> NDArray[np.float64]:
    """Scaled to cover and centre-cropped, with torchvision's rounding; exact, not rounded to whole levels."""
    height, width, _ = pixels.shape
    scale = max(target[0] / height, target[1] / width)
    if scale == target[0] / height:
        scaled = target[0], max(target[1], width * target[0] // height)
    else:
        scaled = max(target[0], height * target[1] // width), target[1]
    tall = np.tensordot(weights(height, scaled[0]), pixels.astype(np.float64), 1)
    whole = np.matmul(weights(width, scaled[1]), tall)
    top, left = round((scaled[0] - target[0]) / 2), round((scaled[1] - target[1]) / 2)
    cut: NDArray[np.float64] = whole[top : top + target[0], left : left + target[1]]
    return cut


@cache
def resized(path: Path, color: str) -> NDArray[np.float64]:
    """An image file as stores of one size hold it."""
    return fitted(decoded(path, color), (SIZE, SIZE))


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
    def channels(self) -> int:
        return 1 if self.color == "gray" else 3

    @property
    def keep(self) -> bool:
        return self.size == "keep"

    @property
    def batch_options(self) -> dict[str, Any]:
        """What `batches` needs to make batches of this store."""
        return {"image_size": SIZE} if self.keep else {}

    def original(self, i: int) -> Pixels:
        return decoded(self.truth.root / self.truth.keys[i], self.color)

    def expected(self, i: int) -> NDArray[Any]:
        """Image i before any JPEG encoding."""
        return self.original(i) if self.keep else resized(self.truth.root / self.truth.keys[i], self.color)


RGB = [
    *((layout, "48", "rgb") for layout in FORMATS),
    *((layout, "keep", "rgb") for layout in FORMATS if layout != "hdf5-chunk4"),
]
ALL = [
    *RGB,
    *(("memmap", size, "gray") for size in ("48", "keep")),
    *(("lmdb", size, "gray") for size in ("48", "keep")),
    *(("hdf5-chunk4", "48", "ycgco420"), ("hdf5-gzip", "keep", "ycgco420")),
]
SOME = [
    ("memmap", "48", "rgb"),
    ("lmdb", "48", "gray"),
    ("hdf5-gzip", "keep", "rgb"),
    ("hdf5-chunk4", "48", "ycgco420"),
]
"""For what no format has code of its own."""


@pytest.fixture
def case(request: pytest.FixtureRequest, packed: Packed, images: Path) -> Case:
    layout, size, color = request.param
    return Case(packed(layout, "--size", size, "--color", color), layout, size, color, truth_of(images))


def over(cases: list[tuple[str, str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, indirect=True, ids=["-".join(asked) for asked in cases])


# ---------------------------------------------------------------------------------------------- single samples


@over(ALL)
def test_every_image_is_the_file_brought_to_the_recipe(case: Case) -> None:
    """Pixels are what Pillow decodes, resized by exact averaging; an lmdb store adds JPEG loss and nothing else, planes
    the blur of their colour."""
    reader, quality = Reader(case.path), []
    for i in range(len(case.truth)):
        image, expected = reader[i]["image"], case.expected(i)
        if case.layout == "lmdb" or case.color == "ycgco420":
            assert image.shape == expected.shape
            quality.append(psnr(image, expected))
        else:
            assert worst(image, expected) <= 2, case.truth.keys[i]
    assert not quality or (np.mean(quality) > 30 and min(quality) > 25)


@over(SOME)
def test_order_labels_keys_and_classes_are_those_of_the_folder(case: Case) -> None:
    """Samples come in path order, with their keys to the letter, and labels as torchvision numbers folders."""
    reader = Reader(case.path)
    samples = [reader[i] for i in range(len(reader))]
    assert len(reader) == len(case.truth)
    assert [sample["key"] for sample in samples] == case.truth.keys
    assert [int(sample["label"]) for sample in samples] == case.truth.labels
    assert [int(sample["index"]) for sample in samples] == list(range(len(samples)))
    assert reader.classes == tuple(case.truth.classes)
    assert reader.class_to_idx == {name: i for i, name in enumerate(case.truth.classes)}


# ---------------------------------------------------------------------------------------------- batches


@cache
def singles(store: Path) -> list[Pixels]:
    """The images of a store as `reader[i]` gives them."""
    reader = Reader(store)
    return [reader[i]["image"] for i in range(len(reader))]


def fitted_single(store: Path, target: tuple[int, int], row: int) -> NDArray[np.float64]:
    """Image `row` of a store in batches of a size. Most stores have the same images."""
    image = singles(store)[row]
    return _fitted_bytes(image.tobytes(), image.shape, target)


@cache
def _fitted_bytes(image: bytes, shape: tuple[int, ...], target: tuple[int, int]) -> NDArray[np.float64]:
    return fitted(np.frombuffer(image, np.uint8).reshape(shape), target, triangles)


def check_batches(case: Case, batches: list[dict[str, Any]], sizes: list[int]) -> None:
    """All arrays of all batches agree with the samples that `index` names."""
    assert [len(batch["index"]) for batch in batches] == sizes
    for batch in batches:
        for k, row in enumerate(batch["index"].tolist()):
            assert batch["label"][k] == case.truth.labels[row]
            if case.keep:
                assert worst(batch["image"][k], fitted_single(case.path, (SIZE, SIZE), row)) <= 1.5
            else:
                np.testing.assert_array_equal(batch["image"][k], singles(case.path)[row])


def sizes_of(count: int, batch_size: int, drop_last: bool) -> list[int]:
    whole, rest = divmod(count, batch_size)
    return [batch_size] * whole + ([rest] if rest and not drop_last else [])


@over(ALL)
def test_batches_hold_the_samples(case: Case) -> None:
    """Each array of a batch has the samples that `index` names, in every format."""
    batches = list(Reader(case.path).batches(7, workers=0, **case.batch_options))
    check_batches(case, batches, sizes_of(len(case.truth), 7, False))


def threads(count: int) -> Workers:
    """This many worker threads; for 0, no workers."""
    return Workers(count, backend="thread" if count else None)


@over(RGB)
def test_workers_give_the_same_batches_as_none(case: Case) -> None:
    """Two threads, and, of images of different sizes, two processes: the same batches in the same order as in this very
    process. Processes that read images of one size are in the suite of formats below."""
    reader = Reader(case.path)
    options = {"batch_size": 16, "shuffle": True, "seed": 2, **case.batch_options}
    alone = list(reader.batches(workers=0, **options))
    for workers in (threads(2), *[Workers(2, backend="process")] * case.keep):
        together = list(reader.batches(workers=workers, **options))
        assert len(together) == len(alone)
        for a, b in zip(alone, together, strict=True):
            assert list(a) == list(b)
            for name in a:
                np.testing.assert_array_equal(a[name], b[name])


@over(SOME[:2])
def test_arrays_of_a_batch_are_plain_and_writable(case: Case) -> None:
    """image is uint8 (n, H, W, C), label and index are int64 (n,); all are writable and do not reach the store, and
    neither does the image of a sample."""
    reader = Reader(case.path)
    single = reader[4]["image"]
    batch = next(iter(reader.batches(10, workers=0)))
    assert set(batch) == {"image", "label", "index"}
    assert (batch["image"].dtype, batch["image"].shape) == (np.uint8, (10, SIZE, SIZE, case.channels))
    assert (batch["label"].dtype, batch["label"].shape) == (np.int64, (10,))
    assert (batch["index"].dtype, batch["index"].shape) == (np.int64, (10,))
    before = single.copy()
    for array in batch.values():
        assert isinstance(array, np.ndarray)
        assert array.flags.writeable
        assert array.flags.c_contiguous
        array[:] = 1
    single[:] = 0
    np.testing.assert_array_equal(reader[4]["image"], before)


@over([asked for asked in ALL if asked[1] == "keep"])
def test_images_of_different_sizes_need_an_image_size(case: Case) -> None:
    """Without image_size the error names the cure; with it, images are resized to cover and centre-cropped."""
    reader = Reader(case.path)
    with pytest.raises(UsageError, match=r"different sizes.*image_size=224"):
        reader.batches(4)
    batch = next(iter(reader.batches(20, image_size=(40, 56), workers=Workers(2, backend="thread"))))
    assert batch["image"].shape == (20, 40, 56, case.channels)
    for i in range(20):
        assert worst(batch["image"][i], fitted_single(case.path, (40, 56), i)) <= 1.5


@over(SOME[:2])
def test_an_image_size_resizes_images_of_one_size_too(case: Case) -> None:
    """image_size= smaller than what is stored shrinks; the same size changes nothing."""
    reader = Reader(case.path)
    small = next(iter(reader.batches(8, image_size=(20, 30), workers=0)))["image"]
    same = next(iter(reader.batches(8, image_size=SIZE, workers=0)))["image"]
    for i in range(8):
        assert worst(small[i], fitted(reader[i]["image"], (20, 30), triangles)) <= 1.5
        np.testing.assert_array_equal(same[i], reader[i]["image"])


# ---------------------------------------------------------------------------------------------- without rawpack


def shards(path: Path, suffix: str) -> list[Path]:
    return sorted(path.glob(f"shard-*{suffix}"))


def stored_images(case: Case) -> Iterator[Pixels]:
    """All images of a store by numpy, h5py, lmdb and Pillow alone, as the format's documentation says."""
    columns = case.path / "columns-1"
    if case.layout == "memmap" and not case.keep:
        for path in shards(case.path, ".npy"):
            yield from np.load(path, mmap_mode="r")
    elif case.layout == "memmap":
        (path,) = shards(case.path, ".npy")
        assert np.load(path, mmap_mode="r").ndim == 1
        whole = np.memmap(path, np.uint8, "r")
        shapes = np.load(columns / "image.shape.npy")
        offsets, sizes = np.load(columns / "image.offset.npy"), np.load(columns / "image.bytes.npy")
        for shape, offset, size in zip(shapes.tolist(), offsets.tolist(), sizes.tolist(), strict=True):
            yield whole[offset : offset + size].reshape(shape)
    elif case.layout.startswith("hdf5"):
        for path in shards(case.path, ".h5"):
            with h5py.File(path, "r") as file:
                if not case.keep:
                    yield from file["image"][:]
                    continue
                for start, (h, w, c) in zip(file["image_start"][:], file["image_shape"][:], strict=True):
                    yield file["image"][start : start + int(h) * int(w) * int(c)].reshape(h, w, c)
    else:
        for path in shards(case.path, ".lmdb"):
            with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as env, env.begin() as transaction:
                for row in range(env.stat()["entries"]):
                    value = bytes(transaction.get(b"%012d" % row) or b"")
                    with Image.open(io.BytesIO(value)) as image:
                        pixels = np.asarray(image)
                    yield pixels.reshape(*pixels.shape[:2], -1)


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
        size = "keep" if (store / "columns-1" / "image.shape.npy").exists() else "22x17"
        yield from stored_images(Case(store, self.layout, size, "rgb", Truth(store, [], [], [])))


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


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    layout = draw(st.sampled_from(sorted(FORMATS)))
    keep = draw(st.booleans()) and layout != "hdf5-chunk4"
    return {
        "layout": layout,
        "size": None if keep else draw(st.tuples(st.integers(1, 9), st.integers(1, 9))),
        "color": draw(st.sampled_from(["rgb", "gray"])),
        "count": draw(st.sampled_from([1, 2, 3, 63, 64, 65, 128, 130])),
        "shard_size": draw(st.sampled_from(["1", "16KiB", "1MiB"])),
        "batch_size": draw(st.integers(1, 140)),
        "workers": draw(st.integers(0, 2)),
        "shuffle": draw(st.sampled_from([False, True, "block"])),
        "drop_last": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**32)),
    }


@settings(max_examples=60 if SOAK else 8, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=PHASES)
@given(jobs())
def test_what_is_packed_comes_back(job: dict[str, Any]) -> None:
    """For any count, size, colour, shard size, batch size, workers and order: the images of the folder, each once.

    The files are PNGs of the stored size, so that raw formats must give back every bit.
    """
    random = np.random.default_rng(job["seed"])
    with tempfile.TemporaryDirectory() as folder:
        source, images = Path(folder) / "source", []
        for i in range(job["count"]):
            height, width = job["size"] or random.integers(1, 10, 2).tolist()
            shape = (height, width, 3) if job["color"] == "rgb" else (height, width)
            pixels = random.integers(0, 256, shape).astype(np.uint8)
            save(source / f"{i % 3}" / f"{i:04d}.png", pixels)
            images.append((f"{i % 3}/{i:04d}.png", pixels.reshape(height, width, -1)))
        images.sort(key=lambda image: image[0])
        size = "keep" if job["size"] is None else "{}x{}".format(*job["size"])
        store = pack(
            source, Path(folder) / "store", *FORMATS[job["layout"]], "--size", size, "--color", job["color"],
            "--shard-size", job["shard_size"],
        )  # fmt: skip
        reader = Reader(store)
        for i, (key, pixels) in enumerate(images):
            sample = reader[i]
            assert sample["key"] == key
            assert sample["image"].shape == pixels.shape
            if job["layout"] != "lmdb":
                np.testing.assert_array_equal(sample["image"], pixels)
        fields = ["key", "label"] + (["image"] if job["size"] else [])
        sizes = sizes_of(job["count"], job["batch_size"], job["drop_last"])
        options = {name: job[name] for name in ("batch_size", "shuffle", "seed")}
        drop_last = job["drop_last"] and bool(sizes)
        batches = list(reader.batches(fields=fields, drop_last=drop_last, workers=threads(job["workers"]), **options))
        sizes = sizes or [job["count"]]
        assert [len(batch["index"]) for batch in batches] == sizes
        rows = [row for batch in batches for row in batch["index"].tolist()]
        assert len(set(rows)) == len(rows) == sum(sizes)
        for batch in batches:
            for k, row in enumerate(batch["index"].tolist()):
                assert batch["key"][k] == images[row][0]
                assert batch["label"][k] == int(images[row][0][0])
                if job["size"]:
                    np.testing.assert_array_equal(batch["image"][k], reader[row]["image"])


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
