"""Converts RGB to planes of YCgCo 4:2:0, as `--color yuv420` stores them. `rawpack.pixels.yuv420` converts them back.

Chroma is not the average of four pixels, which the reader's triangle filter would blur again. It is a fit: the plane
from which that filter restores the pixels' chroma with the least squared error. An image from a 4:2:0 JPEG, whose
decoder used the same filter, thus nearly keeps the chroma of that JPEG.

Integer arithmetic makes the planes the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

VERSION = 2
"""Recorded in stores. To be increased when any byte of a result changes."""
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
_SPARE = 6
"""Fractional bits that chroma keeps until it is fitted."""
_FIT_BITS = 14
_FIT = (10934, -3641, 1214, -405, 135, -45)
"""The least-squares fit on one axis, in 16384ths: value k is the sum of _FIT[j] times pixels 2k - 2j and 2k + 1 + 2j.

The exact series is 2/3 (-1/3)^j, the inverse of the triangle filter's product with itself. The first value here is
adjusted so that the sum is one half and flat areas do not change.
"""
_TOGETHER = 1 << 16
"""Pixels that are converted at once: they and their results fit into a core's cache."""
_REACH = len(_FIT)
"""Pairs of pixels beyond each end that the fit uses: the image is mirrored there."""


def from_rgb(image: Bytes) -> Bytes:
    """The planes Y, Cg and Co of an image (H, W, 3) in one flat array, for `rawpack.pixels.yuv420.planes_of`.

    Needs 16 bytes per pixel of memory, no more than decoding does.
    """
    height, width, _ = image.shape
    luma = np.empty((height, width), np.uint8)
    greens, oranges = np.empty((2, height, width), np.int16)
    step = max(1, _TOGETHER // width)
    for start in range(0, height, step):
        rows = slice(start, start + step)
        red, green, blue = (channel.astype(np.int16) for channel in cv2.split(image[rows]))
        both = red + blue
        green *= 2
        luma[rows] = (both + green + 2) >> 2
        greens[rows] = (green - both) << _SPARE - 2
        oranges[rows] = (red - blue) << _SPARE - 1
    return np.concatenate([luma, _chroma(greens), _chroma(oranges)], axis=None)


def _chroma(values: NDArray[np.int16]) -> Bytes:
    """The plane (ceil(H / 2), ceil(W / 2)) from which the triangle filter restores this chroma best."""
    fitted = _transposed(_fitted(_transposed(_fitted(values))))
    fitted += (128 << _SPARE) + (1 << _SPARE - 1)
    fitted >>= _SPARE
    return fitted.clip(0, 255).astype(np.uint8)


def _fitted(values: Ints | NDArray[np.int16]) -> Ints:
    """The fit along the first axis: (n, m) to (ceil(n / 2), m)."""
    longer = values[_mirrored(len(values))].astype(np.int32, copy=False)
    first, second, count = longer[0::2], longer[1::2], -(-len(values) // 2)
    fitted = np.full((count, values.shape[1]), 1 << _FIT_BITS - 1, np.int32)
    for j, weight in enumerate(_FIT):
        pair = first[_REACH - j : _REACH - j + count] + second[_REACH + j : _REACH + j + count]
        pair *= weight
        fitted += pair
    fitted >>= _FIT_BITS
    return fitted


@lru_cache(maxsize=64)
def _mirrored(count: int) -> NDArray[np.int64]:
    """The row, of `count`, at each position from `_REACH` pairs before the first to as many after the last. If `count`
    is odd, the last row is repeated."""
    even = count + count % 2
    places = np.arange(-2 * _REACH, even + 2 * _REACH) % (2 * even)
    return np.minimum(np.minimum(places, 2 * even - 1 - places), count - 1)


def _transposed(values: Ints) -> Ints:
    return np.asarray(cv2.transpose(values), np.int32)
