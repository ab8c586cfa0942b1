"""RandAugment: a few of fourteen operations on each image, drawn at random, all of one strength."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.checks import whole_number
from rawpack.transforms.arguments import check_values, interpolation_of
from rawpack.transforms.color import LEVELS, brightness, by_level, contrast, saturation, uint8_pixels
from rawpack.transforms.randomness import Random
from rawpack.transforms.resizing import resizable
from rawpack.transforms.step import Array, Spec, Step

Operation = tuple[str, float]
"""What is done to an image: the name of an operation, and its magnitude."""
_SHARE = 150 / 331
"""Of the image's side: the farthest that TranslateX and TranslateY go."""
_INTERPOLATIONS = ("nearest", "bilinear", "bicubic")


class RandAugment(Step):
    """Apply `num_ops` random operations, each of the same strength: the fourteen of torchvision. For uint8 images.

    Masks go along with the geometric operations: by the nearest pixel, and 0 where nothing was. So do images of other
    kinds than uint8 of three channels beside such, by the interpolation. Boxes cannot.
    """

    refuses = ("boxes",)

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
        *,
        fields: Sequence[str] | None = None,
    ) -> None:
        """num_ops: operations for each image; the same one may come twice. magnitude: the strength, from 0 to
        num_magnitude_bins - 1. interpolation: "nearest", "bilinear" or "bicubic", of the geometric operations. fill:
        what these leave empty, one value or one for each channel; None is 0. fields: the images and masks; None for
        all."""
        self.num_ops = whole_number("num_ops", num_ops, 0)
        self.num_magnitude_bins = whole_number("num_magnitude_bins", num_magnitude_bins, 2)
        self.magnitude = whole_number("magnitude", magnitude, 0, self.num_magnitude_bins - 1)
        self.interpolation = interpolation_of(interpolation, _INTERPOLATIONS)
        self.fill = 0 if fill is None else fill
        self._plain = False
        self.only(fields)

    def makes(self, spec: Spec) -> Spec:
        if self._plain:
            return resizable(self, spec)
        check_values(self, "fill", self.fill, uint8_pixels(self, spec).dtype, spec.shape[2])
        return spec

    def makes_mask(self, spec: Spec) -> Spec:
        return spec.pixels(self)

    def plain(self) -> RandAugment:
        plain = copy(self)
        plain._plain, plain.fill = True, 0
        return plain

    def scaled(self, factor: Fraction) -> RandAugment:
        return self  # magnitudes are shares of the image

    def magnified(self, drawn: Sequence[Operation], times: int) -> list[Operation]:
        return [(name, size * times if name in _SHIFTS else size) for name, size in drawn]

    def draw(self, random: Random, height: int, width: int) -> list[Operation]:
        magnitudes = _magnitudes(self.magnitude / (self.num_magnitude_bins - 1), height, width)
        drawn = list[Operation]()
        for _ in range(self.num_ops):
            name = OPERATIONS[random.integer(len(OPERATIONS))]
            magnitude = magnitudes.get(name, 0.0)
            if name in _SIGNED and random.random() < 0.5:
                magnitude = -magnitude
            drawn.append((name, magnitude))
        return drawn

    def apply(self, image: Array, drawn: Sequence[Operation], out: Array | None = None) -> Array:
        code, fill = _INTERPOLATIONS.index(self.interpolation), np.broadcast_to(self.fill, image.shape[2]).tolist()
        for name, magnitude in drawn:
            if name in _GEOMETRIC:
                image = _warp(image, _matrix(name, magnitude, image), code, fill)
            elif name in _OF_PIXELS and not self._plain:
                image = _OF_PIXELS[name](image, magnitude)
        return image

    def apply_mask(self, mask: Array, drawn: Sequence[Operation], out: Array | None = None) -> Array:
        for name, magnitude in drawn:
            if name in _GEOMETRIC:
                mask = _warped_mask(mask, _matrix(name, magnitude, mask))
        return mask


@lru_cache
def _magnitudes(strength: float, height: int, width: int) -> Mapping[str, float]:
    """The magnitude of each operation that has one. strength: from 0 to 1."""
    return {
        "ShearX": 0.3 * strength,
        "ShearY": 0.3 * strength,
        "TranslateX": float(int(_SHARE * width * strength)),
        "TranslateY": float(int(_SHARE * height * strength)),
        "Rotate": 30 * strength,
        "Brightness": 0.9 * strength,
        "Color": 0.9 * strength,
        "Contrast": 0.9 * strength,
        "Sharpness": 0.9 * strength,
        "Posterize": round(8 - 4 * strength),
        "Solarize": 255 * (1 - strength),
    }


# ---------------------------------------------------------------------------------------------- geometry


_Matrix = list[list[float]]
"""For x and for y, where the point (x, y) of the result comes from: the factors of x and y, and a shift."""


def _rotation(degrees: float, height: int, width: int) -> _Matrix:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = width / 2, height / 2
    return [[cos, -sin, x - cos * x + sin * y], [sin, cos, y - sin * x - cos * y]]


_GEOMETRIC: dict[str, Callable[[float, int, int], _Matrix]] = {
    "ShearX": lambda magnitude, height, width: [[1, magnitude, 0], [0, 1, 0]],
    "ShearY": lambda magnitude, height, width: [[1, 0, 0], [magnitude, 1, 0]],
    "TranslateX": lambda magnitude, height, width: [[1, 0, -magnitude], [0, 1, 0]],
    "TranslateY": lambda magnitude, height, width: [[1, 0, 0], [0, 1, -magnitude]],
    "Rotate": _rotation,
}


def _matrix(name: str, magnitude: float, image: Array) -> NDArray[np.float64]:
    """OpenCV's matrix of a geometric operation, which counts from the centers of pixels and not from their corners."""
    matrix = np.array(_GEOMETRIC[name](magnitude, *image.shape[:2]), np.float64)
    matrix[:, 2] += (matrix[:, :2].sum(axis=1) - 1) / 2
    return matrix


def _warp(image: Array, matrix: NDArray[np.float64], code: int, fill: Sequence[float]) -> Array:
    """An image (H, W) or (H, W, C) after a geometric operation. code: of the interpolation."""
    import cv2

    flags = code | cv2.WARP_INVERSE_MAP
    made = cv2.warpAffine(image, matrix, (image.shape[1], image.shape[0]), None, flags, cv2.BORDER_CONSTANT, fill)
    return made.reshape(image.shape)


def _warped_mask(mask: Array, matrix: NDArray[np.float64]) -> Array:
    """A mask of any dtype and number of channels: where its pixels come from is found with images of their places."""
    # One channel of float32: with two, or float64, OpenCV rounds some places otherwise than for images of bytes.
    places: Array = np.indices(mask.shape[:2], np.float32)
    rows, columns = (_warp(one, matrix, 0, [-1]).astype(np.int32) for one in places)
    made = mask[rows, columns]
    made[rows < 0] = 0
    return made


# ---------------------------------------------------------------------------------------------- values


def _sharpness(image: Array, factor: float) -> Array:
    """A weighted sum of each pixel and the mean around it, in which it counts five times. The outermost pixels stay."""
    import cv2

    if min(image.shape[:2]) <= 2:
        return image
    kernel = np.ones((3, 3))
    kernel[1, 1] = 5
    smooth = cv2.filter2D(image, -1, kernel / 13).reshape(image.shape)
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        smooth[edge] = image[edge]
    return cv2.addWeighted(image, factor, smooth, 1 - factor, 0).reshape(image.shape)


def _autocontrast(image: Array) -> Array:
    """Each channel stretched to the whole range; rounded down, as Pillow does it."""
    levels = []
    for counts in _histograms(image):
        least, most = counts.nonzero()[0][[0, -1]].tolist()
        scale = 255 / max(most - least, 1)
        levels.append(LEVELS if least == most else np.floor(LEVELS * scale - least * scale))
    return by_level(image, np.stack(levels, axis=1))


def _equalize(image: Array) -> Array:
    """Each channel's histogram made as even as its levels allow."""
    levels = []
    for counts in _histograms(image):
        step = (counts.sum() - counts[counts.nonzero()[0][-1]]) // 255
        before = np.cumsum(counts) - counts
        levels.append((before + step // 2) // step if step else LEVELS)
    return by_level(image, np.stack(levels, axis=1))


def _histograms(image: Array) -> list[NDArray[np.int64]]:
    return [np.bincount(channel.reshape(-1), minlength=256) for channel in image.transpose(2, 0, 1)]


_OF_PIXELS: dict[str, Callable[[Array, float], Array]] = {
    "Brightness": lambda image, magnitude: brightness(image, 1 + magnitude),
    "Color": lambda image, magnitude: saturation(image, 1 + magnitude),
    "Contrast": lambda image, magnitude: contrast(image, 1 + magnitude),
    "Sharpness": lambda image, magnitude: _sharpness(image, 1 + magnitude),
    "Posterize": lambda image, bits: image & np.uint8(256 - 2 ** (8 - int(bits))),
    "Solarize": lambda image, bound: by_level(image, np.where(bound > LEVELS, LEVELS, 255 - LEVELS)),
    "AutoContrast": lambda image, _: _autocontrast(image),
    "Equalize": lambda image, _: _equalize(image),
}

_SHIFTS = ("TranslateX", "TranslateY")
"""Operations whose magnitude is in pixels."""
_SIGNED = (*_GEOMETRIC, "Brightness", "Color", "Contrast", "Sharpness")
OPERATIONS = ("Identity", *_GEOMETRIC, *_OF_PIXELS)
