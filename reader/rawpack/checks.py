"""Values that users pass, checked: each comes back in one form, or is a UsageError with the name of its argument."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from rawpack.errors import UsageError

_MOST_S = 1 << 20
"""Twelve days. The system waits for messages for 24 days at most, and for locks not for ever either."""


def whole_number(name: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """`value` as an int within [low, high]. Raises UsageError with `name` for anything else."""
    limits = "" if low is None else f" >= {low}" if high is None else f" between {low} and {high}"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"{name}={value!r} must be a whole number{limits}") from None
    if (low is not None and number < low) or (high is not None and number > high):
        raise UsageError(f"{name}={number} must be a whole number{limits}")
    return number


def seconds(name: str, value: object) -> float:
    """`value` as a positive number of seconds, at most `_MOST_S`, as infinity too; UsageError where it is none."""
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) > 0:
        raise UsageError(f"{name}={value!r} must be more than 0 seconds")
    return min(float(value), float(_MOST_S))


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name}={value!r} must be True or False")
    return bool(value)


def one_of(name: str, value: object, *words: str | None) -> None:
    """Raise UsageError unless `value` is one of these."""
    if not (value is None or isinstance(value, str)) or value not in words:
        raise UsageError(f"{name}={value!r} must be one of {', '.join(map(repr, words))}")


def names(name: str, value: object) -> list[str]:
    """`value` as a list of names; UsageError where it is none."""
    if not isinstance(value, str) and isinstance(value, Iterable):
        found = list(value)
        if all(isinstance(one, str) for one in found):
            return found
    example = f", such as [{value!r}]" if isinstance(value, str) else ""
    raise UsageError(f"{name}={reprlib.repr(value)} must be a list of names{example}")


def size_of(value: object, name: str = "size") -> tuple[int, int]:
    """A side, or (height, width), as (height, width). Raises UsageError."""
    pair: Any = value if isinstance(value, tuple | list) else (value, value)
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in pair)
    if len(pair) != 2 or not whole or not all(0 < n <= 65535 for n in pair):
        several = ", Buckets(...) for several sizes, or a dict by field" if name == "image_size" else ""
        raise UsageError(f"{name}={value!r} must be a side in pixels, or (height, width), from 1 to 65,535{several}")
    return int(pair[0]), int(pair[1])
