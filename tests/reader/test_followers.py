"""Keypoints, polygons and other values move and leave with their boxes: while packing, and through transforms.

Polygons are compared as pixels: painted into a mask that moves with its image, as an oracle of its own. Keypoints are
single bright pixels.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.disk.manifest import parse, seal, unseal
from rawpack.errors import DamagedStoreError
from rawpack.targets import instance_masks
from rawpack.transforms import (
    CenterCrop,
    MixUp,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from rawpack.transforms.followers import clipped, cut
from rawpack_packer.sources.fields import FieldKind

SIDE, COUNT = 96, 12
COLORS = (80, 160, 240)
"""Of the objects, which do not overlap."""
KINDS: dict[str, Any] = {
    "boxes": "xyxy",
    "number": FieldKind("int64", (None,), follows="rows"),
    "polygons": FieldKind("float32", (None, 4), follows="polygons"),
    "keypoints": FieldKind("float32", (None, 2, 3), follows="keypoints", mirror=(1, 0)),
    "mask": "mask",
}


def shape(rng: np.random.Generator, column: int) -> NDArray[Any]:
    """A star, mostly not convex, in a third of the image."""
    angle = np.sort(rng.random(9)) * 2 * np.pi
    radius = 15 * (0.3 + 0.7 * rng.random(9))
    center = (16 + 32 * column, rng.integers(20, 76))
    return np.stack([center[0] + radius * np.cos(angle), center[1] + radius * np.sin(angle)], axis=1).round(1)


class Shapes:
    """A gray image in which each of three objects has a color; two keypoints each, the first left of the second."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int) -> dict[str, Any]:
        rng = np.random.default_rng(i)
        shapes = [shape(rng, column) for column in range(3)]
        # cv2 fills at 16 times the size, so that its outline is a sixteenth of a pixel.
        fine = np.zeros((SIDE * 16, SIDE * 16), np.uint8)
        for color, points in zip(COLORS, shapes, strict=True):
            cv2.fillPoly(fine, [np.round(points * 16).astype(np.int32)], color)
        image = np.repeat(fine[8::16, 8::16, None], 3, axis=2)
        rows = [[*one.min(0), *one.max(0), k] for k, one in enumerate(shapes)]
        keypoints = [[[*one[one[:, 0].argmin()], 2], [*one[one[:, 0].argmax()], 1]] for one in shapes]
        keypoints[1][1] = [0, 0, 0]
        polygons = [[x, y, k, 0] for k, one in enumerate(shapes) for x, y in one]
        return {
            "image": image,
            "boxes": np.array(rows, np.float32),
            "number": np.arange(3) + 10 * i,
            "polygons": np.array(polygons, np.float32),
            "keypoints": np.array(keypoints, np.float32),
            "mask": image[..., :1].copy(),
        }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, as it is."""
    path = tmp_path_factory.mktemp("followers") / "s"
    rawpack_packer.pack(Shapes(), path, fields=KINDS, workers=0)
    return path


def check_polygons(sample: dict[str, Any], mask: NDArray[Any]) -> None:
    """The polygons, filled, are the pixels of the mask: but for pixels on an outline, and those of objects whose box is
    gone."""
    height, width = mask.shape[:2]
    drawn = np.zeros((height * 16, width * 16), np.uint8)
    rows = sample["polygons"]
    for box, number in enumerate(sample["number"]):
        points = rows[rows[:, 2] == box][:, :2]
        if len(points):
            cv2.fillPoly(drawn, [np.round(points * 16).astype(np.int32)], COLORS[number % 10])
    drawn = drawn[8::16, 8::16]
    there = np.isin(mask[..., 0], [0, *(COLORS[number % 10] for number in sample["number"])])
    # A mask that was enlarged has edges of whole source pixels, and spikes thinner than one are not in it at all.
    near = np.ones((5, 5))
    edges = (cv2.dilate(mask[..., 0], near) != cv2.erode(mask[..., 0], near)) | (cv2.erode(drawn, near) != drawn)
    differs = (drawn != mask[..., 0]) & there
    assert not (differs & ~edges).any()
    assert differs.mean() < 0.03


def samples(batch: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: batch[name][i] for name in batch} for i in range(len(batch["image"]))]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [CenterCrop(50)],
        lambda: [RandomCrop(40), RandomHorizontalFlip(0.5)],
        lambda: [RandomCrop(110, padding=20), RandomVerticalFlip(0.5)],
        lambda: [Resize((144, 120)), RandomHorizontalFlip(0.5), RandomResizedCrop(64, scale=(0.1, 0.6))],
    ],
)
def test_polygons_are_what_is_left_of_their_pixels(make: Callable[[], list[Any]], store: Path) -> None:
    """Cropped, resized and flipped, they cover the pixels that a mask of the same objects has then; and what belongs to
    a box leaves with it."""
    left_out = 0
    for sample in samples(first_of(store, "image", *KINDS, transform=make(), seed=3)):
        check_polygons(sample, sample["mask"])
        boxes, points = sample["boxes"], sample["polygons"][:, :2]
        assert (boxes[:, 4] == sample["number"] % 10).all()
        assert len(sample["keypoints"]) == len(boxes)
        assert set(sample["polygons"][:, 2]) <= set(range(len(boxes)))
        assert (points >= 0).all()
        assert (points <= sample["mask"].shape[1::-1]).all()
        left_out += 3 - len(boxes)
    assert left_out or not isinstance(make()[0], CenterCrop)


def first_of(store: Path, *fields: str, **options: Any) -> dict[str, Any]:
    """A batch of all samples."""
    return next(iter(Reader(store).batches(COUNT, fields=[*fields], workers=0, **options)))


def test_keypoints_outside_are_gone_and_the_others_are_where_they_were_drawn(store: Path) -> None:
    """A fixed crop of 40 from (28, 28): its arithmetic."""
    reader, seen = Reader(store), 0
    batch = first_of(store, "image", "keypoints", "boxes", "number", transform=[CenterCrop(40)])
    for i, now in enumerate(batch["keypoints"]):
        was = reader[i]["keypoints"][batch["number"][i] % 10]
        x, y = was[..., 0] - 28, was[..., 1] - 28
        inside = (was[..., 2] > 0) & (x >= 0) & (y >= 0) & (x <= 40) & (y <= 40)
        expected = np.where(inside[..., None], np.stack([x, y, was[..., 2]], axis=-1), 0)
        assert_allclose(now, expected, atol=1e-4)
        seen += int(inside.sum())
    assert 3 < seen < 2 * 3 * COUNT - 3


@pytest.mark.parametrize("axis", [0, 1])
def test_flips_swap_left_and_right(axis: int, store: Path) -> None:
    """In a mirrored image the left eye is where the right one was, whichever way it was mirrored; turned by half, it is
    not mirrored."""
    both = [RandomHorizontalFlip(1.0), RandomVerticalFlip(1.0)]
    now, turned = (
        first_of(store, "image", "keypoints", transform=steps)["keypoints"] for steps in ([both[axis]], both)
    )
    for i in range(COUNT):
        was = Reader(store)[i]["keypoints"]
        there = was[..., 2:] > 0
        mirrored = was.copy()
        mirrored[..., axis] = SIDE - was[..., axis]
        assert_allclose(now[i], np.where(there, mirrored, 0)[:, ::-1], atol=1e-4)
        half = np.concatenate([SIDE - was[..., :2], was[..., 2:]], axis=2)
        assert_allclose(turned[i], np.where(there, half, 0), atol=1e-4)


def test_packing_moves_them_too(tmp_path: Path) -> None:
    """A crop and a resize while packing give what the same crop gives of pixels."""
    rawpack_packer.pack(Shapes(), tmp_path / "s", fields=KINDS, workers=0, crop=(40, 10, 40, 70), size=(120, 60))
    packed = [Reader(tmp_path / "s")[i] for i in range(COUNT)]
    assert sum(len(sample["boxes"]) for sample in packed) < 3 * COUNT
    for sample in packed:
        check_polygons(sample, sample["mask"])
        assert (sample["boxes"][:, 4] == sample["number"] % 10).all()
        assert len(sample["keypoints"]) == len(sample["boxes"])


def test_what_follows_can_be_read_without_the_boxes(store: Path) -> None:
    """The same rows as with them; image_size= moves them as well."""
    crop: dict[str, Any] = {"transform": [RandomCrop(30)], "seed": 1}
    alone, full = (first_of(store, "image", "number", *more, **crop)["number"] for more in ((), ("boxes",)))
    assert [one.tolist() for one in alone] == [one.tolist() for one in full]
    half = first_of(store, "image", "polygons", image_size=SIDE // 2)
    assert_allclose(half["polygons"][0], Reader(store)[0]["polygons"] * (0.5, 0.5, 1, 1), atol=1e-4)


def test_instance_masks_are_those_of_the_boxes(store: Path) -> None:
    """One for each box that is left, with the pixels of its object."""
    for ragged in ("list", "pad"):
        batch = first_of(store, *KINDS, "image", transform=[CenterCrop(60)], ragged=ragged)
        for i, made in enumerate(instance_masks(batch)):
            count = batch["boxes.length"][i] if ragged == "pad" else len(batch["boxes"][i])
            assert (made.shape, made.dtype) == ((count, 60, 60), np.uint8)
            for one, number in zip(made, batch["number"][i], strict=False):
                assert (one != (batch["mask"][i][..., 0] == COLORS[number % 10])).mean() < 0.03
                assert one.sum() > 3
    with pytest.raises(UsageError, match="x, y, box, part"):
        instance_masks(batch, polygons="boxes")


def test_what_cannot_move_is_refused(store: Path, tmp_path: Path) -> None:
    """Steps that refuse boxes refuse what follows them; a flip of keypoints whose sides nobody knows is refused."""
    with pytest.raises(UsageError, match="cannot change boxes"):
        Reader(store).batches(2, fields=["image", "polygons"], transform=[MixUp(field=None)])
    unknown = KINDS | {"keypoints": FieldKind("float32", (None, 2, 3), follows="keypoints")}
    rawpack_packer.pack(Shapes(), tmp_path / "s", fields=unknown, workers=0)
    batches = Reader(tmp_path / "s").batches(
        2, fields=["image", "keypoints"], transform=[RandomHorizontalFlip(1.0)], workers=0
    )
    with pytest.raises(UsageError, match=r"which of its 'keypoints' are left and right.*flip_idx"):
        next(iter(batches))


@pytest.mark.parametrize("name", ["number", "polygons", "keypoints"])
def test_values_that_do_not_fit_their_boxes_are_rejected(name: str, tmp_path: Path) -> None:
    """One too many, or a point of a box that is not there."""

    class Wrong(Shapes):
        def __getitem__(self, i: int) -> dict[str, Any]:
            sample = super().__getitem__(i)
            if i == 3:
                sample[name] = np.concatenate([sample[name], sample[name][-1:]])
                if name == "polygons":
                    sample[name][-1, 2] = 3
            return sample

    rawpack_packer.pack(Wrong(), tmp_path / "s", fields=KINDS, workers=0, max_rejects=1)
    reject = json.loads((tmp_path / "s/rejects.jsonl").read_text())
    assert reject["reason"] == "bad_field"
    assert ("box 3 of 3" if name == "polygons" else "4 values for 3 boxes") in reject["detail"]


def test_a_manifest_that_contradicts_itself_is_refused(store: Path) -> None:
    """What follows boxes has the shape for it, and boxes to follow; only numbers are arrays."""
    text, _ = unseal((store / "store.json").read_bytes(), "x")
    for name, change in (
        ("polygons", {"shape": [None, 5]}),
        ("polygons", {"follows": "nothing"}),
        ("keypoints", {"mirror": [0, 0]}),
        ("boxes", {"follows": "rows"}),
        ("image", {"array": True}),
    ):
        tree = json.loads(text)
        tree["fields"][name].update(change)
        with pytest.raises(DamagedStoreError):
            parse(seal(json.dumps(tree, indent=1).encode()), "x")


def test_a_polygon_around_or_outside_a_window() -> None:
    """One that is outside is nothing, one around it is all of it."""
    window = (16.0, 8.0, 48.0, 40.0)
    around = np.array([[0.0, 0], [64, 0], [64, 64], [0, 64]])
    assert sorted(map(tuple, clipped(around, window))) == [(16, 8), (16, 40), (48, 8), (48, 40)]
    assert not len(clipped(around + 100, window))


def test_a_box_of_which_next_to_nothing_is_left_goes() -> None:
    """A box that is thinner than a hundredth of a pixel after it was cut is left out; one that is wider stays."""
    boxes = np.array([[0, 0, 10.005, 10], [0, 0, 10.02, 10], [12, 0, 15, 5.005], [12, 0, 15, 5.02]])
    inside, kept = cut(boxes, (10, 5, 20, 20))
    assert kept.tolist() == [False, True, False, True]
    assert_allclose(inside[kept], [[10, 5, 10.02, 10], [12, 5, 15, 5.02]])
