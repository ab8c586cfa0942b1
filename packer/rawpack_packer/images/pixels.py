"""What is done to decoded pixels: turns them upright, blends alpha with white, converts CMYK, makes gray.

Large images are processed in bands of rows, so that intermediate values take only a few megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Scalar = TypeVar("Scalar", bound=np.generic)

_BAND_PIXELS = 1 << 18


def bands(height: int, width: int) -> Iterator[slice]:
    """Slices of rows that cover an image, each with about _BAND_PIXELS pixels."""
    rows = max(1, _BAND_PIXELS // max(1, width))
    return (slice(y, min(y + rows, height)) for y in range(0, height, rows))


def on_white(color: Pixels, alpha: Pixels, *, premultiplied: bool = False) -> Pixels:
    """A new array (H, W, C): color (H, W, C) with alpha (H, W), 255 for opaque, on white; rounded to nearest.

    premultiplied: color has already been multiplied by alpha.
    """
    result = np.empty(color.shape, np.uint8)
    for rows in bands(*alpha.shape):
        weight = alpha[rows].astype(np.uint16)
        white = 255 - weight if premultiplied else (255 - weight) * 255 + 128
        for channel in range(color.shape[2]):
            if premultiplied:
                result[rows, :, channel] = np.minimum(color[rows, :, channel] + white, 255)
            else:
                result[rows, :, channel] = _over_255(color[rows, :, channel] * weight + white)
    return result


def cmyk_to_rgb(inks: Pixels, *, inverted: bool) -> Pixels:
    """RGB (H, W, 3) of CMYK (H, W, 4) without a profile: (255 - ink) * (255 - black) / 255, rounded to nearest.

    inverted: 255 means no ink, as in JPEG files written by Adobe's programs.
    """
    height, width = inks.shape[:2]
    result = np.empty((height, width, 3), np.uint8)
    for rows in bands(height, width):
        paper = inks[rows] if inverted else 255 - inks[rows]
        black = paper[..., 3].astype(np.uint16)
        for channel in range(3):
            result[rows, :, channel] = _over_255(paper[..., channel] * black + 128)
    return result


def _over_255(product: NDArray[Any]) -> NDArray[Any]:
    """(product - 128) / 255, rounded to nearest: exact in 16 bits for a product of two bytes plus 128."""
    quotient: NDArray[Any] = (product + (product >> 8)) >> 8
    return quotient


def to_color(image: Pixels, color: str) -> Pixels:
    """An image (H, W, 1) or (H, W, 3) as "rgb" or "gray"."""
    channels = image.shape[2]
    if color == "gray" and channels == 3:
        return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY), np.uint8)[..., None]
    if color == "rgb" and channels == 1:
        return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_GRAY2RGB), np.uint8)
    return image


def apply_orientation(image: NDArray[Scalar], orientation: int) -> NDArray[Scalar]:
    """Stored pixels (H, W, C) turned upright, as a view; 5 to 8 swap height and width."""
    if orientation in (5, 6, 7, 8):
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return image
