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
_REACH = len(_FIT)
"""Pairs of pixels beyond each end that the fit looks at: the image goes on there as in a mirror."""


def from_rgb(image: Bytes) -> Bytes:
    """The planes of an image (H, W, 3), flat: Y, Cb and Cr one after another, as `rawpack.yuv420.planes_of` finds them.

    A new array. Takes 16 bytes a pixel while it works, no more than decoding does.
    """
    channels = [np.asarray(channel, np.uint8) for channel in cv2.split(image)]
    luma = _mixed(channels, _LUMA, _BITS).astype(np.uint8)
    return np.concatenate([luma, *(_chroma(channels, weights) for weights in (_BLUE, _RED))], axis=None)


def _chroma(channels: list[Bytes], weights: tuple[int, int, int]) -> Bytes:
    """(ceil(H / 2), ceil(W / 2)): the plane from which the triangle filter makes this chroma of the pixels best."""
    fitted = _transposed(_fitted(_transposed(_fitted(_mixed(channels, weights, _BITS - _SPARE)))))
    fitted += (128 << _SPARE) + (1 << _SPARE - 1)
    fitted >>= _SPARE
    return fitted.clip(0, 255).astype(np.uint8)


def _mixed(channels: list[Bytes], weights: tuple[int, int, int], bits: int) -> Ints:
    """The sum of weighted channels, without its last bits: rounded to the nearest."""
    mixed = np.full(channels[0].shape, 1 << bits - 1, np.int32)
    for channel, weight in zip(channels, weights, strict=True):
        mixed += np.multiply(channel, weight, dtype=np.int32)
    mixed >>= bits
    return mixed


def _fitted(values: Ints) -> Ints:
    """(ceil(n / 2), m) of (n, m): the values from which the triangle filter makes these along the first axis best."""
    longer = values[_mirrored(len(values))]
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
