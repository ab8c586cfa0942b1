"""RGB into planes of YCbCr 4:2:0, as `--color yuv420` stores them; `rawpack.yuv420` is the way back.

JFIF's conversion, with libjpeg's constants. Chroma is not averaged over its four pixels but fitted: among all chroma
planes, the one from which the reader's triangle filter makes the pixels' chroma with the least squared error. Averages
would be blurred by that filter once more. So an image that comes from a JPEG of 4:2:0, whose decoder used the same
filter, nearly gets the JPEG's own planes back.

All arithmetic is of integers: the planes are the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

VERSION = 1
"""Another one where any byte comes out otherwise: stores record it."""
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
_BITS = 16
"""Of the conversion's constants behind the point."""
_LUMA = (19595, 38470, 7471)
_BLUE = (-11059, -21709, 32768)
_RED = (32768, -27439, -5329)
"""0.299, 0.587, 0.114 and their kin in 65536ths; luma's sum is one, those of chroma are zero."""
_SPARE = 6
"""Bits behind the point that chroma keeps until it is fitted."""
_FIT_BITS = 14
_FIT = (10934, -3641, 1214, -405, 135, -45)
"""The least-squares fit on one axis: value k is the sum of _FIT[j] times pixels 2k - 2j and 2k + 1 + 2j, in 16384ths.

Without an end it is 2/3 (-1/3)^j, the inverse of the triangle filter's product with itself; here the first makes the
sum one half, so that what is flat stays what it is.
"""
_TOGETHER = 1 << 16
"""Pixels that are mixed at once: as many as a core's cache holds with what is made of them."""
_REACH = len(_FIT)
"""Pairs of pixels beyond each end that the fit looks at: the image goes on there as in a mirror."""


def from_rgb(image: Bytes) -> Bytes:
    """The planes of an image (H, W, 3), flat: Y, Cb and Cr one after another, as `rawpack.pixels.yuv420.planes_of`
    finds them.

    A new array. Takes 16 bytes a pixel while it works, no more than decoding does.
    """
    height, width, _ = image.shape
    luma = np.empty((height, width), np.uint8)
    blue, red = np.empty((2, height, width), np.int16)
    step = max(1, _TOGETHER // width)
    for start in range(0, height, step):
        rows = slice(start, start + step)
        channels = [channel.astype(np.int32) for channel in cv2.split(image[rows])]
        luma[rows] = _mixed(channels, _LUMA, _BITS)
        blue[rows] = _mixed(channels, _BLUE, _BITS - _SPARE)
        red[rows] = _mixed(channels, _RED, _BITS - _SPARE)
    return np.concatenate([luma, _chroma(blue), _chroma(red)], axis=None)


def _mixed(channels: list[Ints], weights: tuple[int, int, int], bits: int) -> Ints:
    """The sum of weighted channels, without its last bits: rounded to the nearest."""
    mixed = channels[0] * weights[0]
    mixed += 1 << bits - 1
    for channel, weight in zip(channels[1:], weights[1:], strict=True):
        mixed += channel * weight
    mixed >>= bits
    return mixed


def _chroma(values: NDArray[np.int16]) -> Bytes:
    """(ceil(H / 2), ceil(W / 2)): the plane from which the triangle filter makes this chroma of the pixels best."""
    fitted = _transposed(_fitted(_transposed(_fitted(values))))
    fitted += (128 << _SPARE) + (1 << _SPARE - 1)
    fitted >>= _SPARE
    return fitted.clip(0, 255).astype(np.uint8)


def _fitted(values: Ints | NDArray[np.int16]) -> Ints:
    """(ceil(n / 2), m) of (n, m): the values from which the triangle filter makes these along the first axis best."""
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
    """Which of `count` rows stand where, from `_REACH` pairs before the first to as many after the last. Where their
    number is odd, the last stands twice."""
    even = count + count % 2
    places = np.arange(-2 * _REACH, even + 2 * _REACH) % (2 * even)
    return np.minimum(np.minimum(places, 2 * even - 1 - places), count - 1)


def _transposed(values: Ints) -> Ints:
    return np.asarray(cv2.transpose(values), np.int32)
