"""OpenCV as a decoder: quiet, without its own ideas of orientation, and checked against the header."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.images.header import ImageHeader
from rawpack_packer.images.pixels import Pixels, bands, on_white

MAX_SIDE = 1_000_000
"""No wider or higher image is given to OpenCV: libpng stops here, OpenCV itself at 2^20."""


_SILENT = 0
"""Level of OpenCV's log."""


@contextmanager
def _silence() -> Iterator[None]:
    """OpenCV's log off: it would tell stderr of every broken file that is rejected anyway."""
    home: Any = getattr(cv2.utils, "logging", cv2)  # moved there in OpenCV 5
    before = home.getLogLevel()
    home.setLogLevel(_SILENT)
    try:
        yield
    finally:
        home.setLogLevel(before)


def decode_stored(data: bytes | bytearray, header: ImageHeader) -> NDArray[Any]:
    """The file as OpenCV stores it: (H, W, 1), BGR (H, W, 3) or BGRA (H, W, 4), uint8 or uint16, not turned."""
    if max(header.height, header.width) > MAX_SIDE:
        size = f"{header.width} x {header.height}"
        raise DecodeError("unsupported", f"{size} {header.format}: OpenCV takes {MAX_SIDE} pixels a side")
    try:
        with _silence():
            image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise DecodeError("corrupt", f"OpenCV refuses this {header.format}: {error.err}") from error
    if image is None:
        raise DecodeError("corrupt", f"OpenCV cannot decode this {header.format}")
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[:2] != (header.height, header.width) or image.dtype not in (np.uint8, np.uint16):
        found = f"{image.shape[1]} x {image.shape[0]} {image.dtype}"
        raise DecodeError(
            "corrupt", f"{header.format} of {header.width} x {header.height} by its header decodes to {found}"
        )
    return image


def to_pixels(stored: NDArray[Any], *, alpha: str = "straight") -> Pixels:
    """Grey (H, W, 1) or RGB (H, W, 3) uint8 of OpenCV's layout; of 16-bit samples, the high byte.

    `alpha`, of four channels: "straight", "premultiplied" (both end on white) or "ignored". May work in place.
    """
    height, width, channels = stored.shape
    eight_bits = stored.dtype == np.uint8
    if eight_bits and channels == 1:
        return stored
    pixels = stored if eight_bits and channels == 3 else np.empty((height, width, min(channels, 3)), np.uint8)
    for rows in bands(height, width):
        band: Pixels = stored[rows] if eight_bits else (stored[rows] >> 8).astype(np.uint8)
        if channels == 4 and alpha != "ignored" and band[..., 3].min() < 255:
            band = on_white(band[..., :3], band[..., 3], premultiplied=alpha == "premultiplied")
        if channels == 1:
            pixels[rows] = band
        else:
            code = cv2.COLOR_BGRA2RGB if band.shape[2] == 4 else cv2.COLOR_BGR2RGB
            cv2.cvtColor(band, code, dst=pixels[rows])
    return pixels
