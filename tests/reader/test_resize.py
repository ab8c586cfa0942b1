"""Resizing: where the pixels come from, held against torchvision's formulas, Pillow and plain numpy averages."""

from __future__ import annotations

from itertools import product
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_corpus import Pixels, scene
from PIL import Image

from rawpack.pixels.geometry import cover_size, crop_box
from rawpack.pixels.resize import Interpolation, enlarge_part, fit, to_size

SIDES = st.integers(1, 5000)
SIZES = st.tuples(SIDES, SIDES)
METHODS = ("area", "linear", "cubic", "lanczos", "nearest")


def difference(image: Pixels, other: Pixels) -> int:
    assert image.shape == other.shape
    return int(np.abs(image.astype(np.int16) - other).max())


@given(SIZES, SIZES)
def test_a_scaled_image_covers_its_target(size: tuple[int, int], target: tuple[int, int]) -> None:
    """One side is exact, none is short, and the shape is kept to within the rounding."""
    height, width = cover_size(size, target)
    assert height >= target[0]
    assert width >= target[1]
    assert height == target[0] or width == target[1]
    scale = max(target[0] / size[0], target[1] / size[1])
    assert abs(height - size[0] * scale) < 1 + 1e-6 or height == target[0]
    assert abs(width - size[1] * scale) < 1 + 1e-6 or width == target[1]


@given(SIZES, SIDES)
def test_a_square_target_is_torchvisions_resize(size: tuple[int, int], side: int) -> None:
    """The shorter side becomes `side`, the longer int(side * long / short)."""
    short, long = min(size), max(size)
    new_long = int(side * long / short)
    expected = (side, new_long) if size[0] <= size[1] else (new_long, side)
    assert cover_size(size, (side, side)) == expected


@given(SIZES, SIZES)
def test_the_crop_is_torchvisions_center_crop(size: tuple[int, int], target: tuple[int, int]) -> None:
    """The box has the target's size, lies inside, and begins at int(round(difference / 2))."""
    scaled = cover_size(size, target)
    top, left, height, width = crop_box(scaled, target)
    assert (height, width) == target
    assert 0 <= top <= scaled[0] - height
    assert 0 <= left <= scaled[1] - width
    assert top == int(round((scaled[0] - target[0]) / 2.0))  # noqa: RUF046
    assert left == int(round((scaled[1] - target[1]) / 2.0))  # noqa: RUF046


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


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
def test_shrinking_by_a_whole_number_is_the_average(channels: int, dtype: str) -> None:
    """Each pixel is the mean of its source block, within rounding."""
    for ratio in (2, 3, 4, 7):
        noise = (np.random.default_rng(ratio).random((20 * ratio, 30 * ratio, channels)) * 60_000).astype(dtype)
        mean = noise.reshape(20, ratio, 30, ratio, channels).mean(axis=(1, 3), dtype=np.float64)
        result, enlarged = fit(noise, (20, 30))
        assert np.abs(result - mean).max() <= 1
        assert not enlarged
        assert np.abs(fit(noise, (20, 20))[0] - mean[:, 5:25]).max() <= 1


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


def test_stretching_averages_one_axis_and_interpolates_the_other() -> None:
    """Stripes along the axis that shrinks average out, though the other axis grows."""
    stripes = np.zeros((16, 512, 1), np.uint8)
    stripes[:, ::2] = 255
    result, enlarged = fit(stripes, (64, 64), fit="stretch")
    assert difference(result, np.full_like(result, 128)) <= 1
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
@pytest.mark.parametrize("turned", [False, True])
def test_an_extreme_shape_is_enlarged_only_where_it_is_kept(method: str, turned: bool) -> None:
    """1 x 10,000 to 256 x 256: the same colours as scaling all of it would give, which takes 2.5 million columns."""
    line = np.zeros((1, 10_000, 3), np.uint8)
    line[0, :, 0] = np.arange(10_000) % 251
    line[0, 5000:, 1] = 200
    image = np.ascontiguousarray(line.transpose(1, 0, 2)) if turned else line
    result, enlarged = fit(image, (256, 256), interpolation=method)  # type: ignore[arg-type]
    assert enlarged
    assert result.shape == (256, 256, 3)
    upright = result.transpose(1, 0, 2) if turned else result
    assert difference(upright, np.broadcast_to(upright[:1], upright.shape)) <= 2  # rounded weights
    # The part that is kept is one source pixel wide: half of pixel 4999 and half of pixel 5000.
    assert upright[0, 0, 1] in range(-5, 30)
    assert upright[0, -1, 1] in range(170, 256)
    assert upright[0, :, 0].min() >= 4998 % 251
    assert upright[0, :, 0].max() <= 5001 % 251


@pytest.mark.parametrize("method", ["area", "cubic", "lanczos"])
def test_the_part_is_what_scaling_all_would_give(method: Interpolation) -> None:
    """Where both ways are possible they agree within three levels: OpenCV weighs in steps of 1/32 there."""
    image = scene(40, 90)
    for target in ((300, 301), (256, 256), (90, 500)):
        whole, _ = fit(image, target, interpolation=method)
        scaled = cover_size((40, 90), target)
        assert difference(enlarge_part(image, scaled, crop_box(scaled, target), method), whole) <= 3


@pytest.mark.parametrize("method", METHODS)
def test_the_number_of_threads_changes_nothing(method: Interpolation) -> None:
    """One thread and four give the same bytes, shrinking and enlarging."""
    image, before, results = scene(350, 450), cv2.getNumThreads(), []
    try:
        for threads in (1, 4):
            cv2.setNumThreads(threads)
            results.append([fit(image, size, interpolation=method)[0] for size in ((128, 128), (500, 550))])
    finally:
        cv2.setNumThreads(before)
    for one, four in zip(*results, strict=True):
        np.testing.assert_array_equal(one, four)
