"""Planes of YCgCo 4:2:0 into RGB by the formula of `docs/format/README.md`: imports nothing of rawpack."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats, Ints = NDArray[np.float64], NDArray[np.int64]


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


def enlarged(plane: NDArray[np.integer[Any]]) -> Ints:
    """A plane (r, m) with twice the columns, as the formula has it."""
    columns = plane.shape[1]
    pixels = np.arange(2 * columns)
    nearer = pixels // 2
    farther = (nearer + np.where(pixels % 2, 1, -1)).clip(0, columns - 1)
    wide: Ints = plane[:, nearer] - plane[:, nearer] // 4 + plane[:, farther] // 4
    return wide


def rgb_of(stored: NDArray[np.uint8], height: int, width: int) -> Ints:
    """The RGB (height, width, 3) of a stored sample (n,)."""
    assert stored.shape == (bytes_of(height, width),)
    luma = stored[: height * width].reshape(height, width).astype(np.int64)
    chroma = stored[height * width :].reshape(2, -(-height // 2), -(-width // 2)).astype(np.int64)
    green, orange = (enlarged(enlarged(plane).T).T[:height, :width] - 128 for plane in chroma)
    mean = (luma - green).clip(0, 255)
    return np.stack([mean + orange, luma + green, mean - orange], axis=2).clip(0, 255)
