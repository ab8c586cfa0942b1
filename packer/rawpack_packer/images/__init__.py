"""From the bytes of an image file to upright uint8 pixels, and to the size that the recipe asks for.

`read_header` looks, `decode_image` decodes, `fit` resizes. `sniff` knows a file by its first bytes.
"""

from __future__ import annotations

from rawpack_packer.images.decode import decode_image, read_header
from rawpack_packer.images.header import ImageHeader, JpegDetails, sniff
from rawpack_packer.images.orientation import apply_orientation
from rawpack_packer.images.resize import fit

__all__ = ["ImageHeader", "JpegDetails", "apply_orientation", "decode_image", "fit", "read_header", "sniff"]
