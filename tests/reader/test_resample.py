"""Bilinear resizing of what is read: whole numbers for bytes, to the bit; floats within their precision."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
import pytest
import resampled
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reading import without_core

from rawpack import native
from rawpack.pixels.resample import resample
from rawpack.pixels.resize import to_size

Pixels = NDArray[Any]
SIDES = st.integers(1, 40)
SHAPES = [
    ((1, 9), (1, 4)),
    ((9, 1), (1, 1)),
    ((400, 2), (7, 2)),
    ((64, 48), (16, 12)),
    ((64, 48), (128, 96)),
    ((31, 57), (30, 58)),
    ((17, 33), (224, 200)),
    ((5, 3000), (4, 13)),
    ((2, 5000), (2, 3)),
    ((225, 300), (224, 224)),
]
"""Sizes, and what they are resized to: kept, grown, shrunk by less than 2, 4, and up to 1,700 times."""
MADE_BY = [nullcontext, without_core][native.library() is None :]
"""Who makes the pixels: the native core, where there is one, and NumPy."""


def noise(height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    return resampled.noise(height * width * channels).reshape(height, width, channels)


def by_definition(image: Pixels, size: tuple[int, int], antialias: bool) -> Pixels:
    """x, then y, one sum for each value, in Python's whole numbers."""
    for axis in (1, 0):
        if image.shape[axis] == size[axis]:
            continue
        bits, lines = resampled.weights(image.shape[axis], size[axis], antialias)
        sums = [sum(part * np.take(image, k, axis).astype(np.int64) for k, part in line.items()) for line in lines]
        image = np.clip((np.stack(sums, axis) + (1 << (bits - 1))) >> bits, 0, 255).astype(np.uint8)
    return image


def exactly(image: Pixels, size: tuple[int, int], antialias: bool) -> NDArray[np.float64]:
    """In float64, without rounding in between, each axis as one dense matrix."""

    def matrix(old: int, new: int) -> NDArray[np.float64]:
        distance = np.abs((np.arange(new)[:, None] + 0.5) * old / new - np.arange(old) - 0.5)
        if antialias and old > new:
            weights = (1 - distance * new / old).clip(0)
            return weights / weights.sum(axis=1, keepdims=True)
        place = ((np.arange(new)[:, None] + 0.5) * old / new - 0.5).clip(0, old - 1)
        return (1 - np.abs(place - np.arange(old))).clip(0)

    rows, columns = matrix(image.shape[0], size[0]), matrix(image.shape[1], size[1])
    return np.einsum("iy,yxc,jx->ijc", rows, image.astype(float), columns, optimize=True)


@st.composite
def resizings(draw: st.DrawFn) -> tuple[Pixels, tuple[int, int], tuple[int, int, int, int]]:
    """An image, a view into a larger one, with 1 to 5 channels, turned in any way; a size; a window of it."""
    height, width, size = draw(SIDES), draw(SIDES), (draw(SIDES), draw(SIDES))
    image = noise(height + 3, width + 5, draw(st.sampled_from([1, 2, 3, 3, 4, 5])))[2:-1, 3:-2]
    image = image[:: draw(st.sampled_from([1, -1])), :: draw(st.sampled_from([1, -1]))]
    top, left = draw(st.integers(0, size[0] - 1)), draw(st.integers(0, size[1] - 1))
    return image, size, (top, left, draw(st.integers(1, size[0] - top)), draw(st.integers(1, size[1] - left)))


@settings(deadline=None)
@given(resizings(), st.booleans())
def test_bytes_are_those_of_the_definition(case: Any, antialias: bool) -> None:
    """All of it, and any window of it, in an array with gaps that is given, from the native core and from NumPy: what
    whole numbers make of the words."""
    image, size, window = case
    expected = by_definition(image, size, antialias)
    top, left, height, width = window
    for made_by in MADE_BY:
        larger = np.full((height + 5, width + 7, image.shape[2]), 99, np.uint8)
        out = larger[2:-3, 3:-4]
        with made_by():
            made = resample(image, size, antialias=antialias)
            part = resample(image, size, window=window, antialias=antialias, out=out)
        assert (made.dtype, made.shape) == (np.uint8, (*size, image.shape[2]))
        assert (made == expected).all()
        assert (part == expected[top : top + height, left : left + width]).all()
        assert part is out or image.shape[:2] == size
        out[:] = 99
        assert (larger == 99).all()


@pytest.mark.parametrize("antialias", [True, False])
def test_so_are_all_shrinks(antialias: bool) -> None:
    """Also where float32 does not hold the sums; a level from the exact value."""
    for made_by, (old, new) in product(MADE_BY, SHAPES):
        image = noise(*old)
        with made_by():
            made = resample(image, new, antialias=antialias)
        assert (made == by_definition(image, new, antialias)).all()
        assert np.abs(made - exactly(image, new, antialias)).max() < 1 + 1 / 64


@pytest.mark.parametrize("antialias", [True, False])
def test_large_images_are_made_in_parts(antialias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A band at a time, as where a cache holds no more: the same pixels."""
    monkeypatch.setattr("rawpack.pixels.resample._FLOATS", 1)
    image = noise(50, 40)
    with without_core():
        for size in ((23, 17), (90, 9), (6, 81)):
            assert (resample(image, size, antialias=antialias) == by_definition(image, size, antialias)).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("antialias", [True, False])
def test_an_enlarged_image_is_never_made(dtype: str, antialias: bool) -> None:
    """A window of an image that would have 120 billion values; the part is that of its middle."""
    image = noise(2, 50_000).astype(dtype)
    near = exactly(image[:, 24_990:25_010], (65_000, 24), antialias)[32_000:32_009, 12:17]
    for made_by in MADE_BY:
        with made_by():
            made = resample(image, (65_000, 60_000), window=(32_000, 30_000, 9, 5), antialias=antialias)
        assert np.abs(made - near).max() < 3


@settings(deadline=None)
@given(resizings(), st.sampled_from(["uint16", "float32"]))
def test_wider_values_get_the_same_triangle(case: Any, dtype: str) -> None:
    """Along the axes that shrink, to a level of uint16; windows are parts of the whole. Without antialias, what
    `to_size` makes by INTER_LINEAR, into an array that is given."""
    image, size, (top, left, height, width) = case
    wide = (image.astype(np.float64) * 257).astype(dtype)
    made, out = resample(wide, size), np.empty((*size, image.shape[2]), dtype)
    assert made.dtype == wide.dtype
    assert np.abs(made - exactly(wide, size, antialias=True)).max() <= (2 if dtype == "uint16" else 0.2)
    part = resample(wide, size, window=(top, left, height, width))
    whole = made[top : top + height, left : left + width].astype(float)
    assert np.abs(part - whole).max() <= (1 if dtype == "uint16" else 0.1)
    assert (resample(wide, size, antialias=False, out=out) == to_size(wide, size, antialias=False)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [(20, 30), (7, 11), (8, 60), (40, 9), (40, 90)])
def test_a_value_that_is_not_finite_stays_where_it_counts(value: float, size: tuple[int, int]) -> None:
    """Zero times NaN is NaN: no pixel beyond a triangle, and no neighbor but the next where an axis grows, has any."""
    image = np.ones((40, 60, 1), np.float32)
    image[13, 29] = value
    made = resample(image, size)[..., 0]
    marked = np.zeros((40, 60, 1))
    marked[13, 29] = 1
    touched = exactly(marked, size, antialias=True)[..., 0] > 0
    assert touched.any()
    spread = np.argwhere(~np.isfinite(made))
    assert len(spread)
    for y, x in spread:
        assert touched[max(0, y - 1) : y + 2, max(0, x - 1) : x + 2].any()
    if size[0] <= 40 and size[1] <= 60:
        assert (np.isfinite(made) == ~touched).all()
        assert (made[touched] == value).all() or np.isnan(value)
