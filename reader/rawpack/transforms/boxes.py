"""Boxes in a batch: moved like their image, cut to it, and left out if nothing of them is visible; and what follows
them: values of one box each, keypoints, and polygons, which leave with their box.

Boxes are not in slots, so the process that hands a batch over moves them. It draws again what a worker drew for their
image: random numbers are a pure function of seed, epoch and sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import DamagedStoreError, UsageError
from rawpack.store.stores import Stores
from rawpack.transforms.images import MASK, PIXELS, shapes_of, sides
from rawpack.transforms.plan import Transform, as_steps, concerns, spec_of
from rawpack.transforms.randomness import Random, Seeds, randoms_of
from rawpack.transforms.step import Array, BatchStep, Move, Spec, Step

BOXES = "boxes"
"""The field of the boxes that others follow."""
BOX, PART = 2, 3
"""The columns of polygons."""
Window = tuple[float, float, float, float]
"""Left, top, right and bottom of the visible part of an image."""
LEAST = 0.01
"""Pixels: a box that is narrower or lower than this after it was cut is left out."""
_Numbered = tuple[int, Step, Callable[[Spec], Spec], Spec, Spec]
"""A step: its number in the transform, the step itself, its `makes` or `makes_mask`, what it gets, what it makes."""


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


class BoxMover:
    """Moves the boxes of samples, and what follows them, as a transform moves their images. Any number of threads may
    use one."""

    def __init__(self, image: str, lines: Sequence[tuple[str, tuple[_Numbered, ...]]]) -> None:
        """image: the field that the boxes belong to. lines: the steps for each image or mask field, in the order in
        which workers draw for them; those of `image` last."""
        self._image, self._lines = image, lines

    def __call__(
        self,
        library: Stores,
        rows: NDArray[np.int64],
        values: Mapping[str, Sequence[Array]],
        seeds: Seeds,
        clips: NDArray[np.int64] | None = None,
    ) -> dict[str, list[Array]]:
        """The values of some samples, by field, in the pixels of a batch's images: new arrays of the same dtype, with
        fewer rows if boxes are left out. seeds: see `Seeds`. clips: if rows are the frames of clips, the numbers of
        the clips, whose frames all move alike."""
        samples = rows if clips is None else clips
        frames = len(rows) // max(1, len(samples))
        drawn: list[dict[int, Any]] = [{} for _ in samples]
        ways: list[tuple[Move, Window]] = []
        for name, steps in self._lines:
            of_image = name == self._image
            shapes = iter(shapes_of(library, name, rows))
            for random, known in zip(randoms_of(seeds, samples), drawn, strict=True):
                for shape in islice(shapes, frames):
                    way = _way(steps, random, known, shape)
                    if of_image:
                        ways.append(way)
        made: dict[str, list[Array]] = {name: [] for name in values}
        for name, given in values.items():
            field = library.fields[name]
            boxes = given if field.is_boxes else values.get(BOXES) or library.columns.ragged(BOXES, rows)
            for one, around, (move, window) in zip(given, boxes, ways, strict=True):
                corners, kept = cut(moved(around[:, :4].astype(np.float64), move), window)
                if field.is_boxes:
                    new = one[kept]
                    new[:, :4] = corners[kept]
                elif problem := misfit(one, field, len(around)):
                    raise DamagedStoreError(f"{name}: {problem}")
                else:
                    new = follow(name, one, field, kept, move, window)
                made[name].append(new)
        return made


def mover_for(
    transform: Transform | None, fields: Mapping[str, Field], chosen: Sequence[str], before: Sequence[Step] = ()
) -> BoxMover | None:
    """What moves the chosen boxes of a store, and what follows them; None if none were chosen. before: steps that come
    first.

    Raises UsageError if a step changes the size of images and does not say where their points go.
    """
    if not any(fields[name].moves for name in chosen):
        return None
    image = next(name for name, field in fields.items() if field.kind == "image")
    singles = [step for step in (*before, *as_steps(transform or [])) if not isinstance(step, BatchStep)]
    # The order of `Pipeline.fill`. If the batch does not have the image, boxes move as if it had.
    pixels = [name for name in (*chosen, image) if fields[name].kind in PIXELS]
    lines = []
    for name in pixels[: pixels.index(image) + 1]:
        steps, spec = list[_Numbered](), spec_of(fields[name])
        for number, step in enumerate(singles):
            if not concerns(step, name, fields[name]):
                continue
            mask = fields[name].kind == MASK
            made, fitted = step.makes_mask(spec) if mask else step.makes(spec), step.fitted(spec)
            if name == image and "HWC" in (spec.layout, made.layout) and type(step).move is Step.move:
                _check_still(step, spec, made)
            steps.append((number, fitted, fitted.makes_mask if mask else fitted.makes, spec, made))
            spec = made
        lines.append((name, tuple(steps)))
    return BoxMover(image, lines) if lines[-1][1] else None


def _check_still(step: Step, spec: Spec, made: Spec) -> None:
    if made.layout != "CHW" and made.shape[:2] != spec.shape[:2]:
        raise UsageError(
            f"{step!r} changes the size of images, {spec.shape} to {made.shape}, and does not say where their boxes "
            "go: write it as a Step with a method move(), or leave boxes out with fields="
        )


def _way(
    steps: Sequence[_Numbered], random: Random, known: dict[int, Any], shape: tuple[int, ...]
) -> tuple[Move, Window]:
    """Where all steps together move the points of an image of that shape, and what is then still visible of it.

    known: step number -> what was drawn; used and added to.
    """
    whole, window = Move(), (0.0, 0.0, float(shape[1]), float(shape[0]))
    for number, step, makes, spec, made in steps:
        height, width = sides(shape, spec.layout)
        if number not in known:
            known[number] = step.draw(random, height, width)
        exact = made if made.fixed else makes(replace(spec, shape=shape))
        after = tuple(n or 0 for n in exact.shape)
        if spec.layout == "HWC":
            move = step.move(known[number], height, width)
            if made.layout == "HWC" and (move != Move() or after != shape):
                whole = Move(
                    whole.scale_y * move.scale_y, whole.shift_y * move.scale_y + move.shift_y,
                    whole.scale_x * move.scale_x, whole.shift_x * move.scale_x + move.shift_x,
                )  # fmt: skip
                corners = moved(np.array([window]), move)
                ends = (0.0, 0.0, float(after[1]), float(after[0]))
                left, top, right, bottom = cut(corners, ends)[0][0].tolist()
                window = (left, top, right, bottom)
        shape = after
    return whole, window


# ---------------------------------------------------------------------------------------------- what follows boxes


def misfit(values: Array, field: Field, boxes: int) -> str:
    """Why values cannot follow this number of boxes; empty where they can."""
    if field.follows != "polygons":
        return "" if len(values) == boxes else f"{len(values)} values for {boxes} boxes"
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
