"""Boxes and masks of a batch in the forms that detectors train with. The batch may have arrays or tensors; results are
numpy's, which torch.from_numpy takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.pixels.geometry import fill_polygons
from rawpack.system.user import did_you_mean
from rawpack.transforms.followers import BOX, outlines

__all__ = ["BoxTarget", "instance_masks", "torchvision_targets", "yolo_targets"]

_CHANNELS = (1, 3, 4)


class BoxTarget(TypedDict):
    """The boxes of one image, as torchvision's detectors want them."""

    boxes: NDArray[np.float32]
    """(k, 4): left, top, right, bottom in pixels."""
    labels: NDArray[np.int64]
    """(k,): class numbers."""


def torchvision_targets(batch: Mapping[str, Any], field: str = "boxes", *, first_label: int = 0) -> list[BoxTarget]:
    """For each image of a batch {"boxes": float32 (k, 4), "labels": int64 (k,)}, new arrays.

    field: left, top, right, bottom, class, as a list of arrays or padded (`ragged=`). first_label: the label of class
    0; torchvision's own detectors reserve 0 for the background and need 1. Raises UsageError if the batch has no such
    field.
    """
    return [
        {
            "boxes": np.array(boxes[:, :4], np.float32, order="C"),
            "labels": np.rint(boxes[:, 4]).astype(np.int64) + first_label,
        }
        for boxes in _boxes_of(batch, field)
    ]


def yolo_targets(
    batch: Mapping[str, Any], field: str = "boxes", *, size: int | tuple[int, int] | None = None
) -> NDArray[np.float32]:
    """All boxes of a batch as one new array (N, 6): image, class, center x, center y, width, height.

    The first column is the number of the image in the batch, from 0; the last four are shares of the image, from 0 to
    1. field: left, top, right, bottom, class, as a list of arrays or padded (`ragged=`). size: a side or
    (height, width) of the images; None for that of `batch["image"]`. Raises UsageError if the batch has no such field,
    or if the size is not clear.
    """
    samples = _boxes_of(batch, field)
    height, width = _size_of(batch, size)
    rows = np.concatenate([np.empty((0, 5)), *(boxes[:, :5] for boxes in samples)])
    image = np.repeat(np.arange(len(samples)), [len(boxes) for boxes in samples])
    left, top, right, bottom, label = rows.T
    made = (image, label, (left + right) / 2 / width, (top + bottom) / 2 / height)
    return np.stack([*made, (right - left) / width, (bottom - top) / height], axis=1).astype(np.float32)


def instance_masks(
    batch: Mapping[str, Any],
    polygons: str = "polygons",
    boxes: str = "boxes",
    *,
    size: int | tuple[int, int] | None = None,
) -> list[NDArray[np.uint8]]:
    """For each image of a batch a mask for each of its boxes, uint8 (k, height, width): 1 in the pixels whose centers
    are in one of the polygons of that box, 0 elsewhere. A box without polygons has only 0.

    polygons: rows x, y, box, part. size: a side or (height, width) of the images; None for that of `batch["image"]`.
    Raises UsageError if the batch has no such field, or if the size is not clear.
    """
    counts = [len(one) for one in _boxes_of(batch, boxes)]
    height, width = _size_of(batch, size)
    masks = [np.zeros((count, height, width), np.uint8) for count in counts]
    for made, rows in zip(masks, _samples_of(batch, polygons), strict=True):
        if np.ndim(rows) != 2 or rows.shape[1] != 4:
            raise UsageError(f"{polygons!r} must be rows of x, y, box, part for each image, not {np.shape(rows)}")
        for start, end in outlines(rows):
            made[int(rows[start, BOX])] |= fill_polygons([rows[start:end, :2]], height, width)
    return masks


def _boxes_of(batch: Mapping[str, Any], field: str) -> Sequence[NDArray[Any]]:
    """The boxes of each image, (k, 5 or more), without padding."""
    samples = _samples_of(batch, field)
    for boxes in samples:
        if np.ndim(boxes) != 2 or boxes.shape[1] < 5:
            raise UsageError(
                f"{field!r} must be rows of left, top, right, bottom, class for each image, not "
                f"{np.shape(boxes) if isinstance(boxes, np.ndarray) else type(boxes).__name__}; of clips, pass one "
                "frame at a time"
            )
    return samples


def _samples_of(batch: Mapping[str, Any], field: str) -> list[NDArray[Any]]:
    """The rows of each image, without padding."""
    if field not in batch:
        hint = did_you_mean(field, batch)
        cure = hint or f': pass fields=["image", "{field}"]'
        raise UsageError(f"the batch has no field {field!r}, only {', '.join(batch)}{cure}")
    samples = batch[field]
    if f"{field}.length" in batch and np.ndim(samples) == 3:
        samples = [rows[:length] for rows, length in zip(samples, batch[f"{field}.length"], strict=True)]
    return [
        np.asarray(rows.cpu() if hasattr(rows, "cpu") else rows) if hasattr(rows, "shape") else rows for rows in samples
    ]


def _size_of(batch: Mapping[str, Any], size: int | tuple[int, int] | None) -> tuple[int, int]:
    """(height, width) as given, else of the images of a batch, whichever the order of their axes."""
    if size is not None:
        return (size, size) if isinstance(size, int) else size
    shape: tuple[int, ...] = batch["image"].shape if "image" in batch else ()
    if len(shape) == 4 and (shape[3] in _CHANNELS) != (shape[1] in _CHANNELS):
        return (shape[1], shape[2]) if shape[3] in _CHANNELS else (shape[2], shape[3])
    what = f"'image' {tuple(shape)} does not say" if shape else "the batch has no 'image' to say"
    raise UsageError(f"{what} how large the images are: pass size=, a side or (height, width)")
