"""Arrays as pictures that a browser shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import PackError
from rawpack_packer.inspect.contact_sheet import as_pixels, channels_last
from rawpack_packer.inspect.contact_sheet import thumbnail as shrunk

Pixels = NDArray[np.uint8]
Picture = tuple[str, bytes]
"""Its type, as HTTP has it, and its bytes."""
_QUALITY = 85
_BAND = 1 << 20
"""Values that are computed with at a time."""
_IGNORED = 255
_HUES = np.array([[(k * 67 % 180, 200, 255 - k % 3 * 50) for k in range(256)]], np.uint8)
_PALETTE = cv2.cvtColor(_HUES, cv2.COLOR_HSV2RGB)[0]
"""Colors (256, 3) of the values of masks; neighbors differ much in hue."""


def size_of(image: NDArray[Any]) -> tuple[int, int]:
    """(height, width) of its picture."""
    height, width, _ = channels_last(image).shape
    return height, width


def png(image: NDArray[Any]) -> Picture:
    """All pixels as they are."""
    return "image/png", _encoded(".png", as_pixels(image), [cv2.IMWRITE_PNG_COMPRESSION, 1])


def thumbnail(image: NDArray[Any], side: int) -> Picture:
    """A JPEG of at most `side` pixels each way; smaller images as they are, without loss."""
    if max(size_of(image)) <= side:
        return png(image)
    return "image/jpeg", _encoded(".jpg", shrunk(image, side), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])


def mask_layer(mask: NDArray[Any]) -> Picture:
    """A mask (H, W) or (H, W, 1) as colors over its image: 0 is clear, 255 gray. Colors repeat after 254 values."""
    mask = mask.reshape(mask.shape[:2])
    colors = np.empty((*mask.shape, 4), np.uint8)
    for band in _bands(mask):
        values = mask[band].astype(np.int64)
        colors[band, :, :3] = _PALETTE[values % 254]
        colors[band, :, 3] = np.where(values == 0, 0, 150)
        colors[band, :, :3][values == _IGNORED] = 128
    return "image/png", _encoded(".png", colors, [cv2.IMWRITE_PNG_COMPRESSION, 1])


def difference(one: NDArray[Any], other: NDArray[Any], gain: float) -> Picture:
    """Where two images of one shape differ: gray where they are equal, `gain` times the difference around it."""
    one, change = as_pixels(one), as_pixels(other).copy()
    for band in _bands(one):
        wide = (change[band].astype(np.float64) - one[band]) * gain
        change[band] = (128 + wide).clip(0, 255)
    return png(change)


def psnr(one: NDArray[Any], other: NDArray[Any]) -> float | None:
    """The peak signal-to-noise ratio in dB of two uint8 images of one shape, 10 log10(255^2 / mean squared error) over
    all channels; None where they are equal."""
    error = sum(int(np.sum((other[band].astype(np.int64) - one[band]) ** 2)) for band in _bands(one))
    return 10 * float(np.log10(255**2 / (error / one.size))) if error else None


def _bands(image: NDArray[Any]) -> Iterator[slice]:
    """The rows of an image, some at a time, so that wider numbers for all of its pixels are never in memory."""
    step = max(1, _BAND * len(image) // max(image.size, 1))
    return (slice(start, start + step) for start in range(0, len(image), step))


def _encoded(suffix: str, image: Pixels, options: list[int]) -> bytes:
    """A file of an image (H, W, 1, 3 or 4), RGB or RGBA."""
    codes = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
    ordered = cv2.cvtColor(image, codes[image.shape[2]]) if image.shape[2] in codes else image
    done, data = cv2.imencode(suffix, ordered, options)
    if not done:
        raise PackError(f"OpenCV cannot write an image of {image.shape}")
    return data.tobytes()
