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
from reading import SOAK, WAYS, epoch_of, without_core

import rawpack_packer
from rawpack import Reader, WorkerError, jpeg, native
from rawpack import transforms as t
from rawpack.store.stores import Stores
from rawpack.transforms.images import ImageFiller
from rawpack.transforms.pipeline import FieldPlan

COUNT = 11
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RECIPES: dict[str, list[Any]] = {
    "crop": [t.RandomResizedCrop(24), t.RandomHorizontalFlip()],
    "without antialias": [
        t.RandomResizedCrop((20, 31), antialias=False),
        t.RandomVerticalFlip(),
        t.RandomHorizontalFlip(),
    ],
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
    "colors": [
        t.RandomResizedCrop(24),
        t.RandomHorizontalFlip(),
        t.ColorJitter(0.4, 0.4, 0.4, 0.2),
        t.Normalize(MEAN, STD),
    ],
    "planes of colors": [t.RandomResizedCrop(30), t.ColorJitter(0.3, 2, 0.5), t.ToCHW()],
    "colors alone": [t.ColorJitter(hue=0.5, saturation=(0, 31))],
}


def pack(images: Any, path: Path, **options: Any) -> Path:
    samples = images if isinstance(images[0], dict) else [{"image": image} for image in images]
    rawpack_packer.pack(samples, path, workers=0, **options)
    return path


def noise(*sizes: tuple[int, int], channels: int = 3) -> list[NDArray[np.uint8]]:
    """Images of these sizes, the same ones for each number of channels."""
    random = np.random.default_rng(7)
    return [random.integers(0, 256, (*size, channels), np.uint8) for size in sizes]


OWN_SIZES = [(1, 1), (1, 90), (70, 1), (33, 40), (24, 24), (5, 200), (131, 17), (99, 60), (64, 80)]


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
    return epoch_of(reader, steps, batch_size=8, **options)["image"]


def as_it_is(image: NDArray[Any]) -> NDArray[Any]:
    return image


@needs_core
@pytest.mark.parametrize("name", RECIPES)
def test_one_call_is_the_same_as_step_by_step(store: Path, name: str, calls: list[str]) -> None:
    """The core's one call gives the pixels that NumPy gives, and that the steps give after a step of the user."""
    reader, steps = Reader(store), RECIPES[name]
    made = pixels(reader, steps, fields=["image"])
    assert set(calls) == {"image"}
    calls.clear()
    np.testing.assert_array_equal(pixels(reader, [t.Lambda(as_it_is), *steps], fields=["image"]), made)
    with without_core():
        np.testing.assert_array_equal(pixels(reader, steps, fields=["image"]), made)
    assert calls == []


def test_factors_that_the_core_refuses_are_used_step_by_step(store: Path, calls: list[str]) -> None:
    """Also where they are set between epochs."""
    reader, jitter = Reader(store), t.ColorJitter(0.4)
    steps = [t.RandomCrop(24), jitter]
    jitter.saturation = (40.0, 50.0)
    made = pixels(reader, steps, fields=["image"])
    with without_core():
        np.testing.assert_array_equal(pixels(reader, steps, fields=["image"]), made)
    assert calls == []


def test_a_step_gets_what_the_one_before_made(store: Path) -> None:
    """Several steps with the same result share the memory for it, and none overwrites what it has yet to read."""
    for steps in (
        [t.RandomHorizontalFlip(1), t.RandomCrop((41, 53), padding=4)],
        [t.RandomCrop((41, 53), padding=4), t.RandomCrop((41, 53), padding=4)],
        [
            t.RandomVerticalFlip(1),
            t.RandomHorizontalFlip(1),
            t.RandomCrop((41, 53), padding=2),
            t.RandomVerticalFlip(1),
        ],
        [t.Resize((30, 30)), t.CenterCrop(20), t.Resize((30, 30))],
        [t.Fit(30), t.CenterCrop(20), t.RandomResizedCrop(30)],
        [t.Resize((30, 30), "bicubic"), t.CenterCrop(20), t.Resize((30, 30), "bicubic")],
    ):
        copying = [step for one in steps for step in (one, t.Lambda(np.copy))]
        made, expected = (pixels(Reader(store), list_of, fields=["image"]) for list_of in (steps, copying))
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("way", WAYS)
def test_pixels_do_not_depend_on_what_is_beside_them(store: Path, way: str) -> None:
    """An image has the same pixels alone and with a mask, boxes, or another image, in each way."""
    reader, steps = Reader(store), RECIPES["crop"]
    alone = pixels(reader, steps, fields=["image"])
    for beside in (["mask"], ["boxes", "other"]) if way == "here" else (["mask", "boxes", "other"],):
        np.testing.assert_array_equal(pixels(reader, steps, fields=["image", *beside], **WAYS[way]), alone)


def twins(folder: Path, sizes: list[tuple[int, int]], **options: Any) -> tuple[Reader, Reader]:
    """Two stores of the same pixels: as planes, and as the RGB that the formula makes of these."""
    shards: dict[str, Any] = {"shard_size": 1, "size": "keep"}
    planar = Reader(pack(noise(*sizes), folder / "planes", color="ycgco420", **shards, **options))
    stored = [planar._library.reader_of("image", i) for i in range(len(sizes))]
    planes = [reader.stored(row) for reader, row in stored]
    made = [rgb_of(*it).astype(np.uint8) for it in zip(planes, *zip(*sizes, strict=True), strict=True)]
    return planar, Reader(pack(made, folder / "rgb", **shards))


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [(41, 53)] * 9),
        ({"format": "hdf5"}, [(64, 96)] * 9),
        ({"format": "hdf5", "chunk": 4}, [(41, 53)] * 9),
        ({}, [*OWN_SIZES, (2, 3)]),
    ],
    ids=["memmap", "hdf5", "chunked", "own sizes"],
)
def test_planes_are_the_same_as_their_rgb(
    tmp_path: Path, options: dict[str, Any], sizes: list[tuple[int, int]], calls: list[str]
) -> None:
    """Every recipe makes of planes, with the core and without, what NumPy makes of the formula's pixels."""
    planar, rgb = twins(tmp_path, sizes, **options)
    unfit = ("planes", "random place", "values", "longer side", "colors alone") if len(set(sizes)) > 1 else ()
    fit = [steps for name, steps in RECIPES.items() if name not in unfit]
    for steps in fit[:: 2 if options and not SOAK else 1]:
        with without_core():
            expected = pixels(rgb, steps)
            np.testing.assert_array_equal(pixels(planar, steps), expected)
        assert calls == []
        np.testing.assert_array_equal(pixels(planar, steps), expected)
        assert (set(calls) == {"image"}) == (native.library() is not None)
        for reader, these in ((rgb, steps), (planar, [t.Lambda(as_it_is), *steps])):
            np.testing.assert_array_equal(pixels(reader, these), expected)
        calls.clear()


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


@needs_core
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("stored", [name for name in ENCODED if "planes" not in name])
def test_images_that_are_decoded_first(tmp_path: Path, stored: str, channels: int, calls: list[str]) -> None:
    """Whatever the codec, of one size or of many: what NumPy makes of the steps, and what they make one by one."""
    small = [t.RandomResizedCrop(9, scale=(0.9, 1.0), scaled_decode=1.0), t.RandomHorizontalFlip()]
    names = ("padded", "crop", "cover", "crop of a crop", *(("recipe", "evaluation") if channels == 3 else ()))
    for sizes, recipes in (([(41, 53)] * 9, names[:2]), (OWN_SIZES, names)):
        images = noise(*sizes, channels=channels)
        reader = Reader(pack(images, tmp_path / str(len(recipes)), size="keep", **ENCODED[stored]))
        for steps in (small, *map(RECIPES.get, recipes)):
            assert steps is not None
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
    path = pack(noise(*[(96, 80)] * 8), tmp_path / "s", format="lmdb")
    (shard,) = path.glob("shard-*")
    data = bytearray(shard.read_bytes())
    at = data.index(b"\xff\xda", len(data) // 2)
    data[at + 60 : at + 160] = b"\xff\x00" * 50
    shard.write_bytes(data)
    words = []
    for patch in (nullcontext(), mock.patch.object(FieldPlan, "fused", None)):
        with patch, pytest.raises(WorkerError, match="does not decode") as error:
            pixels(Reader(path), [t.RandomResizedCrop(60, scale=(0.9, 1.0)), t.RandomHorizontalFlip()])
        words.append(str(error.value))
    assert words[0] == words[1]


@needs_core
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
    ("steps", "share"),
    [
        (RECIPES["recipe"], "all"),
        (RECIPES["colors"], "all"),
        ([*RECIPES["crop"], t.Lambda(as_it_is)], "part"),
        ([t.RandomCrop(24), t.Lambda(as_it_is), t.ColorJitter(0.4)], "part"),
        ([t.RandomResizedCrop(24, interpolation="bicubic")], "none"),
        (None, "none"),
    ],
)
def test_stats_say_how_much_the_core_does(store: Path, steps: Any, share: str) -> None:
    batches = Reader(store).batches(8, fields=["image"], transform=steps, workers=0)
    assert batches.stats()["native"] == (share if native.library() is not None else "none")


@pytest.mark.parametrize(
    ("step", "name", "value"),
    [
        (t.RandomResizedCrop(24), "interpolation", "nearest"),
        (t.RandomResizedCrop(24), "antialias", False),
        (t.RandomResizedCrop(24), "scale", (0.9, 1.0)),
        (t.Resize((24, 20)), "interpolation", "bicubic"),
        (t.RandomCrop(60, pad_if_needed=True), "fill", 9),
        (t.RandomHorizontalFlip(0), "p", 1),
    ],
    ids=str,
)
def test_an_attribute_changed_between_epochs_counts(store: Path, step: Any, name: str, value: Any) -> None:
    """In one call as step by step."""
    steps = copy.deepcopy([[step], [t.Lambda(as_it_is), step]])
    both = [Reader(store).batches(COUNT, fields=["image"], transform=one, workers=0) for one in steps]
    first = next(iter(both[0]))["image"].copy()
    for one in steps:
        setattr(one[-1], name, value)
    both[1].set_epoch(1)
    made, expected = (next(iter(batches))["image"] for batches in both)
    np.testing.assert_array_equal(made, expected)
    assert not np.array_equal(made, first)


@pytest.mark.parametrize("core", [True, False])
@pytest.mark.parametrize(
    ("step", "size"),
    [
        (t.RandomResizedCrop(24), (32, 32)),
        (t.Resize((24, 24)), (20, 20)),
        (t.Fit(24), (32, 32)),
        (t.RandomCrop(24), (28, 28)),
    ],
    ids=str,
)
def test_a_size_changed_between_epochs_is_an_error(store: Path, step: Any, size: Any, core: bool) -> None:
    """The memory for batches has the size from before: no image is put in a corner of it."""
    step = copy.deepcopy(step)
    with nullcontext() if core else without_core():
        batches = Reader(store).batches(8, fields=["image"], transform=[step, t.ToCHW()], workers=0)
        assert next(iter(batches))
        step.size = size
        with pytest.raises(WorkerError, match="was expected"):
            next(iter(batches))


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
