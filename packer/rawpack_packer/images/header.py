"""What all decoders share: the facts of an image's header, and what is done to decoded pixels, which are turned
upright, blended with white, converted from CMYK, and made gray.

Large images are processed in bands of rows, so that intermediate values take only a few megabytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any, TypeVar

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack_packer.counts import depth_count


class JpegDetails(msgspec.Struct, frozen=True):
    """What only a JPEG has."""

    sof: str
    """"baseline", "extended", "progressive", "lossless", "arithmetic" or "hierarchical"."""
    scan_offset: int
    """Offset of the first scan's marker."""
    one_scan: bool
    """Whether the first scan is the whole image: sequential, with all components."""


class ImageHeader(msgspec.Struct, frozen=True):
    """The header of one image file. What else decoding needs, it reads itself."""

    format: str
    """"jpeg", "png", "tiff", "bmp", or another key of `with_pillow._PLUGINS`."""
    width: int
    """Pixels as stored, before the orientation is applied."""
    height: int
    color: str
    """"gray", "rgb", "palette", "ycbcr", "cmyk" or "ycck"; "other" is not decoded."""
    channels: int
    """Samples per stored pixel, alpha included; 1 for a palette."""
    bits: int
    """Bits per sample."""
    orientation: int = 1
    """EXIF's 1 to 8; an invalid value counts as 1."""
    icc: bool = False
    """A color profile is embedded; it is not applied."""
    several: bool = False
    """The file has more frames or pages; only the first is decoded."""
    jpeg: JpegDetails | None = None

    @property
    def upright_size(self) -> tuple[int, int]:
        """(height, width) of what `decode_image` returns, with the orientation applied."""
        return (self.width, self.height) if self.orientation >= 5 else (self.height, self.width)


KNOWN_ONLY = "known, but not decoded"
_BY_FIRST_BYTES = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (b"MM\0+", "tiff"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jpeg2000"),
    (b"\xff\x4f\xff\x51", "jpeg2000"),
    # JPEG XL and Photoshop are rejected with a reason instead of being ignored.
    (b"\xff\x0a", KNOWN_ONLY),
    (b"\0\0\0\x0cJXL \r\n\x87\n", KNOWN_ONLY),
    (b"8BPS", KNOWN_ONLY),
)
_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")
_PNM = re.compile(rb"P[1-6]\s\s*[#\d]")


def sniff(first: bytes) -> str | None:
    """The format of a file that begins with these bytes, of which 32 are enough; None for no known image.

    Returns KNOWN_ONLY for JPEG XL and PSD. TGA has no signature: see `looks_like_tga`.
    """
    for begin, format in _BY_FIRST_BYTES:
        if first.startswith(begin):
            return format
    if first[:4] == b"RIFF" and first[8:12] == b"WEBP":
        return "webp"
    if first[4:8] == b"ftyp":
        if first[8:12] in (b"avif", b"avis"):
            return "avif"
        if first[8:12] in _HEIF:
            # mif1 and msf1 are the brands of either type.
            return "avif" if first[8:12] in (b"mif1", b"msf1") and b"avif" in first[16:32] else "heic"
    if _PNM.match(first):
        return "pnm"
    # Many texts begin with "BM": check the size of the second header too.
    if first.startswith(b"BM") and int.from_bytes(first[14:18], "little") in (12, 40, 52, 56, 64, 108, 124):
        return "bmp"
    return None


_TGA_DEPTHS = {(0, 2): (16, 24, 32), (0, 3): (8, 16), (1, 1): (8,)}
"""(has a palette, type of image without the compression bit) -> valid bits per pixel."""


def looks_like_tga(first: bytes) -> bool:
    """Whether these 18 bytes are a TGA header, in which every field is consistent with the others."""
    if len(first) < 18:
        return False
    palette, kind, depth, flags = first[1], first[2] & ~8, first[16], first[17]
    sized = first[12:14] != b"\0\0" != first[14:16]
    plain = palette or first[3:8] == bytes(5)
    return bool(sized and plain and not flags & 0xC0 and depth in _TGA_DEPTHS.get((palette, kind), ()))


ORIENTATION_TAG = 274
_MAX_ENTRIES = 1024


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


def valid_orientation(value: int) -> int:
    """The value if it is valid in EXIF, else 1."""
    return value if 1 <= value <= 8 else 1


Pixels = NDArray[np.uint8]
Scalar = TypeVar("Scalar", bound=np.generic)

_BAND_PIXELS = 1 << 18


def bands(height: int, width: int) -> Iterator[slice]:
    """Slices of rows that cover an image, each with about _BAND_PIXELS pixels."""
    rows = max(1, _BAND_PIXELS // max(1, width))
    return (slice(y, min(y + rows, height)) for y in range(0, height, rows))


_WHITE_16 = np.uint64(65535)
BLENDED = "blended"
"""The count of images of which some pixels are not opaque."""


def on_white_16(color: NDArray[np.uint16], alpha: NDArray[np.uint16], notes: list[str]) -> NDArray[np.uint16]:
    """As `on_white`, of 16 bits."""
    if BLENDED not in notes and alpha.size and alpha.min() < _WHITE_16:
        notes.append(BLENDED)
    weight = alpha[..., None].astype(np.uint64)
    blended = color * weight + (_WHITE_16 - weight) * _WHITE_16 + _WHITE_16 // 2
    return (blended // _WHITE_16).astype(np.uint16)


def on_white(color: Pixels, alpha: Pixels, notes: list[str], *, premultiplied: bool = False) -> Pixels:
    """A new array (H, W, C): color (H, W, C) with alpha (H, W), 255 for opaque, on white; rounded to nearest.

    notes: gets `BLENDED` once, where something is not opaque. premultiplied: color has already been multiplied by
    alpha.
    """
    if BLENDED not in notes and alpha.size and alpha.min() < 255:
        notes.append(BLENDED)
    result = np.empty(color.shape, np.uint8)
    for rows in bands(*alpha.shape):
        weight = alpha[rows].astype(np.uint16)
        white = 255 - weight if premultiplied else (255 - weight) * 255 + 128
        for channel in range(color.shape[2]):
            if premultiplied:
                result[rows, :, channel] = np.minimum(color[rows, :, channel] + white, 255)
            else:
                result[rows, :, channel] = _over_255(color[rows, :, channel] * weight + white)
    return result


def cmyk_to_rgb(inks: Pixels, *, inverted: bool) -> Pixels:
    """RGB (H, W, 3) of CMYK (H, W, 4) without a profile: (255 - ink) * (255 - black) / 255, rounded to nearest.

    inverted: 255 means no ink, as in JPEG files written by Adobe's programs.
    """
    height, width = inks.shape[:2]
    result = np.empty((height, width, 3), np.uint8)
    for rows in bands(height, width):
        paper = inks[rows] if inverted else 255 - inks[rows]
        black = paper[..., 3].astype(np.uint16)
        for channel in range(3):
            result[rows, :, channel] = _over_255(paper[..., channel] * black + 128)
    return result


def _over_255(product: NDArray[Any]) -> NDArray[Any]:
    """(product - 128) / 255, rounded to nearest: exact in 16 bits for a product of two bytes plus 128."""
    quotient: NDArray[Any] = (product + (product >> 8)) >> 8
    return quotient


def note_depth(values: NDArray[Any], notes: list[str], of: int = 16) -> None:
    """Note how many bits the greatest value has, where only the upper 8 of `of` bits are left of values. values: before
    that, or after it, where at least one is not 0."""
    greatest = int(values.max())
    bits = greatest.bit_length() + (of - 8 if values.dtype == np.uint8 else 0)
    notes.append(depth_count(min(max(bits, 1), of), of))


def to_color(image: NDArray[Any], color: str) -> NDArray[Any]:
    """An image (H, W, 1) or (H, W, 3), uint8 or uint16, as "rgb" or "gray"."""
    channels = image.shape[2]
    if color == "gray" and channels == 3:
        return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY), image.dtype)[..., None]
    if color == "rgb" and channels == 1:
        return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_GRAY2RGB), image.dtype)
    return image


def apply_orientation(image: NDArray[Scalar], orientation: int) -> NDArray[Scalar]:
    """Stored pixels (H, W, C) turned upright, as a view; 5 to 8 swap height and width."""
    if orientation in (5, 6, 7, 8):
        image = image.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return image
