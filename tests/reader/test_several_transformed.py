"""Several images in a sample move together: every pixel of one says where it is from, and so must those of the others.

The pixels of an image hold their own place, (y, x) in whole numbers. `big` repeats each of them twice or four times,
`depth`, `gray` and `mask` hold the same place in one number. Whatever a step does, they must agree in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reading import SOAK, WAYS

import rawpack_packer
from rawpack import Buckets, Reader, UsageError, WorkerError
from rawpack import transforms as t
from rawpack.disk.manifest import Field
from rawpack.transforms.plan import plan_pipeline

Arrays = dict[str, NDArray[Any]]
COUNT, SIZE, TIMES = 24, (48, 56), 4
KINDS = {"big": "image", "depth": "image", "gray": "image", "mask": "mask", "boxes": "xyxy"}


def repeated(image: NDArray[Any], times: int = TIMES) -> NDArray[Any]:
    """Each pixel of images (..., H, W, C) as a block of pixels."""
    return image.repeat(times, -3).repeat(times, -2)


def sample(i: int, size: tuple[int, int] = SIZE, times: int = TIMES) -> Arrays:
    """A sample whose pixels hold their places."""
    y, x = np.indices(size)
    image = np.stack([y, x, np.full(size, 100 + i)], axis=2).astype(np.uint8) + np.uint8(1)
    place = y % 12 * 16 + x % 16 + 1
    return {
        "image": image,
        "big": repeated(image, times),
        "depth": (y * 256 + x + 1).astype(np.uint16)[..., None],
        "gray": place.astype(np.uint8)[..., None],
        "mask": place.astype(np.uint8)[..., None],
        "boxes": np.array([[x, y, x + 1, y + 1, 0] for y, x in [(20, 20), (30, 11)]], np.float32),
        "label": np.int64(i % 3),
    }


def agree(batch: Arrays, times: int = TIMES) -> None:
    """Raise AssertionError unless all images of a batch, as far as it has them, show the same places."""
    image = batch["image"]
    if "big" in batch:
        np.testing.assert_array_equal(batch["big"], repeated(image, times))
    y, x = image[..., :1].astype(int) - 1, image[..., 1:2].astype(int) - 1
    there, place = y >= 0, y % 12 * 16 + x % 16 + 1
    wanted = {"depth": y * 256 + x + 1, "gray": place, "mask": place}
    for name in wanted.keys() & batch.keys():
        np.testing.assert_array_equal(batch[name], np.where(there, wanted[name], 0))
    for frame, boxes in zip(image, batch.get("boxes", ()), strict=False):
        for left, top, right, bottom, _ in np.asarray(boxes).astype(int):
            assert (right - left, bottom - top) == (1, 1)
            assert tuple(frame[top, left, :2] - 1) in {(20, 20), (30, 11)}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Packs the samples, of one size or of many."""
    folder = tmp_path_factory.mktemp("several")

    def pack(layout: str = "memmap", *, keep: bool = False, times: int = TIMES) -> Path:
        path = folder / f"{layout}-{keep}-{times}"
        if not path.exists():
            sizes = [(40 + i % 7, 44 + i % 5) if keep else SIZE for i in range(COUNT)]
            samples = [sample(i, size, times) for i, size in enumerate(sizes)]
            rawpack_packer.pack(samples, path, size="keep", fields=dict(KINDS), format=layout)  # type: ignore[arg-type]
        return path

    return pack


def batches(store: Path, transform: list[Any] | None = None, **options: Any) -> list[Arrays]:
    given = {"batch_size": 10, "shuffle": True, "seed": 4, "workers": 0} | options
    made = Reader(store).batches(transform=transform, **given)
    made.set_epoch(0)  # without a warning, where a test reads it again
    return list(made)


ALIGNED = ["image", "big", "depth", "gray", "mask", "boxes", "label"]


def test_boxes_of_the_larger_image_move_with_it(tmp_path: Path) -> None:
    """What is drawn in the pixels of the smaller one moves them too, also where only that one is in the batch."""
    made = []
    for one in (sample(i, times=2) for i in range(12)):
        boxes = one["boxes"] * np.float32([2, 2, 2, 2, 1])
        made.append({"image": one["big"], "small": one["image"], "boxes": boxes})
    rawpack_packer.pack(made, tmp_path / "s", size="keep", fields={"small": "image", "boxes": "xyxy"})
    steps = [t.RandomCrop((50, 60), padding=6), t.RandomHorizontalFlip()]
    (batch,), (beside,) = (
        batches(tmp_path / "s", steps, batch_size=12, fields=[*names, "small", "boxes"]) for names in ([], ["image"])
    )
    np.testing.assert_array_equal(beside["image"], repeated(batch["small"], 2))
    assert sum(map(len, batch["boxes"]))
    for image, boxes, same in zip(beside["image"], beside["boxes"], batch["boxes"], strict=True):
        np.testing.assert_array_equal(boxes, same)
        for left, top, right, bottom, _ in boxes.astype(int):
            assert {*map(tuple, image[top:bottom, left:right, :2].reshape(-1, 2) - 1)} <= {(20, 20), (30, 11)}


@pytest.mark.parametrize("keep", [False, True], ids=["one size", "many sizes"])
def test_an_image_beside_boxes_is_made_as_if_theirs_were_in_the_batch(packed: Callable[..., Path], keep: bool) -> None:
    """Also where it is several times as large, and the only image."""
    for steps in (
        [t.RandomCrop(12, padding=3)],
        [t.Resize((20, 24)), t.RandomHorizontalFlip()],
        [t.RandomResizedCrop(16), t.ToCHW()],
        [t.Fit(16), t.RandomCrop(12)],
    ):
        whole = batches(packed(keep=keep), steps, fields=["image", "big", "gray", "boxes"])
        for name in ("big", "gray"):
            for batch, wanted in zip(batches(packed(keep=keep), steps, fields=[name, "boxes"]), whole, strict=True):
                np.testing.assert_array_equal(batch[name], wanted[name])
                for boxes, same in zip(batch["boxes"], wanted["boxes"], strict=True):
                    np.testing.assert_array_equal(boxes, same)


class Spied(t.RandomResizedCrop):
    """Notes what it draws."""

    drawn: ClassVar[list[Any]] = []

    def draw(self, random: t.Random, height: int, width: int) -> Any:
        drawn = super().draw(random, height, width)
        if height <= SIZE[0]:  # not one that is only tried
            self.drawn.append(drawn)
        return drawn


@pytest.mark.parametrize("keep", [False, True], ids=["one size", "many sizes"])
def test_a_resized_crop_is_of_the_same_box_in_each(packed: Callable[..., Path], keep: bool) -> None:
    """It is drawn once, in pixels of the smallest image, and resized as OpenCV does, within one level."""
    Spied.drawn.clear()
    fields = ["big", "depth", "image", "label"]
    (batch,) = batches(packed(keep=keep), [Spied((18, 15), antialias=False)], batch_size=COUNT, fields=fields)
    assert len(Spied.drawn) == COUNT
    stored = Reader(packed(keep=keep))
    for k, (row, (y, x, h, w)) in enumerate(zip(batch["index"], Spied.drawn, strict=True)):
        one = stored[int(row)]
        for name, times in (("image", 1), ("big", TIMES)):
            part = one[name][y * times : (y + h) * times, x * times : (x + w) * times]
            resized = cv2.resize(part, (15 * times, 18 * times), interpolation=cv2.INTER_LINEAR)
            assert np.abs(batch[name][k].astype(int) - resized).max() <= 1
        rows = [int(y + (i + 0.5) * h / 18) for i in range(18)]
        columns = [int(x + (i + 0.5) * w / 15) for i in range(15)]
        np.testing.assert_array_equal(batch["depth"][k], one["depth"][np.ix_(rows, columns)])


def test_a_size_is_that_of_the_field_image() -> None:
    """A pair of 1:4 leaves 96 as 96 and 384, and one of 4:1 as 96 and 24; a size that is then no whole number of pixels
    is refused, but flips do not care."""
    crop, last = t.RandomResizedCrop(96), [t.Resize(24), t.Fit((12, 20)), t.RandomHorizontalFlip()]
    for image, target, wanted in ((128, 512, (48, 80)), (512, 128, (3, 5))):
        fields = {
            name: Field(kind="image", dtype="uint8", shape=(side, side, 3))
            for name, side in (("target", target), ("image", image))
        }
        results = plan_pipeline([crop, t.RandomCrop(48, padding=4), *last], fields, ["target", "image"]).results
        assert {name: spec.shape[:2] for name, spec in results.items()} == {"image": (12, 20), "target": wanted}
    for step in (t.CenterCrop(18), t.Resize(18), t.Fit(18), t.RandomResizedCrop(18), t.RandomCrop(16, padding=3)):
        with pytest.raises(UsageError, match=r"4 times as large as 'target': .*no whole number of pixels"):
            plan_pipeline([step], fields, ["image", "target"])
    plan_pipeline([t.RandomHorizontalFlip(), t.ToCHW()], fields, list(fields))


@pytest.mark.parametrize("keep", [False, True], ids=["one size", "many sizes"])
def test_image_size_is_for_all_images_or_by_field(packed: Callable[..., Path], keep: bool) -> None:
    """One size is that of `image`, and others keep their ratio to it; a dict resizes what it names."""
    store, fields = packed(keep=keep), ["image", "big", "mask"]
    assert sizes(batches(store, image_size=24, fields=fields)) == {"image": (24, 24), "mask": (24, 24), "big": (96, 96)}
    found = batches(store, image_size={"image": (20, 24), "big": 32}, fields=fields)
    assert sizes(found) == {"image": (20, 24), "mask": (20, 24), "big": (32, 32)}
    for batch, wanted in zip(found, batches(store, image_size=(20, 24), fields=["image", "mask"]), strict=True):
        np.testing.assert_array_equal(batch["image"], wanted["image"])
        np.testing.assert_array_equal(batch["mask"], wanted["mask"])


def test_buckets_go_by_the_image(packed: Callable[..., Path]) -> None:
    """Other images keep their ratio to it, or have a size by field; what no size is said of stays as it is."""
    store, buckets = packed(keep=True), Buckets([(20, 22), (22, 20)])
    for batch in batches(store, image_size=buckets, fields=["image", "big"]):
        assert batch["big"].shape[1:3] == tuple(TIMES * side for side in batch["image"].shape[1:3])
    by_field = batches(store, image_size={"image": buckets, "big": 16}, fields=["image", "big"])
    assert {batch["big"].shape[1:3] for batch in by_field} == {(16, 16)}
    unchanged = sizes(batches(packed(), image_size={"big": 20}, fields=["image", "big", "mask"]))
    assert unchanged == {"image": SIZE, "mask": SIZE, "big": (20, 20)}
    for image_size, words in (({"image": 20}, "in different sizes"), ({"big": buckets}, "Buckets for 'big'")):
        with pytest.raises(UsageError, match=words):
            batches(store, image_size=image_size, fields=["image", "big"])


def sizes(found: list[Arrays]) -> dict[str, tuple[int, ...]]:
    return {name: one.shape[1:3] for name, one in found[0].items() if one.ndim == 4}


def test_colors_are_changed_of_color_images_alone(packed: Callable[..., Path]) -> None:
    """All color images get the same; depths, gray images and masks stay as they are, unless named."""
    stored = Reader(packed())
    steps = [t.ColorJitter(0.9), t.RandomErasing(1.0, value=(7, 8, 9)), t.Normalize((0.5,) * 3, (0.5,) * 3)]
    for batch in batches(packed(), steps, fields=ALIGNED[:-2]):
        np.testing.assert_array_equal(batch["big"], repeated(batch["image"]))
        assert batch["big"].dtype == np.float32
        erased = np.isclose(batch["image"], np.array([7, 8, 9]) / 127.5 - 1).all(axis=3).mean((1, 2))
        assert (erased > 0.01).all()
        for k, row in enumerate(batch["index"]):
            for name in ("depth", "gray", "mask"):
                np.testing.assert_array_equal(batch[name][k], stored[int(row)][name])
    named = batches(packed(), [t.Normalize(0.5, 0.5, fields=["gray"])], fields=ALIGNED)[0]  # type: ignore[arg-type]
    assert [named[name].dtype for name in ("image", "gray", "depth")] == ["uint8", "float32", "uint16"]


def test_randaugment_moves_what_it_does_not_color(packed: Callable[..., Path]) -> None:
    """A gray image beside one of colors goes along as its mask does, and a larger one by as many times more."""
    moved = 0
    for batch in batches(packed(), [t.RandAugment(3, 20)], fields=["image", "gray", "mask"]):
        np.testing.assert_array_equal(batch["gray"], batch["mask"])
        moved += int((batch["gray"] == 0).any(axis=(1, 2, 3)).sum())
    assert 0 < moved < COUNT
    step, image, drawn = t.RandAugment(), sample(0)["image"], [("TranslateX", 5.0), ("TranslateY", -3.0)]
    large = step.apply(repeated(image), step.magnified(drawn, TIMES))
    np.testing.assert_array_equal(large, repeated(step.apply(image, drawn)))


def test_a_function_that_changes_one_image_alone_is_noticed(packed: Callable[..., Path]) -> None:
    """It makes another size of images than it says, and the mask keeps its own: a crop would part the two."""
    for steps in ([lambda one: one[:30], t.RandomCrop(20)], [t.Views(2, [lambda one: one[:30], t.RandomCrop(20)])]):
        with pytest.raises(WorkerError, match=r"48x56 and 'image' 30x56|declare the result of a function"):
            batches(packed(), steps, fields=["image", "mask"])


def test_fields_of_a_step_are_those_that_it_is_for(packed: Callable[..., Path]) -> None:
    """The size of what is named alone is that of the step; another step may then bring all to one size."""
    steps = [t.Resize((12, 14), "nearest", fields=["big"]), t.CenterCrop((12, 14), fields=["image"])]
    found = batches(packed(), [*steps, t.RandomCrop(10)], fields=["image", "big"])
    assert sizes(found) == {"image": (10, 10), "big": (10, 10)}
    apart = [t.RandomCrop(20, fields=["depth"]), t.RandomCrop(20, fields=["gray"])]
    (batch, *_) = batches(packed(), apart, fields=["image", "depth", "gray"])
    assert sizes([batch]) == {"image": SIZE, "depth": (20, 20), "gray": (20, 20)}
    y, x = batch["depth"] // 256, batch["depth"] % 256 - 1
    assert not np.array_equal(batch["gray"], y % 12 * 16 + x % 16 + 1)


class OwnCrop(t.CropStep):
    """A step as a user writes it, who has never heard of images of several sizes."""

    def makes(self, spec: t.Spec) -> t.Spec:
        return spec.sized(8, 8)

    def box(self, drawn: Any) -> Any:
        return (0, 0, 8, 8)


@pytest.mark.parametrize(
    ("steps", "fields", "message"),
    [
        ([t.RandomCrop(18, fields=["target"])], ["image"], "the batch has no field 'target', only image"),
        ([t.RandomCrop(18, fields=["image"])], ["image", "mask"], "would leave 'mask' behind"),
        ([t.CenterCrop(20, fields=["image"]), t.RandomCrop(18)], ["image", "depth"],
         r"'depth' is 48x56 and 'image' 20x20 .*fields= of the step.*image_size= by field.*fields= of batches"),
        ([OwnCrop()], ["image", "big"], "'big' is 4 times as large as 'image': .*scaled.*magnified"),
        ([t.ColorJitter(0.5, fields=["depth"])], ["image", "depth"], "ColorJitter.*needs uint8 images of 1 or 3 chann"),
        ([t.Views(2, [t.RandomCrop(3)]), t.RandomHorizontalFlip()], ["image"], "comes after Views.*end of the steps"),
        ([t.Views(2, [t.RandomCrop(3)])], ["image", "boxes"], "cannot change boxes"),
        ([t.MixUp(num_classes=3)], ["image", "depth", "label"], "cannot change masks .*'depth'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    packed: Callable[..., Path], steps: list[Any], fields: list[str], message: str
) -> None:
    """At once, with the cure."""
    with pytest.raises(UsageError, match=message):
        batches(packed(), steps, fields=fields)


def test_a_sample_whose_images_do_not_fit_is_named(tmp_path: Path) -> None:
    """Where images of a store differ in size, each sample is looked at."""
    made = [sample(i, (40 + i % 3, 44), 2) for i in range(40)]
    made[1]["big"] = made[1]["big"][:60]
    rawpack_packer.pack(made, tmp_path / "s", size="keep", fields=KINDS)  # type: ignore[arg-type]
    for steps in ([t.RandomCrop(20)], [t.Fit(20), t.RandomCrop(11)]):
        with pytest.raises(WorkerError, match=r"'big' of sample 1 is 60x88 and 'image' 41x44"):
            batches(tmp_path / "s", steps, fields=["image", "big"])


@pytest.mark.parametrize("keep", [False, True], ids=["one size", "many sizes"])
def test_views_are_independent_and_each_agrees(packed: Callable[..., Path], keep: bool) -> None:
    """Each view of a sample is another one, and the same of all its images and masks; whoever makes them."""
    views = [t.Views(3, [t.RandomCrop(22, padding=2), t.RandomHorizontalFlip()])]
    rows = dict[int, Any]()
    for batch in batches(packed(keep=keep), views, fields=ALIGNED[:-2]):
        assert batch["image"].shape[1:] == (3, 22, 22, 3)
        assert batch["big"].shape[1:] == (3, 88, 88, 3)
        agree(batch)
        assert not any(np.array_equal(one[a], one[b]) for one in batch["image"] for a, b in ((0, 1), (1, 2), (0, 2)))
        rows |= dict(zip(batch["index"].tolist(), batch["image"], strict=True))
    for way in ({"batch_size": 7, "shuffle": False}, *WAYS.values()):
        for batch in batches(packed(keep=keep), views, fields=["mask", "image"], **way):
            np.testing.assert_array_equal(batch["image"], [rows[row] for row in batch["index"].tolist()])


def test_views_are_made_as_a_transform_makes_images(packed: Callable[..., Path]) -> None:
    """Steps that draw nothing give the same as outside; layouts and dtypes too. What one field skips shifts nothing."""
    plain = [t.CenterCrop(20), lambda one: 255 - one, t.Normalize((0.5,) * 3, (0.2,) * 3), t.ToCHW()]
    for batch, wanted in zip(batches(packed(), [t.Views(2, plain)]), batches(packed(), plain), strict=True):
        for name in ("image", "big", "depth", "mask"):
            np.testing.assert_array_equal(batch[name], np.stack([wanted[name]] * 2, axis=1))
    crops = [t.RandomErasing(fields=["image"]), t.RandomCrop(20)]
    (batch, *_) = batches(packed(), [t.Views(2, crops)], fields=["depth", "mask", "image"])
    place = batch["depth"].astype(int) - 1
    np.testing.assert_array_equal(batch["mask"], place // 256 % 12 * 16 + place % 256 % 16 + 1)


@st.composite
def transforms(draw: st.DrawFn) -> list[Any]:
    """Steps that leave pixels what they are, each fit for what the ones before it make."""
    steps, (height, width) = list[Any](), (40, 44)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["center", "random", "padded", "flip", "upside", "own"]))
        if kind in ("flip", "upside"):
            steps.append((t.RandomHorizontalFlip if kind == "flip" else t.RandomVerticalFlip)(draw(st.floats(0, 1))))
        elif kind == "own":
            steps.append(Mirrored())
        else:
            size = draw(st.integers(1, 60)), draw(st.integers(1, 60))
            if kind == "center":
                steps.append(t.CenterCrop(size))
            elif kind == "padded":
                steps.append(t.RandomCrop(size, padding=draw(st.integers(0, 9)), pad_if_needed=True))
            else:
                size = min(size[0], height), min(size[1], width)
                steps.append(t.RandomCrop(size))
            height, width = size
    return [*steps, t.CenterCrop(min(40, height, width))]


class Mirrored(t.Step):
    """A user's step that says that sizes do not matter to it."""

    any_size = True

    def apply(self, image: NDArray[Any], drawn: Any, out: Any = None) -> NDArray[Any]:
        return image[:, ::-1]

    def apply_mask(self, mask: NDArray[Any], drawn: Any, out: Any = None) -> NDArray[Any]:
        return mask[:, ::-1]

    def move(self, drawn: Any, height: int, width: int) -> t.Move:
        return t.Move(scale_x=-1.0, shift_x=float(width))


@settings(max_examples=2000 if SOAK else 40)
@given(transforms(), st.sampled_from([1, 2, 3, 4, 5, None]), st.integers(0, 2**32), st.sampled_from([None, 2]))
def test_any_transform_keeps_them_together(
    packed: Callable[..., Path], steps: list[Any], times: int | None, seed: int, views: int | None
) -> None:
    """Images, masks and boxes, whatever is put after each other, for any ratio of sizes, also where samples differ in
    size, and as views."""
    reader = Reader(packed(times=times) if times else packed(keep=True)).select(range(3))
    images = ["image", "big", "depth", "mask"]
    erased = t.RandomErasing(1.0, value=0, fields=images)
    transform, names = (steps, ALIGNED) if views is None else ([t.Views(views, [*steps, erased])], images)
    (batch,) = reader.batches(3, transform=transform, fields=names, seed=seed, workers=0)
    assert math.prod(batch["image"].shape) > 0
    agree(batch, times or TIMES)
