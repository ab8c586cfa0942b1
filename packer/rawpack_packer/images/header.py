"""What an image file says of itself before anything is decoded."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JpegDetails:
    """What only a JPEG has."""

    components: int
    """1 (grey), 3 or 4; other numbers exist and are not decoded."""

    subsampling: str
    """"4:4:4", "4:2:2", "4:2:0", "4:4:0", "4:1:1", "4:4:1", or "other"; "none" for one component."""

    sof: str
    """"baseline", "extended", "progressive", "lossless", "arithmetic" or "hierarchical"."""

    precision: int
    """Bits per sample: 8, rarely 12, up to 16 in a lossless file."""

    adobe_transform: int | None
    """Of the Adobe marker: 0 (RGB or CMYK), 1 (YCbCr), 2 (YCCK); None without one."""

    scan_offset: int
    """Where the first scan's marker is in the file."""

    one_scan: bool
    """The first scan is the whole image: sequential, all components."""


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """One image file's header. What decoding needs more, it reads again."""

    format: str
    """"jpeg", "png", "bmp", or one of `with_pillow.FORMATS`."""

    width: int
    """Pixels, as stored: before the orientation is applied."""

    height: int
    """Pixels, as stored."""

    color: str
    """"grey", "rgb", "palette", "ycbcr", "cmyk" or "ycck"; "other" is not decoded."""

    channels: int
    """Samples per stored pixel, alpha among them; 1 for a palette."""

    bits: int
    """Bits per sample."""

    orientation: int = 1
    """EXIF's 1 to 8; an invalid value counts as 1."""

    xmp_turned: bool = False
    """XMP has an orientation other than upright where EXIF has none; it is not applied."""

    icc: bool = False
    """A colour profile is embedded; it is not applied."""

    several: bool = False
    """The file has more frames or pages than the first, which alone is decoded."""

    jpeg: JpegDetails | None = None
    """For a JPEG only."""

    @property
    def upright_size(self) -> tuple[int, int]:
        """(height, width) with the orientation applied: the size of what `decode_image` returns."""
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
    # Rejected with a reason, so that none is dropped in silence: JPEG XL, Photoshop.
    (b"\xff\x0a", KNOWN_ONLY),
    (b"\0\0\0\x0cJXL \r\n\x87\n", KNOWN_ONLY),
    (b"8BPS", KNOWN_ONLY),
)
_HEIF = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")
_PNM = re.compile(rb"P[1-6]\s\s*[#\d]")


def sniff(first: bytes) -> str | None:
    """The format of a file that begins with these bytes (32 are enough), None where it is no known image.

    KNOWN_ONLY of a picture in JPEG XL or PSD. TGA has no first bytes of its own: `looks_like_tga`.
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
            # Both of the containers' common brands begin either kind of file.
            return "avif" if first[8:12] in (b"mif1", b"msf1") and b"avif" in first[16:32] else "heic"
    if _PNM.match(first):
        return "pnm"
    # "BM" alone begins many a text: the size of the second header must be one that exists.
    if first.startswith(b"BM") and int.from_bytes(first[14:18], "little") in (12, 40, 52, 56, 64, 108, 124):
        return "bmp"
    return None


_TGA_DEPTHS = {(0, 2): (16, 24, 32), (0, 3): (8, 16), (1, 1): (8,)}
"""Of (with a palette, kind of image without the bit of its compression) -> bits of a pixel."""


def looks_like_tga(first: bytes) -> bool:
    """Whether a file begins as a TGA does: every field of its header has a value that makes sense beside the others."""
    if len(first) < 18:
        return False
    palette, kind, depth, flags = first[1], first[2] & ~8, first[16], first[17]
    sized = first[12:14] != b"\0\0" != first[14:16]
    plain = palette or first[3:8] == bytes(5)
    return bool(sized and plain and not flags & 0xC0 and depth in _TGA_DEPTHS.get((palette, kind), ()))
