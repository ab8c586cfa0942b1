"""Arguments that several steps share, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast, get_args

import numpy as np

from rawpack.errors import UsageError
from rawpack.system.user import did_you_mean

Interpolation = Literal["bilinear", "bicubic", "lanczos", "area", "nearest"]


def numbers_of(values: Any) -> list[float]:
    """Several numbers, or one, that a user gave; empty for anything else."""
    try:
        given = list(values) if isinstance(values, Iterable) else [values]
        return [] if any(isinstance(one, str) for one in given) else list(map(float, given))
    except (TypeError, ValueError):
        return []


def range_of(name: str, value: Sequence[float]) -> tuple[float, float]:
    pair = numbers_of(value)
    if len(pair) != 2 or not 0 < pair[0] <= pair[1]:
        raise UsageError(f"{name}={value!r} must be (least, greatest), both greater than 0")
    return pair[0], pair[1]


def interpolation_of(value: Any, known: Sequence[str] = get_args(Interpolation)) -> Interpolation:
    """The name of an interpolation; torchvision's `InterpolationMode` is accepted too."""
    name = getattr(value, "value", value)
    if name not in known:
        near = did_you_mean(str(name), known)
        raise UsageError(f"interpolation={value!r} must be one of {', '.join(map(repr, known))}{near}")
    return cast("Interpolation", name)


def check_values(
    step: object, name: str, values: float | Sequence[float], dtype: Any, channels: int | None = 1
) -> None:
    """Raise UsageError where images of `dtype` cannot hold all values of the argument `name`, or where these are
    neither one nor one for each of the channels."""
    dtype, count = np.dtype(dtype), np.size(values)
    if count not in (1, channels):
        raise UsageError(f"{step!r}: {name}= has {count} values for images of {channels} channels")
    if dtype.kind not in "bui":
        return
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not all(least <= value <= most and value % 1 == 0 for value in np.ravel(values).tolist()):
        raise UsageError(f"{step!r}: {name}={values!r} is not a value of {dtype}, the dtype of the images")


def probability(name: str, value: float) -> float:
    found = numbers_of(value)
    if len(found) != 1 or not 0 <= found[0] <= 1:
        raise UsageError(f"{name}={value!r} must be a probability from 0 to 1")
    return found[0]
