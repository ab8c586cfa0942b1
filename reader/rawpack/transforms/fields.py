"""What packing and transforms ask of a field: whether it may be an image or a flow, the range of its values, and its
displacements in an image of another size."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, Range, can_displace
from rawpack.errors import DecodeError

Array = NDArray[Any]
FLOW, DISPARITY = "flow", "disparity"


def looks_like(field: Field, size: tuple[int, int]) -> bool:
    """Whether a field may be an image of this (height, width): two of its axes, one after the other, have that size,
    and nobody said what it is."""
    return is_unsaid(field) and any(field.shape[i : i + 2] == size for i in range(len(field.shape) - 1))


def is_unsaid(field: Field) -> bool:
    """Whether a field may be an image, or anything else, for all that was said of it."""
    return field.kind == "number" and len(field.shape) > 1 and not field.is_array


def range_of(values: Array) -> Range | None:
    """The least and the greatest finite value; None where there are none."""
    if values.size and not (np.isfinite(values.min()) and np.isfinite(values.max())):
        values = values[np.isfinite(values)]
    return (values.min().item(), values.max().item()) if values.size else None


def may_be_flow(field: Field) -> bool:
    """Whether a further image has the dtype and channels of a flow, and nobody said what it is."""
    undeclared = field.kind == "image" and field.displacement is msgspec.UNSET
    return undeclared and can_displace(FLOW, field.dtype, field.shape)


def displaced(values: Array, field: Field, scale_y: float, scale_x: float) -> Array:
    """Displacements (H, W, C) in an image that is `scale_y` times as high and `scale_x` times as wide: themselves where
    nothing changes, else a new array. Whole numbers are rounded.

    Raises DecodeError where whole numbers do not fit their dtype then.
    """
    scales = (scale_x, scale_y) if field.displacement == FLOW else (abs(scale_x),)
    if set(scales) == {1.0}:
        return values
    scaled: Array = values * np.array(scales)  # float64
    if values.dtype.kind == "f":
        return scaled.astype(values.dtype)
    scaled, limits = np.rint(scaled), np.iinfo(values.dtype)
    if scaled.size and not limits.min <= scaled.min() <= scaled.max() <= limits.max:
        raise DecodeError(
            "bad_field", f"enlarged {scale_x:g} times, a {field.displacement} does not fit {values.dtype}: pack floats"
        )
    return scaled.astype(values.dtype)
