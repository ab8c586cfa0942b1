"""What libjpeg complains of, and what that means for the pixels.

libjpeg goes on after most damage: it fills in gray, and leaves a *warning*. Only the first warning of a file is ever
told. So a file that draws a warning is never simply accepted: a harmless warning's cause is removed from a copy of the
bytes, which are then decoded again under the same strictness, so that a second fault behind the first one shows.

Harmless, the pixels are complete:

- an unknown JFIF revision, an unknown Adobe transform code (libjpeg decodes as if it were the usual one);
- junk between the segments of the header, and an ICC profile in pieces that do not fit;
- junk between the last block of the image and the end marker.

Everything else loses the sample: "truncated" where the file ends early (also where only its end marker is missing),
"unsupported" for kinds of JPEG that libjpeg does not decode, "corrupt" for the rest: bad Huffman codes, data that
runs out before a marker, restart markers out of order, junk inside or between scans.

Nobody, libjpeg included, sees damage that happens to be a valid code, and a multi-scan file cut between two scans that
was given an end marker again.
"""

from __future__ import annotations

import re

from rawpack.errors import DecodeError
from rawpack.jpeg.header import has_end, read_header, segments

PREMATURE_END = "Premature end of JPEG file"

WARNING = re.compile(
    rf"{PREMATURE_END}|Corrupt JPEG data: .*|Inconsistent progression sequence .*|"
    r"Unknown Adobe color transform code .*|Warning: unknown JFIF revision number .*|"
    r"Invalid SOS parameters for sequential JPEG"
)
"""A line that libjpeg writes as a warning, for those who find it among other lines."""

JUNK_BEFORE_END = re.compile(r"Corrupt JPEG data: \d+ extraneous bytes before marker 0xd9")
"""The one harmless warning that is also the last that a file can draw: nothing can hide behind it."""

_UNSUPPORTED = re.compile(
    r"unsupported|not supported|not implemented|omitted at compile time|maximum supported|"
    r"could not determine subsampling",
    re.IGNORECASE,
)


class LibjpegError(Exception):
    """libjpeg's own message, error or warning, on its way from a backend to `JpegDecoder.decode`."""


def decode_error(data: memoryview, message: str) -> DecodeError:
    """The error for a file of which libjpeg said something that is no harmless warning."""
    if PREMATURE_END in message or not has_end(data):
        return DecodeError("truncated", message)
    return DecodeError("unsupported" if _UNSUPPORTED.search(message) else "corrupt", message)


def without_cause(data: memoryview, message: str) -> memoryview | None:
    """A copy of the file without the cause of a harmless warning; None where the warning is none of these."""
    for pattern, mend in _MENDS:
        if pattern.fullmatch(message):
            mended = mend(data)
            return None if mended == data else memoryview(mended)
    return None


def _with_known_revision(data: memoryview) -> bytes:
    mended = bytearray(data)
    for marker, at, end in segments(data):
        if marker == 0xE0 and end - at >= 16 and bytes(data[at + 4 : at + 9]) == b"JFIF\x00":
            mended[at + 9] = 1
    return bytes(mended)


def _with_known_transform(data: memoryview) -> bytes:
    mended = bytearray(data)
    for marker, at, end in segments(data):
        if marker == 0xEE and end - at >= 16 and bytes(data[at + 4 : at + 9]) == b"Adobe":
            mended[at + 15] = 2 if read_header(data).components == 4 else 1
    return bytes(mended)


def _without_header_junk(data: memoryview) -> bytes:
    found = list(segments(data))
    return b"".join([data[:2], *(data[at:end] for _, at, end in found), data[found[-1][2] :]])


def _without_profile(data: memoryview) -> bytes:
    kept = bytearray(data[:2])
    for marker, at, end in segments(data):
        if marker != 0xE2 or bytes(data[at + 4 : at + 16]) != b"ICC_PROFILE\x00":
            kept += data[at:end]
    return bytes(kept + data[end:])


_MENDS = (
    (re.compile(r"Corrupt JPEG data: bad ICC marker"), _without_profile),
    (re.compile(r"Warning: unknown JFIF revision number .*"), _with_known_revision),
    (re.compile(r"Unknown Adobe color transform code .*"), _with_known_transform),
    (re.compile(r"Corrupt JPEG data: \d+ extraneous bytes before marker .*"), _without_header_junk),
)
