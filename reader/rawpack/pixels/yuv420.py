"""Converting planes of YCbCr 4:2:0 to RGB: `--color yuv420` stores 1.5 bytes per pixel.

A sample is flat: the luma Y of every pixel, then Cb, then Cr, one value for each two by two pixels. The values are
those of JFIF: BT.601, full range, with chroma in the middle of its four pixels. Chroma is enlarged by the triangle
filter (3/4 of the nearer and 1/4 of the farther value, on both axes), as in libjpeg and torch's bilinear interpolation.

Imported only where images are converted, because it loads OpenCV.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.pixels.geometry import chroma_size

Bytes = NDArray[np.uint8]
Box = tuple[int, int, int, int]


def planes_of(stored: Bytes, size: tuple[int, int]) -> tuple[Bytes, Bytes]:
    """Views of a stored sample (n,) of size (H, W): Y (H, W); Cb and Cr (2, ceil(H / 2), ceil(W / 2))."""
    luma = size[0] * size[1]
    return stored[:luma].reshape(size), stored[luma:].reshape(2, *chroma_size(size))


def to_rgb(stored: Bytes, size: tuple[int, int], box: Box | None = None, out: Bytes | None = None) -> Bytes:
    """The RGB pixels (h, w, 3) of a stored sample (n,), or of its part `box` (y, x, h, w): exactly the pixels of the
    whole image. In `out`, C order, where it is given. Any number of threads may call this."""
    y, x, height, width = box or (0, 0, *size)
    luma, chroma = planes_of(stored, size)
    # The filter needs one more row and column of chroma on each side, where there are any.
    top, left = max(0, (y - 1) // 2), max(0, (x - 1) // 2)
    part = chroma[:, top : (y + height) // 2 + 1, left : (x + width) // 2 + 1]
    inside = slice(y - 2 * top, y - 2 * top + height), slice(x - 2 * left, x - 2 * left + width)
    blue, red = (plane[inside] for plane in _upsampled(part))
    ycrcb = cv2.merge((luma[y : y + height, x : x + width], red, blue))
    made = cv2.cvtColor(ycrcb, cv2.COLOR_YCrCb2RGB, dst=out)
    if out is None or np.may_share_memory(made, out):
        return made  # type: ignore[return-value]
    np.copyto(out, made, casting="no")
    return out


def _upsampled(chroma: Bytes) -> list[Bytes]:
    """Each plane of (k, n, m) as (2 n, 2 m).

    Each value is repeated for its two by two pixels; weights of 1 2 1 over 4 on both axes are then the triangle filter.
    OpenCV computes that in integers, so pixels do not depend on where a box begins. Its linear interpolation is hardly
    faster, and sometimes off by one level.
    """
    count, rows, columns = chroma.shape
    flat = chroma.reshape(count * rows, columns)
    repeated = np.empty((count, rows, 2, 2 * columns), np.uint8)
    repeated[:] = cv2.merge((flat, flat)).reshape(count, rows, 1, 2 * columns)
    planes = repeated.reshape(count, 2 * rows, 2 * columns)
    return [cv2.GaussianBlur(plane, (3, 3), 0, borderType=cv2.BORDER_REPLICATE) for plane in planes]  # type: ignore[misc]
