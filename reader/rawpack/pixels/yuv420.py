"""Converting planes of YCgCo 4:2:0 to RGB: `--color ycgco420` stores 1.5 bytes per pixel.

A sample is flat: the luma Y of every pixel, then Cg, then Co, one value for each two by two pixels, in their middle.
Chroma is enlarged by the triangle filter (3/4 of the nearer and 1/4 of the farther value, on both axes), as in libjpeg
and torch's bilinear interpolation. `docs/format/README.md` defines the result to the bit.

Every step adds, shifts or interleaves whole planes of bytes, because that is the fastest arithmetic that NumPy and
OpenCV have: a conversion from YCbCr alone, which multiplies, takes as long as all of this. `rawpack.native` makes the
same pixels in a third of the time, where it is there. Bytes are signed in between,
128 less than they are stored, so that OpenCV's saturating sums clip to the range of pixels.

Imported only where images are converted, because it loads OpenCV.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.native import calls
from rawpack.pixels.geometry import chroma_size

Bytes = NDArray[np.uint8]
Signed = NDArray[np.int8]
Box = tuple[int, int, int, int]
_TOGETHER = 1 << 17
"""Pixels that are converted at once, with 6 bytes of scratch arrays each: more would not fit into caches, fewer would
cost more calls."""
_KEPT = 64
"""Sizes whose arrays a thread keeps: random crops have nine."""
_MIDDLE, _TWO = np.uint8(128), np.int8(2)


def planes_of(stored: Bytes, size: tuple[int, int]) -> tuple[Bytes, Bytes]:
    """Views of a stored sample (n,) of size (H, W): Y (H, W); Cg and Co (2, ceil(H / 2), ceil(W / 2))."""
    luma = size[0] * size[1]
    return stored[:luma].reshape(size), stored[luma:].reshape(2, *chroma_size(size))


def to_rgb(stored: Bytes, size: tuple[int, int], box: Box | None = None, out: Bytes | None = None) -> Bytes:
    """The RGB pixels (h, w, 3) of a stored sample (n,), or of its part `box` (y, x, h, w): exactly the pixels of the
    whole image. In `out` where it is given. Any number of threads may call this."""
    top, left, height, width = box or (0, 0, *size)
    made = np.empty((height, width, 3), np.uint8) if out is None else out
    if calls.rgb_of_planes(stored, size, (top, left, height, width), made):
        return made
    luma, chroma = planes_of(stored, size)
    # The filter needs one more row and column of chroma on each side, where there are any.
    first = max(0, (left - 1) // 2)
    luma, chroma = luma[:, left : left + width], chroma[:, :, first : (left + width) // 2 + 1]
    step = max(2, _TOGETHER // width)
    for y in range(top, top + height, step):
        end, above = min(y + step, top + height), max(0, (y - 1) // 2)
        part = chroma[:, above : end // 2 + 1]
        _convert(luma[y:end], part, (y - 2 * above, left - 2 * first), made[y - top : end - top])
    return made


def _convert(luma: Bytes, chroma: Bytes, offset: tuple[int, int], out: Bytes) -> None:
    """Writes RGB (h, w, 3) of luma (h, w), which begins at pixel `offset` of chroma (2, r, m) once that is enlarged."""
    (height, width), (y, x) = luma.shape, offset
    at = _memory.arrays(chroma.shape[1], chroma.shape[2], height, width)
    np.bitwise_xor(chroma, _MIDDLE, at.chroma)
    _enlarge(*at.columns)
    cv2.merge(at.even_and_odd, at.wide)
    _enlarge(*at.rows)
    green, orange = at.enlarged[:, y : y + height, x : x + width]
    np.bitwise_xor(luma, _MIDDLE, at.luma)
    first, second, third = at.planes
    cv2.subtract(first, green, second)  # the mean of red and blue
    cv2.add(first, green, first)
    cv2.add(second, orange, third)
    cv2.subtract(second, orange, second)
    cv2.merge((third, first, second), at.rgb)
    np.bitwise_xor(at.rgb_bytes, _MIDDLE, out)


def _enlarge(values: Signed, quarters: Signed, sums: Sequence[tuple[Signed, Signed, Signed]]) -> None:
    """Enlarges planes along one axis and overwrites the values: a pixel has c - floor(c / 4) + floor(d / 4), where c is
    the nearer value and d the farther one, or c again at the edge.

    sums: parts of what is left of values, parts of the quarters of others, and where their sum is written.
    """
    np.right_shift(values, _TWO, quarters)
    np.subtract(values, quarters, values)
    for rest, quarter, made in sums:
        np.add(rest, quarter, made)


class _Arrays:
    """The arrays of one conversion, of chroma (2, r, m) and luma (h, w), in 24 r m bytes of memory.

    They share it: each is no longer needed when another one at its place is written. Views are kept, because making
    them takes as long as using them.
    """

    def __init__(self, memory: Signed, rows: int, columns: int, height: int, width: int) -> None:
        few, pixels = 2 * rows * columns, height * width
        flat = memory[: 4 * few].reshape(4, few)
        values, quarters, even, odd = flat.reshape(4, 2, rows, columns)
        self.chroma = values.view(np.uint8)
        # As if all rows were one, which is several times as fast; then the first and the last column are set right.
        self.columns = (
            values,
            quarters,
            (
                (flat[0, 1:], flat[1, :-1], flat[2, 1:]),
                (flat[0, :-1], flat[1, 1:], flat[3, :-1]),
                (values[..., 0], quarters[..., 0], even[..., 0]),
                (values[..., -1], quarters[..., -1], odd[..., -1]),
            ),
        )
        self.even_and_odd = tuple(flat[2:].reshape(2, 2 * rows, columns))
        self.wide = memory[6 * few : 8 * few].reshape(2 * rows, columns, 2)
        values, quarters = self.wide.reshape(2, rows, 2 * columns), memory[: 2 * few].reshape(2, rows, 2 * columns)
        made = memory[2 * few : 6 * few].reshape(2, rows, 2, 2 * columns)
        self.enlarged, ends = made.reshape(2, 2 * rows, 2 * columns), slice(None, None, max(1, rows - 1))
        self.rows = (
            values,
            quarters,
            (
                (values[:, 1:], quarters[:, :-1], made[:, 1:, 0]),
                (values[:, :-1], quarters[:, 1:], made[:, :-1, 1]),
                (values[:, ends], quarters[:, ends], self.enlarged[:, :: 2 * rows - 1]),
            ),
        )
        self.planes = [memory[start * few :][:pixels].reshape(height, width) for start in (0, 8, 10)]
        self.luma = self.planes[0].view(np.uint8)
        self.rgb = memory[2 * few :][: 3 * pixels].reshape(height, width, 3)
        self.rgb_bytes = self.rgb.view(np.uint8)


class _ThreadMemory(threading.local):
    """Memory of a thread: without it, pages that the system gives and takes again cost more than the conversion."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.int8)
        self._made: dict[tuple[int, int, int, int], _Arrays] = {}

    def arrays(self, rows: int, columns: int, height: int, width: int) -> _Arrays:
        """Arrays of these sizes, over the memory of all others of this thread."""
        key = rows, columns, height, width
        if key not in self._made:
            needed = 24 * rows * columns
            if needed > len(self._memory) or len(self._made) >= _KEPT:
                self._made.clear()
            if needed > len(self._memory):
                self._memory = np.empty(needed, np.int8)
            self._made[key] = _Arrays(self._memory, *key)
        return self._made[key]


_memory = _ThreadMemory()
