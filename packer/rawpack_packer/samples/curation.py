"""Measures of an image for `--curate`: small whole numbers by which near duplicates, blurred, dark and blank images are
found later, without reading an image again.

All arithmetic is on whole numbers, so that every machine gets the same ones.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import CURATED

_SIDE, _KEPT = 32, 8
"""A perceptual hash is made of the 8 x 8 lowest frequencies of 32 x 32 means."""
_MEDIAN = (_KEPT * _KEPT - 1) // 2
_INT32, _FLOAT32 = (1 << 31) // 255, 1 << 24
"""Fewer pixels have sums that int32 holds, and counts that float32 holds exactly."""
_FEW = 1 << 14
_LOG_BITS = 12
"""Fractional bits of logarithms."""


def measures_of(image: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The fields of an image (H, W, C) or (H, W) as it is stored, all scalars:

    phash, uint64: 64 bits, of which similar images have nearly all in common: the signs, against their median, of the
        lowest frequencies of the discrete cosine transform (Zauner, Implementation and Benchmarking of Perceptual Image
        Hash Functions, 2010).
    sharpness, int32: the variance of the Laplacian of gray (Pech-Pacheco et al., Diatom autofocusing in brightfield
        microscopy, ICPR 2000), rounded down.
    brightness, uint8: the mean of gray.
    entropy, int32: of the histogram of gray, in thousandths of a bit per pixel: 0 to 8000.
    one_color, int32: the longest run of pixels of one gray value, row after row, in thousandths of the image; 0 below
        10, and large for blank images and wide margins.
    """
    gray = _gray(image)
    counts = _histogram(gray)
    values = {
        "phash": _hash(gray),
        "sharpness": _sharpness(gray),
        "brightness": int(counts @ np.arange(256)) // gray.size,
        "entropy": _entropy(counts, gray.size),
        "one_color": _longest_run(gray.ravel()) * 1000 // gray.size,
    }
    return {name: np.array(value, CURATED[name].dtype) for name, value in values.items()}


def _gray(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Gray as OpenCV makes it of RGB, by whole numbers: uint8 (H, W)."""
    if image.ndim == 3 and image.shape[2] == 3:
        return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY))
    return np.ascontiguousarray(image[..., 0] if image.ndim == 3 else image)


def _histogram(gray: NDArray[np.uint8]) -> NDArray[np.int64]:
    if gray.size < _FLOAT32:
        # Of float32, which holds these counts exactly, in a fifth of the time.
        return cv2.calcHist([gray], [0], None, [256], [0, 256]).ravel().astype(np.int64)
    return np.bincount(gray.ravel(), minlength=256)


def _hash(gray: NDArray[np.uint8]) -> int:
    height, width = gray.shape
    rows, columns = (np.arange(_SIDE + 1) * n // _SIDE for n in (height, width))
    # Of an image of fewer than 32 pixels, blocks have at least one.
    tops, lefts = rows[:-1], columns[:-1]
    bottoms, rights = np.maximum(rows[1:], tops + 1), np.maximum(columns[1:], lefts + 1)
    # Sums of up to 2 ** 53, which float64 holds exactly.
    upto = cv2.integral(gray, sdepth=cv2.CV_32S if gray.size < _INT32 else cv2.CV_64F)
    ends, starts = upto[bottoms], upto[tops]
    sums = ends[:, rights] - ends[:, lefts] - starts[:, rights] + starts[:, lefts]
    sizes = np.outer(bottoms - tops, rights - lefts)
    means = sums.astype(np.int64) * 16 // sizes  # with four fractional bits
    cosines = _cosines()
    low = (cosines @ means @ cosines.T).ravel()
    # The first is the mean of the image, which says nothing of what it shows: its bit is 0.
    low[0] = np.iinfo(np.int64).min
    bits = low > np.partition(low[1:], _MEDIAN)[_MEDIAN]
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


@cache
def _cosines() -> NDArray[np.int64]:
    """The lowest frequencies of the discrete cosine transform, in 4096ths."""
    table = [
        [round(4096 * math.cos(math.pi * k * (2 * i + 1) / (2 * _SIDE))) for i in range(_SIDE)] for k in range(_KEPT)
    ]
    return np.array(table, np.int64)


def _sharpness(gray: NDArray[np.uint8]) -> int:
    edges = cv2.Laplacian(gray, cv2.CV_16S)
    # Sums of whole numbers far below 2 ** 53, which float64 holds; OpenCV 5 squares the root of the second one again.
    total, squares, n = int(cv2.sumElems(edges)[0]), round(cv2.norm(edges, cv2.NORM_L2SQR)), gray.size
    return (n * squares - total * total) // (n * n)


def _entropy(counts: NDArray[np.int64], size: int) -> int:
    present = counts[counts > 0]
    logs = _logs_of_few()[present] if present.max() < _FEW else _log2(present)
    # log2(n) - sum of c log2(c) / n
    return max(0, (_log_of(size) * size - int(present @ logs)) * 1000 // (size << _LOG_BITS))


@cache
def _logs_of_few() -> NDArray[np.int64]:
    """log2 of counts, by which an image's entropy is computed four times as fast."""
    return np.append(0, _log2(np.arange(1, _FEW)))


@cache
def _log_of(size: int) -> int:
    return int(_log2(np.array([size]))[0])


def _log2(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """log2 of whole numbers from 1 on, in 4096ths, rounded down: by squaring the mantissa, a bit at a time."""
    exponents = np.frexp(numbers)[1].astype(np.int64) - 1
    mantissas = (numbers.astype(np.int64) << 30) >> exponents
    logs = exponents << _LOG_BITS
    for bit in range(_LOG_BITS - 1, -1, -1):
        mantissas = (mantissas * mantissas) >> 30
        carried = mantissas >> 31
        mantissas >>= carried
        logs += carried << bit
    return logs


def _longest_run(pixels: NDArray[np.uint8]) -> int:
    """The length of the longest run of equal pixels; 0 where it is less than a hundredth of them."""
    # A run of a hundredth has four or more of every 400th: most photographs have no such run, and end here.
    stride = max(1, len(pixels) // 400)
    few = pixels[::stride]
    same = few[1:] == few[:-1]
    if stride > 1 and not (same[2:] & same[1:-1] & same[:-2]).any():
        return 0
    changes = np.flatnonzero(pixels[1:] != pixels[:-1])
    return int(np.diff(changes, prepend=-1, append=len(pixels) - 1).max())
