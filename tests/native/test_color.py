"""Changes of color in the native core: the values that their definition gives and the fall-back makes, and refusals."""

from __future__ import annotations

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


def test_what_the_core_does_not_do_is_left_to_opencv() -> None:
    image = np.full((5, 5, 3), 7, np.uint8)
    assert not recolor(image[:, ::-1], np.array([(BRIGHTNESS, 2.0)]))
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
