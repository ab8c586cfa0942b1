"""Boxes of an image, and what follows them: values of one box each, keypoints, and polygons, which leave with their
box. They are moved like their image, cut to it, and left out if nothing of them is visible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.system.user import count
from rawpack.transforms.step import Array, Move

BOXES = "boxes"
"""The field of the boxes that others follow."""
BOX, PART = 2, 3
Window = tuple[float, float, float, float]
"""Left, top, right and bottom of the visible part of an image."""
LEAST = 0.01
"""Pixels: a box that is narrower or lower than this after it was cut is left out."""


def to(points: NDArray[np.float64], move: Move) -> NDArray[np.float64]:
    """Points (..., 2), x and y, where `move` takes them."""
    return points * (move.scale_x, move.scale_y) + (move.shift_x, move.shift_y)


def moved(corners: NDArray[np.float64], move: Move) -> NDArray[np.float64]:
    """Boxes (n, 4), left, top, right, bottom, where `move` takes them: in that order also after a flip."""
    return np.sort(to(corners.reshape(-1, 2, 2), move), axis=1).reshape(-1, 4)


def cut(corners: NDArray[np.float64], window: Window) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The part of each box (n, 4) that is in the window, and (n,) whether there is any."""
    left, top, right, bottom = window
    inside = np.clip(corners, (left, top, left, top), (right, bottom, right, bottom))
    width, height = inside[:, 2] - inside[:, 0], inside[:, 3] - inside[:, 1]
    return inside, (width >= LEAST) & (height >= LEAST)


def misfit(values: Array, field: Field, boxes: int) -> str:
    """Why values cannot follow this number of boxes; empty where they can."""
    if field.follows != "polygons":
        return "" if len(values) == boxes else f"{count(len(values), 'value')} for {count(boxes, 'box', 'boxes')}"
    rows = values[:, BOX]
    good = (rows >= 0) & (rows < boxes) & (rows == np.floor(rows))
    return "" if good.all() else f"a point belongs to box {rows[~good][0]:g} of {boxes}"


def follow(name: str, values: Array, field: Field, kept: NDArray[np.bool_], move: Move, window: Window) -> Array:
    """Values of one sample after its image was moved: a new array of the same dtype. kept: which boxes are left, of
    which `misfit` found none amiss. Raises UsageError where left and right of keypoints would have to be swapped, and
    nobody knows which."""
    if field.follows == "polygons":
        return _polygons(values, kept, move, window)
    return _keypoints(name, values[kept], field, move, window) if field.follows == "keypoints" else values[kept]


def leave(
    sample: Mapping[str, Array],
    fields: Mapping[str, Field],
    rows: Array,
    window: Window,
    points: Mapping[str, Array] = {},
    mirrored: bool = False,
) -> dict[str, Array]:
    """The boxes of a sample that another library left, cut to the window, and what follows them.

    rows: (m, 5), left, top, right, bottom, and the number of the box. points: by field, where the points of keypoints
    and polygons are, (n, 2). mirrored: whether left and right changed places.
    """
    rows = rows[np.argsort(rows[:, 4], kind="stable")]
    corners, visible = cut(rows[:, :4].astype(np.float64), window)
    numbers = rows[visible, 4].astype(np.int64)
    boxes = sample[BOXES][numbers]
    boxes[:, :4] = corners[visible]
    kept, made = np.isin(np.arange(len(sample[BOXES])), numbers), {BOXES: boxes}
    for name, field in fields.items():
        if field.moves and not field.is_boxes:
            values = sample[name]
            if name in points:
                values.reshape(-1, values.shape[-1])[:, :2] = points[name] * ((-1, 1) if mirrored else (1, 1))
            made[name] = follow(name, values, field, kept, Move(scale_x=-1.0 if mirrored else 1.0), window)
    return made


def outlines(polygons: Array) -> Iterator[tuple[int, int]]:
    """Where each outline of a sample begins and ends."""
    changes = np.flatnonzero((np.diff(polygons[:, BOX]) != 0) | (np.diff(polygons[:, PART]) != 0)) + 1
    return pairwise([0, *changes.tolist(), len(polygons)] if len(polygons) else [])


def _keypoints(name: str, points: Array, field: Field, move: Move, window: Window) -> Array:
    """Those that are not labeled (visibility 0) are 0, 0, 0, as in COCO, and so are those that are no longer visible in
    the image."""
    if move.scale_x * move.scale_y < 0:
        if field.mirror is msgspec.UNSET:
            raise UsageError(
                f"the image is flipped, and the store does not know which of its {name!r} are left and right: pack it "
                "with flip_idx in data.yaml, or leave the flip out, or the field with fields="
            )
        points = points[:, list(field.mirror)]
    left, top, right, bottom = window
    there = to(points[..., :2].astype(np.float64), move)
    seen = (points[..., 2] > 0) & ((there >= (left, top)) & (there <= (right, bottom))).all(axis=-1)
    made = np.zeros(points.shape, points.dtype)
    made[seen, :2], made[seen, 2] = there[seen], points[seen, 2]
    return made


def _polygons(rows: Array, kept: NDArray[np.bool_], move: Move, window: Window) -> Array:
    left, top, right, bottom = window
    number = np.cumsum(kept) - 1
    rows = rows[kept[rows[:, BOX].astype(np.int64)]]
    points = to(rows[:, :2].astype(np.float64), move)
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
