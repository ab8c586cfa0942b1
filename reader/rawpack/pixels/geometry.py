"""The geometry of images in whole pixels: sizes are (height, width), boxes are (y, x, height, width)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESIZABLE = ("uint8", "uint16", "float32")
"""The dtypes that OpenCV resizes."""


def cover_size(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    """The size to which an image of `size` is scaled so that it covers `target` and keeps its proportions.

    One side is exactly the target's. The other is rounded down, as in torchvision's Resize, but not below the target's.
    """
    (height, width), (target_height, target_width) = size, target
    if target_height * width >= target_width * height:  # the height needs the larger scale, or both the same
        return target_height, max(target_width, width * target_height // height)
    return max(target_height, height * target_width // width), target_width


def crop_box(size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int, int, int]:
    """The box of size `target` in the center of `size`, placed as by torchvision's CenterCrop."""
    (height, width), (target_height, target_width) = size, target
    top = round((height - target_height) / 2.0)
    left = round((width - target_width) / 2.0)
    return top, left, target_height, target_width


def covering(
    size: tuple[int, int], target: tuple[int, int], times: int
) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
    """`cover_size`, and the `crop_box` of it, for an image that is `times` as large as another one: that many times
    what they are of this one, so that both show the same."""
    small = target[0] // times, target[1] // times
    height, width = cover_size((size[0] // times, size[1] // times), small)
    top, left, _, _ = crop_box((height, width), small)
    return (height * times, width * times), (top * times, left * times, *target)


def chroma_size(size: tuple[int, int]) -> tuple[int, int]:
    """The size of a chroma plane of 4:2:0: one value for each two by two pixels, also at odd edges."""
    return -(-size[0] // 2), -(-size[1] // 2)


def planar_bytes(size: tuple[int, int]) -> int:
    """Bytes of an image of this size as planes of YCgCo 4:2:0."""
    rows, columns = chroma_size(size)
    return size[0] * size[1] + 2 * rows * columns


def fill_polygons(polygons: Iterable[ArrayLike], height: int, width: int) -> NDArray[np.bool_]:
    """(height, width): the pixels whose centers are in any of the polygons, (n, 2) points x, y each.

    A center is in a polygon if a ray from it crosses the outline an odd number of times; on a left or upper edge it is
    in, on a right or lower one it is not.
    """
    covered = np.zeros((height, width), np.bool_)
    for polygon in polygons:
        covered |= _inside(np.asarray(polygon, np.float64), height, width)
    return covered


def _inside(points: NDArray[np.float64], height: int, width: int) -> NDArray[np.bool_]:
    # Each edge flips all pixels to its right, in the rows whose centers it crosses.
    ends = np.roll(points, -1, axis=0)
    down = points[:, 1] <= ends[:, 1]
    (x0, y0), (x1, y1) = np.where(down[:, None], points, ends).T, np.where(down[:, None], ends, points).T
    first = np.clip(np.ceil(y0 - 0.5), 0, height).astype(np.int64)
    count = np.clip(np.ceil(y1 - 0.5), 0, height).astype(np.int64) - first
    edge = np.repeat(np.arange(len(points)), count)
    row = np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count) + first[edge]
    x = x0[edge] + (row + 0.5 - y0[edge]) / (y1 - y0)[edge] * (x1 - x0)[edge]
    column = np.clip(np.ceil(x - 0.5), 0, width).astype(np.int64)
    flips = np.zeros((height, width + 1), np.uint8)
    np.bitwise_xor.at(flips, (row, column), 1)
    inside: NDArray[np.bool_] = np.bitwise_xor.accumulate(flips, axis=1)[:, :width].astype(np.bool_)
    return inside
