"""Images of rectangles with everything that moves with them. Each is of one color on black, so that pixels say where
boxes, points and outlines must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rawpack import Reader
from rawpack_packer.sources.fields import FieldKind

KINDS: dict[str, Any] = {
    "boxes": "xyxy",
    "number": FieldKind("int64", (None,), follows="rows"),
    "polygons": FieldKind("float32", (None, 4), follows="polygons"),
    "keypoints": FieldKind("float32", (None, 2, 3), follows="keypoints", mirror=(1, 0)),
    "mask": "mask",
    "depth": "image",
    "caption": "text",
}


def rectangles(i: int) -> list[tuple[int, int, int, int]]:
    """Left, top, right and bottom of the objects of a sample: none in every fourth."""
    return [(2 + k, 3 + 9 * k, 12 + i + k, 9 + 9 * k) for k in range(i % 4)]


def objects(i: int, size: tuple[int, int] = (40, 48)) -> dict[str, Any]:
    """A sample with all of `KINDS`, an image and a label."""
    image, boxes = np.zeros((*size, 3), np.uint8), rectangles(i)
    for k, (left, top, right, bottom) in enumerate(boxes):
        image[top:bottom, left:right] = 80 + 60 * k
    outlines = [[(x, y, k, 0) for x, y in ((a, b), (c, b), (c, d), (a, d))] for k, (a, b, c, d) in enumerate(boxes)]
    ends = [((left, top, 2), (right, bottom, 1)) for left, top, right, bottom in boxes]
    return {
        "image": image,
        "mask": image[..., :1].copy(),
        "depth": image[..., :1] // 3,
        "label": i % 3,
        "caption": f"sample {i}",
        "boxes": np.array([[*box, k] for k, box in enumerate(boxes)], np.float32).reshape(-1, 5),
        "number": np.arange(len(boxes)) + 10 * i,
        "polygons": np.array(outlines, np.float32).reshape(-1, 4),
        "keypoints": np.array(ends, np.float32).reshape(-1, 2, 3),
    }


def frames(count: int, length: int) -> list[dict[str, Any]]:
    """Samples that are frames of videos of that length."""
    return [{**objects(i), "video": i // length, "frame": i % length, "pts_seconds": i / 25} for i in range(count)]


def read(reader: Reader, *steps: Any, **options: Any) -> list[dict[str, Any]]:
    """The samples of an epoch, one by one."""
    batches = list(reader.batches(transform=list(steps), **{"workers": 0, "batch_size": 4, **options}))
    return [{name: batch[name][i] for name in batch} for batch in batches for i in range(len(batch["index"]))]


def check_alike(samples: list[dict[str, Any]], others: list[dict[str, Any]], names: Sequence[str]) -> None:
    for one, other in zip(samples, others, strict=True):
        for name in names:
            if isinstance(one[name], str):
                assert one[name] == other[name]
            else:
                np.testing.assert_allclose(one[name], other[name], atol=1e-3, err_msg=name)
