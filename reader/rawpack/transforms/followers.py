"""What follows boxes: values of one box each, keypoints, and polygons. They move like their image, and what belongs to
a box that is left out is left out with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.transforms.step import Array, Move

BOXES = "boxes"
"""The field of the boxes that others follow."""
X, Y, BOX, PART = range(4)
"""The columns of polygons."""
Window = tuple[float, float, float, float]
"""Left, top, right and bottom of the visible part of an image."""


def misfit(values: Array, how: object, boxes: int) -> str:
    """Why values cannot follow this number of boxes; empty where they can."""
    if how != "polygons":
        return "" if len(values) == boxes else f"{len(values)} values for {boxes} boxes"
    rows = values[:, BOX]
    good = (rows >= 0) & (rows < boxes) & (rows == np.floor(rows))
    return "" if good.all() else f"a point belongs to box {rows[~good][0]:g} of {boxes}"


def follow(
    values: Array,
    how: object,
    kept: NDArray[np.bool_],
    move: Move,
    window: Window,
    mirror: Sequence[int] | None = None,
    name: str = "",
) -> Array:
    """Values of one sample after its image was moved: a new array of the same dtype. kept: which boxes are left, of
    which `misfit` found none amiss. mirror, name: of the field. Raises UsageError where left and right of keypoints
    would have to be swapped, and nobody knows which."""
    if how == "keypoints":
        return _keypoints(values[kept], move, window, mirror, name)
    return _polygons(values, kept, move, window) if how == "polygons" else np.array(values[kept])


def outlines(polygons: Array) -> Iterator[tuple[int, int]]:
    """Where each outline of a sample begins and ends."""
    changes = np.flatnonzero((np.diff(polygons[:, BOX]) != 0) | (np.diff(polygons[:, PART]) != 0)) + 1
    return pairwise([0, *changes.tolist(), len(polygons)] if len(polygons) else [])


def _keypoints(points: Array, move: Move, window: Window, mirror: Sequence[int] | None, name: str) -> Array:
    """Those that are not labeled (visibility 0) are 0, 0, 0, as in COCO, and so are those that are no longer visible in
    the image."""
    if move.scale_x * move.scale_y < 0:
        if mirror is None:
            raise UsageError(
                f"the image is flipped, and the store does not know which of its {name!r} are left and right: pack it "
                "with flip_idx in data.yaml, or leave the flip out, or the field with fields="
            )
        points = points[:, list(mirror)]
    left, top, right, bottom = window
    x = points[..., 0].astype(np.float64) * move.scale_x + move.shift_x
    y = points[..., 1].astype(np.float64) * move.scale_y + move.shift_y
    seen = (points[..., 2] > 0) & (x >= left) & (x <= right) & (y >= top) & (y <= bottom)
    made = np.zeros(points.shape, points.dtype)
    made[..., 0], made[..., 1], made[..., 2] = (
        np.where(seen, x, 0),
        np.where(seen, y, 0),
        np.where(seen, points[..., 2], 0),
    )
    return made


def _polygons(rows: Array, kept: NDArray[np.bool_], move: Move, window: Window) -> Array:
    left, top, right, bottom = window
    number = np.cumsum(kept) - 1
    rows = rows[kept[rows[:, BOX].astype(np.int64)]]
    points = rows[:, :2].astype(np.float64) * (move.scale_x, move.scale_y) + (move.shift_x, move.shift_y)
    beyond: NDArray[np.bool_] = (points < (left, top)) | (points > (right, bottom))
    outside = beyond[:, 0] | beyond[:, 1]
    made, parts = np.array(rows), list[Array]()
    made[:, :2] = points
    made[:, BOX] = number[rows[:, BOX].astype(np.int64)]
    if not outside.any():
        return made
    for start, end in outlines(rows):
        part = made[start:end]
        if outside[start:end].any():
            shape = clipped(points[start:end], window)
            part = np.repeat(part[:1], len(shape), axis=0)
            part[:, :2] = shape
        parts.append(part)
    return np.concatenate(parts)


def clipped(points: NDArray[np.float64], window: Window) -> NDArray[np.float64]:
    """The part of a polygon (n, 2) that is in a window, by Sutherland and Hodgman: (m, 2), empty where there is none.

    What a window cuts in two stays one outline, whose parts are joined along the window's edge.
    """
    for axis, limit, sign in ((0, window[0], 1), (1, window[1], 1), (0, window[2], -1), (1, window[3], -1)):
        if not len(points):
            break
        ahead = sign * (points[:, axis] - limit)
        inside = ahead >= 0
        before, was = np.roll(points, 1, axis=0), np.roll(ahead, 1)
        crossing = inside != (was >= 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            cuts = before + (was / (was - ahead))[:, None] * (points - before)
        cuts[:, axis] = limit
        both = np.stack([cuts, points], axis=1).reshape(-1, 2)
        points = both[np.stack([crossing, inside], axis=1).reshape(-1)]
    return points if len(points) > 2 else points[:0]
