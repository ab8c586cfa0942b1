"""The header of a JPEG file: its marker segments up to the first byte of entropy-coded data.

It is read before every decode. So all backends refuse the same files for the same reasons, a wrong `out` is noticed
before anything is written to it, and no memory is allocated for more pixels than the file can hold. Reading it takes
4 µs, or less than 1 µs where it equals the previous header but for its Huffman codes, as in a store of images of one
size.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from rawpack.errors import DecodeError

EOI = b"\xff\xd9"
HUFFMAN_SEQUENTIAL = (0xC0, 0xC1)
"""The frames whose rows of blocks come one after another."""
LOSSLESS = (0xC3, 0xC7, 0xCB, 0xCF)
"""The frames that have no frequencies to leave out."""

_TABLES_AFTER_FRAME = frozenset({0xC4, 0xC8, 0xCC})  # DHT, JPG, DAC: in the range of SOF markers, but no frames
_FRAMES = frozenset(range(0xC0, 0xD0)) - _TABLES_AFTER_FRAME
_ARITHMETIC = 0xC9  # frames from here on are arithmetic-coded
_START_OF_SCAN = 0xDA
_RESTART_INTERVAL = 0xDD
_END_OF_IMAGE = 0xD9
_TEM, _RST0, _RST7 = 0x01, 0xD0, 0xD7  # the markers without a length

_segment_at = struct.Struct(">BBH").unpack_from
_frame_at = struct.Struct(">BHHB").unpack_from
_next_marker = re.compile(rb"\xff+[^\x00\xff]", re.DOTALL)

PIXELS_PER_BYTE = 2048
"""Most pixels that a byte of Huffman-coded data can hold. A block of 64 takes at least one bit, which makes 512; the
rest is margin for odd sampling factors."""


class JpegHeader(NamedTuple):
    """The contents of the header. Sizes in pixels, offsets in bytes from the start of the file."""

    height: int
    width: int
    components: int
    """1 gray, 3 YCbCr or RGB, 4 CMYK or YCCK."""
    process: int
    """The frame marker's second byte: 0xC0 baseline, 0xC1 extended, 0xC2 progressive, ..."""
    sampling: bytes
    """One byte per component, as stored: horizontal factor in the high nibble, vertical in the low."""
    restart_interval: int
    """MCUs between restart markers; 0 where there are none."""
    height_offset: int
    """Where the height is stored (16 bits, big-endian)."""
    scan_header: bytes
    """The first scan's header after its length: component count, (id, tables) each, spectral range, approximation."""
    scan_offset: int
    """The first byte of entropy-coded data."""


@lru_cache
def mcu_shape(sampling: bytes) -> tuple[int, int]:
    """(height, width) in pixels of the smallest coded unit of an interleaved scan. Never 0, even if stored."""
    if len(sampling) == 1:
        return 8, 8
    return 8 * max(1, *(s & 15 for s in sampling)), 8 * max(1, *(s >> 4 for s in sampling))


@lru_cache
def mixes_rows(sampling: bytes) -> bool:
    """Whether chroma is subsampled vertically, so that decoding interpolates between rows."""
    return len({s & 15 for s in sampling}) > 1


def segments(data: memoryview) -> Iterator[tuple[int, int, int]]:
    """(marker, offset of its 0xFF, offset after the segment) of each header segment, up to the first scan's header.

    Skips junk and fill bytes between segments, as libjpeg does. Raises DecodeError.
    """
    at = 2
    try:
        while True:
            prefix, marker, size = _segment_at(data, at)
            if prefix != 0xFF or marker == 0x00 or marker == 0xFF:
                found = _next_marker.search(data, at)
                if found is None:
                    raise _ends_early(data)
                at = found.end() - 2
            elif marker == _TEM or _RST0 <= marker <= _RST7:
                at += 2
            elif marker == _END_OF_IMAGE:
                raise DecodeError("corrupt", f"the end marker comes at byte {at}, before any image")
            elif size < 2:
                raise DecodeError("corrupt", f"segment 0x{marker:02x} at byte {at} has the impossible length {size}")
            else:
                end = at + 2 + size
                if end > len(data):
                    raise _ends_early(data)
                yield marker, at, end
                if marker == _START_OF_SCAN:
                    return
                at = end
    except struct.error:
        raise _ends_early(data) from None


def read_header(data: memoryview) -> JpegHeader:
    """The header of a JPEG. `data`: one-dimensional bytes.

    Raises DecodeError: "empty", "not_an_image", "truncated" (also where the file is far too small for the pixels that
    its header claims), "corrupt", "unsupported" (not 8 bits a sample, not 1, 3 or 4 components, no height).
    """
    global _last
    # Read once: another thread may replace it.
    start, rest, least, header = _last
    if header is not None and data[: (at := len(start))] == start:
        # Codes that were made for one image differ from those of the next in bytes and length.
        while data[at : at + 2] == _CODES and at + 4 <= len(data) and (size := data[at + 2] << 8 | data[at + 3]) > 1:
            at += 2 + size
        end = at + len(rest)
        if data[at:end] == rest and len(data) >= end + least:
            return header if end == header.scan_offset else JpegHeader(*header[:-1], end)
    _check_start(data)
    found = list(segments(data))
    header = header_of(data, found)
    if header.scan_offset <= _MAX_KEPT_BYTES:
        first, after = _codes_in(found)
        _last = (
            bytes(data[:first]),
            bytes(data[after : header.scan_offset]),
            _least_bytes(header) - header.scan_offset,
            header,
        )
    return header


def _codes_in(found: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """Where the first Huffman codes after the frame begin, and where those that follow at once end; or the start of the
    last segment twice."""
    framed, first, after = False, 0, 0
    for marker, at, end in found:
        framed = framed or marker in _FRAMES
        if after and (at != after or marker != _CODES[1]):
            break
        if framed and marker == _CODES[1]:
            first, after = first or at, end
    return (first, after) if after else (at, at)


_CODES = b"\xff\xc4"
_last: tuple[bytes, bytes, int, JpegHeader | None] = b"", b"", 0, None
"""The bytes of the last header before and after its Huffman codes, the least image data that it needs, and the header
in them."""
_MAX_KEPT_BYTES = 4096


def header_of(data: memoryview, found: Iterable[tuple[int, int, int]]) -> JpegHeader:
    """As `read_header`. found: what `segments` has found in `data`."""
    _check_start(data)
    restart_interval = process = 0
    for marker, at, end in found:
        if marker in _FRAMES and not process:
            if end - at < 10:
                raise DecodeError("corrupt", f"the frame header at byte {at} is too short")
            process, height_offset = marker, at + 5
            precision, height, width, components = _frame_at(data, at + 4)
            sampling = bytes(data[at + 11 : end : 3])
        elif marker == _RESTART_INTERVAL and end - at >= 6:
            restart_interval = data[at + 4] << 8 | data[at + 5]
    if not process:
        raise DecodeError("corrupt", "the image data starts before any frame header")
    if precision != 8 or components not in (1, 3, 4) or height == 0:
        detail = f"{precision} bits a sample, {components} components, {height} x {width} (height x width)"
        raise DecodeError("unsupported", f"a JPEG of {detail}; 8 bits and 1, 3 or 4 components can be decoded")
    if width == 0 or len(sampling) != components:
        raise DecodeError("corrupt", f"the frame header is invalid: width {width}, {components} components")
    scan_header = bytes(data[at + 4 : end])
    header = JpegHeader(
        height, width, components, process, sampling, restart_interval, height_offset, scan_header, end
    )  # by position: names would cost a third of a microsecond
    if len(data) < _least_bytes(header):
        detail = f"{len(data) - end} bytes of image data cannot contain {height} x {width} pixels"
        raise DecodeError("truncated", f"{detail} (height x width)")
    return header


def _check_start(data: memoryview) -> None:
    if len(data) < 2 or data[0] != 0xFF or data[1] != 0xD8:
        if len(data) == 0:
            raise DecodeError("empty", "there are no bytes")
        raise DecodeError("not_an_image", "a JPEG starts with ff d8")


def _least_bytes(header: JpegHeader) -> int:
    """With fewer, a file is far too small for its pixels."""
    pixels = header.height * header.width if header.process < _ARITHMETIC else 0
    return header.scan_offset - (-pixels // PIXELS_PER_BYTE)


def has_end(data: memoryview) -> bool:
    """Whether there is an end marker after the header. Bytes after the marker do not matter."""
    return data[-2:] == EOI or EOI in bytes(data[read_header(data).scan_offset :])


def _ends_early(data: memoryview) -> DecodeError:
    return DecodeError("truncated", f"the data ends inside the header, at byte {len(data)}")
