"""JPEG decoding: one interface over libjpeg-turbo.

    from rawpack import jpeg

    jpeg.decode(data)                                   # uint8 (H, W, 3), RGB
    jpeg.decode(data, box=(y, x, h, w))                 # decodes only the rows of blocks that the box needs
    jpeg.decode(data, color="gray", scale=4)

RAWPACK_JPEG chooses the library. Encoding is in the packer, which always uses OpenCV.
"""

from __future__ import annotations

from typing import Any

from rawpack.errors import DecodeError
from rawpack.jpeg.choice import decoder, last_resort
from rawpack.jpeg.decoder import Box, Color, Data, JpegDecoder, Pixels, as_bytes
from rawpack.jpeg.header import JpegHeader
from rawpack.jpeg.header import read_header as _read_header
from rawpack.jpeg.region import decode_box

__all__ = [
    "Box",
    "Color",
    "Data",
    "JpegDecoder",
    "JpegHeader",
    "Pixels",
    "decode",
    "decode_whole",
    "decoder",
    "read_header",
]


def decode(
    data: Data,
    box: Box | None = None,
    scale: int = 1,
    color: Color = "rgb",
    warnings: list[str] | None = None,
) -> Pixels:
    """The image, or its part `box` = (y, x, h, w) in stored pixels, then reduced by `scale` (1, 2, 4 or 8).

    See `JpegDecoder.decode`, and `rawpack.jpeg.region.decode_box` for boxes. A file that the chosen decoder does not
    support, such as one with unusual sampling factors, is passed to OpenCV.
    """
    if box is None:
        return decode_whole(data, color=color, scale=scale, warnings=warnings)
    return decode_box(decode_whole, data, box, color=color, scale=scale, warnings=warnings)


def read_header(data: Data) -> JpegHeader:
    """Size, components and structure of a JPEG, without decoding it. Raises DecodeError."""
    return _read_header(as_bytes(data))


def decode_whole(data: Data, **options: Any) -> Pixels:
    """As `JpegDecoder.decode`, by OpenCV where the chosen decoder does not support the file."""
    try:
        return decoder().decode(data, **options)
    except DecodeError as error:
        other = last_resort() if error.reason == "unsupported" else None
        if other is None:
            raise
        try:
            return other.decode(data, **options)
        except DecodeError as refusal:
            raise (error if refusal.reason == "unsupported" else refusal) from None
