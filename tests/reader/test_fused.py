"""Plans that the native core runs in one call give the pixels of the same steps done one by one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from reading import WAYS, without_core

import rawpack_packer
from rawpack import Reader, WorkerError, native
from rawpack.store.stores import Stores
from rawpack.transforms import (
    CenterCrop,
    ConvertImageDtype,
    Fit,
    Lambda,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToCHW,
    Views,
)
from rawpack.transforms.images import ImageFiller
from rawpack.transforms.pipeline import FieldPlan

COUNT = 21
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RECIPES: dict[str, list[Any]] = {
    "crop": [RandomResizedCrop(24), RandomHorizontalFlip()],
    "without antialias": [RandomResizedCrop((20, 31), antialias=False), RandomVerticalFlip(), RandomHorizontalFlip()],
    "recipe": [RandomResizedCrop(24), RandomHorizontalFlip(), Normalize(MEAN, STD), ToCHW()],
    "half": [Resize((19, 27)), Normalize(0.5, 0.25, dtype="float16"), ToCHW()],
    "planes": [RandomHorizontalFlip(), ToCHW()],
    "evaluation": [Resize(32), CenterCrop(28), Normalize(MEAN, STD)],
    "longer side": [Resize(20, max_size=24), CenterCrop(30)],
    "cover": [Fit((24, 16)), RandomVerticalFlip()],
    "random place": [RandomCrop((30, 33)), RandomHorizontalFlip(), RandomHorizontalFlip(0.3)],
    "padded": [RandomCrop(44, padding=(3, 5), pad_if_needed=True, fill=99), RandomHorizontalFlip(), ToCHW()],
    "all padding": [RandomCrop((6, 5), padding=60, fill=7)],
    "crop of a crop": [RandomResizedCrop(40), RandomCrop(37, padding=4, fill=3), RandomHorizontalFlip()],
    "values": [ConvertImageDtype("float32"), ToCHW()],
}
Samples = list[dict[str, Any]]


def pack(samples: Samples, path: Path, **options: Any) -> Path:
    rawpack_packer.pack(samples, path, workers=0, **options)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with a mask, boxes and a second image each."""
    random = np.random.default_rng(5)
    samples = [
        {
            "image": random.integers(0, 256, (41, 53, 3), np.uint8),
            "other": random.integers(0, 256, (41, 53, 3), np.uint8),
            "mask": random.integers(0, 5, (41, 53), np.uint8),
            "boxes": np.array([[0.0, 3.0, 4.0, 30.0, 20.0]], np.float32),
        }
        for _ in range(COUNT)
    ]
    fields = {"mask": "mask", "boxes": "xyxy", "other": "image"}
    return pack(samples, tmp_path_factory.mktemp("fused") / "store", fields=fields, shard_size=1)


@pytest.fixture
def calls() -> Iterator[list[str]]:
    """The fields that were made in one call."""
    made, fill = list[str](), ImageFiller._fill_at_once

    def noted(filler: ImageFiller, *arguments: Any) -> None:
        made.append(filler.name)
        fill(filler, *arguments)

    with mock.patch.object(ImageFiller, "_fill_at_once", noted):
        yield made


needs_core = pytest.mark.skipif(native.library() is None, reason=f"the native core is {native.state()}")


def pixels(reader: Reader, steps: list[Any], **options: Any) -> NDArray[Any]:
    """The images of an epoch, by row."""
    batches = reader.batches(8, transform=steps, shuffle=True, **{"workers": 0, **options})
    batches.set_epoch(0)  # each call reads the same one
    made = [(batch["index"], batch["image"].copy()) for batch in batches]
    return np.concatenate([images for _, images in made])[np.argsort(np.concatenate([rows for rows, _ in made]))]


def as_it_is(image: NDArray[Any]) -> NDArray[Any]:
    return image


@needs_core
@pytest.mark.parametrize("name", RECIPES)
def test_one_call_is_the_same_as_step_by_step(store: Path, name: str, calls: list[str]) -> None:
    """Whatever the core makes at once is what NumPy makes of the steps, and what the steps make beside a user's."""
    reader, steps = Reader(store), RECIPES[name]
    made = pixels(reader, steps, fields=["image"])
    assert set(calls) == {"image"}
    calls.clear()
    np.testing.assert_array_equal(pixels(reader, [Lambda(as_it_is), *steps], fields=["image"]), made)
    with without_core():
        np.testing.assert_array_equal(pixels(reader, steps, fields=["image"]), made)
    assert calls == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("beside", ["mask", "boxes", "other", "step"])
def test_pixels_do_not_depend_on_what_is_beside_them(store: Path, beside: str, way: str) -> None:
    """An image is the same alone, and beside a mask, boxes, another image, or a step of the user."""
    reader, steps = Reader(store), RECIPES["crop"]
    alone = pixels(reader, steps, fields=["image"], **WAYS[way])
    with_it = [*steps, Lambda(as_it_is)] if beside == "step" else steps
    fields = ["image"] if beside == "step" else ["image", beside]
    np.testing.assert_array_equal(pixels(reader, with_it, fields=fields, **WAYS[way]), alone)
    np.testing.assert_array_equal(alone, pixels(reader, steps, fields=["image"]))


def test_a_clip_and_a_view_have_the_same_pixels(store: Path) -> None:
    """Of what is drawn by no random number."""
    reader, steps = Reader(store), [Resize((24, 17)), ToCHW()]
    alone = pixels(reader, steps, fields=["image"])
    views = pixels(reader, [Views(2, steps)], fields=["image"])
    np.testing.assert_array_equal(views, np.stack([alone, alone], 1))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("layout", ["memmap", "hdf5"])
def test_images_of_their_own_sizes(tmp_path: Path, channels: int, layout: Any, calls: list[str]) -> None:
    """Each at its own size, also of one row or column, in both formats that store pixels as they are."""
    random = np.random.default_rng(6)
    sizes = [(1, 1), (1, 90), (70, 1), (33, 40), (24, 24), (5, 200), (131, 17)]
    images = [random.integers(0, 256, (*size, channels), np.uint8) for size in sizes]
    reader = Reader(pack([{"image": image} for image in images], tmp_path / "s", format=layout))
    for name in ("recipe", "crop", "cover", "padded"):
        if channels == 1 and name == "recipe":
            continue
        made = pixels(reader, RECIPES[name])
        assert (set(calls) == {"image"}) == (native.library() is not None)
        calls.clear()
        np.testing.assert_array_equal(pixels(reader, [Lambda(as_it_is), *RECIPES[name]]), made)


STORED: dict[str, dict[str, Any]] = {
    "jpeg": {"format": "lmdb"},
    "zstd": {"format": "memmap", "compression": "zstd"},
    "deflate": {"format": "hdf5", "compression": "gzip"},
}


@needs_core
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("stored", STORED)
def test_images_that_are_decoded_first(tmp_path: Path, stored: str, channels: int, calls: list[str]) -> None:
    """Whatever the codec, of one size or of many: what NumPy makes of the steps, and what they make one by one."""
    random = np.random.default_rng(7)
    for sizes in (
        [(41, 53)] * 9,
        [(1, 1), (1, 90), (70, 1), (33, 40), (24, 24), (5, 200), (131, 17), (99, 60), (64, 80)],
    ):
        images = [random.integers(0, 256, (*size, channels), np.uint8) for size in sizes]
        path = pack([{"image": image} for image in images], tmp_path / str(len(set(sizes))), **STORED[stored])
        reader = Reader(path)
        for name in ("recipe", "crop", "cover", "evaluation", "padded", "crop of a crop", "small"):
            steps = RECIPES.get(
                name, [RandomResizedCrop(9, scale=(0.9, 1.0), scaled_decode=1.0), RandomHorizontalFlip()]
            )
            if channels == 1 and name in ("recipe", "evaluation"):
                continue
            calls.clear()
            made = pixels(reader, steps)
            assert set(calls) == {"image"}
            calls.clear()
            with without_core():
                np.testing.assert_array_equal(pixels(reader, steps), made)
            with mock.patch.object(FieldPlan, "fused", None):
                np.testing.assert_array_equal(pixels(reader, steps), made)
            assert calls == []


@needs_core
def test_damage_is_reported_as_by_single_steps(tmp_path: Path) -> None:
    """A file that does not decode, and one of another number of channels than the index has."""
    images = np.random.default_rng(8).integers(0, 256, (8, 96, 80, 3), np.uint8)
    path = pack([{"image": image} for image in images], tmp_path / "s", format="lmdb")
    (shard,) = path.glob("shard-*")
    data = bytearray(shard.read_bytes())
    at = data.index(b"\xff\xda", len(data) // 2)
    data[at + 60 : at + 160] = b"\xff\x00" * 50
    shard.write_bytes(data)
    words = []
    for patch in ({}, {"fused": None}):
        with mock.patch.multiple(FieldPlan, **patch) if patch else nullcontext(), pytest.raises(WorkerError) as error:
            pixels(Reader(path), [RandomResizedCrop(60, scale=(0.9, 1.0)), RandomHorizontalFlip()])
        words.append(str(error.value))
    assert words[0] == words[1]
    assert "does not decode" in words[0]


@needs_core
def test_a_shard_that_is_cut_short_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is compared before each slice, also between the looks at all files."""
    path = pack([{"image": np.full((64, 64, 3), i, np.uint8)} for i in range(16)], tmp_path / "s")
    monkeypatch.setattr(Stores, "look_at_files", lambda *_, **__: None)
    iterator = iter(Reader(path).batches(4, transform=RECIPES["crop"], workers=0))
    next(iterator)
    (shard,) = path.glob("shard-*")
    os.truncate(shard, shard.stat().st_size // 2)
    with pytest.raises(WorkerError, match="bytes now, but had"):
        list(iterator)


@pytest.mark.parametrize(
    ("steps", "share"),
    [
        (RECIPES["recipe"], "all"),
        ([*RECIPES["crop"], Lambda(as_it_is)], "part"),
        ([RandomResizedCrop(24, interpolation="bicubic")], "none"),
        (None, "none"),
    ],
)
def test_stats_say_how_much_the_core_does(store: Path, steps: Any, share: str) -> None:
    batches = Reader(store).batches(8, fields=["image"], transform=steps, workers=0)
    assert batches.stats()["native"] == (share if native.library() is not None else "none")


def test_a_state_of_other_pixels_is_told(store: Path) -> None:
    """A state from before resizing changed is loaded, with a warning where images are resized."""
    reader = Reader(store)
    for steps, warns in ((RECIPES["crop"], True), (RECIPES["random place"], False), (None, False)):
        batches = reader.batches(4, fields=["image"], transform=steps, workers=0)
        state = batches.state_dict()
        batches.load_state_dict(state)
        del state["pixels"]
        if not warns:
            batches.load_state_dict(state)
            continue
        with pytest.warns(RuntimeWarning, match="slightly other pixels of images that are shrunk"):
            batches.load_state_dict(state)
