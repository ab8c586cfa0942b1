"""The contract of a JPEG decoder: one method, which behaves the same whichever library is behind it, also where libjpeg
warns.

After most kinds of damage libjpeg continues: it fills in gray and issues a *warning*, and reports only the first
warning of a file. So a file with a warning is never simply accepted. Where the warning is harmless, its cause is
removed from a copy of the bytes, and the copy is decoded again, just as strictly, so that a second fault is found too.

Harmless warnings, which leave the pixels complete:

- an unknown JFIF revision, or an unknown Adobe transform code where the colors are YCbCr all the same;
- junk between the segments of the header, and an ICC profile whose pieces do not fit together;
- filler between the last block of the image and the end marker: one byte, over and over.

What is left over before the end marker and may be entropy-coded data is the trace of a wrong code: "corrupt".
Everything else loses the sample: "truncated" where the file ends early (even if only the end marker is missing),
"unsupported" for kinds of JPEG that libjpeg does not decode, "corrupt" for the rest: bad Huffman codes, data that
runs out before a marker, restart markers out of order, junk inside or between scans.

Two kinds of damage cannot be detected: damage that happens to be a valid code, where hardly any data is left over, and
a multi-scan file that was cut between two scans and given a new end marker.
"""

from __future__ import annotations

import mmap
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.jpeg.header import EOI, LOSSLESS, JpegHeader, has_end, read_header, segments

Color: TypeAlias = Literal["rgb", "gray", "cmyk"]
Data: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | NDArray[Any]
Pixels: TypeAlias = NDArray[np.uint8]
Shape: TypeAlias = tuple[int, int, int]
Box: TypeAlias = tuple[int, int, int, int]
"""(y, x, height, width) in stored pixels."""

CHANNELS: dict[str, int] = {"rgb": 3, "gray": 1, "cmyk": 4}
SCALES = (1, 2, 4, 8)

PREMATURE_END = "Premature end of JPEG file"

WARNING = re.compile(
    rf"{PREMATURE_END}|Corrupt JPEG data: .*|Inconsistent progression sequence .*|"
    r"Unknown Adobe color transform code .*|Warning: unknown JFIF revision number .*|"
    r"Invalid SOS parameters for sequential JPEG"
)
"""A line that libjpeg prints as a warning, to find it among other lines."""

_UNSUPPORTED = re.compile(
    r"unsupported|not supported|not implemented|omitted at compile time|maximum supported|"
    r"could not determine subsampling",
    re.IGNORECASE,
)


class LibjpegError(Exception):
    """libjpeg's message, an error or a warning. Backends raise it, `JpegDecoder.decode` handles it."""


class JpegDecoder(ABC):
    """A library that decodes JPEG. Any thread may call it; the GIL is released while it decodes."""

    name: str
    """As in RAWPACK_JPEG: "simplejpeg", "turbojpeg"; or "opencv"."""
    package_version: str
    """Of the Python package, "1.9.0"."""

    @property
    @abstractmethod
    def library(self) -> str | None:
        """The C library and its version, "libjpeg-turbo 3.1.2"; None where it is unknown."""

    @cached_property
    def version(self) -> str:
        """Of package and library, "1.9.0 (libjpeg-turbo 3.1.2)", as manifests record it."""
        return f"{self.package_version} ({self.library})" if self.library else self.package_version

    def __repr__(self) -> str:
        return f"<JpegDecoder {self.name} {self.version}>"

    def decode(
        self,
        data: Data,
        *,
        color: Color = "rgb",
        scale: int = 1,
        out: Pixels | None = None,
        warnings: list[str] | None = None,
        header: JpegHeader | None = None,
    ) -> Pixels:
        """The whole image: uint8 (H, W, 3) RGB, (H, W, 1) gray or (H, W, 4) CMYK as stored, H and W divided by `scale`
        (1, 2, 4 or 8) and rounded up. EXIF orientation is not applied.

        `data`: contiguous, and not copied, such as a slice of a mapped file. It must not change during the call.
        `color`: as "rgb", a gray JPEG has equal channels; as "gray", a color JPEG is its luma. A JPEG of four
        components decodes as "cmyk" only: YCCK is converted to CMYK, Adobe's inversion is kept.
        `out`: C order, uint8, of exactly the result's shape; filled and returned. Undefined after an error.
        `warnings`: receives libjpeg's warnings that leave the pixels complete.
        `header`: what `read_header` returns for `data`, if it was read already, from the memoryview of `as_bytes`.

        Raises DecodeError with reason "empty", "not_an_image", "truncated", "corrupt" or "unsupported", and UsageError
        for invalid arguments.
        """
        view = data if header is not None and isinstance(data, memoryview) else as_bytes(data)
        shape = result_shape(header or read_header(view), color, scale)
        if out is not None and not (out.shape == shape and out.dtype == np.uint8 and out.flags.carray):
            flags = "" if out.flags.c_contiguous else ", not in C order"
            flags += "" if out.flags.writeable else ", read-only"
            raise UsageError(f"the image is uint8 {shape} in C order, but out is {out.dtype} {out.shape}{flags}")
        seen: list[str] = []
        while True:
            try:
                image = self._decode(view, shape, color, scale, out)
                break
            except LibjpegError as error:
                message = str(error)
            repaired = without_cause(view, message)
            if repaired is None or message in seen:
                raise decode_error(view, message)
            seen.append(message)
            view = repaired
        if warnings is not None:
            warnings.extend(seen)
        return image

    @abstractmethod
    def _decode(self, view: memoryview, shape: Shape, color: Color, scale: int, out: Pixels | None) -> Pixels:
        """The image of `shape`, in `out` where it is given. Raises LibjpegError with libjpeg's message for its errors
        and warnings alike."""


def as_bytes(data: Data) -> memoryview:
    """The bytes of `data` as a flat memoryview, without a copy. Raises UsageError where they are not contiguous."""
    view = data.data if isinstance(data, np.ndarray) else memoryview(data)
    if view.ndim == 1 and view.format == "B" and view.contiguous:
        return view
    if not view.c_contiguous:
        raise UsageError(f"JPEG data must be contiguous in memory; this has shape {view.shape}, strides {view.strides}")
    return view.cast("B")


@lru_cache
def result_shape(header: JpegHeader, color: Color, scale: int) -> Shape:
    """The shape of the whole image. Raises UsageError for an unknown color or scale, DecodeError ("unsupported") for a
    color that the file does not have, or a lossless file that is to be reduced."""
    if color not in CHANNELS:
        raise UsageError(f"color {color!r}: choose one of {', '.join(map(repr, CHANNELS))}")
    if scale not in SCALES:
        raise UsageError(f"scale {scale!r}: choose one of {', '.join(map(repr, SCALES))}")
    if (header.components == 4) != (color == "cmyk"):
        raise DecodeError("unsupported", f"a JPEG of {header.components} components cannot be decoded as {color!r}")
    if scale != 1 and header.process in LOSSLESS:  # libjpeg-turbo 3 would write it whole, beyond the smaller array
        raise DecodeError("unsupported", "a lossless JPEG cannot be decoded at a reduced size")
    return -(-header.height // scale), -(-header.width // scale), CHANNELS[color]


def decode_error(data: memoryview, message: str) -> DecodeError:
    """The error for a file with this message of libjpeg's, which is not a harmless warning."""
    if PREMATURE_END in message or not has_end(data):
        return DecodeError("truncated", message)
    return DecodeError("unsupported" if _UNSUPPORTED.search(message) else "corrupt", message)


def without_cause(data: memoryview, message: str) -> memoryview | None:
    """A copy of the file without the cause of a harmless warning; None for any other message."""
    for pattern, repair in _REPAIRS:
        if found := pattern.fullmatch(message):
            repaired = repair(data, *found.groups())
            return None if repaired == data else memoryview(repaired)
    return None


def _with_byte(data: memoryview, marker: int, name: bytes, offset: int, value: int) -> bytes:
    """A copy with `value` at `offset` of all segments with this marker and name."""
    repaired = bytearray(data)
    for found, at, end in segments(data):
        if found == marker and end - at >= 16 and bytes(data[at + 4 : at + 9]) == name:
            repaired[at + offset] = value
    return bytes(repaired)


def _with_known_revision(data: memoryview) -> bytes:
    return _with_byte(data, 0xE0, b"JFIF\x00", 9, 1)


def _with_known_transform(data: memoryview) -> bytes:
    """As YCbCr, unless the colors are named R, G, B; of four, nothing else says which they are: unchanged."""
    header = read_header(data)
    if header.components == 4 or header.scan_header[1:7:2] == b"RGB":
        return bytes(data)
    return _with_byte(data, 0xEE, b"Adobe", 15, 1)


def _without_junk_at_end(data: memoryview, count: str) -> bytes:
    """Without so many bytes before the end marker; unchanged where they may be the data of blocks.

    After a wrong bit the decoder loses its place, and may have all blocks before the data ends. libjpeg-turbo decodes
    too fast to notice, so what is left over is the only evidence. Filler repeats one byte. So does the data of flat
    blocks, but where it is left over, more of it comes before.
    """
    file = bytes(data)
    end = file.index(EOI, read_header(data).scan_offset)
    start = end - int(count)
    byte = file[start:end][:1]
    before = start - len(file[:start].rstrip(byte))
    is_filler = file[start:end] == byte * int(count) and before <= _READ_AHEAD
    return file[:start] + file[end:] if is_filler and (byte == b"\0" or before + int(count) >= _LEAST_FILLER) else file


def _without_header_junk(data: memoryview) -> bytes:
    """Unchanged where the junk, or the segment before it, contains what is lost of a segment about the pixels."""
    found = list(segments(data))
    lost = [name for name in _ABOUT_PIXELS if not any(data[at + 4 : end][: len(name)] == name for _, at, end in found)]
    start, expected = 2, 2
    for _, at, end in found:
        if at != expected and any(name in bytes(data[start:at]) for name in lost):
            return bytes(data)
        start, expected = at, end
    return b"".join([data[:2], *(data[at:end] for _, at, end in found), data[found[-1][2] :]])


def _without_profile(data: memoryview) -> bytes:
    kept = bytearray(data[:2])
    for marker, at, end in segments(data):
        if marker != 0xE2 or bytes(data[at + 4 : at + 16]) != b"ICC_PROFILE\x00":
            kept += data[at:end]
    return bytes(kept + data[end:])


_ABOUT_PIXELS = (b"Exif\0\0", b"Adobe\0")
"""How segments begin that say how pixels are turned and colored. libjpeg does not miss them, as it does all others."""
_READ_AHEAD = 8
"""Bytes that libjpeg-turbo may have taken in before it is ready, and does not count."""
_LEAST_FILLER = 4
"""Bytes other than 0 that are filler and not the end of the data, if they are all equal."""
_REPAIRS: tuple[tuple[re.Pattern[str], Callable[..., bytes]], ...] = (
    (re.compile(r"Corrupt JPEG data: bad ICC marker"), _without_profile),
    (re.compile(r"Warning: unknown JFIF revision number .*"), _with_known_revision),
    (re.compile(r"Unknown Adobe color transform code .*"), _with_known_transform),
    (re.compile(r"Corrupt JPEG data: (\d+) extraneous bytes before marker 0xd9"), _without_junk_at_end),
    (re.compile(r"Corrupt JPEG data: \d+ extraneous bytes before marker .*"), _without_header_junk),
)
