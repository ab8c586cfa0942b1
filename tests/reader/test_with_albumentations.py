"""Transforms of Albumentations and torchvision as steps: by objects with the same methods, and by the libraries where
they are installed. Steps of rawpack that do the same are what they are compared with."""

from __future__ import annotations

import random
import threading
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from rectangles import KINDS, check_alike, frames, objects, rectangles
from rectangles import read as read_fields

import rawpack_packer
from rawpack import Reader, UsageError, Workers
from rawpack import transforms as t

FIELDS = ["image", *(name for name in KINDS if name != "caption")]
COUNT = 8
installed = pytest.mark.skipif(find_spec("albumentations") is None, reason="Albumentations is not installed")


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


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    path = tmp_path_factory.mktemp("objects") / "s"
    rawpack_packer.pack([objects(i) for i in range(COUNT)], path, fields=KINDS, format="memmap", workers=0)
    return Reader(path)


def read(reader: Reader, *steps: Any, **options: Any) -> list[dict[str, Any]]:
    """The samples of an epoch."""
    return read_fields(reader, *steps, **{"fields": FIELDS, **options})


@pytest.mark.parametrize("workers", [0, 2, Workers(2, backend="thread")])
def test_everything_moves_by_the_role_that_the_store_knows(reader: Reader, workers: Any) -> None:
    """Images, masks, boxes, keypoints with left and right swapped, and outlines, as by the step that does the same."""
    made = read(reader, t.Albumentations(StandIn()), workers=workers)
    check_alike(made, read(reader, t.RandomHorizontalFlip(1.0)), FIELDS)


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


def test_an_object_of_albumentations_is_named(reader: Reader) -> None:
    """Wherever a function may stand; and what is none is refused."""
    compose: Any = StandIn()
    for write in (
        lambda: t.Lambda(compose),
        lambda: t.Views(2, [compose]),
        lambda: reader.batches(4, transform=[compose]),
        lambda: reader.batches(4, transform=compose),
    ):
        with pytest.raises(UsageError, match=r"write Albumentations\(StandIn\(...\)\)"):
            write()
    for wrong in (3, StandIn):
        with pytest.raises(UsageError, match=r"needs an object of albumentations.Compose"):
            t.Albumentations(wrong)
    with pytest.raises(UsageError, match="needs an image"):
        read(reader, t.ToCHW(), t.Albumentations(compose), fields=["image"])


def test_clips_are_moved_as_a_whole(tmp_path: Path) -> None:
    """All frames alike."""
    rawpack_packer.pack(frames(COUNT, 4), tmp_path / "s", fields=KINDS, workers=0)
    clips, fields = Reader(tmp_path / "s").clips(4), ["image", "mask"]
    made = read(clips, t.Albumentations(StandIn()), t.Normalize(0.5, 0.5), fields=fields)
    check_alike(made, read(clips, t.RandomHorizontalFlip(1.0), t.Normalize(0.5, 0.5), fields=fields), fields)


@installed
@pytest.mark.parametrize("workers", [2, Workers(2, backend="thread")])
def test_albumentations_itself(reader: Reader, workers: Any) -> None:
    """A flip and a crop of its own, and a chain with numbers that do not depend on workers."""
    import albumentations

    def composed(*steps: Any) -> t.Albumentations:
        boxes = albumentations.BboxParams("pascal_voc", label_fields=["class_name"])
        points = albumentations.KeypointParams("xy", remove_invisible=False)
        return t.Albumentations(albumentations.Compose(steps, bbox_params=boxes, keypoint_params=points))

    flip = composed(albumentations.HorizontalFlip(p=1))
    check_alike(read(reader, flip, workers=workers), read(reader, t.RandomHorizontalFlip(1.0)), FIELDS)
    others = [name for name in FIELDS if name != "polygons"]
    check_alike(read(reader, composed(albumentations.CenterCrop(30, 30))), read(reader, t.CenterCrop(30)), others)
    chain = composed(albumentations.RandomCrop(30, 30), albumentations.Affine(rotate=(-20, 20), p=1))
    check_alike(read(reader, chain, workers=workers), read(reader, chain), FIELDS)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
@pytest.mark.parametrize("workers", [2, Workers(2, backend="thread")])
def test_torchvision_itself(reader: Reader, workers: Any) -> None:
    """Its boxes leave with their numbers; a chain does not depend on workers."""
    from torchvision.transforms import v2

    fields = ["image", "mask", "depth", "boxes", "number"]
    flip = t.Torchvision(v2.RandomHorizontalFlip(p=1))
    check_alike(read(reader, flip, fields=fields), read(reader, t.RandomHorizontalFlip(1.0), fields=fields), fields)
    chain = t.Torchvision(v2.Compose([v2.RandomCrop(30), v2.RandomHorizontalFlip(), v2.SanitizeBoundingBoxes()]))
    made = read(reader, chain, fields=fields, workers=workers)
    check_alike(made, read(reader, chain, fields=fields), fields)
    assert made[0]["image"].shape == (30, 30, 3)
    with pytest.raises(UsageError, match="cannot move 'polygons'"):
        read(reader, chain)
