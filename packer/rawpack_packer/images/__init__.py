"""Decodes the bytes of an image file to upright uint8 pixels."""

from __future__ import annotations

import os
import struct
import sys
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack.system.memory import keep_freed_memory
from rawpack_packer.errors import stand_in
from rawpack_packer.images import jpeg, png
from rawpack_packer.images.header import (
    KNOWN_ONLY,
    ImageHeader,
    JpegDetails,
    apply_orientation,
    looks_like_tga,
    sniff,
    to_color,
)

__all__ = [
    "ImageHeader",
    "JpegDetails",
    "apply_orientation",
    "by_pillow",
    "decode_image",
    "init_decoder_process",
    "read_header",
    "sniff",
]

_OWN = {"jpeg": jpeg.read_header, "png": png.read_header}


def by_pillow(header: ImageHeader) -> bool:
    """Whether the pixels depend on the version of Pillow. Of a BMP, which it also decodes, they are the file's own."""
    return header.format not in (*_OWN, "bmp")


def read_header(data: bytes) -> ImageHeader:
    """Read the header of a complete image file, whatever its name; no pixel is decoded.

    Raises DecodeError: "empty", "not_an_image", "truncated", "corrupt" or "unsupported". The file's own size bounds
    work and memory, and nothing outside `data` is read.
    """
    if not data:
        raise DecodeError("empty", "the file has no bytes")
    format = sniff(data[:32]) or ("tga" if looks_like_tga(data[:18]) else None)
    if format == KNOWN_ONLY:
        raise DecodeError("unsupported", "JPEG XL or PSD")
    if format is None:
        instead = stand_in(data)
        what = f"it is {instead}" if instead else "its first bytes are of no known image type"
        raise DecodeError("not_an_image", what)
    try:
        if format in _OWN:
            return _OWN[format](data)
        # Pillow is loaded only where it is used.
        from rawpack_packer.images import tiff, with_pillow

        return tiff.read_header(data) if format == "tiff" else with_pillow.read_header(data, format)
    except (struct.error, IndexError) as error:
        raise DecodeError("truncated", f"{format} ends at byte {len(data)}, inside its header") from error


def decode_image(
    data: bytes,
    header: ImageHeader,
    *,
    color: Literal["rgb", "gray"],
    scale: int = 1,
    warnings: list[str] | None = None,
    notes: list[str] | None = None,
    deep: bool = False,
) -> NDArray[Any]:
    """Decode the first frame, upright: C order, (H, W, 3) RGB or (H, W, 1) gray, of `header.upright_size`.

    header: what `read_header` returns for the same data; check its size first, because memory is allocated by it.
    scale: 2, 4 or 8 divides the size, rounding up; for JPEG only, where it saves work. warnings: gets libjpeg's
    complaints about oddities that leave the pixels intact. notes: gets "blended" where pixels were not opaque, and a
    `depth_count` where values lost bits. deep: as uint16, whose values are the file's, of a file of more than 8 bits;
    else as uint8: 16-bit samples lose their low byte.

    Alpha is blended with white, profiles are ignored. Gray is 0.299 R + 0.587 G +
    0.114 B; of a YCbCr JPEG, its Y plane. The caller owns the array.

    Raises DecodeError: "truncated", "corrupt" or "unsupported"; a partly decoded image is never returned.
    """
    notes = [] if notes is None else notes
    try:
        if header.format == "jpeg":
            upright = apply_orientation(
                jpeg.decode(data, header, color=color, scale=scale, warnings=warnings), header.orientation
            )
        elif header.format in _OWN:
            upright = apply_orientation(png.decode(data, header, notes, deep=deep), header.orientation)
        else:
            from rawpack_packer.images import tiff, with_pillow

            upright = (tiff if header.format == "tiff" else with_pillow).decode(data, header, notes, deep=deep)
    except (struct.error, IndexError) as error:
        raise DecodeError("truncated", f"{header.format} ends at byte {len(data)}, inside the image") from error
    if scale == 1 and upright.shape[:2] != header.upright_size:
        (height, width), decoded = header.upright_size, f"{upright.shape[1]} x {upright.shape[0]}"
        raise DecodeError("corrupt", f"{header.format} of {width} x {height} by its header decodes to {decoded}")
    if deep and upright.dtype != np.uint16:
        cure = "pack all without a depth of 16, or these in a store of their own"
        raise DecodeError("bad_field", f"{header.format} of 8 bits, and the store keeps 16: {cure}")
    return np.require(to_color(upright, color), None, ["C", "W"])


def init_decoder_process() -> None:
    """Use one thread, and discard what C libraries print about broken images, which are rejected anyway.

    Python's own stderr, with tracebacks, stays.
    """
    # There is one worker per core already.
    cv2.setNumThreads(1)
    keep_freed_memory()
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
