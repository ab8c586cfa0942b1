"""Random changes of color."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.transforms.randomness import Random
from rawpack.transforms.step import Array, Spec, Step

_LUMA = (0.299, 0.587, 0.114)
_LEVELS = np.arange(256, dtype=np.float64)


class Jitter(NamedTuple):
    """What is done to one image."""

    order: list[int]
    """0 brightness, 1 contrast, 2 saturation, 3 hue: which comes when."""
    factors: list[float | None]
    """Of each, by its number; None where it is left alone."""


class ColorJitter(Step):
    """Change brightness, contrast, saturation and hue by random factors, in random order. For uint8 images."""

    def __init__(
        self,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        hue: float | Sequence[float] = 0,
    ) -> None:
        """brightness, contrast, saturation: x for a factor from max(0, 1 - x) to 1 + x, or (least, greatest).
        hue: x for a shift from -x to x of the circle, x up to 0.5, or (least, greatest)."""
        self.brightness = _factors("brightness", brightness)
        self.contrast = _factors("contrast", contrast)
        self.saturation = _factors("saturation", saturation)
        self.hue = _factors("hue", hue, center=0.0, least=-0.5, greatest=0.5)

    def makes(self, spec: Spec) -> Spec:
        if spec.pixels(self).dtype != "uint8" or spec.shape[2] not in (1, 3):
            raise UsageError(f"{self!r} needs uint8 images of 1 or 3 channels, not {spec.dtype} {spec.shape}")
        return spec

    def draw(self, random: Random, height: int, width: int) -> Jitter:
        order = [0, 1, 2, 3]
        for last in (3, 2, 1):
            k = random.integer(last + 1)
            order[last], order[k] = order[k], order[last]
        ranges = (self.brightness, self.contrast, self.saturation, self.hue)
        return Jitter(order, [None if pair is None else random.uniform(*pair) for pair in ranges])

    def apply(self, image: Array, drawn: Jitter, out: Array | None = None) -> Array:
        import cv2

        color = image.shape[2] == 3
        for number in drawn.order:
            factor = drawn.factors[number]
            if factor is None or (number > 1 and not color):
                continue
            if number == 0:
                image = cv2.LUT(image, _table(_LEVELS * factor))
            elif number == 1:
                gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) if color else image
                image = cv2.LUT(image, _table(_LEVELS * factor + round(float(cv2.mean(gray)[0])) * (1 - factor)))
            elif number == 2:
                # A weighted sum of each pixel and its luma.
                matrix = np.eye(3) * factor + (1 - factor) * np.array([_LUMA])
                image = cv2.transform(image, matrix)
            else:
                hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
                shift = round(factor * 255) % 256
                hsv[..., 0] += np.uint8(shift)
                image = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL)
            image = image if image.ndim == 3 else image[..., None]
        return image


def _table(levels: NDArray[np.float64]) -> NDArray[np.uint8]:
    rounded: NDArray[np.uint8] = np.rint(levels.clip(0, 255)).astype(np.uint8)
    return rounded


def _factors(
    name: str,
    value: float | Sequence[float],
    center: float = 1.0,
    least: float = 0.0,
    greatest: float = float("inf"),
) -> tuple[float, float] | None:
    """(least, greatest) of a random factor; None where it would change nothing."""
    if isinstance(value, int | float):
        if value < 0 or center + value > greatest:
            raise UsageError(
                f"{name}={value!r} must be a number from 0" + (f" to {greatest}" if greatest < 1 else " up")
            )
        low, high = max(least, center - value), center + value
    else:
        low, high = (float(one) for one in value)
        if not least <= low <= high <= greatest:
            raise UsageError(f"{name}={value!r} must be (least, greatest), from {least} to {greatest}")
    return None if low == high == center else (low, high)
