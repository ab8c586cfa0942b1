"""Resizing: where the pixels come from, against torchvision's formulas, Pillow, OpenCV and exact averages."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any

import cv2
import numpy as np
import pytest
import resampled
from hypothesis import given
from hypothesis import strategies as st
from image_corpus import Pixels, scene
from numpy.typing import NDArray
from pictures import averaged, picture
from PIL import Image
from reading import without_core

from rawpack import native
from rawpack.pixels.geometry import cover_size, crop_box
from rawpack.pixels.resample import resample
from rawpack.pixels.resize import Interpolation, _bands, fit, shrink, to_size

SIDES = st.integers(1, 5000)
SIZES = st.tuples(SIDES, SIDES)
METHODS = ("area", "linear", "cubic", "lanczos", "nearest")


def difference(image: Pixels, other: Pixels) -> int:
    assert image.shape == other.shape
    return int(np.abs(image.astype(np.int16) - other).max())


@given(SIZES, SIZES)
def test_a_scaled_image_covers_its_target(size: tuple[int, int], target: tuple[int, int]) -> None:
    """One side is exact, none is short, and the shape is kept to within the rounding; then torchvision's center crop,
    which begins at int(round(difference / 2))."""
    height, width = scaled = cover_size(size, target)
    assert height >= target[0]
    assert width >= target[1]
    assert height == target[0] or width == target[1]
    scale = max(target[0] / size[0], target[1] / size[1])
    assert abs(height - size[0] * scale) < 1 + 1e-6 or height == target[0]
    assert abs(width - size[1] * scale) < 1 + 1e-6 or width == target[1]
    top, left = round((height - target[0]) / 2.0), round((width - target[1]) / 2.0)
    assert crop_box(scaled, target) == (top, left, *target)


@given(SIZES, SIDES)
def test_a_square_target_is_torchvisions_resize(size: tuple[int, int], side: int) -> None:
    """The shorter side becomes `side`, the longer int(side * long / short)."""
    short, long = min(size), max(size)
    new_long = int(side * long / short)
    expected = (side, new_long) if size[0] <= size[1] else (new_long, side)
    assert cover_size(size, (side, side)) == expected


@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.sampled_from([1, 3]),
    st.sampled_from(["cover", "stretch"]),
    st.sampled_from(METHODS),
)
def test_any_size_becomes_any_size(
    size: tuple[int, int], target: tuple[int, int], channels: int, how: Any, method: Interpolation
) -> None:
    """The target's size and the source's channels; a plain image stays plain, or is passed on as it is."""
    image = np.full((*size, channels), 77, np.uint8)
    result, enlarged = fit(image, target, fit=how, interpolation=method)
    assert (result.shape, result.dtype) == ((*target, channels), np.uint8)
    assert result.flags.c_contiguous
    assert (result == 77).all()
    scaled = cover_size(size, target) if how == "cover" else target
    assert enlarged == (scaled[0] > size[0] or scaled[1] > size[1])
    assert fit(image, size, fit=how, interpolation=method)[0] is image


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("method", METHODS)
def test_any_dtype_and_channels(dtype: str, method: Interpolation) -> None:
    """What is resized keeps its dtype, its range and its channels, each as if it were alone."""
    most = {"uint8": 255, "uint16": 65_535, "float32": 1e6}[dtype]
    for channels, shape in product((1, 2, 3, 5, 9), [(50, 60), (40, 80), (10, 13), (15, 50), (1, 9000)]):
        image = (np.random.default_rng(channels).random((*shape, channels)) * most).astype(dtype)
        size = (256, 256) if shape[0] == 1 else (20, 20)
        for how in ("cover", "stretch"):
            made, _ = fit(image, size, fit=how, interpolation=method)
            assert (made.dtype, made.shape) == (image.dtype, (*size, channels))
            # What is enlarged in part goes through other arithmetic for one channel than for two.
            for k in range(channels if shape[0] > 1 else 0):
                alone, _ = fit(np.ascontiguousarray(image[..., k : k + 1]), size, fit=how, interpolation=method)
                assert np.allclose(made[..., k : k + 1], alone, rtol=0, atol=max(1, most * 1e-6))
        assert to_size(image, size, method).shape == (*size, channels)


def test_enlarging_is_bilinear() -> None:
    """As Pillow's BILINEAR, within two levels, and it is told."""
    image = scene()
    size = (image.shape[0] * 3, image.shape[1] * 3)
    result, enlarged = fit(image, size)
    expected = np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR))
    assert difference(result, expected) <= 2
    assert enlarged


@pytest.mark.parametrize("method", METHODS)
def test_covering_keeps_the_center(method: Interpolation) -> None:
    """A wide image loses its sides evenly: what is left is the scaled image, cropped."""
    image = scene(60, 200)
    result, _ = fit(image, (30, 30), interpolation=method)
    whole, _ = fit(image, (30, 100), fit="stretch", interpolation=method)
    assert difference(result, whole[:, 35:65]) == 0


def test_nearest_takes_the_pixel_at_the_centre() -> None:
    """No new colours, and no shift by half a pixel: labels stay labels."""
    labels = np.arange(12, dtype=np.uint8).reshape(1, 12, 1)
    result, _ = fit(labels, (1, 4), fit="stretch", interpolation="nearest")
    assert result.ravel().tolist() == [1, 4, 7, 10]


@pytest.mark.parametrize("method", METHODS)
def test_an_extreme_shape_is_enlarged_only_where_it_is_kept(method: Interpolation) -> None:
    """1 x 10,000 to 256 x 256: the same colours as scaling all of it would give, which takes 2.5 million columns."""
    line = np.zeros((1, 10_000, 3), np.uint8)
    line[0, :, 0] = np.arange(10_000) % 251
    line[0, 5000:, 1] = 200
    turned, _ = fit(np.ascontiguousarray(line.transpose(1, 0, 2)), (256, 256), interpolation=method)
    for result in (fit(line, (256, 256), interpolation=method)[0], turned.transpose(1, 0, 2)):
        assert difference(result, np.broadcast_to(result[:1], result.shape)) <= 2  # rounded weights
        # The part that is kept is one source pixel wide: half of pixel 4999 and half of pixel 5000.
        assert result[0, 0, 1] in range(-5, 30)
        assert result[0, -1, 1] in range(170, 256)
        assert result[0, :, 0].min() >= 4998 % 251
        assert result[0, :, 0].max() <= 5001 % 251


# ---------------------------------------------------------------------------------------------- averages


@given(st.data())
def test_shrinking_is_the_average(data: st.DataObject) -> None:
    """Any sizes, noise: both passes round once, so it is within a level. Any box of the result is what the whole result
    has there, to the bit; also in whole blocks, and of views."""
    size = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    times = data.draw(st.sampled_from([1, 2, 3]))
    more = data.draw(st.tuples(st.integers(0, 50), st.integers(0, 50))) if times == 1 else (0, 0)
    height, width = size[0] * times + more[0], size[1] * times + more[1]
    channels = data.draw(st.sampled_from([1, 3, 4]))
    image = np.random.default_rng(height).integers(0, 256, (height, width + 5, channels)).astype(np.uint8)[:, 2:-3]
    result = shrink(image, size)
    assert (result.dtype, result.shape) == (np.uint8, (*size, channels))
    assert np.abs(result - averaged(image, size)).max() <= 1.1
    top, left = data.draw(st.tuples(st.integers(0, size[0] - 1), st.integers(0, size[1] - 1)))
    rows, columns = data.draw(st.tuples(st.integers(1, size[0] - top), st.integers(1, size[1] - left)))
    part = shrink(image, size, (top, left, rows, columns))
    assert (part == result[top : top + rows, left : left + columns]).all()


@pytest.mark.parametrize("side", [225, 289, 447, 448, 700])
def test_shrinking_is_opencvs_area(side: int) -> None:
    """To 224 from any side: no pixel is more than a level off, on photo-like pictures and views with gaps."""
    image = picture(side, side + 31, side)[:, 10 : 10 + side]
    assert difference(shrink(image, (224, 224)), cv2.resize(image, (224, 224), interpolation=cv2.INTER_AREA)) <= 1


@given(st.integers(1, 3000), st.integers(1, 400))
def test_weights_are_exact_in_single_precision(old: int, new: int) -> None:
    """Each row sums to 1, and each weight is a multiple of 2**-14: no sum is ever rounded, on no machine."""
    for band in _bands(old, min(old, new), 0, min(old, new)):
        units = band.weights.astype(float) * 2**14
        assert (units == np.rint(units)).all()
        assert (units.sum(axis=1) == 2**14).all()


# ---------------------------------------------------------------------------------------------- while reading

SHORT = st.integers(1, 40)
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


def by_definition(image: NDArray[Any], size: tuple[int, int], antialias: bool) -> NDArray[Any]:
    """x, then y, one sum for each value, in Python's whole numbers."""
    for axis in (1, 0):
        if image.shape[axis] == size[axis]:
            continue
        bits, lines = resampled.weights(image.shape[axis], size[axis], antialias)
        sums = [sum(part * np.take(image, k, axis).astype(np.int64) for k, part in line.items()) for line in lines]
        image = np.clip((np.stack(sums, axis) + (1 << (bits - 1))) >> bits, 0, 255).astype(np.uint8)
    return image


def exactly(image: NDArray[Any], size: tuple[int, int], antialias: bool) -> NDArray[np.float64]:
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
def resizings(draw: st.DrawFn) -> tuple[NDArray[Any], tuple[int, int], tuple[int, int, int, int]]:
    """An image, a view into a larger one, with 1 to 5 channels, turned in any way; a size; a window of it."""
    height, width, size = draw(SHORT), draw(SHORT), (draw(SHORT), draw(SHORT))
    image = noise(height + 3, width + 5, draw(st.sampled_from([1, 2, 3, 3, 4, 5])))[2:-1, 3:-2]
    image = image[:: draw(st.sampled_from([1, -1])), :: draw(st.sampled_from([1, -1]))]
    top, left = draw(st.integers(0, size[0] - 1)), draw(st.integers(0, size[1] - 1))
    return image, size, (top, left, draw(st.integers(1, size[0] - top)), draw(st.integers(1, size[1] - left)))


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
