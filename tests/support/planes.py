"""Planes of YCbCr 4:2:0 into RGB by the formula of `docs/format/README.md`, in float64: imports nothing of rawpack."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def bytes_of(height: int, width: int) -> int:
    """How many bytes an image has as planes."""
    return height * width + 2 * -(-height // 2) * -(-width // 2)


def spread(count: int) -> Floats:
    """(count, ceil(count / 2)): how much of each chroma value is in each pixel, where values stand in the middle of two
    pixels, pixels between two values are interpolated, and those at an end have its value."""
    half = -(-count // 2)
    matrix = np.zeros((count, half))
    for pixel in range(count):
        at = min(max((pixel - 0.5) / 2, 0), half - 1)
        low = int(at)
        matrix[pixel, low] = 1 - (at - low)
        if at > low:
            matrix[pixel, low + 1] = at - low
    return matrix


def rgb_of(stored: NDArray[np.uint8], height: int, width: int) -> Floats:
    """The RGB (height, width, 3) of a stored sample (n,), not rounded."""
    assert stored.shape == (bytes_of(height, width),)
    luma = stored[: height * width].reshape(height, width).astype(np.float64)
    chroma = stored[height * width :].reshape(2, -(-height // 2), -(-width // 2)).astype(np.float64) - 128
    blue, red = (spread(height) @ plane @ spread(width).T for plane in chroma)
    rgb: Floats = np.stack(
        [luma + 1.402 * red, luma - 0.344136 * blue - 0.714136 * red, luma + 1.772 * blue], axis=2
    ).clip(0, 255)
    return rgb
