"""Shrinking by averaging: within a level of the exact average and of OpenCV's INTER_AREA, and the same everywhere."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import picture

from rawpack.pixels.resize import _bands, shrink


def exact(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The average over areas, in double precision: each pixel counts by the part that is covered."""

    def weights(old: int, new: int) -> np.ndarray:
        edges, pixel = np.arange(new + 1) * old / new, np.arange(old)
        overlap = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
        return overlap.clip(0) * new / old

    rows, columns = weights(image.shape[0], size[0]), weights(image.shape[1], size[1])
    return np.einsum("iy,yxc,jx->ijc", rows, image.astype(float), columns, optimize=True)


@settings(deadline=None)
@given(st.data())
def test_it_is_the_average(data: st.DataObject) -> None:
    """Any sizes, one channel or three, noise: both passes round once, so it is within a level."""
    height, width, channels = data.draw(st.tuples(st.integers(1, 90), st.integers(1, 90), st.sampled_from([1, 3])))
    size = data.draw(st.tuples(st.integers(1, height), st.integers(1, width)))
    image = np.random.default_rng(height * 91 + width).integers(0, 256, (height, width, channels)).astype(np.uint8)
    result = shrink(image, size)
    assert result.shape == (*size, channels)
    assert result.dtype == np.uint8
    assert np.abs(result - exact(image, size)).max() <= 1.1


@settings(deadline=None)
@given(st.data())
def test_a_part_is_cut_from_the_whole(data: st.DataObject) -> None:
    """Any box of the result is what the whole result has there, to the bit; also in whole blocks, and of views."""
    size = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    more = data.draw(st.tuples(st.integers(0, 50), st.integers(0, 50)) | st.sampled_from(["double", "triple"]))
    times = {"double": 2, "triple": 3}.get(str(more), 1)
    height, width = size[0] * times, size[1] * times
    if isinstance(more, tuple):
        height, width = height + more[0], width + more[1]
    channels = data.draw(st.sampled_from([1, 3, 4]))
    image = np.random.default_rng(height).integers(0, 256, (height, width + 5, channels)).astype(np.uint8)[:, 2:-3]
    top, left = data.draw(st.tuples(st.integers(0, size[0] - 1), st.integers(0, size[1] - 1)))
    rows, columns = data.draw(st.tuples(st.integers(1, size[0] - top), st.integers(1, size[1] - left)))
    part = shrink(image, size, (top, left, rows, columns))
    assert part.shape == (rows, columns, channels)
    assert (part == shrink(image, size)[top : top + rows, left : left + columns]).all()


@pytest.mark.parametrize("side", [225, 256, 289, 336, 447, 448, 515, 700])
def test_it_is_opencvs_area(side: int) -> None:
    """To 224 from any side: no pixel is more than a level off, on photo-like pictures and views with gaps."""
    image = picture(side, side + 31, side)[:, 10 : 10 + side]
    difference = np.abs(shrink(image, (224, 224)).astype(int) - cv2.resize(image, (224, 224), interpolation=3))
    assert difference.max() <= 1


def test_on_photographs_it_is_opencvs_area(photos: Path) -> None:
    """Real photographs: within a level at the 99th percentile, and everywhere."""
    differences = []
    for path in sorted(photos.rglob("*.jpg"))[:12] or sorted(photos.rglob("*.JPEG"))[:12]:
        image = cv2.imread(str(path))
        assert image is not None
        size = max(1, int(image.shape[0] / 1.37)), max(1, int(image.shape[1] / 1.91))
        area = cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)
        differences.append(np.abs(shrink(image, size).astype(int) - area).ravel())
    found = np.concatenate(differences)
    assert np.percentile(found, 99) <= 1
    assert found.max() <= 1


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(1, 400))
def test_weights_are_exact_in_single_precision(old: int, new: int) -> None:
    """Each row sums to 1, each weight is a multiple of 2**-14 and near its share: no sum is ever rounded."""
    new = min(old, new)
    covered = 0
    for band in _bands(old, new, 0, new):
        assert band.start == covered
        covered = band.stop
        units = band.weights.astype(float) * 2**14
        assert (units == np.rint(units)).all()
        assert (units.sum(axis=1) == 2**14).all()
        for row, weights in zip(range(band.start, band.stop), units, strict=True):
            start, stop = Fraction(row * old, new), Fraction((row + 1) * old, new)
            assert band.first <= start
            assert stop <= band.last
            worst = 0.51 + 0.51 * (math.ceil(stop) - math.floor(start))
            for pixel in (math.floor(start), (band.first + band.last) // 2):
                share = max(Fraction(0), min(stop, Fraction(pixel + 1)) - max(start, Fraction(pixel))) * new / old
                assert abs(weights[pixel - band.first] - float(share) * 2**14) <= worst
    assert covered == new


def test_grey_stays_grey() -> None:
    """Every level of an even image stays what it is."""
    for level in range(256):
        assert (shrink(np.full((23, 31, 1), level, np.uint8), (17, 12)) == level).all()
