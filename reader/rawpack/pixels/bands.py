"""Differences of rows in bands, which compress well: `--compression zstd` stores them. `docs/format/memmap.md` defines
them to the bit.

An image is one or three planes of whole numbers, modulo 2^n: of uint8 or uint16 with three channels G, R - G and B - G;
of any other one plane, whose rows hold all channels. In bands of 16 rows, each row but the first is its difference from
the row above. The bytes of numbers of more than one byte are apart: first the lowest of all, then the next.

The native core undoes this row by row for numbers of one byte. In NumPy it takes 15 additions, each of one row of every
band at once, which is why bands are not higher: an image in one band has 5% fewer bytes, and takes three times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.native import calls

BAND = 16
Bytes = NDArray[np.uint8]
Box = tuple[int, int, int, int]
Plane = tuple[int, int]
_COLORS = ("uint8", "uint16")


def planes_of(shape: Sequence[int], dtype: np.dtype[np.generic]) -> list[Plane]:
    """The planes of an image (H, W, C), or of an array of other axes, whose last ones are one row."""
    rows, values = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    return [(rows, values // 3)] * 3 if _is_color(shape, dtype) else [(rows, values)]


def differences(image: NDArray[Any]) -> Bytes:
    """The bytes (n,) of an image, as `undo` takes them. image: C order, of any plain dtype."""
    numbers = _as_numbers(image)
    if _is_color(image.shape, image.dtype):
        red, green, blue = np.moveaxis(numbers.reshape(*image.shape[:2], 3), 2, 0)
        planes = [green, red - green, blue - green]
    else:
        planes = [numbers.reshape(planes_of(image.shape, image.dtype)[0])]
    return differences_of(planes)


def differences_of(planes: Sequence[NDArray[Any]]) -> Bytes:
    """The bytes (n,) of planes (rows, values) of one unsigned dtype."""
    made = []
    for plane in planes:
        rows = plane.copy()
        rows[1:] -= plane[:-1]
        rows[::BAND] = plane[::BAND]
        made.append(rows.reshape(-1))
    values = np.concatenate(made)
    little = values.astype(values.dtype.newbyteorder("<"), copy=False).view(np.uint8)
    return np.ascontiguousarray(little.reshape(len(values), -1).T).reshape(-1)


def undo(stored: Bytes, shape: Sequence[int], dtype: np.dtype[np.generic], box: Box | None, out: Any) -> NDArray[Any]:
    """The image of these bytes, or its part `box` (y, x, h, w), in `out` where it is given. shape: of the image. Only
    the bands and columns that the box needs are undone."""
    color = _is_color(shape, dtype)
    width, values = (shape[1], 1 if color else math.prod(shape[2:])) if len(shape) > 1 else (1, 1)
    y, x, height, columns = box or (0, 0, shape[0] if shape else 1, width)
    each = planes_of(shape, dtype)
    result = (height, columns, *shape[2:]) if len(shape) > 1 else tuple(shape)
    if dtype.itemsize == 1 and (out is None or (out.flags.c_contiguous and out.dtype == dtype)):
        whole: NDArray[Any] = np.empty(result, dtype) if out is None else out
        if calls.undo(stored, (len(each), *each[0]), (y, x * values, height, columns * values), whole):
            return whole
    planes = undo_planes(stored, each, dtype.itemsize, (y, height), (x * values, columns * values))
    if color:
        import cv2

        green, red, blue = planes
        np.add(red, green, red)
        np.add(blue, green, blue)
        made: NDArray[Any] = np.empty(result, dtype) if out is None else out
        if made.strides == np.empty(result, dtype).strides:  # one pixel with a gap is contiguous to NumPy only
            cv2.merge((red, green, blue), made)
        else:
            np.stack((red, green, blue), axis=2, out=made)
        return made
    pixels = planes[0].view(dtype).reshape(result)
    if out is None:
        return pixels
    np.copyto(out, pixels)
    return out  # type: ignore[no-any-return]


def undo_planes(
    stored: Bytes, planes: Sequence[Plane], itemsize: int, rows: tuple[int, int], columns: tuple[int, int]
) -> list[NDArray[Any]]:
    """The same of planes that have one size: rows from a first one, and how many; columns likewise."""
    dtype, count = np.dtype(f"<u{itemsize}"), len(stored) // itemsize
    values = (
        stored if itemsize == 1 else np.ascontiguousarray(stored.reshape(itemsize, count).T).view(dtype).reshape(-1)
    )
    values = values.astype(dtype.newbyteorder("="), copy=False)
    made, at = list[NDArray[Any]](), 0
    for height, width in planes:
        plane, at = values[at : at + height * width].reshape(height, width), at + height * width
        made.append(undo_plane(plane, rows, columns))
    return made


def undo_plane(plane: NDArray[Any], rows: tuple[int, int], columns: tuple[int, int]) -> NDArray[Any]:
    """Some rows and columns of a plane: each a first one, and how many. A new array (rows, columns)."""
    first, end = rows[0] // BAND * BAND, rows[0] + rows[1]
    part = plane[first:end, columns[0] : columns[0] + columns[1]]
    whole = len(part) // BAND * BAND
    made = np.empty(part.shape, part.dtype)
    _undo_bands(part[:whole], made[:whole], BAND)
    if whole < len(part):
        _undo_bands(part[whole:], made[whole:], len(part) - whole)
    return made[rows[0] - first :]


def _undo_bands(differing: NDArray[Any], made: NDArray[Any], band: int) -> None:
    width = differing.shape[1]
    given = differing.reshape(-1, band, width) if differing.flags.c_contiguous else None
    out = made.reshape(-1, band, width)
    made[::band] = differing[::band]
    for row in range(1, band):
        np.add(out[:, row - 1], differing[row::band] if given is None else given[:, row], out[:, row])


def _is_color(shape: Sequence[int], dtype: np.dtype[np.generic]) -> bool:
    return len(shape) == 3 and shape[2] == 3 and dtype.name in _COLORS


def _as_numbers(image: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(image).reshape(-1).view(f"u{image.dtype.itemsize}")
