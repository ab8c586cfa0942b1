"""Small fields of a sample as they are stored: values with the field's dtype and shape; boxes in pixels of the stored
image, cropped and resized with it; and what follows boxes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import DecodeError
from rawpack.pixels.geometry import covering
from rawpack.transforms.followers import LEAST, cut, follow, misfit, moved
from rawpack.transforms.step import Move
from rawpack_packer.recipe import Recipe
from rawpack_packer.sources.fields import SHARE_SLACK, Boxes, BoxForm, Fractions, are_texts

BAD_FIELD = "bad_field"


def as_stored(name: str, value: object, field: Field) -> str | NDArray[Any]:
    """`value` as a text, or as an array with the field's dtype and the shape of one sample.

    Integers may become floats, and floats shorter floats; otherwise neither kinds nor values of numbers change. Raises
    DecodeError for a value that does not fit.
    """
    if field.is_texts:
        return _texts(name, value)
    if field.kind == "text":
        return _text(name, value)
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise DecodeError(BAD_FIELD, f"{name} is not an array: {error}") from None
    dtype, shape = np.dtype(field.dtype), tuple(field.shape)
    if field.kind == "ragged" and not array.size and array.ndim <= len(shape):
        return np.zeros((0, *(n or 0 for n in shape[1:])), dtype)  # [] has neither a dtype nor a second axis
    if len(array.shape) != len(shape) or any(want not in (None, n) for want, n in zip(shape, array.shape, strict=True)):
        raise DecodeError(BAD_FIELD, f"{name} has shape {array.shape}; its field has {_shown(shape)}")
    if array.dtype == dtype:
        return np.array(array)
    if array.dtype.kind not in {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]:
        raise DecodeError(BAD_FIELD, f"{name} is {_named(array)}; its field is {dtype}")
    with np.errstate(all="ignore"):
        stored = array.astype(dtype)
    short = dtype.kind == "f" and array.dtype.kind == "f"
    same = (np.isfinite(stored) | ~np.isfinite(array)) if short else _equal(stored, array)
    if not np.all(same):
        raise DecodeError(BAD_FIELD, f"{name} has the value {array[~same].flat[0]}, which {dtype} cannot represent")
    return stored


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise DecodeError(BAD_FIELD, f"{name} is a {type(value).__name__}; its field is text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DecodeError(BAD_FIELD, f"{name} is not valid Unicode text") from None
    return str(value)


def _texts(name: str, value: object) -> str:
    """A list of texts as JSON."""
    if not are_texts(value):
        raise DecodeError(BAD_FIELD, f"{name} is a {type(value).__name__}; its field is lists of texts")
    return msgspec.json.encode([_text(name, text) for text in value]).decode()  # type: ignore[attr-defined]


def _equal(stored: NDArray[Any], original: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each number kept its value, compared exactly, as Python's numbers are."""
    pairs = zip(stored.reshape(-1).tolist(), original.reshape(-1).tolist(), strict=True)
    return np.array([a == b for a, b in pairs], np.bool_).reshape(original.shape)


def _named(array: NDArray[Any]) -> str:
    if array.dtype.kind in "US":
        return "text"
    return "None" if array.dtype == object and array.size == 1 else str(array.dtype)


def _shown(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("?" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"


def boxes_by_recipe(
    name: str, value: object, size: tuple[int, int], recipe: Recipe, field: Field, notes: list[str], times: int = 1
) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    """The boxes that are stored for a sample: (n, k), with the field's dtype; and which of the given ones they are.

    value: `Boxes`, or an array of rows left, top, right, bottom, ... size: (height, width) of the upright image before
    the recipe. times: see `recipe.fields.times_of`, of that image. notes: gets a "boxes_cut", "boxes_outside",
    "boxes_empty" or "boxes_cropped" for each such box. Raises DecodeError for an invalid row.
    """
    drawn = value if isinstance(value, Boxes) else Boxes(np.asarray(value), "xyxy")
    if drawn.size not in (None, size):
        raise DecodeError(
            BAD_FIELD,
            f"{name} were drawn in an image of {drawn.size} (height, width), but the image has {size}: was it turned "
            "or resized since?",
        )
    rows = np.asarray(drawn.rows)
    rows = rows[None] if rows.ndim == 1 and rows.size else rows
    whole = as_stored(name, rows, Field(kind="ragged", dtype="float64", shape=field.shape))
    boxes = _corners(name, np.asarray(whole), drawn.form, size)
    move, after = _move(recipe, size, times)
    corners = moved(boxes[:, :4], move)
    inside, kept = cut(corners, (0.0, 0.0, float(after[1]), float(after[0])))
    beyond = kept & (np.abs(inside - corners) > LEAST).any(axis=1)
    empty = (corners[:, 2:] - corners[:, :2] < LEAST).any(axis=1)
    notes += ["boxes_cut"] * int(beyond.sum()) + ["boxes_outside"] * int((~kept & ~empty).sum())
    notes += ["boxes_empty"] * int(empty.sum())
    if recipe.target is not None and recipe.fit == "cover" and recipe.crop is None:
        in_image, there = cut(boxes[:, :4], (0.0, 0.0, float(size[1]), float(size[0])))
        whole_boxes = moved(in_image, move)
        stored, left = cut(whole_boxes, (0.0, 0.0, float(after[1]), float(after[0])))
        notes += ["boxes_cropped"] * int((there & (~left | (np.abs(stored - whole_boxes) > LEAST).any(axis=1))).sum())
    boxes[:, :4] = inside
    return np.asarray(as_stored(name, boxes[kept], field)), kept


def follower_by_recipe(
    name: str,
    value: object,
    kept: NDArray[np.bool_],
    size: tuple[int, int],
    recipe: Recipe,
    field: Field,
    times: int = 1,
) -> NDArray[Any]:
    """What follows boxes, as it is stored for a sample. value: `Fractions`, or an array in pixels. kept: which boxes
    are stored. Raises DecodeError for what does not fit the boxes, or is not finite."""
    rows = value.rows if isinstance(value, Fractions) else value
    if field.follows == "rows":
        values = np.asarray(as_stored(name, rows, field))
    else:
        values = np.asarray(as_stored(name, rows, Field(kind="ragged", dtype="float64", shape=field.shape)))
        if not np.isfinite(values).all():
            raise DecodeError(BAD_FIELD, f"{name} has a number that is not finite")
    if problem := misfit(values, field, len(kept)):
        raise DecodeError(BAD_FIELD, f"{name}: {problem}")
    if isinstance(value, Fractions):
        values[..., :2] *= size[1], size[0]
    move, after = _move(recipe, size, times)
    moved = follow(name, values, field, kept, move, (0.0, 0.0, float(after[1]), float(after[0])))
    return np.asarray(as_stored(name, moved, field))


def _corners(name: str, rows: NDArray[np.float64], form: BoxForm, size: tuple[int, int]) -> NDArray[np.float64]:
    """Rows of a source as left, top, right, bottom in pixels, followed by their other values."""
    made = rows.copy()
    if form == "yolo":
        made = np.concatenate([rows[:, 1:5], rows[:, :1]], axis=1)
        shares = made[:, :4]
        if len(outside := shares[(shares > 1 + SHARE_SLACK) | (shares < -SHARE_SLACK)]):
            wrong = float(outside[0])
            raise DecodeError(
                BAD_FIELD, f"{name} has the value {wrong:g}; YOLO boxes are fractions of the image, from 0 to 1"
            )
        shares *= (size[1], size[0], size[1], size[0])
        made[:, :2] -= made[:, 2:4] / 2
    if form in ("xywh", "yolo"):
        _check(name, made, made[:, 2:4], "a width or height")
        made[:, 2:4] += made[:, :2]
    else:
        _check(name, made, made[:, 2:4] - made[:, :2], "right - left or bottom - top")
    return made


def _check(name: str, rows: NDArray[np.float64], sides: NDArray[np.float64], what: str) -> None:
    bad = ~np.isfinite(rows[:, :4]).all(axis=1) | (sides < 0).any(axis=1)
    if bad.any():
        shown = ", ".join(f"{n:g}" for n in rows[bad][0])
        raise DecodeError(BAD_FIELD, f"{name} has the box ({shown}): {what} is negative, or a number is not finite")


def _move(recipe: Recipe, size: tuple[int, int], times: int) -> tuple[Move, tuple[int, int]]:
    """How the recipe moves points of an image with this size, and the size of the result."""
    x = y = 0
    if recipe.crop is not None:
        x, y, width, height = recipe.crop
        size = height, width
    if recipe.target is None:
        return Move(1.0, -y, 1.0, -x), size
    target = scaled = recipe.shape_of(size)
    top = left = 0
    if recipe.fit == "cover":
        scaled, (top, left, _, _) = covering(size, target, times)
    scale_y, scale_x = scaled[0] / size[0], scaled[1] / size[1]
    return Move(scale_y, -y * scale_y - top, scale_x, -x * scale_x - left), target
