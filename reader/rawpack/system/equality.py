"""Equality of arguments, also where they are arrays or lists of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def same(one: Any, other: Any) -> bool:
    """Whether two arguments are equal; of arrays, shape, dtype and all values."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one is other or bool(one == other))
