"""Changes of color in the native core: the values that their definition gives and the fall-back makes, and refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from draws import tries
from resampled import noise

from rawpack.native import calls, state
from rawpack.native.calls import IMAGE, MOST_FACTOR, recolor, resample
from rawpack.transforms.color import changed

pytestmark = pytest.mark.skipif(state().startswith("off"), reason=f"native core {state()}")

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def made(image: Bytes, *changes: tuple[int, float], lanes: bool = True) -> Bytes:
    out = image.copy()
    assert recolor(out, np.array(changes, np.float64).reshape(-1, 2), lanes=lanes)
    return out


def fallback(image: Bytes, changes: list[tuple[int, float]]) -> Bytes:
    with mock.patch.object(calls, "library", return_value=None):
        return changed(image, changes)


def images(count: int, seed: int) -> list[tuple[Bytes, np.random.Generator]]:
    """Of odd sizes; each third one of few levels, each fourth one gray."""
    random = np.random.default_rng(seed)
    some = []
    for k in range(count):
        least, most = sorted(random.integers(0, 257, 2).tolist()) if k % 3 == 0 else (0, 256)
        shape = (*random.integers(1, 50, 2).tolist(), 1 if k % 4 == 0 else 3)
        some.append((random.integers(least, max(most, least + 1), shape, dtype=np.uint8), random))
    return some


def test_drawn_changes_are_those_of_the_fall_back() -> None:
    """Which takes OpenCV, but for the way back from a hue."""
    for k, (image, random) in enumerate(images(tries(2000), seed=1)):
        strength = (1.0, 3.0, 31.0)[k % 3] if k % 5 == 0 else 0.8
        drawn = [
            (int(kind), random.uniform(max(0, 1 - strength), 1 + strength * 0.96)) for kind in random.permutation(4)
        ]
        drawn = [(kind, random.uniform(-0.5, 0.5) if kind == HUE else factor) for kind, factor in drawn]
        if k % 7 == 0:  # halves, which are rounded to even numbers
            drawn = [(kind, factor if kind == HUE else round(2 * factor) / 2) for kind, factor in drawn]
        expected = fallback(image, drawn)
        assert np.array_equal(changed(image, drawn), expected), (image.shape, drawn)
        turned = [(kind, round(factor * 255) % 256 if kind == HUE else factor) for kind, factor in drawn]
        assert np.array_equal(made(image, *turned, lanes=False), expected), (image.shape, drawn)


def test_levels_are_rounded_once() -> None:
    """In fractions of the factor as it is stored; a float64 can be wrong only beside a half."""
    ramp = np.arange(256, dtype=np.uint8).reshape(1, 256, 1).repeat(3, axis=2)
    for factor in (0.0, 0.1, 0.5, 0.999, 1.0, 1.1, 1.5, 1.7, 2.3, 4.0, 7.7, 31.0):
        for kind, mean in ((BRIGHTNESS, 0), (CONTRAST, 128)):
            exact = [v * Fraction(factor) + mean * (1 - Fraction(factor)) for v in range(256)]
            sure = np.array([abs(2 * x % 2 - 1) > Fraction(1, 10**9) for x in exact])
            expected = np.array([min(255, max(0, math.floor(x + Fraction(1, 2)))) for x in exact])
            for lanes in (True, False):
                level = made(ramp, (kind, factor), lanes=lanes)
                assert (level == level[..., :1]).all()
                assert np.array_equal(level[0, sure, 0], expected[sure]), (kind, factor)


@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("shift", [0, 1, 100, 255])
def test_hue_of_all_kinds_of_colors(shift: int, lanes: bool) -> None:
    """There as OpenCV does it, and back by its definition in whole numbers: sectors of the circle, without a half. What
    OpenCV makes on the way back, in floats, is another value once in 100,000 times, by one level."""
    import cv2

    levels = np.r_[0:256:5, 1:20:3, 254].astype(np.uint8)
    colors = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(len(levels), -1, 3)
    turned = cv2.cvtColor(colors, cv2.COLOR_RGB2HSV_FULL)
    turned[..., 0] += np.uint8(shift)
    h, s, v = turned.astype(int).transpose(2, 0, 1)
    sector, k = 2 * h // 85 % 6, 2 * h % 85
    shares = (np.zeros_like(h), s * 85, s * k, s * (85 - k))
    v, p, q, t = ((2 * v * (21675 - share) + 21675) // 43350 for share in shares)
    corners = ((v, t, p), (q, v, p), (p, v, t), (p, q, v), (t, p, v), (v, p, q))
    expected = np.stack([np.choose(sector, channel) for channel in zip(*corners, strict=True)], axis=-1)
    result = made(colors, (HUE, shift), lanes=lanes)
    assert np.array_equal(result, expected)
    apart = result != cv2.cvtColor(turned, cv2.COLOR_HSV2RGB_FULL)
    assert apart.mean() < 1e-4
    assert np.abs(result.astype(int) - cv2.cvtColor(turned, cv2.COLOR_HSV2RGB_FULL)).max() <= 1


def test_changes_within_a_batch_are_those_of_each_image() -> None:
    """Before the tables, in memory apart or in the result, at every size around that of the vectors."""
    for width in range(1, 60):
        pixels = noise(3 * 4 * width * 3).reshape(3, 4, width, 3)
        changes = np.array([[(k % 4, 0.7), ((k + 1) % 4, 1.2), (HUE, 77 * k)] for k in range(3)], np.float64)
        images = np.zeros(3, IMAGE)
        images["pixels"] = pixels.ctypes.data + np.arange(3, dtype=np.uintp) * pixels[0].nbytes
        images["end"], images["stride"] = pixels.ctypes.data + pixels.nbytes, width * 3
        images["height"], images["width"], images["flips"] = 4, width, 1
        images["box"], images["scaled"] = (0, 0, 4, width), (4, width)
        alone = np.stack([made(pixels[k, :, ::-1], *map(tuple, changes[k])) for k in range(3)])
        out, table = np.empty_like(alone), np.arange(768, dtype=np.float32).reshape(3, 256)
        resample(images, out, changes=changes)
        assert np.array_equal(out, alone)
        planes = np.empty((3, 3, 4, width), np.float32)
        resample(images, planes, planar=True, tables=table, changes=changes)
        assert np.array_equal(planes, alone.transpose(0, 3, 1, 2) + np.float32([[[0]], [[256]], [[512]]]))


NAN = float("nan")


@pytest.mark.parametrize("change", [(-1, 1), (4, 1), (0.5, 1), (NAN, 1), (0, -0.1), (1, NAN), (3, 256), (3, -1)])
def test_changes_that_do_not_fit_are_refused(change: tuple[float, float]) -> None:
    """Before anything is written, of an image and of a batch."""
    image, changes = np.full((5, 5, 3), 7, np.uint8), np.array([(BRIGHTNESS, 2), change], np.float64)
    with pytest.raises(ValueError, match="refused"):
        recolor(image, changes)
    source = np.zeros(1, IMAGE)
    source["pixels"], source["end"], source["stride"] = image.ctypes.data, image.ctypes.data + 75, 15
    source["height"], source["width"], source["box"], source["scaled"] = 5, 5, (0, 0, 5, 5), (5, 5)
    out = np.full((1, 5, 5, 3), 9, np.uint8)
    with pytest.raises(ValueError, match="refused"):
        resample(source, out, changes=changes[None])
    assert (image == 7).all()
    assert (out == 9).all()


def test_arguments_that_do_not_fit_are_refused() -> None:
    """Factors beyond the core's are left to OpenCV."""
    image, changes = np.full((5, 5, 3), 7, np.uint8), np.array([(BRIGHTNESS, 2.0)])
    for wrong in (image.astype(np.int8), image[0], image[..., :2].copy(), np.empty((0, 5, 3), np.uint8)):
        with pytest.raises(ValueError, match="image"):
            recolor(wrong, changes)
    for other in (changes.astype(np.float32), changes[0], changes[:, :1], np.repeat(changes, 2, axis=0)[:, ::-1]):
        with pytest.raises(ValueError, match="changes must be"):
            recolor(image, other)
    assert not recolor(image[:, ::-1], changes)
    assert not recolor(image, np.array([(BRIGHTNESS, MOST_FACTOR + 0.1)]))
    assert (image == 7).all()


def test_images_that_others_hold_stay() -> None:
    """A result is made in `out`, where that is no other part of the image's memory, or apart."""
    memory = noise(2 * 300)
    image, out = memory[:300].reshape(10, 10, 3), memory[60:360].reshape(10, 10, 3)
    kept = memory.copy()
    expected = made(image, (BRIGHTNESS, 0.5))
    assert np.array_equal(changed(image, [(BRIGHTNESS, 0.5)], out), expected)
    assert np.array_equal(changed(image[:, ::-1], [(BRIGHTNESS, 0.5)]), expected[:, ::-1])
    assert np.array_equal(memory, kept)
    assert changed(image, [], out) is image
    beside = np.empty_like(image)
    assert changed(image, [(BRIGHTNESS, 0.5)], beside) is beside
    assert changed(image, [(BRIGHTNESS, 0.5)], image) is image
    assert np.array_equal(image, expected)
