"""Resizing images: scaled to cover a size and cropped, or stretched to it.

Where both axes shrink, pixels are averaged: like OpenCV's INTER_AREA, in half the time, by products of banded matrices.
OpenCV adds up weighted pixels one after another. Here, a few rows of the result at a time are one small matrix product
over the source rows that they cover, for which BLAS uses SIMD. The other axis works the same way after a transpose.

Weights are multiples of 2**-14, so that every product and sum is exact in float32: the result depends neither on the
order of additions nor on the machine. It is within one level of the exact average.

Imported only where images are resized, because it loads OpenCV.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.pixels.geometry import cover_size, covering, crop_box

Fit = Literal["cover", "stretch"]
Interpolation = Literal["area", "linear", "bilinear", "cubic", "bicubic", "lanczos", "nearest"]

Pixels = NDArray[Any]
"""uint8, uint16 or float32."""
_CODES = {
    "area": cv2.INTER_AREA,
    "linear": cv2.INTER_LINEAR,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "cubic": cv2.INTER_CUBIC,
    "lanczos": cv2.INTER_LANCZOS4,
    "nearest": cv2.INTER_NEAREST_EXACT,
}

MAX_COVER_PIXELS = 1 << 24
"""An enlarged image of more pixels, most of which would be cropped, is never created."""
_MOST_CHANNELS = 4
"""The most channels for which OpenCV has all dtypes and interpolations, and always transposes."""
_MARGIN = 8
"""Source pixels around a part that an interpolation may read."""
AREA_VERSION = 1
"""Changes with the value of any averaged pixel. Stores record it."""
Bytes = NDArray[np.uint8]
_ONE = 1 << 14
"""The sum of a pixel's weights: 255 times this has 22 bits, and float32 holds 24."""
_BAND = 8
"""Rows of the result in one product. More rows have more weights that are 0; fewer need more calls."""
_SHORT = 4096
"""Pixels. The bands of 512 axes that are no longer are kept, and of 64 longer ones. They take 36 bytes a pixel."""
_CV_CHANNELS = 128
"""OpenCV's CV_CN_MAX: an array with more channels is not an image to it."""
_MOST_KEPT_BYTES = 32 << 20
_local = threading.local()


def fit(
    image: Pixels,
    size: tuple[int, int],
    *,
    fit: Fit = "cover",
    interpolation: Interpolation = "area",
    full: tuple[int, int] | None = None,
    times: int = 1,
) -> tuple[Pixels, bool]:
    """Resize (H, W, C) to size (height, width). Returns the image and whether it was enlarged on either axis.

    "cover" scales the image to cover the size and crops the center, rounding like torchvision's Resize and CenterCrop;
    "stretch" scales each axis separately. "area" averages where it shrinks, which avoids aliasing, and is bilinear
    where it enlarges. "linear", "cubic" and "lanczos" read only a few source pixels, whatever the scale.

    An image that already has the size is returned itself, any other as a new contiguous array. The pixels do not depend
    on the number of OpenCV's threads. Memory is a small multiple of source and result at most: for an extreme shape
    (1 x 10,000 to 256 x 256), only the part that is kept is enlarged.

    full: the full (height, width), where `image` was decoded at reduced size. Its proportions are the exact ones.
    times: see `covering`.
    """
    stored = image.shape[0], image.shape[1]
    if stored == size:
        return image, False
    scaled = cover_size(full or stored, size) if fit == "cover" else size
    box = crop_box(scaled, size)
    if times > 1:
        scaled, box = covering(full or stored, size, times)
    enlarged = scaled[0] > stored[0] or scaled[1] > stored[1]
    if enlarged and scaled[0] * scaled[1] > max(MAX_COVER_PIXELS, 2 * size[0] * size[1]):
        return enlarge_part(image, scaled, box, interpolation), True
    if interpolation == "area" and image.dtype == np.uint8 and not enlarged:
        return np.ascontiguousarray(shrink(image, scaled, box)), False
    top, left, height, width = box
    average = interpolation == "area"
    resized = to_size(image, scaled, "linear" if average else interpolation, antialias=average)
    return np.ascontiguousarray(resized[top : top + height, left : left + width]), enlarged


def to_size(
    image: Pixels,
    size: tuple[int, int],
    interpolation: Interpolation = "linear",
    antialias: bool = True,
    out: Pixels | None = None,
) -> Pixels:
    """Resize (H, W, C) to exactly size (height, width), each axis separately; into `out`, (*size, C), if given.

    antialias: average along the axes that shrink, and interpolate along those that grow; False interpolates along both.
    Ignored for "nearest". "area" is OpenCV's INTER_AREA: it averages only where both axes shrink.
    An image that already has the size is returned itself, even if it is a view with gaps between its rows.
    """
    code, stored = _CODES[interpolation], image.shape[:2]
    smaller = min(size[0], stored[0]), min(size[1], stored[1])
    if interpolation == "area":
        return shrink(image, size) if image.dtype == np.uint8 and smaller == size else _resize(image, size, code, out)
    if antialias and interpolation != "nearest" and smaller != stored:
        image = shrink(image, smaller) if image.dtype == np.uint8 else _resize(image, smaller, cv2.INTER_AREA)
    return _resize(image, size, code, out)


def fit_nearest(image: NDArray[Any], size: tuple[int, int], *, fit: Fit = "cover", times: int = 1) -> NDArray[Any]:
    """As `fit`, for a mask (H, W, ...) of any dtype: each pixel is the source pixel nearest to its center.

    Never mixes values, and never creates an enlarged image. Returns a new array.
    """
    stored = image.shape[0], image.shape[1]
    scaled = cover_size(stored, size) if fit == "cover" else size
    top, left, height, width = crop_box(scaled, size)
    if times > 1:
        scaled, (top, left, _, _) = covering(stored, size, times)
    # The center of pixel i of the result is at (i + 1/2) * stored / scaled of the source, here in whole numbers.
    rows = (2 * np.arange(top, top + height) + 1) * stored[0] // (2 * scaled[0])
    columns = (2 * np.arange(left, left + width) + 1) * stored[1] // (2 * scaled[1])
    nearest: NDArray[Any] = image[rows[:, None], columns]
    return nearest


def _resize(image: Pixels, size: tuple[int, int], code: int, out: Pixels | None = None) -> Pixels:
    if image.shape[:2] == size:
        return image
    if image.shape[2] > (_CV_CHANNELS if image.dtype == np.uint8 else _MOST_CHANNELS):
        return np.concatenate([_resize(part, size, code) for part in _by_channels(image)], axis=2, out=out)
    resized: Any = cv2.resize(image, (size[1], size[0]), dst=out, interpolation=code)
    if out is not None and np.may_share_memory(resized, out):
        return out
    made: Pixels = resized.reshape(*size, image.shape[2])  # OpenCV drops an axis of length 1
    return made


def _by_channels(image: Pixels) -> list[Pixels]:
    """The image in groups of 4 channels and single ones: OpenCV rounds two channels differently."""
    whole = image.shape[2] // _MOST_CHANNELS * _MOST_CHANNELS
    ends = [*range(_MOST_CHANNELS, whole + 1, _MOST_CHANNELS), *range(whole + 1, image.shape[2] + 1)]
    return [np.ascontiguousarray(part) for part in np.split(image, ends[:-1], axis=2)]


def enlarge_part(
    image: Pixels, scaled: tuple[int, int], box: tuple[int, int, int, int], interpolation: Interpolation
) -> Pixels:
    """The box of the image scaled to `scaled`, interpolated from the source without creating the scaled image."""
    if image.shape[2] > (_MOST_CHANNELS if interpolation in ("cubic", "lanczos") else _CV_CHANNELS):
        return np.concatenate([enlarge_part(part, scaled, box, interpolation) for part in _by_channels(image)], axis=2)
    code = {"area": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}.get(interpolation, _CODES[interpolation])
    slices, matrix = [], np.zeros((2, 3))
    for axis in (0, 1):
        source, start, length = image.shape[axis], box[axis], box[axis + 2]
        step = source / scaled[axis]
        first = max(0, int(start * step) - _MARGIN)
        last = min(source, int((start + length) * step) + 1 + _MARGIN)
        slices.append(slice(first, last))
        # Pixel centers: output i is at (start + i + 0.5) * step - 0.5 of the source. OpenCV wants x before y.
        matrix[1 - axis, 1 - axis] = step
        matrix[1 - axis, 2] = (start + 0.5) * step - 0.5 - first
    part = np.ascontiguousarray(image[slices[0], slices[1]])
    made = cv2.warpAffine(
        part, matrix, (box[3], box[2]), flags=code | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(made, image.dtype).reshape(box[2], box[3], image.shape[2])


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
    if height % size[0] == 0 and width % size[1] == 0 and channels <= _CV_CHANNELS:
        # OpenCV has a special case for whole blocks, which is faster and just as exact.
        y, x = height // size[0], width // size[1]
        blocks = image[top * y : (top + rows) * y, left * x : (left + columns) * x]
        made: Any = cv2.resize(blocks, (columns, rows), interpolation=cv2.INTER_AREA)
        return made.reshape(rows, columns, channels)  # type: ignore[no-any-return]
    across = _bands(width, size[1], left, left + columns) if size[1] != width else ()
    down = _bands(height, size[0], top, top + rows) if size[0] != height else ()
    image = image[:, across[0].first : across[-1].last] if across else image[:, left : left + columns]
    image = _down(image, down, 0) if down else image[top : top + rows]
    return transposed(_down(transposed(image), across, across[0].first)) if across else image


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


def transposed(image: Pixels) -> Pixels:
    if image.shape[2] > _MOST_CHANNELS:
        return np.ascontiguousarray(image.transpose(1, 0, 2))
    turned: Any = cv2.transpose(image)
    return turned.reshape(image.shape[1], image.shape[0], image.shape[2])  # type: ignore[no-any-return]


def _bands(old: int, new: int, begin: int, end: int) -> tuple[Band, ...]:
    """How to average `old` rows to rows begin..end-1 of `new` rows."""
    return (_short if old <= _SHORT else _long)(old, new, begin, end)


def _new_bands(old: int, new: int, begin: int, end: int) -> tuple[Band, ...]:
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


_short, _long = lru_cache(maxsize=512)(_new_bands), lru_cache(maxsize=64)(_new_bands)
