"""Bilinear resizing of what is read, with antialias or without: the definition, in NumPy.

For uint8 it is in whole numbers, so that every machine makes the same bits, and those of torchvision's integers.
`docs/explanation/native.md` has it in formulas, and `rawpack.native` makes the same pixels faster, where it is there.

An axis of `old` pixels that becomes `new` has two taps for each new pixel, or, where it shrinks and antialias is asked
for, a triangle as wide as two new pixels. Weights are whole numbers of 15 bits, in units of 2**-p. First x, rounded to
bytes, then y. An axis that keeps its length is left as it is.

A few rows of the result, a band, are one matrix product over the rows that they need, which BLAS computes by SIMD. All
sums are whole numbers that the floats hold, so they depend neither on the order of additions nor on the machine. The
other axis works the same way after a transpose.

Imported only where images are resized, because it loads OpenCV.
"""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.native import calls
from rawpack.pixels.resize import MAX_COVER_PIXELS, Bytes, Pixels, enlarge_part, to_size, transposed

Box = tuple[int, int, int, int]
_MOST_BITS = 22
"""The most that p becomes: axes that shrink to less than 1/256 have weights of fewer than 15 bits."""
_SINGLE_BITS = 16
"""The most bits p for which float32 holds a sum: 255 * 2**16 + 2**15 is less than 2**24."""
_BAND = 4
"""Rows of the result in one product. More rows have more weights that are 0; fewer need more copies of source rows."""
_FLOATS = 1 << 20
"""Floats that are computed at a time, at least a band: as many as a cache holds."""
_MOST_KEPT_BYTES = 8 << 20
_SHORT = 1024
"""Pixels. The bands of 512 axes that are no longer are kept, at most 54 kB each, and of 16 longer ones, which
take 64 bytes a pixel."""


def resample(
    image: Pixels,
    scaled: tuple[int, int],
    *,
    window: Box | None = None,
    antialias: bool = True,
    out: Pixels | None = None,
) -> Pixels:
    """Resize (H, W, C) to `scaled` (height, width), and return the window (top, left, height, width) of it.

    image: uint8, uint16 or float32, with any strides; window: within `scaled`, None for all of it. antialias: average
    along the axes that shrink; False interpolates between two pixels there too.

    uint16 and float32 get the same triangle in floats, and OpenCV's INTER_LINEAR for two taps, without a promise of
    bits. A value that is not finite spreads no further than its taps.

    Only the window is computed. Returns it in `out`, (height, width, C), if that is given and has this shape and the
    image's dtype, else as a new array; but where nothing is resized, the image itself, or a view of it.
    """
    top, left, height, width = box = window or (0, 0, *scaled)
    if image.shape[:2] == scaled:
        return image if window is None else image[top : top + height, left : left + width]
    if out is not None and (out.shape != (height, width, image.shape[2]) or out.dtype != image.dtype):
        out = None
    if image.dtype != np.uint8:
        made = _in_floats(image, scaled, box, antialias)
    else:
        fits = out is not None and out.flags.c_contiguous
        made = out if out is not None and fits else np.empty((height, width, image.shape[2]), np.uint8)
        if not calls.resample_one(image, scaled, box, made, antialias=antialias):
            _in_bytes(image, scaled, box, antialias, made)
    if out is None or made is out:
        return made
    np.copyto(out, made)
    return out


class Taps(NamedTuple):
    """What each pixel of a resized axis is made of."""

    first: NDArray[np.int64]
    """(new,): the first pixel that counts."""
    parts: NDArray[np.int64]
    """(new, taps): how much this pixel and the next ones count; 0 beyond the end of the axis."""
    whole: NDArray[np.int64]
    """(new,): the sum of the parts."""


def _taps(old: int, new: int, antialias: bool) -> Taps:
    """In units of 1 / (2 * new) of an old pixel, the center of new pixel i is at (2 * i + 1) * old."""
    center = (2 * np.arange(new, dtype=np.int64) + 1) * old
    if old <= new or not antialias:
        first, after = np.divmod(center - new, 2 * new)
        after[(first < 0) | (first >= old - 1)] = 0  # beyond the edges, the pixel at the edge counts
        return Taps(first.clip(0, old - 1), np.stack([2 * new - after, after], axis=1), np.full(new, 2 * new))
    first = np.maximum(center - 2 * old + new, 0) // (2 * new)
    pixel = first[:, None] + np.arange(2 * old // new + 2)
    parts = (2 * old - np.abs((2 * pixel + 1) * new - center[:, None])).clip(0)
    parts[pixel >= old] = 0
    return Taps(first, parts, parts.sum(axis=1))


class Bands(NamedTuple):
    """How rows of the result are made of rows of the source."""

    begin: int
    end: int
    """The source rows that are needed."""
    rows: NDArray[np.intp]
    """(bands * used,): the source rows that the bands need, band by band, counted from `begin`."""
    weights: NDArray[Any]
    """(bands, _BAND, used), whole numbers: float32 where that holds the sums, else float64."""
    bits: int
    """The weights' unit is 2**-bits."""
    length: int
    """Rows of the result; the last band may have more."""


def _bands(old: int, new: int, antialias: bool, start: int, stop: int) -> Bands:
    """How rows start..stop-1 of `new` rows are made of `old` rows."""
    return (_short if max(old, new) <= _SHORT else _long)(old, new, antialias, start, stop)


def _new_bands(old: int, new: int, antialias: bool, start: int, stop: int) -> Bands:
    first, parts, whole = _taps(old, new, antialias)
    largest, bits = float((parts.max(axis=1) / whole).max()), 0
    while bits < _MOST_BITS and largest * 2 ** (bits + 1) + 0.5 < 2**15:
        bits += 1
    first, parts, whole = first[start:stop], parts[start:stop], whole[start:stop, None]
    numbers = ((parts << (bits + 1)) + whole) // (2 * whole)
    if old <= new or not antialias:
        numbers[:, 0] = (1 << bits) - numbers[:, 1]
    count, taps = numbers.shape
    padding = -count % _BAND
    first = np.pad(first, (0, padding), mode="edge").reshape(-1, _BAND)
    numbers = np.pad(numbers, ((0, padding), (0, 0))).reshape(-1, _BAND, taps)
    places = (first - first[:, :1])[..., None] + np.arange(taps)
    weights = np.zeros((*first.shape, places.max() + 1), np.float32 if bits <= _SINGLE_BITS else np.float64)
    np.put_along_axis(weights, places, numbers, axis=2)
    weights = np.ascontiguousarray(weights[..., : np.flatnonzero(weights.any(axis=(0, 1)))[-1] + 1])
    rows = (first[:, :1] + np.arange(weights.shape[2])).clip(max=old - 1)
    begin = int(rows[0, 0])
    return Bands(begin, int(rows[-1].max()) + 1, (rows - begin).reshape(-1), weights, bits, count)


_short, _long = lru_cache(maxsize=512)(_new_bands), lru_cache(maxsize=16)(_new_bands)


def _in_bytes(image: Bytes, scaled: tuple[int, int], box: Box, antialias: bool, out: Bytes) -> Bytes:
    (height, width), (top, left, rows, columns) = image.shape[:2], box
    across = _bands(width, scaled[1], antialias, left, left + columns) if scaled[1] != width else None
    down = _bands(height, scaled[0], antialias, top, top + rows) if scaled[0] != height else None
    image = image[down.begin : down.end] if down else image[top : top + rows]
    image = image[:, across.begin : across.end] if across else image[:, left : left + columns]
    if across:
        height, width, channels = image.shape
        turned = _transpose(image, _kept.array("turned", (width, height, channels)))
        made = _down(turned, across, _kept.array("made", (columns, height, channels)))
        turned_back = _kept.array("turned", (height, columns, channels)) if down else out
        image = _transpose(made, turned_back)
    return _down(image, down, out) if down else image


def _down(image: Bytes, bands: Bands, out: Bytes) -> Bytes:
    """The rows of these bands of an image that begins with their first source row, in `out`."""
    row, (number, _, used) = image.shape[1] * image.shape[2], bands.weights.shape
    source, target = image.reshape(-1, row), out.reshape(-1, row)
    step = max(1, _FLOATS // (row * (used + _BAND)))
    for begin in range(0, number, step):
        weights = bands.weights[begin : begin + step]
        rows = bands.rows[begin * used : (begin + step) * used]
        part = target[begin * _BAND : (begin + step) * _BAND]
        taken = _kept.array("taken", (len(weights), used, row))
        source.take(rows, axis=0, out=taken.reshape(-1, row), mode="clip")  # another mode would copy them once more
        floats = _kept.array("floats", taken.shape, weights.dtype)
        floats[...] = taken
        sums = _kept.array("sums", (len(weights), _BAND, row), weights.dtype)
        np.matmul(weights, floats, out=sums)
        _round(sums.reshape(-1, row)[: len(part)], bands.bits, part)
    return out


def _transpose(image: Bytes, out: Bytes) -> Bytes:
    if image.shape[2] > 4:  # OpenCV does not transpose all of those
        np.copyto(out, image.transpose(1, 0, 2))
        return out
    turned: Any = cv2.transpose(image, dst=out)
    return out if turned is out or np.may_share_memory(turned, out) else turned.reshape(out.shape)


class _Kept(threading.local):
    """This thread's own memory: pages that the system makes anew for each image would take as long as the work."""

    def __init__(self) -> None:
        self._bytes: dict[str, Bytes] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any = np.uint8) -> NDArray[Any]:
        """An array with anything in it, until the next of that name."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        kept = self._bytes.get(name)
        if kept is None or kept.size < size:
            kept = np.empty(size, np.uint8)
            if size <= _MOST_KEPT_BYTES:
                self._bytes[name] = kept
        return np.ndarray(shape, dtype, kept)


_kept = _Kept()


def _round(sums: NDArray[Any], bits: int, out: Bytes) -> None:
    """The bytes nearest to sums / 2**bits, a half rounded up. Changes the sums."""
    if bits < _SINGLE_BITS:
        # OpenCV rounds a half to the even number: half a unit more is none, and float32 still holds it.
        rounded = cv2.convertScaleAbs(sums, dst=out, alpha=2.0**-bits, beta=2.0 ** -(bits + 1))
        if rounded is not out and not np.may_share_memory(rounded, out):
            np.copyto(out, rounded)
        return
    sums += 2.0 ** (bits - 1)
    sums *= 2.0**-bits
    if bits == _MOST_BITS:
        np.minimum(sums, 255, out=sums)  # thousands of weights that were rounded up may add up to more than 1
    np.copyto(out, sums, casting="unsafe")  # cut off


def _in_floats(image: Pixels, scaled: tuple[int, int], box: Box, antialias: bool) -> Pixels:
    sizes, starts, lengths = list(scaled), list(box[:2]), box[2:]
    floats = image
    for axis in (1, 0):
        if antialias and sizes[axis] < image.shape[axis]:
            floats = floats.astype(np.float32, copy=False)
            floats = transposed(floats) if axis else floats
            floats = _triangles(floats, sizes[axis], starts[axis], lengths[axis])
            floats = transposed(floats) if axis else floats
            sizes[axis], starts[axis] = lengths[axis], 0
    if floats.dtype != image.dtype:
        floats = np.rint(floats, out=floats).clip(0, np.iinfo(image.dtype).max).astype(image.dtype)
    (height, width), (top, left), (rows, columns) = sizes, starts, lengths
    if height * width > max(MAX_COVER_PIXELS, 2 * rows * columns):
        return enlarge_part(floats, (height, width), (top, left, rows, columns), "linear")
    made = to_size(floats, (height, width), antialias=False)
    return made[top : top + rows, left : left + columns]


def _triangles(floats: NDArray[np.float32], new: int, start: int, count: int) -> NDArray[np.float32]:
    """`count` of `new` rows. One product each, over the rows that count: 0 times what is not finite is NaN."""
    old, width, channels = floats.shape
    first, parts, whole = _taps(old, new, antialias=True)
    weights, used = (parts / whole[:, None]).astype(np.float32), np.count_nonzero(parts, axis=1)
    source, made = floats.reshape(old, -1), np.empty((count, width * channels), np.float32)
    for row, index in zip(made, range(start, start + count), strict=True):
        begin, taps = first[index], used[index]
        np.matmul(weights[index, :taps], source[begin : begin + taps], out=row)
    return made.reshape(count, width, channels)
