"""Decodes the bytes of an image file to upright uint8 pixels."""

from __future__ import annotations

from rawpack_packer.images.decode import by_pillow, decode_image, read_header
from rawpack_packer.images.header import ImageHeader, JpegDetails, sniff
from rawpack_packer.images.orientation import apply_orientation

__all__ = ["ImageHeader", "JpegDetails", "apply_orientation", "by_pillow", "decode_image", "read_header", "sniff"]
