"""A function of a whole sample: what it gets and may return, what it draws, and how it stands among other steps; and
what stands for transforms of Albumentations and torchvision as steps.

Objects are rectangles of one color each on a black image, so that pixels say where boxes, points and outlines must be.
"""

from __future__ import annotations

import functools
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from rectangles import KINDS, check_alike, frames, objects, rectangles
from rectangles import read as read_fields

import rawpack_packer
from rawpack import Buckets, Reader, UsageError, WorkerError, Workers
from rawpack import transforms as t

COUNT = 11
FIELDS = ["image", "label", *(name for name in KINDS if name != "depth")]
WAYS = [0, 2, Workers(2, backend="thread")]
SIZES = ((40, 48), (32, 64), (56, 30))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    path = tmp_path_factory.mktemp("objects") / "s"
    rawpack_packer.pack([objects(i) for i in range(COUNT)], path, fields=KINDS, format="memmap", workers=0)
    return Reader(path)


@pytest.fixture(scope="module")
def keep(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Images in three sizes, as they are."""
    path = tmp_path_factory.mktemp("sizes") / "s"
    samples = [objects(i, SIZES[i % 3]) for i in range(COUNT)]
    rawpack_packer.pack(samples, path, fields=KINDS, format="memmap", size="keep", workers=0)
    return Reader(path)


def read(reader: Reader, *steps: Any, **options: Any) -> list[dict[str, Any]]:
    """The samples of an epoch, one by one."""
    return read_fields(reader, *steps, **{"fields": FIELDS, **options})


def flip(sample: dict[str, Any]) -> None:
    """Left and right of everything, by hand and in place."""
    width = sample["image"].shape[1]
    for name in ("image", "mask"):
        sample[name][:] = sample[name][:, ::-1].copy()
    sample["boxes"][:, [0, 2]] = width - sample["boxes"][:, [2, 0]]
    sample["polygons"][:, 0] = width - sample["polygons"][:, 0]
    sample["keypoints"] = sample["keypoints"][:, ::-1].copy()
    sample["keypoints"][..., 0] = width - sample["keypoints"][..., 0]


@pytest.mark.parametrize("workers", WAYS)
def test_it_gets_all_fields_and_changes_them_in_place(reader: Reader, workers: Any) -> None:
    """Done by hand, a flip is that of the step: of pixels, boxes and all that follows. The store stays as it is."""
    before = [reader[i]["image"].copy() for i in range(COUNT)]
    check_alike(read(reader, t.SampleLambda(flip), workers=workers), read(reader, t.RandomHorizontalFlip(1.0)), FIELDS)
    assert_array_equal([reader[i]["image"] for i in range(COUNT)], before)


def draw(sample: dict[str, Any], generator: np.random.Generator) -> dict[str, Any]:
    return {"drawn": generator.random(3)}


@pytest.mark.parametrize("workers", WAYS)
def test_what_it_draws_depends_on_seed_epoch_and_sample_alone(reader: Reader, workers: Any) -> None:
    """Not on workers, batches, order, or what else is done, also where an epoch is resumed in its middle; and it
    differs from sample to sample and epoch to epoch."""

    def by_index(*steps: Any, **options: Any) -> dict[int, Any]:
        return {int(sample["index"]): sample["drawn"].tolist() for sample in read(reader, *steps, **options)}

    plain = by_index(t.SampleLambda(draw), seed=4)
    among = [t.RandomHorizontalFlip(), t.SampleLambda(draw), t.Normalize(0.5, 0.5)]
    assert by_index(*among, seed=4, workers=workers, batch_size=3, shuffle=True) == plain
    assert by_index(t.SampleLambda(draw), seed=5) != plain
    assert len({tuple(drawn) for drawn in plain.values()}) == COUNT
    batches, resumed = (
        reader.batches(3, transform=among, fields=FIELDS, workers=workers, shuffle=True, seed=4) for _ in range(2)
    )
    batches.set_epoch(0)
    iterator = iter(batches)
    next(iterator)
    resumed.load_state_dict(batches.state_dict())
    for batch in resumed:
        assert_array_equal(batch["drawn"], [plain[row] for row in batch["index"]])
        assert_array_equal(next(iterator)["drawn"], batch["drawn"])
    for batch in batches:
        assert (batch["drawn"] != [plain[row] for row in batch["index"]]).all()


@pytest.mark.parametrize(
    ("function", "random"),
    [
        (lambda sample, other=1: {"drawn": other}, False),
        (lambda sample, generator=None: {"drawn": generator.random()}, True),
        (lambda sample, *, generator: {"drawn": generator.random()}, True),
        (functools.partial(lambda sample, rng, size: {"drawn": rng.random() * size}, size=2), True),
    ],
)
def test_it_gets_a_generator_if_it_asks_for_one(reader: Reader, function: Any, random: bool) -> None:
    """By a second parameter that is required, or is called `generator`."""
    drawn = {float(sample["drawn"]) for sample in read(reader, t.SampleLambda(function))}
    assert len(drawn) == (COUNT if random else 1)


def test_shapes_come_from_one_trial_or_from_makes(reader: Reader) -> None:
    """New fields, other shapes and dtypes; with `makes`, the function is not called before the first batch."""
    calls = list[int]()

    def shrink(sample: dict[str, Any]) -> dict[str, Any]:
        calls.append(1)
        return {"image": sample["image"][::2, ::2] / np.float32(255), "mean": float(sample["image"].mean())}

    makes: Any = {"image": ((20, 24, 3), "float32"), "mean": ((), float)}
    steps = t.SampleLambda(shrink), t.SampleLambda(shrink, makes=makes)
    tried, declared = (reader.batches(4, fields=["image", "label"], transform=[step], workers=0) for step in steps)
    assert len(calls) == 1
    for first, other in zip(tried, declared, strict=True):
        assert (first["image"].shape[1:], first["image"].dtype, first["mean"].dtype) == ((20, 24, 3), "f4", "f8")
        assert first.keys() == other.keys()
        assert all(np.array_equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (lambda s: {"image": s["image"][: 9 - s["label"]]}, "makes={'image': ((None, 48, 3), 'uint8')}"),
        (lambda s: {"new": 1} if s["label"] else {}, "makes={'new': ((), 'int64')}"),
        (lambda s: {} if s["label"] else {"new": 1}, "made no 'new', which makes= or the first sample had"),
    ],
)
def test_a_shape_that_differs_later_names_the_sample_and_the_line(
    reader: Reader, function: Callable[..., Any], cure: str
) -> None:
    """The sample's key, and what to write."""
    with pytest.raises(WorkerError, match=re.escape(cure)) as raised:
        read(reader, t.SampleLambda(function), fields=["image", "label"])
    assert f"sample 1 ({reader[1]['key']!r})" in str(raised.value)


def test_samples_of_different_sizes(keep: Reader) -> None:
    """A function of a store as it is may leave sizes open, if a later step makes one; or make one size itself. In
    buckets, it gets images of the bucket's size."""
    brighter = t.SampleLambda(lambda sample: {"image": sample["image"] + 1})
    declared = t.SampleLambda(brighter.function, makes={"image": ((None, None, 3), "uint8")})
    tried, noted = (read(keep, step, t.CenterCrop(24), fields=["image"]) for step in (brighter, declared))
    assert {sample["image"].shape for sample in tried} == {(24, 24, 3)}
    check_alike(tried, noted, ["image"])
    corner = t.SampleLambda(lambda sample: {"image": sample["image"][:8, :9], "mask": sample["mask"][:8, :9]})
    assert {sample["mask"].shape for sample in read(keep, corner, fields=["image", "mask"])} == {(8, 9, 1)}
    for step, words in ((brighter, "cannot form a batch: end with a size"), (declared, "in different sizes")):
        with pytest.raises(UsageError, match=words):
            read(keep, step, fields=["image"])
    note = t.SampleLambda(lambda sample: {"height": sample["image"].shape[0]})
    sizes = Buckets([(40, 48), (32, 64)])
    batches = list(keep.batches(2, transform=[note], fields=["image"], image_size=sizes, workers=2))
    assert {batch["image"].shape[1:3] for batch in batches} == {(40, 48), (32, 64)}
    assert all((batch["height"] == batch["image"].shape[1]).all() for batch in batches)


def test_more_rows_than_there_is_room_for(reader: Reader) -> None:
    """There is room for the longest sample of the store; for more with `makes=`."""

    def double(sample: dict[str, Any]) -> dict[str, Any]:
        return {"boxes": np.concatenate([sample["boxes"]] * 2)}

    fields = ["image", "boxes"]
    with pytest.raises(WorkerError, match=r"4 rows of 'boxes', .* room for 3.*makes={'boxes': \(\(4, 5\), 'float32'"):
        read(reader, t.SampleLambda(double), fields=fields)
    made = t.SampleLambda(double, makes={"boxes": ((6, 5), "float32")})
    assert [len(sample["boxes"]) for sample in read(reader, made, fields=fields)] == [i % 4 * 2 for i in range(COUNT)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda s: s["image"], "returned ndarray: return a dict"),
        (lambda s: {"name": "x"}, "made <U1 of 'name': a function can return numbers"),
        (lambda s: {"caption": "other"}, "changed 'caption': texts can be read"),
        (lambda s: {"depth": 1}, "adds 'depth', which the store has: name it in fields="),
        (lambda s: {"image": s["image"][:8]}, "changed the size of 'image' and left 'mask' as it was"),
        (lambda s: {"image": s["image"][:30], "mask": s["mask"][:30]}, "changed the size of 'image' and left 'boxes'"),
        (lambda s: {"boxes": s["boxes"] + np.float32([0, 34, 0, 34, 0])},
         r"\[2.0, 37.0, 13.0, 43.0\].*, not within it"),
        (lambda s: {"boxes": s["boxes"][:, [2, 1, 0, 3, 4]]}, "not within it: move boxes with their image"),
        (lambda s: {"boxes": s["boxes"][:0]}, "'number' and 'boxes' that do not fit: 1 value for 0 boxes"),
        (lambda s: 1 // 0, "failed for the first sample, on which it is tried: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_what_no_batch_can_have_is_refused_at_once(reader: Reader, function: Any, message: str) -> None:
    """By the trial: before a worker starts. Sample 1 is the first with a box."""
    with pytest.raises(UsageError, match=message):
        read(reader.select([1, 2]), t.SampleLambda(function))


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_before_between_and_after(reader: Reader, workers: int) -> None:
    """A crop before it moves boxes too; what comes after works on what it made, views and labels too."""
    double = t.SampleLambda(lambda sample: {"image": sample["image"] // 2, "new": np.float32(1)})
    last = [t.Normalize(0.5, 0.5), t.ToCHW()]
    add = t.Lambda(lambda new: new + 1, field="new")
    samples = read(reader, t.CenterCrop(30), double, add, double, *last, workers=workers)
    cropped = read(reader, t.CenterCrop(30), t.Lambda(lambda image: image // 4, field="image"), *last)
    check_alike(samples, cropped, FIELDS)
    assert {float(sample["new"]) for sample in samples} == {1.0}
    sized = read(reader, image_size=(20, 30))
    check_alike(read(reader, t.SampleLambda(lambda s: None), image_size=(20, 30)), sized, FIELDS)
    views = [t.SampleLambda(draw), t.Views(2, [t.CenterCrop(16), t.RandomHorizontalFlip(0.5)]), t.OneHot(3)]
    for sample in read(reader, *views, fields=["image", "mask", "label"], workers=workers):
        assert sample["image"].shape == (2, 16, 16, 3)
        assert_array_equal(sample["image"][..., :1], sample["mask"])
        assert sample["label"].sum() == 1
        assert sample["drawn"].shape == (3,)


@pytest.mark.parametrize(
    ("steps", "options", "message"),
    [
        ([t.Views(2, [t.CenterCrop(16)]), t.SampleLambda(draw)], {}, "comes after Views.*put it before"),
        ([t.MixUp(), t.SampleLambda(draw)], {}, "comes after MixUp.*put it before|works on whole batches"),
        ([t.SampleLambda(draw), t.RandomHorizontalFlip()], {}, "moves the pixels of 'image' .*'boxes' cannot follow"),
        ([t.SampleLambda(draw)], {"fields": ["boxes"]}, "needs the image of 'boxes': name 'image' in fields= too"),
    ],
)
def test_where_it_cannot_stand(reader: Reader, steps: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(reader, *steps, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_clip_is_one_sample(tmp_path: Path, workers: int) -> None:
    """It gets all frames as one array, and steps after it work on each; boxes of clips are refused."""
    rawpack_packer.pack(frames(11, 6), tmp_path / "s", fields=KINDS, workers=0)
    clips = Reader(tmp_path / "s").clips(4)

    def reverse(sample: dict[str, Any], generator: np.random.Generator) -> dict[str, Any]:
        assert sample["image"].shape == (4, 40, 48, 3)
        return {"image": sample["image"][::-1], "drawn": generator.random()}

    fields = ["image", "mask", "frame"]
    samples = read(clips, t.SampleLambda(reverse), t.RandomHorizontalFlip(1.0), fields=fields, workers=workers)
    for sample, other in zip(samples, read(clips, fields=fields), strict=True):
        assert_array_equal(sample["image"], other["image"][::-1, :, ::-1])
        assert_array_equal(sample["mask"], other["mask"][:, :, ::-1])
    assert len({float(sample["drawn"]) for sample in samples}) == len(samples)
    flipped = read(clips, t.RandomHorizontalFlip(1.0), fields=fields)
    check_alike(read(clips, t.Albumentations(StandIn()), fields=fields, workers=workers), flipped, fields)
    offsets = Reader(tmp_path / "s").clips(offsets={"image": [-0.04, 0.0]})
    add = t.SampleLambda(lambda sample: {"frames": len(sample["image"]), "named": int(sample["caption"].split()[1])})
    for i, sample in enumerate(read(offsets, add, fields=["image", "mask", "caption"], workers=workers)):
        assert (sample["frames"], sample["named"], sample["mask"].shape) == (2, i, (40, 48, 1))
    with pytest.raises(UsageError, match="gets no ragged fields of clips: leave 'boxes' out"):
        read(clips, t.SampleLambda(draw), fields=["image", "boxes"])


# ---------------------------------------------------------------------------------------------- of other libraries


class StandIn:
    """What a Compose of Albumentations has, and does: a flip by chance, and a cut of 4 pixels at the left. Boxes that
    are then outside are left out; points are counted from the center of the first pixel."""

    __module__ = "albumentations.core.composition"

    def __init__(self, p: float = 1.0, cut: int = 0, form: str = "pascal_voc", **points: Any) -> None:
        self.p, self.cut, self.targets, self.threads = p, cut, dict[str, str](), set[int]()
        points = {"format": "xy", "remove_invisible": False, "label_fields": None, **points}
        self.processors = {
            "bboxes": SimpleNamespace(params=SimpleNamespace(format=form, label_fields=["class_name"])),
            "keypoints": SimpleNamespace(params=SimpleNamespace(**points)),
        }

    def add_targets(self, targets: dict[str, str]) -> None:
        self.targets |= targets

    def set_random_state(self, generator: np.random.Generator, python: random.Random) -> None:
        self.generator, self.python = generator, python

    def __call__(self, **data: Any) -> dict[str, Any]:
        self.threads.add(threading.get_ident())
        assert len(self.threads) == 1, "one copy for each thread"
        flips, made = self.generator.random() < self.p / 2 + self.python.random() * self.p / 2, dict(data)
        width = data.get("image", data.get("images")).shape[-2]
        for name, value in data.items():
            if {name, self.targets.get(name)} & {"image", "mask", "images", "masks"}:
                made[name] = (value[..., ::-1, :] if flips else value)[..., self.cut :, :]
        if "bboxes" in data:
            assert len(data["class_name"]) == len(data["bboxes"])
            boxes = data["bboxes"].copy()
            boxes[:, [0, 2]] = width - boxes[:, [2, 0]] if flips else boxes[:, [0, 2]]
            boxes[:, [0, 2]] = np.maximum(boxes[:, [0, 2]] - self.cut, 0)
            made["bboxes"] = boxes[boxes[:, 2] > boxes[:, 0]][::-1]
        if "keypoints" in data:
            points = data["keypoints"].copy()
            points[:, 0] = width - 1 - points[:, 0] if flips else points[:, 0]
            made["keypoints"] = points - (self.cut, 0)
        return made


@pytest.mark.parametrize("workers", WAYS)
def test_everything_moves_by_the_role_that_the_store_knows(reader: Reader, workers: Any) -> None:
    """Images, masks, boxes, keypoints with left and right swapped, and outlines, as by the step that does the same."""
    fields = [*FIELDS, "depth"]
    made = read(reader, t.Albumentations(StandIn()), workers=workers, fields=fields)
    check_alike(made, read(reader, t.RandomHorizontalFlip(1.0), fields=fields), fields)


def test_what_belongs_to_a_box_leaves_with_it(reader: Reader) -> None:
    """Boxes that are in the columns that are cut away are gone, with all that is theirs."""
    cut, seen = 15, set[int]()
    cuts = read(reader, t.Albumentations(StandIn(p=0, cut=cut)))
    for i, (made, whole) in enumerate(zip(cuts, read(reader), strict=True)):
        kept = [k for k, box in enumerate(rectangles(i)) if box[2] > cut]
        assert made["number"].tolist() == [10 * i + k for k in kept]
        assert_allclose(made["boxes"][:, [0, 2]], np.maximum(whole["boxes"][kept][:, [0, 2]] - cut, 0))
        assert set(made["polygons"][:, 2]) == set(range(len(kept)))
        assert len(made["keypoints"]) == len(kept)
        assert_array_equal(made["image"], whole["image"][:, cut:])
        assert_array_equal(made["mask"], whole["mask"][:, cut:])
        seen.add(len(kept) - len(rectangles(i)))
    assert len(seen) > 2


def test_its_numbers_depend_on_the_sample_alone(reader: Reader) -> None:
    """Not on workers or batches. The object itself stays as it was."""
    compose = StandIn(p=0.5)
    step = t.Albumentations(compose)
    alone = read(reader, step)
    for options in ({"workers": 2}, {"workers": Workers(2, backend="thread")}, {"batch_size": 3, "shuffle": True}):
        made = sorted(read(reader, step, **options), key=lambda sample: int(sample["index"]))
        check_alike(made, alone, FIELDS)
    flipped = [not np.array_equal(*pair) for pair in zip(images(alone), images(read(reader)), strict=True)]
    assert 0 < sum(flipped) < COUNT
    assert not hasattr(compose, "generator")


def images(samples: list[dict[str, Any]]) -> list[Any]:
    return [sample["image"] for sample in samples]


def test_seeds_by_call(reader: Reader) -> None:
    """AlbumentationsX takes the seed of each call."""

    class ByCall(StandIn):
        def __call__(self, *, invocation_seed: int | None = None, **data: Any) -> dict[str, Any]:
            return data | {"image": np.full_like(data["image"], (invocation_seed or 0) % 251)}

    step, fields = t.Albumentations(ByCall()), ["image"]
    first, again, other = (
        images(read(reader, step, fields=fields, seed=seed, workers=workers))
        for seed, workers in ((7, 0), (7, 2), (8, 0))
    )
    assert_array_equal(first, again)
    assert len(np.unique(first)) > COUNT // 2
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (StandIn(form="coco"), r"has to move 'boxes'.*BboxParams\(\"pascal_voc\"\)"),
        (StandIn(format="yx"), r"has to move 'polygons'.*KeypointParams\(\"xy\", remove_invisible=False\)"),
        (StandIn(remove_invisible=True), "remove_invisible=False"),
    ],
)
def test_a_compose_that_cannot_move_what_the_batch_has(reader: Reader, compose: Any, message: str) -> None:
    """It is refused, but for a batch that has only what it moves."""
    with pytest.raises(UsageError, match=message):
        read(reader, t.Albumentations(compose))
    compose.processors.clear()
    with pytest.raises(UsageError, match="has to move"):
        read(reader, t.Albumentations(compose))
    read(reader, t.Albumentations(compose), fields=["image", "mask", "depth"])
