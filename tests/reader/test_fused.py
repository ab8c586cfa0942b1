"""Plans that the native core runs in one call give the pixels of the same steps done one by one."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from planes import rgb_of
from reading import SOAK, epoch_of, without_core

import rawpack_packer
from rawpack import Reader, WorkerError, jpeg, native
from rawpack import transforms as t
from rawpack.store.stores import Stores
from rawpack.transforms.images import ImageFiller
from rawpack.transforms.pipeline import FieldPlan

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RECIPES: dict[str, list[Any]] = {
    "crop": [t.RandomResizedCrop(24), t.RandomHorizontalFlip()],
    "without antialias": [t.RandomResizedCrop((20, 31), antialias=False), t.RandomVerticalFlip()],
    "recipe": [t.RandomResizedCrop(24), t.RandomHorizontalFlip(), t.Normalize(MEAN, STD), t.ToCHW()],
    "half": [t.Resize((19, 27)), t.Normalize(0.5, 0.25, dtype="float16"), t.ToCHW()],
    "planes": [t.RandomHorizontalFlip(), t.ToCHW()],
    "evaluation": [t.Resize(32), t.CenterCrop(28), t.Normalize(MEAN, STD)],
    "longer side": [t.Resize(20, max_size=24), t.CenterCrop(30)],
    "cover": [t.Fit((24, 16)), t.RandomVerticalFlip()],
    "random place": [t.RandomCrop((30, 33)), t.RandomHorizontalFlip(), t.RandomHorizontalFlip(0.3)],
    "padded": [t.RandomCrop(44, padding=(3, 5), pad_if_needed=True, fill=99), t.RandomHorizontalFlip(), t.ToCHW()],
    "all padding": [t.RandomCrop((6, 5), padding=60, fill=7)],
    "crop of a crop": [t.RandomResizedCrop(40), t.RandomCrop(37, padding=4, fill=3), t.RandomHorizontalFlip()],
    "values": [t.ConvertImageDtype("float32"), t.ToCHW()],
    "colors": [t.RandomResizedCrop(24), t.ColorJitter(0.4, 0.4, 0.4, 0.2), t.Normalize(MEAN, STD)],
    "planes of colors": [t.RandomResizedCrop(30), t.ColorJitter(0.3, 2, 0.5), t.ToCHW()],
    "colors alone": [t.ColorJitter(hue=0.5, saturation=(0, 31))],
}
ONE_SIZE = ("planes", "random place", "values", "longer side", "colors alone")
"""Recipes of images of one size."""


def pack(images: Any, path: Path, **options: Any) -> Path:
    rawpack_packer.pack([{"image": image} for image in images], path, workers=0, **options)
    return path


def noise(*sizes: tuple[int, int], channels: int = 3) -> list[NDArray[np.uint8]]:
    """Images of these sizes, the same ones for each number of channels."""
    random = np.random.default_rng(7)
    return [random.integers(0, 256, (*size, channels), np.uint8) for size in sizes]


OWN_SIZES = [(1, 1), (1, 90), (70, 1), (33, 40), (24, 24), (5, 200), (131, 17), (99, 60), (64, 80)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(noise(*[(41, 53)] * 11), tmp_path_factory.mktemp("fused") / "store", shard_size=1)


@pytest.fixture
def calls() -> Iterator[list[str]]:
    """The fields that were made in one call."""
    made, fill = list[str](), ImageFiller._fill_at_once

    def noted(filler: ImageFiller, *arguments: Any) -> None:
        made.append(filler.name)
        fill(filler, *arguments)

    with mock.patch.object(ImageFiller, "_fill_at_once", noted):
        yield made


def pixels(reader: Reader, steps: list[Any], **options: Any) -> NDArray[Any]:
    """The images of an epoch, by row."""
    return epoch_of(reader, steps, batch_size=8, **options)["image"]


def check_fused(reader: Reader, steps: list[Any], calls: list[str]) -> NDArray[Any]:
    """The core's one call gives the pixels that NumPy gives, and that the steps give one by one; returns them."""
    calls.clear()
    made = pixels(reader, steps)
    assert (set(calls) == {"image"}) == (native.library() is not None)
    calls.clear()
    with without_core():
        np.testing.assert_array_equal(pixels(reader, steps), made)
    with mock.patch.object(FieldPlan, "fused", None):
        np.testing.assert_array_equal(pixels(reader, steps), made)
    assert calls == []
    return made


@pytest.mark.parametrize("name", RECIPES)
def test_one_call_is_the_same_as_step_by_step(store: Path, name: str, calls: list[str]) -> None:
    check_fused(Reader(store), RECIPES[name], calls)


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [(41, 53)] * 9),
        ({"format": "hdf5", "chunk": 4}, [(41, 53)] * 9),
        ({}, [*OWN_SIZES, (2, 3)]),
    ],
    ids=["memmap", "chunked", "own sizes"],
)
def test_planes_are_the_same_as_their_rgb(
    tmp_path: Path, options: dict[str, Any], sizes: list[tuple[int, int]], calls: list[str]
) -> None:
    """Recipes make of planes, with the core and without, what NumPy makes of the formula's pixels."""
    shards: dict[str, Any] = {"shard_size": 1, "size": "keep"}
    planar = Reader(pack(noise(*sizes), tmp_path / "planes", color="ycgco420", **shards, **options))
    stored = [reader.stored(row) for reader, row in (planar._library.reader_of("image", i) for i in range(len(sizes)))]
    made = [rgb_of(planes, *size).astype(np.uint8) for planes, size in zip(stored, sizes, strict=True)]
    rgb = Reader(pack(made, tmp_path / "rgb", **shards))
    fit = [steps for name, steps in RECIPES.items() if len(set(sizes)) == 1 or name not in ONE_SIZE]
    for steps in fit[:: 2 if options and not SOAK else 1]:
        with without_core():
            expected = pixels(rgb, steps)
        np.testing.assert_array_equal(check_fused(planar, steps, calls), expected)


ENCODED: dict[str, dict[str, Any]] = {
    "jpeg": {"format": "lmdb"},
    "zstd": {"format": "memmap", "compression": "zstd"},
    "deflate": {"format": "hdf5", "compression": "gzip"},
    "planes of zstd": {"format": "memmap", "compression": "zstd", "color": "ycgco420"},
}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("encoded", ENCODED)
def test_raw_and_encoded_stores_read_as_one(tmp_path: Path, encoded: str, first: int, calls: list[str]) -> None:
    """The core makes all images, and decodes no more of a JPEG than crops need, as single steps would."""
    images = noise(*[(64, 50)] * 7)
    stores = [pack(images, tmp_path / "raw"), pack(images, tmp_path / "encoded", size="keep", **ENCODED[encoded])]
    reader, crop = Reader([stores[first], stores[1 - first]]), RECIPES["recipe"]
    decode = mock.patch("rawpack.jpeg.decode_box", wraps=jpeg.decode_box)
    with decode as decoded:
        made = pixels(reader, crop)
    assert (set(calls) == {"image"}) == (native.library() is not None)
    with decode as singly, mock.patch.object(FieldPlan, "fused", None):
        np.testing.assert_array_equal(pixels(reader, crop), made)
    assert [call.args[2] for call in decoded.mock_calls] == [call.args[2] for call in singly.mock_calls]
    assert (len(decoded.mock_calls) == 7) == (encoded == "jpeg")
    with without_core():
        np.testing.assert_array_equal(pixels(reader, crop), made)


@pytest.mark.parametrize("first", [0, 1])
def test_samples_are_verified_before_they_are_decoded(tmp_path: Path, first: int) -> None:
    stores = [pack(noise(*[(64, 50)] * 7), tmp_path / name, format=name) for name in ("memmap", "lmdb")]
    (shard,) = stores[1].glob("shard-*")
    shard.write_bytes(shard.read_bytes().replace(b"\xff\xda", b"\xff\x00"))
    with pytest.raises(WorkerError, match="its checksum does not fit"):
        pixels(Reader([stores[first], stores[1 - first]], verify=True), RECIPES["crop"])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("stored", [name for name in ENCODED if "planes" not in name])
def test_images_that_are_decoded_first(tmp_path: Path, stored: str, channels: int, calls: list[str]) -> None:
    """Whatever the codec, of one size or of many."""
    small = [t.RandomResizedCrop(9, scale=(0.9, 1.0), scaled_decode=1.0), t.RandomHorizontalFlip()]
    names = ["padded", "crop", "cover", "crop of a crop", *(("recipe", "evaluation") if channels == 3 else ())]
    for sizes, recipes in (([(41, 53)] * 9, names[:2]), (OWN_SIZES, names)):
        images = noise(*sizes, channels=channels)
        reader = Reader(pack(images, tmp_path / str(len(recipes)), size="keep", **ENCODED[stored]))
        for steps in (small, *(RECIPES[name] for name in recipes)):
            check_fused(reader, steps, calls)


@pytest.mark.skipif(native.library() is None, reason=f"the native core is {native.state()}")
def test_a_shard_that_is_cut_short_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is compared before each slice, also between the looks at all files."""
    path = pack(noise(*[(64, 64)] * 16), tmp_path / "s")
    monkeypatch.setattr(Stores, "look_at_files", lambda *_, **__: None)
    iterator = iter(Reader(path).batches(4, transform=RECIPES["crop"], workers=0))
    next(iterator)
    (shard,) = path.glob("shard-*")
    os.truncate(shard, shard.stat().st_size // 2)
    with pytest.raises(WorkerError, match="bytes now, but had"):
        list(iterator)


@pytest.mark.parametrize(
    ("step", "name", "value"),
    [
        (t.RandomResizedCrop(24), "interpolation", "nearest"),
        (t.RandomCrop(60, pad_if_needed=True), "fill", 9),
        (t.RandomHorizontalFlip(0), "p", 1),
    ],
    ids=str,
)
def test_an_attribute_changed_between_epochs_counts(store: Path, step: Any, name: str, value: Any) -> None:
    """In one call as step by step."""
    steps = copy.deepcopy([[step], [t.Lambda(lambda image: image), step]])
    both = [Reader(store).batches(11, transform=one, workers=0) for one in steps]
    first = next(iter(both[0]))["image"].copy()
    for one in steps:
        setattr(one[-1], name, value)
    both[1].set_epoch(1)
    made, expected = (next(iter(batches))["image"] for batches in both)
    np.testing.assert_array_equal(made, expected)
    assert not np.array_equal(made, first)


@pytest.mark.parametrize("step", [t.RandomResizedCrop(24), t.Fit(24), t.RandomCrop(24)], ids=str)
def test_a_size_changed_between_epochs_is_an_error(store: Path, step: Any) -> None:
    """The memory for batches has the size from before: no image is put in a corner of it."""
    for core in (nullcontext, without_core):
        own = copy.deepcopy(step)
        with core():
            batches = Reader(store).batches(8, transform=[own, t.ToCHW()], workers=0)
            assert next(iter(batches))
            own.size = (20, 20)
            with pytest.raises(WorkerError, match="was expected"):
                next(iter(batches))
