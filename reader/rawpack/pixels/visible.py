"""Values that are no picture, such as depths, made visible as gray."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def visible(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Values of any dtype and shape as bytes: uint8 as they are, others from their least to their greatest finite one.

    Infinity is as bright as the greatest; what is no number is as dark as the least.
    """
    if values.dtype == np.uint8:
        return values
    values = np.abs(values) if values.dtype.kind == "c" else values.astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    values = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    return ((values - low) * (255 / ((high - low) or 1))).astype(np.uint8)
