"""Any image file: its header, its pixels."""

from __future__ import annotations

import struct
from typing import Literal

import numpy as np

from rawpack.errors import DecodeError
from rawpack_packer.images import bmp, jpeg, png
from rawpack_packer.images.header import KNOWN_ONLY, ImageHeader, looks_like_tga, sniff
from rawpack_packer.images.orientation import apply_orientation
from rawpack_packer.images.pixels import Pixels, to_color

_OWN = {"jpeg": jpeg.read_header, "png": png.read_header, "bmp": bmp.read_header}


def by_pillow(header: ImageHeader) -> bool:
    """Whether Pillow decodes this type, so that its version decides what the pixels are."""
    return header.format not in _OWN


def read_header(data: bytes) -> ImageHeader:
    """Read the header of a whole image file, whatever its name; no pixel is decoded.

    Raises DecodeError: "empty", "not_an_image", "truncated", "corrupt" or "unsupported". Work and memory are bounded
    by the file's own size, and nothing outside `data` is read.
    """
    if not data:
        raise DecodeError("empty", "the file has no bytes")
    format = sniff(data[:32]) or ("tga" if looks_like_tga(data[:18]) else None)
    if format == KNOWN_ONLY:
        raise DecodeError("unsupported", "JPEG XL or PSD")
    if format is None:
        raise DecodeError("not_an_image", "its first bytes are of no known image type")
    try:
        if format in _OWN:
            return _OWN[format](data)
        from rawpack_packer.images import with_pillow

        return with_pillow.read_header(data, format)
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
        elif header.format in _OWN:
            stored = (png if header.format == "png" else bmp).decode(data, header)
        else:
            from rawpack_packer.images import with_pillow

            return np.ascontiguousarray(to_color(with_pillow.decode(data, header), color))
    except (struct.error, IndexError) as error:
        raise DecodeError("truncated", f"{header.format} ends at byte {len(data)}, inside the image") from error
    return np.ascontiguousarray(apply_orientation(to_color(stored, color), header.orientation))
