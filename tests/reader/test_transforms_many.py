"""Steps that take several samples in one call make of a batch what they make of its samples one by one; and MixUp and
CutMix: pixels and labels against numpy, draws against torchvision's definitions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from draws import same_distribution, tries
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reading import WAYS, epoch_of
from running import Packed

import rawpack_packer
from rawpack import Reader, UsageError, WorkerError
from rawpack import transforms as t
from rawpack.transforms.randomness import randoms_of
from rawpack.transforms.values import ByTable

Image = NDArray[Any]
KINDS: dict[str, tuple[int, int, int, int, str]] = {
    "gray": (50, 28, 28, 1, "uint8"),
    "odd": (37, 13, 9, 3, "uint8"),
    "few together": (23, 96, 97, 3, "uint8"),
    "one at a time": (3, 300, 301, 3, "uint8"),
    "four channels": (19, 5, 9, 4, "uint8"),
    "floats": (41, 11, 7, 3, "float32"),
    "shorts": (33, 6, 5, 1, "uint16"),
    "longs": (12, 5, 6, 3, "int64"),
}
"""Samples, height, width, channels, dtype."""
MEAN, STD = (0.485, 0.456, 0.406, 0.3), (0.229, 0.224, 0.225, 0.5)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store of each kind, of noise that fills the range of its dtype."""
    folder, noise = tmp_path_factory.mktemp("many"), np.random.default_rng(5)
    for name, (*shape, dtype) in KINDS.items():
        whole = dtype != "float32"
        images = noise.integers(0, np.iinfo(dtype).max, shape, dtype, True) if whole else noise.uniform(-2, 2, shape)
        rawpack_packer.pack(images.astype(dtype), folder / name, workers=0)
    return {name: folder / name for name in KINDS}


def read(store: Path, transform: list[Any], batch_size: int, verify: bool = False, **options: Any) -> Image:
    """All images in the order of the store, of an epoch that is shuffled; in batches of that size."""
    return epoch_of(Reader(store, verify=verify), transform, batch_size=batch_size, **options)["image"]


def pixels_of(store: Path) -> Image:
    """All pixels of a store, by numpy alone."""
    return np.concatenate([np.load(path) for path in sorted(store.glob("shard-*.npy"))])


def assert_same(one: Image, other: Image) -> None:
    """Bit for bit."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert one.tobytes() == other.tobytes()


class AddDrawn(t.Step):
    """A step of a user's, vectorized: it draws, and has no `draw_many`."""

    vectorized = True

    def __init__(self, end: int = 100, field: str | None = None) -> None:
        self.end, self.field = end, field

    def draw(self, random: t.Random, height: int, width: int) -> int:
        return random.integer(self.end)

    def apply(self, image: Image, drawn: int, out: Image | None = None) -> Any:
        return image + np.array(drawn, image.dtype)

    def apply_many(self, images: Image, drawn: Any, out: Image | None = None) -> Any:
        return images + np.array(drawn, images.dtype)[:, None, None, None]


class HalfTurn(t.RandomHorizontalFlip):
    """A class of a user's that overrides only `apply`, and only for one sample."""

    def apply(self, image: Image, drawn: bool, out: Image | None = None) -> Any:
        return image[::-1, ::-1] if drawn else image


class Doubled(t.Normalize):
    """A class of a user's whose `apply` works on one image alone."""

    pointwise = False

    def apply(self, image: Image, drawn: Any, out: Image | None = None) -> Any:
        height, width, channels = image.shape
        return (image.astype(self.dtype).reshape(height * width, channels) * 2).reshape(image.shape)


def transforms(channels: int) -> st.SearchStrategy[list[Any]]:
    """Lists of steps, most of which fit any images with this number of channels."""
    dtypes, some = st.sampled_from(["float16", "float32", "float64"]), st.sampled_from([0.0, 0.4, 1.0])
    values = st.one_of(
        st.builds(t.ConvertImageDtype, dtypes),
        st.builds(lambda dtype: t.Normalize(MEAN[:channels], STD[:channels], dtype), dtypes),
        st.builds(lambda dtype: t.Normalize((0.5,), (0.25,), dtype), dtypes),
        st.just(Doubled((0.5,), (0.25,))),
    )
    others = st.one_of(
        st.builds(t.RandomHorizontalFlip, some),
        st.builds(t.RandomVerticalFlip, some),
        st.builds(HalfTurn, some),
        st.sampled_from([t.RandomCrop((4, 3)), AddDrawn(), t.RandomErasing(0.5, value=7)]),
        # Not what was declared, where images are floats; and for some of them only.
        st.just(t.Lambda(lambda image: image * np.float64(1.7) if image.dtype.kind == "f" else image[::-1])),
        st.just(t.Lambda(lambda image: image * np.float64(1.7) if 0.3 < image[0, 0, 0] < 1 else image)),
    )
    tail = st.lists(st.one_of(st.just(t.ToCHW()), values), max_size=2)
    steps = st.lists(st.one_of(others, values), max_size=4)
    return st.builds(lambda first, last: [*first, *last], steps, tail)


@given(data=st.data())
def test_a_batch_is_what_its_samples_are_one_by_one(stores: dict[str, Path], data: st.DataObject) -> None:
    """Any list of steps, of those that take one sample and those that take several, and of classes that override only
    part of such a step; any dtype, number of channels, odd size and size of batch, also a short last one."""
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    transform, batch_size = data.draw(transforms(KINDS[kind][3])), data.draw(st.sampled_from([2, 5, 16, 64]))
    made = []
    for size in (1, batch_size):
        try:
            made.append(read(stores[kind], transform, size, verify=data.draw(st.booleans())))
        except Exception as error:  # the steps do not fit: then in no size of batch
            made.append(np.array(type(error).__name__))
    assert_same(*made)


@pytest.mark.parametrize("way", WAYS)
def test_workers_make_the_same(stores: dict[str, Path], way: str) -> None:
    """Whatever slices they cut a batch into; also of a function that returns the same array for each sample."""
    flips = [t.RandomHorizontalFlip(), t.RandomVerticalFlip(), t.Normalize((0.5,), (0.5,)), t.ToCHW()]
    memory = np.zeros((13, 9, 3), np.uint8)
    again = t.Lambda(lambda image: np.add(image, 0, out=memory))
    options = WAYS[way] | ({"workers": 1} if way == "threads" else {})
    with mock.patch("rawpack.workers.fill._SLICE_BYTES", 1 << 10):
        assert_same(read(stores["odd"], [again, *flips], 16, **options), read(stores["odd"], flips, 1))


BYTES = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
"""ImageNet's mean and standard deviation, of values from 0 to 255."""


@pytest.mark.parametrize(
    ("kind", "transform", "cure"),
    [
        ("odd", [t.Normalize(*BYTES)], "mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)"),
        ("odd", [t.ConvertImageDtype("float16"), t.RandomCrop(5), t.ToCHW(), t.Normalize(*BYTES)], ""),
        ("odd", [t.Normalize((0.5,), (0.5,)), t.Normalize(*BYTES)], "from -1 to 1"),
        ("odd", [t.Normalize((0,), (255,))], "this std: divide by 255, std=(1.0,)"),
        ("shorts", [t.ConvertImageDtype(), t.Normalize((32768,), (20000,))], "divide by 65535"),
    ],
)
def test_means_of_bytes_are_refused_after_scaling(
    stores: dict[str, Path], kind: str, transform: list[Any], cure: str
) -> None:
    """A mean or deviation that values from 0 to 1 cannot have is refused, with the numbers to write."""
    with pytest.raises(UsageError, match="whole numbers are scaled") as refused:
        Reader(stores[kind]).batches(4, transform=transform)
    assert cure in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        ("floats", []),
        ("odd", [t.Lambda(lambda image: image.astype(np.float32), dtype="float32")]),
        ("odd", [t.ConvertImageDtype(), t.Lambda(lambda image: image * np.float32(255))]),
        ("odd", [t.Normalize((0,), (1 / 255,))]),
    ],
)
def test_other_floats_may_have_any_mean(stores: dict[str, Path], kind: str, before: list[Any]) -> None:
    """Stored floats, and those that functions make, are not scaled: any mean is subtracted."""
    made = read(stores[kind], [*before, t.Normalize(*BYTES)], 16)
    expected = (pixels_of(stores[kind]).astype(np.float64) - BYTES[0]) / BYTES[1]
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["gray", "odd", "one at a time", "four channels"])
@pytest.mark.parametrize("planes", [False, True])
def test_it_is_numpys_formula_on_the_batch(stores: dict[str, Path], kind: str, dtype: str, planes: bool) -> None:
    """(x / 255 - mean) / std in double precision, rounded once, of images that are flipped or not."""
    channels, stored = KINDS[kind][3], pixels_of(stores[kind])
    mean, std = np.array(MEAN[:channels]), np.array(STD[:channels])
    expected = ((stored / 255 - mean) / std).astype(dtype)
    both = np.stack([expected, expected[:, :, ::-1], expected[:, ::-1], expected[:, ::-1, ::-1]])
    both = both.transpose(0, 1, 4, 2, 3) if planes else both
    last = [t.Normalize(MEAN[:channels], STD[:channels], dtype), *([t.ToCHW()] if planes else [])]
    np.testing.assert_array_equal(read(stores[kind], last, 32), both[0])
    made = read(stores[kind], [t.RandomHorizontalFlip(), t.RandomVerticalFlip(), *last], 32)
    which = (made == both).all(axis=(2, 3, 4))
    assert (which.sum(axis=0) == 1).all()
    if len(stored) > 15:
        assert (which.sum(axis=1) > 0).all()


@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 7)])
@pytest.mark.parametrize("channels", [1, 3, 128])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32", "int64"])
def test_a_table_is_looked_up(height: int, width: int, channels: int, dtype: str) -> None:
    """For one image or several, from memory with gaps or without, into memory that is given or not."""

    class Threes(t.Step):
        pointwise = True

        def apply(self, image: Image, drawn: Any, out: Image | None = None) -> Any:
            values = image.astype("int64") * 3 % 128 + np.arange(channels)
            return (values > 60 if dtype == "bool" else values).astype(dtype)

    many = np.random.default_rng(0).integers(0, 256, (4, height, 2 * width, channels)).astype(np.uint8)
    for gaps in (many[:, :, ::2], many[0, :, :width]):
        spec, plain = t.Spec(gaps.shape[-3:], "uint8", "HWC"), Threes().apply(gaps, None)
        for steps, layout in (([Threes()], "HWC"), ([Threes(), t.ToCHW()], "CHW")):
            expected = plain if layout == "HWC" else np.moveaxis(plain, -1, -3)
            out = np.empty(expected.shape, dtype)
            table = ByTable(steps, spec, t.Spec(expected.shape[-3:], dtype, layout))
            for images, into in ((gaps, None), (gaps.copy(), out), (gaps, np.empty((*out.shape, 2), dtype)[..., 0])):
                result = table.apply(images, None, into)
                assert result.dtype == dtype
                np.testing.assert_array_equal(result, expected)
            np.testing.assert_array_equal(out, expected)


MANY: list[t.Step] = [
    t.RandomResizedCrop(8),
    t.RandomResizedCrop((3, 5), scale=(0.9, 3.0), ratio=(0.1, 9.0)),
    t.RandomResizedCrop(4, scaled_decode=1.0),
    t.RandomResizedCrop(4, scale=(5.0, 9.0)),
    t.RandomCrop(9, padding=(1, 2, 3, 4), pad_if_needed=True),
    t.RandomCrop((2, 3)),
    t.CenterCrop((7, 40)),
    t.RandomHorizontalFlip(0.3),
]


@settings(max_examples=60)
@given(st.sampled_from(MANY), st.integers(1, 40), st.integers(3, 300), st.integers(3, 300), st.integers(0, 2**40))
def test_many_draw_what_each_draws(step: t.Step, samples: int, height: int, width: int, seed: int) -> None:
    """Steps that draw for several samples at once draw the same, and use as many random numbers, as for one sample."""
    one, many = (randoms_of((seed, 0, -1), np.arange(samples)) for _ in range(2))
    assert list(step.draw_many(many, height, width)) == [step.draw(random, height, width) for random in one]
    np.testing.assert_array_equal(many.random(), one.random())


def test_what_belongs_together_is_flipped_together(tmp_path: Path) -> None:
    """An image, of which several are made in one call, and its mask, which is made by itself."""
    y, x = np.mgrid[:12, :10].astype(np.uint8)
    image = np.stack([y, x, y + x], axis=-1)
    samples = [{"image": image, "mask": image[..., 1:2]}] * 40
    rawpack_packer.pack(samples, tmp_path / "s", fields={"mask": "mask"}, workers=0)
    # The first step draws a number, a 0, for the image alone.
    flips = [AddDrawn(1, "image"), t.RandomHorizontalFlip(), t.RandomVerticalFlip()]
    transform = [*flips, t.ConvertImageDtype("float64"), t.ToCHW()]
    batch = next(iter(Reader(tmp_path / "s").batches(40, transform=transform, workers=0)))
    pixels = np.rint(batch["image"] * 255)
    np.testing.assert_array_equal(batch["mask"][:, 0], pixels[:, 1])
    corners = {tuple(one[:2, 0, 0].tolist()) for one in pixels}
    assert corners == {(0, 0), (11, 0), (0, 9), (11, 9)}


# ---------------------------------------------------------------------------------------------- MixUp and CutMix


CLASSES = 7
BOTH = pytest.mark.parametrize("mixing", [t.MixUp, t.CutMix])
FLOATS: list[Any] = [
    t.RandomResizedCrop(32), t.RandomHorizontalFlip(), t.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.2)), t.ToCHW()
]  # fmt: skip


def scene(i: int) -> dict[str, Any]:
    """An image of random bytes with a label, a mask, a box, a vector and the number of the sample."""
    rng = np.random.default_rng(i)
    return {
        "image": rng.integers(0, 256, (40, 48, 3)).astype(np.uint8),
        "label": i // 10,
        "video": i // 10,
        "frame": i % 10,
        "mask": rng.integers(0, 256, (40, 48)).astype(np.uint8),
        "boxes": np.array([[3, 4, 20, 30, 1.0]]),
        "score": i / 50,
        "number": i % 5,
        "several": np.array([i % 3, i % 2]),
    }


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, samples = tmp_path_factory.mktemp("scenes") / "store", [scene(i) for i in range(50)]
    kinds: dict[str, Any] = {"boxes": "xyxy", "mask": "mask"}
    rawpack_packer.pack(samples, path, workers=0, fields=kinds, classes=[f"class {i}" for i in range(CLASSES)])
    return path


def batches_of(store: Path, transform: list[Any], **options: Any) -> list[dict[str, NDArray[Any]]]:
    """The batches of one epoch, in their order."""
    options = {"batch_size": 8, "shuffle": True, "seed": 3, "workers": 0, "fields": ["image", "label"]} | options
    batches = Reader(store).batches(transform=transform, **options)
    batches.set_epoch(0)
    return [{name: np.array(value) for name, value in batch.items()} for batch in batches]


def fitted(step: Any, *, layout: Any = "HWC", **arrays: NDArray[Any]) -> Any:
    """A step as a pipeline has it, for a batch of these arrays."""
    classes = {"label": CLASSES}
    specs = {
        name: t.Spec(array.shape[1:], array.dtype.name, layout, kind="image")
        if array.ndim > 2
        else t.Spec(array.shape[1:], array.dtype.name, "", kind="number", classes=classes.get(name))
        for name, array in arrays.items()
    }
    return step.fitted(specs)


def vectors(labels: NDArray[Any]) -> NDArray[Any]:
    return np.eye(CLASSES)[labels]


def share_of(labels: NDArray[Any], mixed: NDArray[Any]) -> float:
    """Each sample's own share, as its label says: the same for the whole batch."""
    before = np.roll(labels, 1)
    differ = labels != before
    assert differ.any()
    shares = mixed[np.arange(len(labels)), labels][differ]
    np.testing.assert_allclose(shares, shares[0], rtol=1e-6)
    return float(shares[0])


@pytest.mark.parametrize(("steps", "alpha"), [([], 0.2), ([], 3.0), (FLOATS, 1.0)], ids=["bytes", "even", "floats"])
def test_mixup_is_a_weighted_mean_with_the_sample_before(scenes: Path, steps: list[Any], alpha: float) -> None:
    """Of images and label vectors, with one share for each batch; other fields stay those of the sample."""
    plain = batches_of(scenes, steps, fields=["image", "label", "score"])
    mixed = batches_of(scenes, [*steps, t.MixUp(alpha=alpha)], fields=["image", "label", "score"])
    shares = []
    for before, after in zip(plain, mixed, strict=True):
        assert after["label"].dtype == np.float32
        assert after["image"].dtype == before["image"].dtype
        share = share_of(before["label"], after["label"])
        labels, images = vectors(before["label"]), before["image"].astype(float)
        np.testing.assert_allclose(after["label"], share * labels + (1 - share) * np.roll(labels, 1, 0), atol=1e-6)
        expected = share * images + (1 - share) * np.roll(images, 1, 0)
        assert np.abs(after["image"] - expected).max() <= (1e-5 if steps else 0.5001)
        for name in ("score", "index"):
            np.testing.assert_array_equal(after[name], before[name])
        shares.append(share)
    assert len(set(shares)) == len(mixed)


@pytest.mark.parametrize("steps", [[], FLOATS], ids=["bytes", "floats"])
def test_cutmix_replaces_a_box_by_that_of_the_sample_before(scenes: Path, steps: list[Any]) -> None:
    """The same box for the whole batch, in images and masks; the label has the share of the area."""
    fields, first = (
        ["image", "label", "mask", "score"],
        (lambda one: one) if steps else (lambda one: np.moveaxis(one, 3, 1)),
    )
    plain, mixed = batches_of(scenes, steps, fields=fields), batches_of(scenes, [*steps, t.CutMix()], fields=fields)
    areas = set[float]()
    for before, after in zip(plain, mixed, strict=True):
        changed = (first(before["image"]) != first(after["image"])).any(axis=(0, 1))
        rows, columns = changed.any(axis=1).nonzero()[0], changed.any(axis=0).nonzero()[0]
        box = np.zeros_like(changed)
        if len(rows):
            box[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = True
        for name in ("image", "mask"):
            expected = np.where(box, np.roll(first(before[name]), 1, 0), first(before[name]))
            np.testing.assert_array_equal(first(after[name]), expected)
        labels, share = vectors(before["label"]), 1 - box.mean()
        np.testing.assert_allclose(after["label"], share * labels + (1 - share) * np.roll(labels, 1, 0), atol=1e-6)
        np.testing.assert_array_equal(after["score"], before["score"])
        areas.add(share)
    assert len(areas) > 3


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32"])
@pytest.mark.parametrize("shape", [(5, 4, 6, 3), (5, 3, 4, 6, 3), (1, 4, 6, 1)])
def test_any_images_are_mixed(dtype: str, shape: tuple[int, ...]) -> None:
    """Of any such dtype and size, with a frames axis or without; read-only ones are copied."""
    images = np.random.default_rng(0).integers(0, 250, shape).astype(dtype)
    images.flags.writeable = False
    step = fitted(t.MixUp(field=None), image=images)
    share = t.Random(4).generator().beta(1, 1)
    result = step.apply({"image": images}, t.Random(4))["image"]
    expected = share * images.astype(float) + (1 - share) * np.roll(images, 1, 0).astype(float)
    slack = 0.5001 if np.dtype(dtype).kind in "ui" else 0.2 if dtype == "float16" else 1e-4
    assert result.dtype == dtype
    assert np.abs(result - expected).max() <= slack
    cut = fitted(t.CutMix(field=None), image=images).apply({"image": images}, t.Random(4))["image"]
    assert ((cut == images) | (cut == np.roll(images, 1, 0))).all()


@BOTH
def test_labels_may_be_vectors_already(scenes: Path, mixing: Any) -> None:
    """After OneHot, and after another mixing step; the dtype of the vectors stays. field=None mixes images alone."""
    plain, hot = batches_of(scenes, [mixing()]), batches_of(scenes, [t.OneHot(CLASSES, dtype="float64"), mixing()])
    for one, other, images in zip(plain, hot, batches_of(scenes, [mixing(field=None)]), strict=True):
        np.testing.assert_allclose(one["label"], other["label"], atol=1e-6)
        assert other["label"].dtype == np.float64
        np.testing.assert_array_equal(one["image"], images["image"])
        assert images["label"].dtype == np.int64
    twice = np.concatenate([batch["label"] for batch in batches_of(scenes, [t.MixUp(), t.CutMix(), mixing()])])
    np.testing.assert_allclose(twice.sum(axis=1), 1, rtol=1e-6)
    assert (twice > 0).sum(axis=1).max() >= 3
    several = batches_of(scenes, [t.OneHot(3, field="several"), mixing(field="several")], fields=["image", "several"])
    np.testing.assert_allclose(several[0]["several"].sum(axis=2), np.ones((8, 2)), rtol=1e-6)


COUNT = tries(6000)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 8.0])
def test_the_share_of_mixup_has_its_beta_distribution(alpha: float) -> None:
    """Beta(alpha, alpha), as torchvision draws it."""
    images = np.array([0.0, 1.0]).reshape(2, 1, 1, 1)
    step = fitted(t.MixUp(alpha=alpha, field=None), image=images)
    shares = np.array([step.apply({"image": images.copy()}, t.Random(key))["image"][1].item() for key in range(COUNT)])
    assert same_distribution(shares, np.random.default_rng(0).beta(alpha, alpha, COUNT))


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_boxes_of_cutmix_are_torchvisions(alpha: float) -> None:
    """Sides that are the square root of the partner's share, around any pixel, cut off at the border."""
    height, width = 30, 50
    image, labels = np.zeros((2, height, width, 1), np.uint8), np.array([0, 1])
    image[1] = 1
    step = fitted(t.CutMix(alpha=alpha), image=image, label=labels)
    ours, theirs, random = [], [], np.random.default_rng(5)
    for key in range(COUNT):
        batch = step.apply({"image": image.copy(), "label": labels}, t.Random(key))
        cut = batch["image"][1, ..., 0] == 0
        np.testing.assert_allclose(batch["label"][1, 0], cut.mean(), atol=1e-6)
        rows, columns = cut.any(axis=1).nonzero()[0], cut.any(axis=0).nonzero()[0]
        ours.append((cut.sum(), *((rows[0], columns[0]) if len(rows) else (-1, -1))))
        share = random.beta(alpha, alpha)
        x, y = int(random.integers(width)), int(random.integers(height))
        half_w, half_h = int(0.5 * math.sqrt(1 - share) * width), int(0.5 * math.sqrt(1 - share) * height)
        left, top = max(x - half_w, 0), max(y - half_h, 0)
        area = (min(x + half_w, width) - left) * (min(y + half_h, height) - top)
        theirs.append((area, *((top, left) if area else (-1, -1))))
    for column in range(3):
        assert same_distribution(np.array(ours)[:, column], np.array(theirs)[:, column])


@BOTH
def test_clips_are_mixed_as_wholes(scenes: Path, mixing: Any) -> None:
    """Frame by frame with the clip before it in the batch; the label of a video is mixed once."""
    clips = Reader(scenes).clips(4)
    options: dict[str, Any] = {"fields": ["image", "label"], "shuffle": True, "seed": 2, "workers": 0}
    plain = next(iter(clips.batches(6, **options)))
    made = next(iter(clips.batches(6, transform=[mixing()], **options)))
    share, labels = share_of(plain["label"], made["label"]), vectors(plain["label"])
    np.testing.assert_allclose(made["label"], share * labels + (1 - share) * np.roll(labels, 1, 0), atol=1e-6)
    before = np.roll(plain["image"], 1, 0)
    if mixing is t.MixUp:
        assert np.abs(made["image"] - (share * plain["image"] + (1 - share) * before)).max() <= 0.5001
    else:
        changed = (made["image"] != plain["image"]).any(axis=(0, 1, 4))
        np.testing.assert_array_equal(made["image"], np.where(changed[..., None], before, plain["image"]))
        assert abs(changed.mean() - (1 - share)) < 1e-6


CROP = t.Lambda(lambda mask: mask[:20], field="mask", shape=(20, 48, 1))


@pytest.mark.parametrize(
    ("steps", "fields", "words"),
    [
        ([t.MixUp()], ["image"], r"no field 'label', only image.*field=None"),
        ([t.CutMix()], ["label"], "no images, only label"),
        ([t.CutMix(field="several", num_classes=5)], ["image", "several"], r"'several' is int64 \(2,\): put OneHot"),
        ([t.MixUp(field="number")], ["image", "number"], r"names no classes: pass num_classes="),
        ([t.CutMix()], ["image", "label", "boxes"], r"cannot change boxes .* 'boxes'.*fields="),
        ([t.MixUp()], ["image", "label", "mask"], r"MixUp\(.*cannot change masks .*'mask'"),
        ([CROP, t.CutMix()], ["image", "label", "mask"], "one size: 'image' is 40x48, 'mask' is 20x48"),
        ([t.OneHot(CLASSES), t.MixUp(num_classes=5)], [], "already a vector of length 7"),
        ([t.MixUp(), t.RandomHorizontalFlip()], [], "works on whole batches: put it after"),
    ],
)
def test_what_cannot_be_mixed_is_refused_at_once(scenes: Path, steps: list[Any], fields: list[str], words: str) -> None:
    """Before anything is read, naming the step, the field and the cure."""
    with pytest.raises(UsageError, match=words):
        batches_of(scenes, steps, fields=fields or ["image", "label"])


def test_a_label_that_is_no_class_is_named(packed: Packed) -> None:
    """-1, which samples without a class have, has no vector."""
    with pytest.raises(WorkerError, match="label -1 is not one of"):
        batches_of(packed("memmap", "--size", 48), [t.MixUp()])
