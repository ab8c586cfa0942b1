"""Boxes as detectors want them: against what was packed, computed box by box."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.targets import torchvision_targets, yolo_targets
from rawpack.transforms import RandomHorizontalFlip, ToCHW

HEIGHT, WIDTH, COUNT = 40, 80, 11


def boxes_of(i: int) -> list[tuple[int, int, int, int, int]]:
    """i % 4 boxes: left, top, right, bottom, class."""
    return [(3 + k, 4 + i, 20 + 7 * k, 25 + i, (i + k) % 5) for k in range(i % 4)]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Images with none, one or several boxes."""
    path, image = tmp_path_factory.mktemp("targets") / "store", np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    rows = [np.array([(*box, 0.5) for box in boxes_of(i)], np.float32).reshape(-1, 6) for i in range(COUNT)]
    samples = [{"image": image, "boxes": one, "plain": one[:, :4]} for one in rows]
    rawpack_packer.pack(samples, path, workers=0, fields={"boxes": "xyxy[6]", "plain": "xyxy[4]"})
    return Reader(path)


@pytest.mark.parametrize("ragged", ["list", "pad"])
@pytest.mark.parametrize("planes", [False, True])
def test_targets_are_what_was_packed(scenes: Reader, ragged: Any, planes: bool) -> None:
    """For each image of a batch, also those without a box, in the pixels of the batch; the first label may be another
    than 0."""
    steps = [RandomHorizontalFlip(1), *([ToCHW()] if planes else [])]
    for batch in scenes.batches(4, fields=["image", "boxes"], ragged=ragged, transform=steps, workers=0):
        expected = [
            [(WIDTH - right, top, WIDTH - left, bottom, label) for left, top, right, bottom, label in boxes_of(i)]
            for i in batch["index"].tolist()
        ]
        shifted = torchvision_targets(batch, first_label=1)
        for target, other, boxes in zip(torchvision_targets(batch), shifted, expected, strict=True):
            assert set(target) == {"boxes", "labels"}
            assert (target["boxes"].dtype, target["labels"].dtype) == (np.float32, np.int64)
            assert target["boxes"].shape == (len(boxes), 4)
            assert target["boxes"].tolist() == [list(map(float, box[:4])) for box in boxes]
            assert target["labels"].tolist() == [box[4] for box in boxes]
            assert other["labels"].tolist() == [box[4] + 1 for box in boxes]
            assert target["boxes"].flags.c_contiguous
            assert target["boxes"].flags.owndata
        rows = yolo_targets(batch)
        wanted = [
            (n, label, (x0 + x1) / 2 / WIDTH, (y0 + y1) / 2 / HEIGHT, (x1 - x0) / WIDTH, (y1 - y0) / HEIGHT)
            for n, boxes in enumerate(expected)
            for x0, y0, x1, y1, label in boxes
        ]
        assert (rows.dtype, rows.shape) == (np.float32, (len(wanted), 6))
        np.testing.assert_allclose(rows, np.array(wanted).reshape(-1, 6), atol=1e-6)
    empty = {"boxes": [np.empty((0, 5), np.float32)] * 2}
    assert yolo_targets(empty, size=9).shape == (0, 6)
    assert [target["boxes"].shape for target in torchvision_targets(empty)] == [(0, 4), (0, 4)]


def test_the_size_may_be_given() -> None:
    """Where the image's axes do not tell it, or there is none."""
    boxes = [np.array([[0, 0, 10, 20, 2]], np.float32)]
    assert yolo_targets({"boxes": boxes}, size=(40, 20)).tolist() == [[0, 2, 0.25, 0.25, 0.5, 0.5]]
    assert yolo_targets({"boxes": boxes}, size=40).tolist() == [[0, 2, 0.125, 0.25, 0.25, 0.5]]
    for batch in ({"boxes": boxes}, {"boxes": boxes, "image": np.zeros((1, 3, 20, 3))}):
        with pytest.raises(UsageError, match=r"pass size=, a side or \(height, width\)"):
            yolo_targets(batch)


@pytest.mark.parametrize("make", [torchvision_targets, yolo_targets])
def test_what_has_no_boxes_is_refused(scenes: Reader, make: Any) -> None:
    """Naming the field, what it holds, and the cure."""
    batch = next(iter(scenes.batches(4, fields=["image", "plain"], workers=0)))
    with pytest.raises(UsageError, match=r"no field 'boxes', only .*fields=\[\"image\", \"boxes\"\]"):
        make(batch)
    with pytest.raises(UsageError, match=r"'plain' must be rows of left, top, right, bottom, class .*\(0, 4\)"):
        make(batch, "plain")
    with pytest.raises(UsageError, match=r"list; of clips, pass one frame at a time"):
        make({"boxes": [[np.zeros((1, 5))]], "image": np.zeros((1, 9, 9, 3))})
