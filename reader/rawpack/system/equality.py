"""Equality of arguments, also where they are arrays or lists of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def same(first: Any, second: Any) -> bool:
    """Whether two arguments are equal; of arrays, shape, dtype and all values."""
    if isinstance(first, np.ndarray):
        return isinstance(second, np.ndarray) and first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(same(value, second[name]) for name, value in first.items())
    if isinstance(first, list | tuple) and type(first) is type(second):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and (first is second or bool(first == second))
