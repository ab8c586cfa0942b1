"""MixUp and CutMix: pixels and labels against numpy, draws against torchvision's definitions, errors that name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import same_distribution, tries
from numpy.typing import NDArray
from running import Packed

import rawpack_packer
from rawpack import Reader, UsageError, WorkerError
from rawpack import transforms as t

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


def read(store: Path, transform: list[Any], **options: Any) -> list[dict[str, NDArray[Any]]]:
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


# ---------------------------------------------------------------------------------------------- what comes out


@pytest.mark.parametrize(("steps", "alpha"), [([], 0.2), ([], 3.0), (FLOATS, 1.0)], ids=["bytes", "even", "floats"])
def test_mixup_is_a_weighted_mean_with_the_sample_before(scenes: Path, steps: list[Any], alpha: float) -> None:
    """Of images and label vectors, with one share for each batch; other fields stay those of the sample."""
    plain = read(scenes, steps, fields=["image", "label", "score"])
    mixed = read(scenes, [*steps, t.MixUp(alpha=alpha)], fields=["image", "label", "score"])
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
    plain, mixed = read(scenes, steps, fields=fields), read(scenes, [*steps, t.CutMix()], fields=fields)
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
    plain, hot = read(scenes, [mixing()]), read(scenes, [t.OneHot(CLASSES, dtype="float64"), mixing()])
    for one, other, images in zip(plain, hot, read(scenes, [mixing(field=None)]), strict=True):
        np.testing.assert_allclose(one["label"], other["label"], atol=1e-6)
        assert other["label"].dtype == np.float64
        np.testing.assert_array_equal(one["image"], images["image"])
        assert images["label"].dtype == np.int64
    twice = np.concatenate([batch["label"] for batch in read(scenes, [t.MixUp(), t.CutMix(), mixing()])])
    np.testing.assert_allclose(twice.sum(axis=1), 1, rtol=1e-6)
    assert (twice > 0).sum(axis=1).max() >= 3
    several = read(scenes, [t.OneHot(3, field="several"), mixing(field="several")], fields=["image", "several"])
    np.testing.assert_allclose(several[0]["several"].sum(axis=2), np.ones((8, 2)), rtol=1e-6)


# ---------------------------------------------------------------------------------------------- draws


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


# ---------------------------------------------------------------------------------------------- errors


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
        read(scenes, steps, fields=fields or ["image", "label"])


def test_a_label_that_is_no_class_is_named(packed: Packed) -> None:
    """-1, which samples without a class have, has no vector."""
    with pytest.raises(WorkerError, match="label -1 is not one of"):
        read(packed("memmap", "--size", 48), [t.MixUp()])
