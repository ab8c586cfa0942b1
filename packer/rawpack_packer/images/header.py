"""What an image file says of itself before anything is decoded."""

from __future__ import annotations

from dataclasses import dataclass

MAX_FRAMES = 1000
"""Frames and pages are counted up to here: a file cannot make the count cost more than that."""


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
    """"jpeg", "png", "webp", "bmp", "tiff" or "gif"."""

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

    alpha: bool = False
    """Pixels can be transparent: an alpha channel, a transparent colour or palette entry."""

    orientation: int = 1
    """EXIF's 1 to 8; an invalid value counts as 1."""

    xmp_turned: bool = False
    """XMP has an orientation other than upright where EXIF has none; it is not applied."""

    icc: bool = False
    """A colour profile is embedded; it is not applied."""

    frames: int = 1
    """Frames of an animation or pages, up to MAX_FRAMES; only the first is decoded."""

    jpeg: JpegDetails | None = None
    """For a JPEG only."""

    @property
    def upright_size(self) -> tuple[int, int]:
        """(height, width) with the orientation applied: the size of what `decode_image` returns."""
        return (self.width, self.height) if self.orientation >= 5 else (self.height, self.width)


KNOWN_ONLY = "known, but not decoded"
_KNOWN_ONLY = (
    *(
        (4, b"ftyp" + brand)
        for brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1", b"avif", b"avis")
    ),
    (0, b"\xff\x0a"),  # JPEG XL
    (0, b"\0\0\0\x0cJXL \r\n\x87\n"),
    (0, b"\0\0\0\x0cjP  \r\n\x87\n"),  # JPEG 2000
    (0, b"\xff\x4f\xff\x51"),
    (0, b"8BPS"),  # Photoshop
)
"""Where in a file, and how: images that nothing here decodes. They are rejected, so that none is dropped in silence."""


def sniff(first: bytes) -> str | None:
    """The format of a file that begins with these bytes (32 are enough), None where it is no known image.

    KNOWN_ONLY of a photograph in HEIC, AVIF, JPEG XL, JPEG 2000 or PSD.
    """
    if first.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if first.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if first[:4] == b"RIFF" and first[8:12] == b"WEBP":
        return "webp"
    if first.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if first.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return "tiff"
    # "BM" alone begins many a text: the size of the second header must be one that exists.
    if any(first.startswith(begin, at) for at, begin in _KNOWN_ONLY):
        return KNOWN_ONLY
    if first.startswith(b"BM") and int.from_bytes(first[14:18], "little") in (12, 40, 52, 56, 64, 108, 124):
        return "bmp"
    return None
