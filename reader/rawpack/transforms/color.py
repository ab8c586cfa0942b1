"""Random changes of color."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.native.calls import recolor
from rawpack.transforms.arguments import numbers_of
from rawpack.transforms.randomness import Random
from rawpack.transforms.step import Array, Spec, Step, apart

_LUMA = (0.299, 0.587, 0.114)
LEVELS = np.arange(256, dtype=np.float64)
"""All values of a byte."""
Changes = Sequence[tuple[int, float]]
"""What is done to an image, in this order: BRIGHTNESS, CONTRAST or SATURATION and a factor, HUE and a shift in full
circles."""


class ColorJitter(Step):
    """Change brightness, contrast, saturation and hue by random factors, in random order. For uint8 images; in a batch
    of several images, for those of three channels, unless `fields` names others."""

    any_size = True

    def __init__(
        self,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        hue: float | Sequence[float] = 0,
        *,
        fields: Sequence[str] | None = None,
    ) -> None:
        """brightness, contrast, saturation: x for a factor from max(0, 1 - x) to 1 + x, or (least, greatest).
        hue: x for a shift by -x to x of the full circle, x up to 0.5, or (least, greatest). fields: see above."""
        self.only(fields)
        self.brightness = _factors("brightness", brightness)
        self.contrast = _factors("contrast", contrast)
        self.saturation = _factors("saturation", saturation)
        self.hue = _factors("hue", hue, center=0.0, least=-0.5, greatest=0.5)

    def makes(self, spec: Spec) -> Spec:
        return uint8_pixels(self, spec)

    def plain(self) -> None:
        return None

    def draw(self, random: Random, height: int, width: int) -> list[tuple[int, float]]:
        """What is done to one image, as `Changes`."""
        order = [0, 1, 2, 3]
        for last in (3, 2, 1):
            k = random.integer(last + 1)
            order[last], order[k] = order[k], order[last]
        ranges = (self.brightness, self.contrast, self.saturation, self.hue)
        factors = {k: random.uniform(*pair) for k, pair in enumerate(ranges) if pair is not None}
        return [(k, factors[k]) for k in order if k in factors]

    @property
    def strongest(self) -> float:
        """The greatest factor that may be drawn."""
        return max((pair[1] for pair in (self.brightness, self.contrast, self.saturation) if pair), default=0.0)

    def apply(self, image: Array, drawn: Changes, out: Array | None = None) -> Array:
        return changed(image, drawn, out)


def uint8_pixels(step: object, spec: Spec) -> Spec:
    """`spec`, or UsageError where it is not a uint8 image (H, W, C) of 1 or 3 channels."""
    if spec.pixels(step).dtype != "uint8" or spec.shape[2] not in (1, 3):
        cure = "" if spec.dtype == "uint8" else ": ConvertImageDtype makes floats of these, without this step"
        raise UsageError(f"{step!r} needs uint8 images of 1 or 3 channels, not {spec.dtype} {spec.shape}{cure}")
    return spec


def changed(image: Array, changes: Changes, out: Array | None = None) -> Array:
    """A uint8 image (H, W, C) after these changes, in this order. out: as of `Step.apply`."""
    factors = factors_of([changes])[0]
    if not len(factors) or not image.size:
        return image
    if image is not out:
        out = apart(out, image)
        out = np.empty(image.shape, np.uint8) if out is None else out
        np.copyto(out, image)
    if recolor(out, factors):
        return out
    for kind, factor in factors.tolist():
        image = _CHANGES[int(kind)](image, factor)
    return image


def factors_of(drawn: Sequence[Changes]) -> NDArray[np.float64]:
    """(n, count, 2): what is done to several images, each by as many changes, as the native core has it."""
    factors = np.array(drawn, np.float64).reshape(len(drawn), -1, 2)
    hues = factors[..., 0] == HUE
    factors[hues, 1] = np.rint(factors[hues, 1] * 255) % 256
    return factors


def brightness(image: Array, factor: float) -> Array:
    """All values of a uint8 image (H, W, C) times `factor`."""
    return by_level(image, LEVELS * factor)


def contrast(image: Array, factor: float) -> Array:
    """The distance of all values from the mean of the luma, times `factor`."""
    import cv2

    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) if image.shape[2] == 3 else image
    return by_level(image, LEVELS * factor + round(float(cv2.mean(gray)[0])) * (1 - factor))


def saturation(image: Array, factor: float) -> Array:
    """A weighted sum of each pixel and its luma: gray for 0, itself for 1."""
    import cv2

    return cv2.transform(image, np.eye(3) * factor + (1 - factor) * np.array([_LUMA])) if image.shape[2] == 3 else image


def hue(image: Array, shift: float) -> Array:
    """All hues, 0 to 255, plus `shift`, a whole number, modulo 256."""
    import cv2

    if image.shape[2] != 3:
        return image
    hues, s, v = cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL))
    made, s, v, whole = np.empty_like(image), s.astype(np.float32), v.astype(np.float32), np.float32(_SECTOR * 255)
    for c, far in enumerate(_FAR):
        # Exact: the products are below 2^24, and no quotient is as near to a half as float32 rounds.
        made[..., c] = np.rint(v * (whole - s * far[hues + np.uint8(shift)]) / whole)
    return made


BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_CHANGES = (brightness, contrast, saturation, hue)
_SECTOR = 85
"""A sixth of the circle of hues, in halves of one: 510 are the circle."""
_FAR = (2 * np.arange(256) + np.array([[425], [255], [85]])) % 510
_FAR = np.minimum(_FAR, 4 * _SECTOR - _FAR).clip(0, _SECTOR).astype(np.float32)
"""(channel, hue): how far a channel is from the greatest one, where the saturation is full, in sectors / 85."""


def by_level(image: Array, levels: NDArray[np.float64]) -> Array:
    """A uint8 image (H, W, C) with each value replaced by its entry in `levels`, which is rounded. levels: (256,), or
    (256, C) for different ones by channel."""
    import cv2

    table = np.rint(levels.clip(0, 255)).astype(np.uint8)
    made: Array = cv2.LUT(image, table if levels.ndim == 1 else table[None])
    return made.reshape(image.shape)


def _factors(
    name: str,
    value: float | Sequence[float],
    center: float = 1.0,
    least: float = 0.0,
    greatest: float = float("inf"),
) -> tuple[float, float] | None:
    """(least, greatest) of a random factor; None if it would change nothing."""
    given = numbers_of(value)
    if len(given) == 1:
        (most,) = given
        if most < 0 or center + most > greatest:
            raise UsageError(
                f"{name}={value!r} must be " + (f"between 0 and {greatest}" if greatest < 1 else "at least 0")
            )
        low, high = max(least, center - most), center + most
    else:
        low, high = given if len(given) == 2 else (math.nan, math.nan)
        if not least <= low <= high <= greatest:
            raise UsageError(f"{name}={value!r} must be a number, or (least, greatest), from {least} to {greatest}")
    return None if low == high == center else (low, high)
