"""What libjpeg warns about, and whether the pixels are complete nevertheless.

After most kinds of damage libjpeg continues: it fills in gray and issues a *warning*, and reports only the first
warning of a file. So a file with a warning is never simply accepted. Where the warning is harmless, its cause is
removed from a copy of the bytes, and the copy is decoded again, just as strictly, so that a second fault is found too.

Harmless warnings, which leave the pixels complete:

- an unknown JFIF revision or Adobe transform code (libjpeg decodes as if it were the usual one);
- junk between the segments of the header, and an ICC profile whose pieces do not fit together;
- junk between the last block of the image and the end marker.

Everything else loses the sample: "truncated" where the file ends early (even if only the end marker is missing),
"unsupported" for kinds of JPEG that libjpeg does not decode, "corrupt" for the rest: bad Huffman codes, data that
runs out before a marker, restart markers out of order, junk inside or between scans.

Two kinds of damage cannot be detected: damage that happens to be a valid code, and a multi-scan file that was cut
between two scans and given a new end marker.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rawpack.errors import DecodeError
from rawpack.jpeg.header import EOI, has_end, read_header, segments

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
    return _with_byte(data, 0xEE, b"Adobe", 15, 2 if read_header(data).components == 4 else 1)


def _without_junk_at_end(data: memoryview, count: str) -> bytes:
    """Without so many bytes before the end marker."""
    file = bytes(data)
    end = file.index(EOI, read_header(data).scan_offset)
    return file[: end - int(count)] + file[end:]


def _without_header_junk(data: memoryview) -> bytes:
    found = list(segments(data))
    return b"".join([data[:2], *(data[at:end] for _, at, end in found), data[found[-1][2] :]])


def _without_profile(data: memoryview) -> bytes:
    kept = bytearray(data[:2])
    for marker, at, end in segments(data):
        if marker != 0xE2 or bytes(data[at + 4 : at + 16]) != b"ICC_PROFILE\x00":
            kept += data[at:end]
    return bytes(kept + data[end:])


_REPAIRS: tuple[tuple[re.Pattern[str], Callable[..., bytes]], ...] = (
    (re.compile(r"Corrupt JPEG data: bad ICC marker"), _without_profile),
    (re.compile(r"Warning: unknown JFIF revision number .*"), _with_known_revision),
    (re.compile(r"Unknown Adobe color transform code .*"), _with_known_transform),
    (re.compile(r"Corrupt JPEG data: (\d+) extraneous bytes before marker 0xd9"), _without_junk_at_end),
    (re.compile(r"Corrupt JPEG data: \d+ extraneous bytes before marker .*"), _without_header_junk),
)
