"""JPEG files: reads the header in more detail than the reader needs, and decodes pixels with `rawpack.jpeg`."""

from __future__ import annotations

from typing import Literal

from rawpack import jpeg
from rawpack.errors import DecodeError
from rawpack.jpeg.header import segments
from rawpack_packer.images.header import ImageHeader, JpegDetails
from rawpack_packer.images.orientation import exif_orientation, turned_by_xmp
from rawpack_packer.images.pixels import Pixels, cmyk_to_rgb, to_color

MAX_SCANS = 100
"""Files with more scans are refused: each scan costs a pass over the whole image, and encoders write about 10."""

_SOS, _APP0, _APP1, _APP2, _APP14 = 0xDA, 0xE0, 0xE1, 0xE2, 0xEE
_XMP = b"http://ns.adobe.com/xap/1.0/\0"

_SOF = {
    0xC0: "baseline",
    0xC1: "extended",
    0xC2: "progressive",
    0xC3: "lossless",
    **dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF), "hierarchical"),
    **dict.fromkeys((0xC9, 0xCA, 0xCB), "arithmetic"),
}


def read_header(data: bytes) -> ImageHeader:
    """Read the segments up to the first scan, and no entropy-coded data."""
    orientation, turned, icc, adobe = 1, False, False, None
    seen_exif = seen_jfif = False
    frame: bytes | None = None
    sof = ""
    scan_offset, scan_components = len(data), 0
    for marker, start, end in segments(memoryview(data)):
        body = start + 4
        if marker in _SOF:
            if frame is not None:
                raise DecodeError("corrupt", "JPEG with two frame headers")
            sof, frame = _SOF[marker], data[body:end]
        elif marker == _APP0 and data.startswith(b"JFIF\0", body):
            seen_jfif = True
        elif marker == _APP1 and not seen_exif and data.startswith(b"Exif\0\0", body):
            seen_exif = True
            orientation = exif_orientation(data[body:end])
        elif marker == _APP1 and data.startswith(_XMP, body):
            turned |= turned_by_xmp(data[body:end])
        elif marker == _APP2 and data.startswith(b"ICC_PROFILE\0", body):
            icc = True
        elif marker == _APP14 and end - body >= 12 and data.startswith(b"Adobe", body):
            adobe = data[body + 11]
        elif marker == _SOS:
            scan_offset, scan_components = start, data[body] if end > body else 0
    if frame is None:
        raise DecodeError("corrupt", "JPEG scan without a frame header")
    if len(frame) < 6 or len(frame) < 6 + 3 * frame[5]:
        raise DecodeError("corrupt", f"JPEG frame header of {len(frame)} bytes is too short")
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    precision, components, table = frame[0], frame[5], frame[6 : 6 + 3 * frame[5]]
    if height == 0 and width:
        raise DecodeError("unsupported", "JPEG whose height comes after the first scan (DNL)")
    if width == 0 or components == 0:
        raise DecodeError("corrupt", f"JPEG of {width} x {height} pixels with {components} components")
    return ImageHeader(
        format="jpeg",
        width=width,
        height=height,
        color=_color(components, adobe, table, seen_jfif),
        channels=components,
        bits=precision,
        orientation=orientation,
        xmp_turned=turned and orientation == 1,
        icc=icc,
        jpeg=JpegDetails(
            sof=sof,
            scan_offset=scan_offset,
            one_scan=sof in ("baseline", "extended") and scan_components == components,
        ),
    )


def _color(components: int, adobe: int | None, table: bytes, seen_jfif: bool) -> str:
    """The color space by libjpeg's rules: JFIF, then Adobe's marker, then the names of the components."""
    if components == 1:
        return "gray"
    if components == 3:
        if not seen_jfif and (adobe == 0 or (adobe is None and table[::3] == b"RGB")):
            return "rgb"
        return "ycbcr"
    if components == 4:
        return "ycck" if adobe == 2 else "cmyk"
    return "other"


def decode(data: bytes, header: ImageHeader, *, color: str, scale: int, warnings: list[str] | None) -> Pixels:
    """Decode without turning: RGB (H, W, 3), or gray (H, W, 1) if `color` is "gray" or the file is gray.

    See `decode_image`. CMYK and YCCK are assumed to be inverted, as Adobe's programs write them. Arithmetic coding and
    lossless JPEG are refused, because only some builds of libjpeg decode them.
    """
    details = header.jpeg
    if details is None:
        raise DecodeError("corrupt", f"header of a {header.format} file given for a JPEG")
    if details.sof in ("lossless", "arithmetic", "hierarchical") or header.bits != 8:
        raise DecodeError("unsupported", f"{header.bits}-bit {details.sof} JPEG")
    if header.color == "other":
        raise DecodeError("unsupported", f"JPEG with {header.channels} components")
    if not details.one_scan:
        scans = data.count(b"\xff\xda", details.scan_offset)
        if scans > MAX_SCANS:
            raise DecodeError("unsupported", f"JPEG with {scans} scans; at most {MAX_SCANS} are decoded")
    if header.color in ("cmyk", "ycck"):
        inks = jpeg.decode(data, color="cmyk", scale=scale, warnings=warnings)
        return to_color(cmyk_to_rgb(inks, inverted=True), color)
    stored: Literal["rgb", "gray"] = "gray" if color == "gray" or header.color == "gray" else "rgb"
    return jpeg.decode(data, color=stored, scale=scale, warnings=warnings)
