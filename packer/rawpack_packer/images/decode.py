"""Any image file: its header, its pixels."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Literal

import numpy as np

from rawpack.errors import DecodeError
from rawpack_packer.images import bmp, gif, jpeg, png, tiff, webp
from rawpack_packer.images.header import KNOWN_ONLY, ImageHeader, sniff
from rawpack_packer.images.orientation import apply_orientation
from rawpack_packer.images.pixels import Pixels, to_color

_OTHERS: dict[str, ModuleType] = {"png": png, "webp": webp, "bmp": bmp, "tiff": tiff, "gif": gif}


def read_header(data: bytes) -> ImageHeader:
    """Read the header of a whole image file, whatever its name; no pixel is decoded.

    Raises DecodeError: "empty", "not_an_image", "truncated", "corrupt" or "unsupported". Work and memory are bounded
    by the file's own size, and nothing outside `data` is read.
    """
    if not data:
        raise DecodeError("empty", "the file has no bytes")
    format = sniff(data[:32])
    if format == KNOWN_ONLY:
        raise DecodeError("unsupported", "HEIC, AVIF, JPEG XL, JPEG 2000 or PSD")
    if format is None:
        raise DecodeError("not_an_image", "its first bytes are of no known image type")
    try:
        return jpeg.read_header(data) if format == "jpeg" else _OTHERS[format].read_header(data)
    except (struct.error, IndexError) as error:
        raise DecodeError("truncated", f"{format} ends at byte {len(data)}, inside its header") from error


def decode_image(
    data: bytes,
    header: ImageHeader,
    *,
    color: Literal["rgb", "gray"],
    scale: int = 1,
    warnings: list[str] | None = None,
) -> Pixels:
    """Decode the first frame upright: uint8, C order, (H, W, 3) RGB or (H, W, 1) grey, of `header.upright_size`.

    `scale` 2, 4 or 8 divides that size, rounding up, and is for JPEG only, where it saves work.

    `header` is what `read_header` says of the same bytes; check its pixels first, for memory is used by them.
    Transparent pixels lie on white. 16-bit samples lose their low byte. Profiles are ignored. Grey is 0.299 R +
    0.587 G + 0.114 B; of a YCbCr JPEG, its Y plane. The array is the caller's. `warnings` gets what libjpeg says of
    oddities that leave the pixels whole.

    Raises DecodeError: "truncated", "corrupt" or "unsupported"; a partly decoded image is never returned.
    """
    try:
        if header.format == "jpeg":
            stored = jpeg.decode(data, header, color=color, scale=scale, warnings=warnings)
        else:
            stored = _OTHERS[header.format].decode(data, header)
    except (struct.error, IndexError) as error:
        raise DecodeError("truncated", f"{header.format} ends at byte {len(data)}, inside the image") from error
    return np.ascontiguousarray(apply_orientation(to_color(stored, color), header.orientation))
