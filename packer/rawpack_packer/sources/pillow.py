"""The pixels of PIL images in memory, as if they were packed from files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError

_GREY = ("1", "L", "LA", "La")
"""Modes without colors, besides those whose names begin with I;16."""


def is_pillow(value: Any) -> bool:
    """Whether a value is a PIL image. Does not import Pillow."""
    return type(value).__module__.startswith("PIL.") and hasattr(value, "convert")


def is_grey(image: Any) -> bool:
    """Whether a PIL image has no colors."""
    return image.mode in _GREY or image.mode.startswith("I;16")


def check_mode(image: Any) -> None:
    """Raise DecodeError for a PIL image whose values have no range, so that no value is white."""
    if image.mode in ("I", "F"):
        raise DecodeError(
            "bad_field", f"the image is a PIL image of mode {image.mode}, no picture: pass np.asarray(image)"
        )


def pixels_of(image: Any) -> NDArray[np.uint8]:
    """The pixels of a PIL image: (H, W) or (H, W, 1) where it is grey, else (H, W, 3). Raises DecodeError.

    Transparent pixels are laid on white; grey of 16 bits loses its low byte. An image from `PIL.Image.open` is turned
    upright by its EXIF orientation. One that was made by `convert`, `rotate`, `resize`, ... is not: Pillow leaves the
    tag on it, turned or not.
    """
    from rawpack_packer.images.header import exif_orientation
    from rawpack_packer.images.pixels import apply_orientation, on_white

    check_mode(image)
    image.load()  # turns a TIFF upright, and removes its tag
    if image.mode == "La":
        image = image.convert("LA")  # the only mode that Pillow converts it to
    opened = image.format is not None
    transparent = getattr(image, "has_transparency_data", True)  # not known before Pillow 10.1
    if image.mode.startswith("I;16"):
        pixels = (np.asarray(image) >> 8).astype(np.uint8)
    elif image.mode in ("L", "RGB") and not (opened and transparent):
        pixels = np.asarray(image)
    elif transparent:
        rgba = np.asarray(image.convert("RGBA"))
        pixels = on_white(rgba[..., :3], rgba[..., 3])
    else:
        pixels = np.asarray(image.convert("RGB"))
    if pixels.ndim == 3 and is_grey(image):
        pixels = pixels[..., :1]  # the channels of RGB are equal
    turn = exif_orientation(image.info.get("exif") or b"") if opened else 1
    if turn == 1:
        return pixels
    return np.ascontiguousarray(apply_orientation(pixels.reshape(*pixels.shape[:2], -1), turn))
