"""Bilinear resizing of what is read: whole numbers for bytes, to the bit; floats within their precision."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from fractions import Fraction
from functools import cache
from math import floor
from typing import Any

import numpy as np
import pytest
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
    ((1, 1), (7, 5)),
    ((1, 9), (1, 4)),
    ((9, 1), (1, 1)),
    ((2, 2), (2, 3)),
    ((3, 400), (3, 7)),
    ((400, 2), (7, 2)),
    ((64, 48), (16, 12)),
    ((64, 48), (128, 96)),
    ((31, 57), (30, 58)),
    ((120, 31), (2, 90)),
    ((100, 100), (49, 51)),
    ((17, 33), (224, 200)),
    ((5, 3000), (4, 13)),
    ((2, 5000), (2, 3)),
    ((300, 7), (5, 300)),
    ((225, 300), (224, 224)),
]
"""Sizes, and what they are resized to: kept, grown, shrunk by less than 2, 4, and up to 1,700 times."""


@pytest.fixture(params=["native", "NumPy"])
def _made_by(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "native" and native.library() is None:
        pytest.skip(f"the native core is {native.state()}")
    with nullcontext() if request.param == "native" else without_core():
        yield


def noise(height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    """The same bytes everywhere, a third of them 0 or 255: (height, width, channels)."""
    count = np.arange(height * width * channels, dtype=np.uint64)
    mixed = ((count * np.uint64(2654435761)) ^ (count >> np.uint64(3)) * np.uint64(40503)) >> np.uint64(11)
    spread = (mixed & np.uint64(1023)).astype(np.int64) * 255 // 682 - 64
    return spread.clip(0, 255).astype(np.uint8).reshape(height, width, channels)


@cache
def whole_weights(old: int, new: int, antialias: bool) -> list[dict[int, int]]:
    """By the words of docs/explanation/native.md, in fractions: for each new pixel the old ones and their weights, and
    the unit under the key -1."""
    rows: list[dict[int, Fraction]] = []
    for index in range(new):
        center, step = Fraction((2 * index + 1) * old, 2 * new), Fraction(old, new)
        if old > new and antialias:
            near = range(max(0, floor(center - step) - 1), min(old, floor(center + step) + 2))
            heights = {pixel: 1 - abs(pixel + Fraction(1, 2) - center) / step for pixel in near}
            kept = {pixel: height for pixel, height in heights.items() if height > 0}
            whole = sum(kept.values(), Fraction(0))
            rows.append({pixel: height / whole for pixel, height in kept.items()})
        else:
            place = min(max(center - Fraction(1, 2), Fraction(0)), Fraction(old - 1))
            before = floor(place)
            rows.append({before: 1 - (place - before)} | ({before + 1: place - before} if place > before else {}))
    largest = max(max(row.values()) for row in rows)
    bits = max(bits for bits in range(23) if largest * 2**bits + Fraction(1, 2) < 2**15)
    return [
        {pixel: floor(weight * 2**bits + Fraction(1, 2)) for pixel, weight in row.items()} | {-1: bits} for row in rows
    ]


def by_definition(image: Pixels, size: tuple[int, int], antialias: bool) -> Pixels:
    """x, then y, one sum for each value, in Python's whole numbers."""
    for axis in (1, 0):
        if image.shape[axis] == size[axis]:
            continue
        lines = []
        for weights in whole_weights(image.shape[axis], size[axis], antialias):
            bits = weights[-1]
            total = sum(
                weight * np.take(image, pixel, axis).astype(np.int64) for pixel, weight in weights.items() if pixel >= 0
            )
            lines.append(np.clip((total + (1 << (bits - 1))) >> bits, 0, 255))
        image = np.stack(lines, axis).astype(np.uint8)
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
    """An image, a view into a larger one, with 1 to 5 channels; a size; a window of it."""
    height, width, size = draw(SIDES), draw(SIDES), (draw(SIDES), draw(SIDES))
    image = noise(height + 3, width + 5, draw(st.sampled_from([1, 2, 3, 3, 4, 5])))[2:-1, 3:-2]
    top, left = draw(st.integers(0, size[0] - 1)), draw(st.integers(0, size[1] - 1))
    return image, size, (top, left, draw(st.integers(1, size[0] - top)), draw(st.integers(1, size[1] - left)))


@settings(deadline=None)
@given(resizings(), st.booleans())
def test_bytes_are_those_of_the_definition(case: Any, antialias: bool) -> None:
    """All of it, and any window of it, in an array that is given: what whole numbers make of the words."""
    image, size, window = case
    expected = by_definition(image, size, antialias)
    top, left, height, width = window
    out = np.full((height, width, image.shape[2]), 99, np.uint8)
    made = resample(image, size, antialias=antialias)
    part = resample(image, size, window=window, antialias=antialias, out=out)
    assert (made.dtype, made.shape) == (np.uint8, (*size, image.shape[2]))
    assert (made == expected).all()
    assert (part == expected[top : top + height, left : left + width]).all()
    assert part is out or image.shape[:2] == size


@pytest.mark.usefixtures("_made_by")
@pytest.mark.parametrize("antialias", [True, False])
def test_so_are_all_shrinks(antialias: bool) -> None:
    """From the native core and from NumPy, also where float32 does not hold the sums; a level from the exact value."""
    for old, new in SHAPES:
        image = noise(*old)
        made = resample(image, new, antialias=antialias)
        assert (made == by_definition(image, new, antialias)).all()
        assert np.abs(made - exactly(image, new, antialias)).max() < 1 + 1 / 64


@pytest.mark.skipif(native.library() is None, reason=f"the native core is {native.state()}")
@settings(deadline=None)
@given(resizings(), st.booleans())
def test_the_native_core_makes_what_numpy_makes(case: Any, antialias: bool) -> None:
    """Any shape, window and number of channels."""
    image, size, window = case
    made = resample(image, size, window=window, antialias=antialias)
    with without_core():
        assert (made == resample(image, size, window=window, antialias=antialias)).all()


VIEWS = [
    noise(20, 30)[:, ::-1],
    noise(20, 30)[::-1],
    noise(20, 30, 6)[..., ::2],
    np.asfortranarray(noise(20, 30)),
    *(noise(*size)[::y, ::x] for size in ((1, 30), (20, 1), (1, 1)) for y in (1, -1) for x in (1, -1)),
]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: f"{view.shape} {view.strides}")
def test_any_strides_will_do(view: Pixels) -> None:
    """Also of an axis of one pixel, where NumPy keeps the negative strides of a flip and calls it contiguous."""
    assert (resample(view, (11, 40)) == resample(np.copy(view, order="C"), (11, 40))).all()


@pytest.mark.usefixtures("_made_by")
@pytest.mark.parametrize("size", [(11, 40), (11, 30), (20, 40)])
def test_the_given_array_may_have_gaps(size: tuple[int, int]) -> None:
    """Also where only one axis is resized; nothing beside it is written to."""
    image, larger = noise(20, 30), np.full((60, 60, 3), 7, np.uint8)
    out = larger[5 : 5 + size[0], 9 : 9 + size[1]]
    assert resample(image, size, out=out) is out
    assert (out == by_definition(image, size, antialias=True)).all()
    out[...] = 7
    assert (larger == 7).all()


@pytest.mark.parametrize("antialias", [True, False])
def test_large_images_are_made_in_parts(antialias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A band at a time, as where a cache holds no more: the same pixels."""
    monkeypatch.setattr("rawpack.pixels.resample._FLOATS", 1)
    image = noise(50, 40)
    with without_core():
        for size in ((23, 17), (90, 9), (6, 81)):
            assert (resample(image, size, antialias=antialias) == by_definition(image, size, antialias)).all()


def test_threads_do_not_share_memory() -> None:
    """Several at a time, of different shapes, make what one makes."""
    images = [noise(30 + 3 * n, 90 - 2 * n) for n in range(16)] * 4
    with without_core(), ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda image: resample(image, (64, 48)), images))
        for image, made in zip(images, together, strict=True):
            assert (made == resample(image, (64, 48))).all()


def test_what_keeps_its_size_is_not_copied() -> None:
    """The image itself, or a view of it."""
    image = noise(6, 8)
    assert resample(image, (6, 8)) is image
    part = resample(image, (6, 8), window=(1, 2, 3, 4))
    assert np.shares_memory(part, image)
    assert (part == image[1:4, 2:6]).all()


@pytest.mark.usefixtures("_made_by")
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("antialias", [True, False])
def test_an_enlarged_image_is_never_made(dtype: str, antialias: bool) -> None:
    """A window of an image that would have 120 billion values; the part is that of its middle."""
    image = noise(2, 50_000).astype(dtype)
    made = resample(image, (65_000, 60_000), window=(32_000, 30_000, 9, 5), antialias=antialias)
    near = exactly(image[:, 24_990:25_010], (65_000, 24), antialias)[32_000:32_009, 12:17]
    assert made.shape == (9, 5, 3)
    assert np.abs(made - near).max() < 3


@settings(deadline=None)
@given(resizings(), st.sampled_from(["uint16", "float32"]))
def test_wider_values_get_the_same_triangle(case: Any, dtype: str) -> None:
    """Along the axes that shrink, to a level of uint16; windows are parts of the whole."""
    image, size, (top, left, height, width) = case
    wide = (image.astype(np.float64) * 257).astype(dtype)
    made = resample(wide, size)
    assert made.dtype == wide.dtype
    assert np.abs(made - exactly(wide, size, antialias=True)).max() <= (2 if dtype == "uint16" else 0.2)
    part = resample(wide, size, window=(top, left, height, width))
    whole = made[top : top + height, left : left + width].astype(float)
    assert np.abs(part - whole).max() <= (1 if dtype == "uint16" else 0.1)


@settings(deadline=None)
@given(resizings(), st.sampled_from(["uint16", "float32"]))
def test_two_taps_of_wider_values_are_opencvs(case: Any, dtype: str) -> None:
    """Without antialias, what `to_size` makes by INTER_LINEAR, into an array that is given."""
    image, size, _ = case
    wide = image.astype(dtype)
    out = np.empty((*size, image.shape[2]), dtype)
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
