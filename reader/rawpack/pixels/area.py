"""Shrinking by averaging, like OpenCV's INTER_AREA in half the time, by products with banded matrices.

OpenCV adds up weighted pixels one after another. Here, a few rows of the result at a time are one small matrix product
over the source rows that they cover, for which BLAS uses SIMD. The other axis works the same way after a transpose.

Weights are multiples of 2**-14, so that every product and sum is exact in float32: the result depends neither on the
order of additions nor on the machine. It is within one level of the exact average.

Imported only where images are resized, because it loads OpenCV.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

VERSION = 1
"""Changes with the value of any pixel. Stores record it."""
Bytes = NDArray[np.uint8]
_ONE = 1 << 14
"""The sum of a pixel's weights: 255 times this has 22 bits, and float32 holds 24."""
_BAND = 8
"""Rows of the result in one product. More rows have more weights that are 0; fewer need more calls."""
MOST_CHANNELS = 128
"""OpenCV's CV_CN_MAX: an array with more channels is not an image to it."""
_MOST_TURNED = 4
"""The most channels with which OpenCV always transposes."""
_MOST_KEPT_BYTES = 32 << 20
_local = threading.local()


class Band(NamedTuple):
    """A few rows of the result, and the source rows that they average."""

    start: int
    stop: int
    first: int
    last: int
    weights: NDArray[np.float32]
    """(stop - start, last - first)."""


def shrink(image: Bytes, size: tuple[int, int], box: tuple[int, int, int, int] | None = None) -> Bytes:
    """The image (H, W, C) averaged to size (height, width), each at most the image's. A new array, unless equal.

    box: the only part (top, left, height, width) of the result to compute.
    """
    height, width, channels = image.shape
    top, left, rows, columns = box or (0, 0, *size)
    if size == (height, width):
        return image if box is None else image[top : top + rows, left : left + columns]
    if height % size[0] == 0 and width % size[1] == 0 and channels <= MOST_CHANNELS:
        # OpenCV has a special case for whole blocks, which is faster and just as exact.
        y, x = height // size[0], width // size[1]
        blocks = image[top * y : (top + rows) * y, left * x : (left + columns) * x]
        made: Any = cv2.resize(blocks, (columns, rows), interpolation=cv2.INTER_AREA)
        return made.reshape(rows, columns, channels)  # type: ignore[no-any-return]
    across = _bands(width, size[1], left, left + columns) if size[1] != width else ()
    down = _bands(height, size[0], top, top + rows) if size[0] != height else ()
    image = image[:, across[0].first : across[-1].last] if across else image[:, left : left + columns]
    image = _down(image, down, 0) if down else image[top : top + rows]
    return _transposed(_down(_transposed(image), across, across[0].first)) if across else image


def _down(image: Bytes, bands: tuple[Band, ...], first: int) -> Bytes:
    """The rows of these bands. `image` starts at row `first` of the source."""
    _, width, channels = image.shape
    image = image[bands[0].first - first : bands[-1].last - first]
    first, start, old, height = bands[0].first, bands[0].start, len(image), bands[-1].stop - bands[0].start
    scratch = _scratch((old + height) * width * channels)
    source = scratch[: old * width * channels].reshape(old, width * channels)
    made = scratch[old * width * channels :][: height * width * channels].reshape(height, width * channels)
    np.copyto(source.reshape(image.shape), image)
    for band in bands:
        rows = source[band.first - first : band.last - first]
        np.matmul(band.weights, rows, out=made[band.start - start : band.stop - start])
    rounded: Any = cv2.convertScaleAbs(made)
    return rounded.reshape(height, width, channels)  # type: ignore[no-any-return]


def _scratch(count: int) -> NDArray[np.float32]:
    """This thread's own memory for floats: allocating it each time would take as long as the work."""
    kept: NDArray[np.float32] | None = getattr(_local, "floats", None)
    if kept is not None and len(kept) >= count:
        return kept
    floats = np.empty(count, np.float32)
    if floats.nbytes <= _MOST_KEPT_BYTES:
        _local.floats = floats
    return floats


def _transposed(image: Bytes) -> Bytes:
    if image.shape[2] > _MOST_TURNED:
        return np.ascontiguousarray(image.transpose(1, 0, 2))
    turned: Any = cv2.transpose(image)
    return turned.reshape(image.shape[1], image.shape[0], image.shape[2])  # type: ignore[no-any-return]


@lru_cache(maxsize=512)
def _bands(old: int, new: int, begin: int, end: int) -> tuple[Band, ...]:
    """How to average `old` rows to rows begin..end-1 of `new` rows."""
    edges = np.arange(new + 1) * (old / new)
    bands = []
    for start in range(begin, end, _BAND):
        stop = min(start + _BAND, end)
        first, last = int(edges[start]), min(old, int(np.ceil(edges[stop])))
        pixel = np.arange(first, last)
        covered = np.minimum(edges[start + 1 : stop + 1, None], pixel + 1) - np.maximum(edges[start:stop, None], pixel)
        weights = np.rint(covered.clip(0) * (new / old * _ONE))
        # The rounding error goes to the largest weight, so that gray stays gray.
        weights[np.arange(stop - start), weights.argmax(axis=1)] += _ONE - weights.sum(axis=1)
        bands.append(Band(start, stop, first, last, (weights / _ONE).astype(np.float32)))
    return tuple(bands)
