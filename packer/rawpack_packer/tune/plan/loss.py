"""The loss of an image stored as JPEG or with reduced chroma, as PSNR and SSIM."""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.tables import resolve
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.recipe.tables import encoder_of
from rawpack_packer.samples.sample import encoded

Pixels = NDArray[np.uint8]
_SIGMA, _WINDOW = 1.5, (11, 11)
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


def as_read(image: Pixels, recipe: Recipe) -> tuple[Pixels, int]:
    """An image (H, W, C) as it is read back from a store made by `recipe`, and the bytes it takes there."""
    stored = encoded(image, recipe.encoding, recipe, [])
    decode = encoder_of(recipe.encoding).decode
    return resolve(decode)(stored, image.shape, recipe) if decode else image, stored.nbytes


def psnr(image: Pixels, other: Pixels) -> float:
    """Peak signal-to-noise ratio in dB over all channels of two images (H, W, C); infinite where they are equal."""
    error = float(np.mean((image.astype(np.float64) - other) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def ssim(image: Pixels, other: Pixels) -> float:
    """Structural similarity of the luma of two images (H, W, C), 1.0 where they are equal.

    As Wang, Bovik, Sheikh and Simoncelli (2004) define it: a Gaussian window of 11 x 11 with sigma 1.5, the mean over
    all places where it is inside the image; over the whole image where that is smaller than the window.
    """
    x, y = _luma(image), _luma(other)
    mean_x, mean_y = _blurred(x), _blurred(y)
    var_x, var_y = _blurred(x * x) - mean_x**2, _blurred(y * y) - mean_y**2
    both = _blurred(x * y) - mean_x * mean_y
    index = ((2 * mean_x * mean_y + _C1) * (2 * both + _C2)) / ((mean_x**2 + mean_y**2 + _C1) * (var_x + var_y + _C2))
    inside = index[5:-5, 5:-5]
    return float((inside if inside.size else index).mean())


def _luma(image: Pixels) -> NDArray[np.float64]:
    weights = np.array([0.299, 0.587, 0.114]) if image.shape[2] == 3 else np.ones(1)
    luma: NDArray[np.float64] = image.astype(np.float64) @ weights
    return luma


def _blurred(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(cv2.GaussianBlur(values, _WINDOW, _SIGMA, borderType=cv2.BORDER_REFLECT_101), np.float64)
