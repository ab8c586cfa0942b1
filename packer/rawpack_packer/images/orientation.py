"""Reads the orientation in EXIF and XMP, and turns pixels by it."""

from __future__ import annotations

import re
import struct
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)

ORIENTATION_TAG = 274
_MAX_ENTRIES = 1024
_XMP_ORIENTATION = re.compile(rb"tiff:Orientation\s*(?:=\s*[\"']|>)\s*([1-8])\s*[\"'<]")


def exif_orientation(block: bytes) -> int:
    """The orientation (1 to 8) in an EXIF block, with or without "Exif\\0\\0" before the TIFF header.

    Returns 1 for a damaged block or an invalid orientation. Reads the first directory only and follows no pointers, so
    that no block can cause a loop.
    """
    if block.startswith(b"Exif\0\0"):
        block = block[6:]
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(block[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", block, 4)
        (entries,) = struct.unpack_from(order + "H", block, start)
        for at in range(start + 2, start + 2 + 12 * min(entries, _MAX_ENTRIES), 12):
            tag, kind, count = struct.unpack_from(order + "HHI", block, at)
            if tag == ORIENTATION_TAG:
                code = {1: "B", 3: "H", 4: "I"}.get(kind)
                if code is None or count != 1:
                    return 1
                return valid_orientation(struct.unpack_from(order + code, block, at + 8)[0])
    except struct.error:  # an offset outside the block
        pass
    return 1


def turned_by_xmp(packet: bytes) -> bool:
    """Whether an XMP packet has an orientation other than upright.

    It is not applied: browsers, OpenCV and torchvision ignore it, and programs that turn the pixels leave old packets
    in place.
    """
    found = _XMP_ORIENTATION.search(packet)
    return found is not None and found[1] != b"1"


def valid_orientation(value: int) -> int:
    """The value if it is valid in EXIF, else 1."""
    return value if 1 <= value <= 8 else 1


def apply_orientation(image: NDArray[Scalar], orientation: int) -> NDArray[Scalar]:
    """Stored pixels (H, W, C) turned upright, as a view; 5 to 8 swap height and width."""
    if orientation in (5, 6, 7, 8):
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return image
