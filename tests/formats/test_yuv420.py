"""Images as planes of YCgCo 4:2:0: `--color ycgco420`. Oracles: the formulas of the format, in numpy alone."""

from __future__ import annotations

import io
import json
import re
import shutil
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from folders import flip
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pictures import picture, save
from PIL import Image
from planes import rgb_of, spread
from reading import SOAK, WAYS, without_core
from running import pack, run_here

import rawpack_packer
from rawpack import DamagedStoreError, Reader, UsageError, Workers
from rawpack.disk.manifest import seal, unseal
from rawpack.formats.codecs.raw import UniformRows
from rawpack.formats.codecs.yuv420 import PlanarRows
from rawpack.pixels.yuv420 import to_rgb
from rawpack.transforms import CenterCrop, RandomCrop
from rawpack_packer.samples.encoders import rgb_to_planes
from rawpack_packer.tune.loss import psnr

Bytes = NDArray[np.uint8]
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
WORDS = r"flat: (\w+), then (\w+), then (\w+) of each"
"""How the guide names the planes of a batch."""


sides = st.integers(1, 21)
by_both = pytest.mark.parametrize("by", [nullcontext, without_core], ids=["core", "NumPy"])
"""Once by the native core, where it is there, and once by NumPy."""


# ---------------------------------------------------------------------------------------------- pixels and planes


@by_both
@settings(max_examples=60 if SOAK else 30, deadline=None)
@given(height=st.integers(1, 70), width=st.integers(1, 70), seed=st.integers(0, 2**32))
def test_planes_become_the_rgb_of_the_formula(by: Any, height: int, width: int, seed: int) -> None:
    """Of any bytes and any size, odd ones too: exactly the integers of the format's formula."""
    stored = np.random.default_rng(seed).integers(0, 256, height * width + 2 * (-(-height // 2) * -(-width // 2)))
    with by():
        rgb = to_rgb(stored.astype(np.uint8), (height, width))
    assert (rgb.dtype, rgb.shape) == (np.uint8, (height, width, 3))
    np.testing.assert_array_equal(rgb, rgb_of(stored.astype(np.uint8), height, width))


@cache
def by_formula(size: tuple[int, int]) -> tuple[Bytes, NDArray[np.int64]]:
    """Planes of noise, and their RGB."""
    random = np.random.default_rng(size[1])
    stored = random.integers(0, 256, size[0] * size[1] + 2 * -(-size[0] // 2) * -(-size[1] // 2)).astype(np.uint8)
    return stored, rgb_of(stored, *size)


@by_both
@pytest.mark.parametrize("size", [(1, 70_000), (301, 437), (70_000, 1)])
def test_images_that_are_converted_in_strips_are_those_of_the_formula(size: tuple[int, int], by: Any) -> None:
    """Large images, and boxes of them, have no seams."""
    stored, expected = by_formula(size)
    y, x = size[0] // 3, size[1] // 5
    with by():
        np.testing.assert_array_equal(to_rgb(stored, size), expected)
        made = to_rgb(stored, size, (y, x, size[0] - y, size[1] - x))
    np.testing.assert_array_equal(made, expected[y:, x:])


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


@pytest.mark.parametrize("color", [(255, 255, 255), (255, 0, 0), (13, 200, 77)])
def test_flat_colors_stay_flat(color: tuple[int, int, int]) -> None:
    """An image of one color has Y, Cg and Co of the formula, everywhere, and comes back within two levels."""
    image = np.full((9, 14, 3), color, np.uint8)
    stored = rgb_to_planes(image)
    luma, green, orange = TO_YCGCO @ color + (0, 128, 128)
    chroma = stored[9 * 14 :].reshape(2, 5, 7).astype(int)
    assert np.abs(stored[: 9 * 14].astype(int) - luma).max() <= 0.5
    assert np.abs(chroma - [[[green]], [[orange]]]).max() <= 0.5
    back = to_rgb(stored, (9, 14)).astype(int)
    assert np.abs(back - image).max() <= 2
    assert (back == back[0, 0]).all()


def test_an_image_out_of_a_jpeg_of_420_hardly_loses_anything() -> None:
    """What a JPEG of 4:2:0 decodes to comes back at 49 dB, where averages of four pixels would lose more."""
    file = io.BytesIO()
    y, x = np.mgrid[0:96, 0:120]
    stripes = np.stack([128 + 90 * np.sin(x / 5), 128 + 90 * np.sin(y / 6), 128 + 90 * np.sin((x + y) / 7)], axis=2)
    Image.fromarray(stripes.astype(np.uint8)).save(file, "JPEG", quality=90, subsampling="4:2:0")
    image = np.asarray(Image.open(file))
    ycbcr = image @ TO_YCGCO.T
    means = ycbcr.reshape(48, 2, 60, 2, 3).mean(axis=(1, 3))[..., 1:] + 128
    averaged = np.concatenate(
        [rgb_to_planes(image)[: 96 * 120], *means.round().astype(np.uint8).transpose(2, 0, 1)], axis=None
    )
    kept = psnr(image, to_rgb(rgb_to_planes(image), (96, 120)))
    assert kept > 49
    assert kept > psnr(image, to_rgb(averaged, (96, 120))) + 1


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


def stored_planes(store: Path) -> list[Bytes]:
    """The stored samples by numpy and h5py alone."""
    found: list[Bytes] = []
    for path in sorted(store.glob("shard-*.npy")):
        whole = np.load(path)
        if whole.ndim == 1:
            start = np.load(store / "columns-1" / "image.offset.npy") - 4096
            size = np.load(store / "columns-1" / "image.bytes.npy")
            found += [whole[a : a + n] for a, n in zip(start, size, strict=True)]
        else:
            found += list(whole)
    for path in sorted(store.glob("shard-*.h5")):
        with h5py.File(path) as file:
            if "image_start" in file:
                ends = np.append(file["image_start"][1:], len(file["image"]))
                found += [file["image"][a:b] for a, b in zip(file["image_start"][:], ends, strict=True)]
            else:
                found += list(file["image"][:])
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_store_holds_planes_and_gives_rgb(name: str, stores: dict[str, Path], source: Path) -> None:
    """In every layout, plain tools find one and a half bytes a pixel; the reader gives (H, W, 3) of the formula, near
    the source's pixels; sizes of the field are those of RGB."""
    reader, planes = Reader(stores[name]), stored_planes(stores[name])
    field = reader.fields["image"]
    assert field.encoding == ("ycgco420_deflate" if "gzip" in name else "ycgco420")
    assert (field.dtype, field.shape) == ("uint8", (None, None, 3) if name.endswith("keep") else (17, 22, 3))
    recipe = json.loads((stores[name] / "store.json").read_text())["recipe"]
    assert (recipe["color"], recipe["libraries"]["encoder"].split()[0]) == ("ycgco420", "rawpack.yuv420")
    assert len(planes) == len(reader) == 70
    for i in range(0, 70, 3):
        image = reader[i]["image"]
        height, width, _ = image.shape
        assert len(planes[i]) == height * width + 2 * -(-height // 2) * -(-width // 2)
        np.testing.assert_array_equal(image, rgb_of(planes[i], height, width))
        if name.endswith("keep"):
            original = np.asarray(Image.open(source / reader[i]["key"]))
            assert psnr(original, image) > 30
            np.testing.assert_array_equal(planes[i], rgb_to_planes(original))


BY_ALL = pytest.mark.parametrize(
    ("name", "way"), [("memmap-17x22", "processes"), ("hdf5-17x22", "here"), ("hdf5-gzip-17x22", "threads")]
)
"""Each layout, and each way in which batches are made: who makes them does not look at layouts."""


@BY_ALL
@pytest.mark.parametrize("decode", [True, "planes"])
def test_batches_are_rgb_or_planes(name: str, way: str, decode: Any, stores: dict[str, Path]) -> None:
    """In this process, in threads and in processes, shuffled, batches have the pixels that single samples have;
    decode="planes" gives each sample's stored bytes, flat."""
    reader = Reader(stores[name], verify=way == "here")
    images = stored_planes(stores[name]) if decode == "planes" else [sample["image"] for sample in reader]
    rows = []
    for batch in reader.batches(16, shuffle=True, decode=decode, **WAYS[way]):
        rows += batch["index"].tolist()
        assert (batch["image"].dtype, batch["image"].shape[1:]) == (np.uint8, images[0].shape)
        np.testing.assert_array_equal(batch["image"], [images[row] for row in batch["index"]])
    assert sorted(rows) == list(range(70))


def test_planes_are_what_the_documentation_calls_them(tmp_path: Path) -> None:
    """Batches of pure colors hold the formula's Y, Cg and Co, in the order in which the docstring of batches() and the
    guide name them: who converts by these words gets the colors."""
    colors = np.array([(255, 0, 0), (0, 255, 0), (0, 0, 255)], np.uint8)
    rawpack_packer.pack(np.broadcast_to(colors[:, None, None], (3, 8, 8, 3)).copy(), tmp_path / "s", color="ycgco420")
    (batch,) = Reader(tmp_path / "s").batches(3, workers=0, decode="planes")
    found = {"Y": batch["image"][:, 32], "Cg": batch["image"][:, 64 + 8], "Co": batch["image"][:, 64 + 16 + 8]}
    expected = np.clip(np.floor(colors @ TO_YCGCO.T + (0.5, 128.5, 128.5)), 0, 255)
    guide = (Path(__file__).parents[2] / "docs/how-to/choose-a-format-and-size.md").read_text("utf-8")
    for text, pattern in ((Reader.batches.__doc__ or "", r"the planes (\w+), (\w+) and (\w+)\s+of"), (guide, WORDS)):
        names = re.search(pattern, text)
        assert names
        np.testing.assert_array_equal(np.stack([found[name] for name in names.groups()], axis=1), expected)


def test_stores_of_planes_and_of_rgb_are_read_as_one(stores: dict[str, Path]) -> None:
    """To its user both hold RGB, so they make one reader; each sample is what its own store gives."""
    both = Reader([stores["rgb"], stores["memmap-17x22"]])
    (batch,) = both.batches(140, workers=0)
    for i in (0, 69):
        np.testing.assert_array_equal(batch["image"][i], Reader(stores["rgb"])[i]["image"])
        np.testing.assert_array_equal(batch["image"][70 + i], Reader(stores["memmap-17x22"])[i]["image"])
    with pytest.raises(UsageError, match="--color ycgco420"):
        both.batches(4, decode="planes")


@pytest.mark.parametrize("name", ["hdf5-gzip-17x22", "memmap-keep"])
def test_transforms_and_sizes_work_on_rgb(name: str, stores: dict[str, Path]) -> None:
    """A crop has the pixels of the whole image's crop, exactly; image_size= resizes what the reader gives."""
    reader = Reader(stores[name])
    (batch,) = reader.batches(70, transform=[CenterCrop((9, 13))], workers=0)
    assert batch["image"].shape == (70, 9, 13, 3)
    for i in range(0, 70, 7):
        whole = reader[i]["image"]
        top, left = round((whole.shape[0] - 9) / 2), round((whole.shape[1] - 13) / 2)
        np.testing.assert_array_equal(batch["image"][i], whole[top : top + 9, left : left + 13])
    (batch,) = reader.batches(70, image_size=(8, 10), workers=Workers(2, backend="thread"))
    assert batch["image"].shape == (70, 8, 10, 3)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("rgb", {}, "--color ycgco420"),
        ("memmap-17x22", {"fields": ["label"]}, "--color ycgco420"),
        ("memmap-17x22", {"decode": "plans"}, "decode='plans'"),
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


def test_a_reduced_box_is_the_average_of_that_box() -> None:
    """`read` with a box and a scale gives the average of the box's pixels."""
    stored = np.random.default_rng(0).integers(0, 256, (3, 16 * 20 + 2 * 8 * 10)).astype(np.uint8)
    reader = PlanarRows(UniformRows(stored.reshape(-1), 3, np.dtype(np.uint8), stored.shape[1:]), 3, (16, 20, 3))
    means = reader.read(1)[4:12, 6:18].astype(np.float64).reshape(4, 2, 6, 2, 3).mean(axis=(1, 3))
    assert np.abs(reader.read(1, (4, 6, 8, 12), 2) - means).max() <= 0.5


# ---------------------------------------------------------------------------------------------- packing


@pytest.mark.parametrize("layout", ["memmap", "hdf5-gzip"])
def test_damage_is_found_to_the_sample(layout: str, source: Path, tmp_path: Path) -> None:
    """A store of planes is sound; one changed byte is found by `inspect --verify`, with the sample that it is of."""
    store = pack(source, tmp_path / "store", *LAYOUTS[f"{layout}-17x22"], "--size", "17x22", "--color", "ycgco420")
    assert run_here("inspect", "--verify", store).code == 0
    (shard,) = store.glob("shard-*")
    place = json.loads((store / "store.json").read_text())["shards"][0]["fields"]["image"]
    at = place["offset"] + 5 * (17 * 22 + 2 * 9 * 11) + 7
    if layout == "hdf5-gzip":
        at = int(np.load(store / "columns-1" / "image.chunk.npy")[1, 0]) + 20
    flip(shard, at, 255)
    ran = run_here("inspect", "--verify", store)
    assert ran.code == 1
    assert "sample 5 " in ran.out + ran.err


@pytest.mark.parametrize("image", [np.zeros((6, 5), np.uint8), np.zeros((6, 5, 3), np.float32)])
def test_arrays_that_are_not_rgb_are_refused(image: NDArray[Any], tmp_path: Path) -> None:
    """Grey arrays and floats have no planes: a UsageError, and nothing is written."""
    with pytest.raises(UsageError, match="uint8 \\(height, width, 3\\)"):
        rawpack_packer.pack([image], tmp_path / "store", color="ycgco420", workers=0)
    assert not (tmp_path / "store").exists()


def test_grey_pictures_become_planes_without_color(tmp_path: Path) -> None:
    """A grey file packs as RGB does: its values are Y, its chroma is 128, and it comes back exactly."""
    grey = picture(20, 24, 5)[..., 1]
    save(tmp_path / "source" / "a.png", grey)
    store = pack(tmp_path / "source", tmp_path / "store", "--size", "keep", "--color", "ycgco420")
    (stored,) = stored_planes(store)
    np.testing.assert_array_equal(stored[: grey.size].reshape(grey.shape), grey)
    assert (stored[grey.size :] == 128).all()
    np.testing.assert_array_equal(Reader(store)[0]["image"], np.stack([grey] * 3, axis=2))


@pytest.mark.parametrize(
    "change",
    [
        {}, {"dtype": "uint16"}, {"shape": [17, 22, 1]}, {"kind": "mask"}, {"encoding": "raw"}, {"shape": [34, 22, 3]},
    ],
)  # fmt: skip
def test_a_manifest_that_lies_about_planes_is_refused(
    change: dict[str, Any], stores: dict[str, Path], tmp_path: Path
) -> None:
    """Planes are of uint8 (H, W, 3) images, as many bytes as their shape says: anything else is DamagedStoreError."""
    store = shutil.copytree(stores["memmap-17x22"], tmp_path / "store")
    tree = json.loads(unseal((store / "store.json").read_bytes(), "it")[0])
    tree["fields"]["image"] |= change
    (store / "store.json").write_bytes(seal(json.dumps(tree, indent=1).encode()))
    if not change:
        assert Reader(store)[0]["image"].shape == (17, 22, 3)
        return
    with pytest.raises(DamagedStoreError):
        Reader(store)[0]
