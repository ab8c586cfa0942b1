"""Images as planes of YCgCo 4:2:0: `--color ycgco420`. Oracles: the formulas of the format, in numpy alone."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pictures import picture, save
from PIL import Image
from planes import rgb_of, spread
from readers_by_docs import StoreByDocs
from reading import SOAK, WAYS, without_core
from running import pack

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.pixels.yuv420 import to_rgb
from rawpack.transforms import RandomCrop
from rawpack_packer.samples.encoders import rgb_to_planes
from rawpack_packer.tune.loss import psnr

LAYOUTS: dict[str, tuple[str, ...]] = {
    "memmap-17x22": (),
    "memmap-keep": (),
    "hdf5-17x22": ("--format", "hdf5", "--chunk", "4"),
    "hdf5-keep": ("--format", "hdf5"),
    "hdf5-gzip-17x22": ("--format", "hdf5", "--chunk", "3", "--compression", "gzip"),
    "hdf5-gzip-keep": ("--format", "hdf5", "--compression", "gzip"),
}
TO_YCGCO = np.array([[0.25, 0.5, 0.25], [-0.25, 0.5, -0.25], [0.5, 0, -0.5]], np.float64)
"""Of ITU-T H.273, matrix coefficients 8."""


sides = st.integers(1, 21)
by_both = pytest.mark.parametrize("by", [nullcontext, without_core], ids=["core", "NumPy"])
"""Once by the native core, where it is there, and once by NumPy."""


# ---------------------------------------------------------------------------------------------- pixels and planes


@by_both
@settings(max_examples=60 if SOAK else 30, deadline=None)
@given(height=st.integers(1, 70), width=st.integers(1, 70), seed=st.integers(0, 2**32))
@example(height=1, width=70_000, seed=1)
@example(height=301, width=437, seed=1)
@example(height=70_000, width=1, seed=1)
def test_planes_become_the_rgb_of_the_formula(by: Any, height: int, width: int, seed: int) -> None:
    """Of any bytes and any size, odd ones and those that are converted in strips, too: exactly the integers of the
    format's formula."""
    stored = np.random.default_rng(seed).integers(0, 256, height * width + 2 * (-(-height // 2) * -(-width // 2)))
    with by():
        rgb = to_rgb(stored.astype(np.uint8), (height, width))
    assert (rgb.dtype, rgb.shape) == (np.uint8, (height, width, 3))
    np.testing.assert_array_equal(rgb, rgb_of(stored.astype(np.uint8), height, width))


@by_both
@settings(max_examples=150 if SOAK else 60, deadline=None)
@given(height=sides, width=st.integers(1, 80), data=st.data())
def test_a_box_is_exactly_that_part_of_the_whole(by: Any, height: int, width: int, data: st.DataObject) -> None:
    """Whatever box is read, on even or odd pixels, it has the bytes that the whole image has there; into `out` too."""
    y, x = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    box = y, x, data.draw(st.integers(1, height - y)), data.draw(st.integers(1, width - x))
    count = height * width + 2 * (-(-height // 2) * -(-width // 2))
    stored = np.random.default_rng(height * 100 + width).integers(0, 256, count).astype(np.uint8)
    part = rgb_of(stored, height, width)[y : y + box[2], x : x + box[3]]
    out = np.zeros((box[2], box[3], 3), np.uint8)
    apart = np.zeros((box[2] + 1, box[3] + 2, 3), np.uint8)
    with by():
        np.testing.assert_array_equal(to_rgb(stored, (height, width), box), part)
        assert to_rgb(stored, (height, width), box, out) is out
        to_rgb(stored, (height, width), box, apart[1:, 1:-1])
    np.testing.assert_array_equal(out, part)
    np.testing.assert_array_equal(apart[1:, 1:-1], part)
    assert not apart[0].any()
    assert not apart[:, [0, -1]].any()


@settings(max_examples=60 if SOAK else 30, deadline=None)
@given(sides, sides, st.integers(0, 2**32))
def test_luma_is_the_formulas_and_chroma_is_the_best_that_can_be_stored(height: int, width: int, seed: int) -> None:
    """Y is the formula rounded. Cg and Co are within one and a half levels of the planes that numpy's least squares
    finds, of all from which interpolation can make the pixels' chroma: integers are rounded on the way."""
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    luma, *chroma = np.moveaxis(image @ TO_YCGCO.T, 2, 0)
    chroma = [np.pad(plane, ((0, height % 2), (0, width % 2)), "edge") for plane in chroma]
    height_, width_ = chroma[0].shape
    stored = rgb_to_planes(image)
    assert np.abs(stored[: height * width].reshape(height, width) - luma).max() <= 0.51
    rows, columns = np.linalg.pinv(spread(height_)), np.linalg.pinv(spread(width_))
    found = stored[height * width :].reshape(2, height_ // 2, width_ // 2)
    for plane, values in zip(found, chroma, strict=True):
        best = (rows @ values @ columns.T + 128).clip(0, 255)
        assert np.abs(plane - best).max() <= 1.5


# ---------------------------------------------------------------------------------------------- stores


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """70 pictures of odd and even sizes: two shards of 64, where shards are as small as can be."""
    root = tmp_path_factory.mktemp("yuv420") / "source"
    for i in range(70):
        save(root / "ab"[i % 2] / f"{i:02}.png", picture(20 + i % 5, 31 - i % 7, i))
    return root


@pytest.fixture(scope="module")
def stores(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Layout and size -> the store."""
    folder = tmp_path_factory.mktemp("stores")
    made = {"rgb": pack(source, folder / "rgb", "--size", "17x22", "--shard-size", "1")}
    for name, options in LAYOUTS.items():
        size = name.rpartition("-")[2]
        made[name] = pack(source, folder / name, *options, "--size", size, "--color", "ycgco420", "--shard-size", "1")
    return made


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_store_holds_planes_and_gives_rgb(name: str, stores: dict[str, Path], source: Path) -> None:
    """In every layout, readers by the documentation find planes of the formula; the reader gives their (H, W, 3), near
    the source's pixels; sizes of the field are those of RGB."""
    reader = Reader(stores[name])
    field = reader.fields["image"]
    assert field.encoding == ("ycgco420_deflate" if "gzip" in name else "ycgco420")
    assert (field.dtype, field.shape) == ("uint8", (None, None, 3) if name.endswith("keep") else (17, 22, 3))
    recipe = json.loads((stores[name] / "store.json").read_text())["recipe"]
    assert (recipe["color"], recipe["libraries"]["encoder"].split()[0]) == ("ycgco420", "rawpack.yuv420")
    for i, stored in enumerate(StoreByDocs(stores[name]).samples()):
        image = reader[i]["image"]
        np.testing.assert_array_equal(image, stored.image)
        if name.endswith("keep"):
            original = np.asarray(Image.open(source / reader[i]["key"]))
            assert psnr(original, image) > 30
            np.testing.assert_array_equal(image, rgb_of(rgb_to_planes(original), *original.shape[:2]))


@pytest.mark.parametrize(
    ("name", "way"), [("memmap-17x22", "processes"), ("hdf5-17x22", "here"), ("hdf5-gzip-17x22", "threads")]
)
def test_batches_are_rgb_or_planes(name: str, way: str, stores: dict[str, Path]) -> None:
    """In this process, in threads and in processes, shuffled, batches have the pixels that single samples have;
    decode="planes" gives the planes of these, flat."""
    reader = Reader(stores[name], verify=way == "here")
    images = [sample["image"] for sample in reader]
    for decode in (True, "planes"):
        rows = []
        for batch in reader.batches(16, shuffle=True, decode=decode, **WAYS[way]):
            rows += batch["index"].tolist()
            made = batch["image"] if decode is True else [rgb_of(planes, 17, 22) for planes in batch["image"]]
            np.testing.assert_array_equal(made, [images[row] for row in batch["index"]])
        assert sorted(rows) == list(range(70))


def test_stores_of_planes_and_of_rgb_are_read_as_one(stores: dict[str, Path]) -> None:
    """Each sample is what its own store gives."""
    paths = [stores["rgb"], stores["memmap-17x22"], stores["rgb"]]
    (batch,) = Reader(paths).batches(210, workers=0)
    np.testing.assert_array_equal(batch["image"], [sample["image"] for path in paths for sample in Reader(path)])


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("rgb", {}, "--color ycgco420"),
        ("memmap-17x22", {"transform": [RandomCrop(9)]}, "transform="),
        ("memmap-17x22", {"image_size": 9}, "image_size="),
        ("memmap-keep", {}, "different sizes"),
    ],
)
def test_what_has_no_planes_is_refused(name: str, options: dict[str, Any], words: str, stores: dict[str, Path]) -> None:
    """Planes of a store that has none, of different sizes, or with a transform: one line that names the cure."""
    with pytest.raises(UsageError) as refused:
        Reader(stores[name]).batches(4, **{"decode": "planes", **options})
    assert words in str(refused.value)


# ---------------------------------------------------------------------------------------------- packing


def test_arrays_that_are_not_rgb_are_refused(tmp_path: Path) -> None:
    """They have no planes: a UsageError, and nothing is written."""
    for image in (np.zeros((6, 5), np.uint8), np.zeros((6, 5, 3), np.float32)):
        with pytest.raises(UsageError, match="uint8 \\(height, width, 3\\)"):
            rawpack_packer.pack([image], tmp_path / "store", color="ycgco420", workers=0)
    assert not (tmp_path / "store").exists()
