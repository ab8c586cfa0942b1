"""WebP: the container here, the one frame that is needed by OpenCV.

OpenCV gets that frame in a container of its own: OpenCV before 4.11 refuses animations, and metadata has no say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rawpack.errors import DecodeError
from rawpack_packer.images import opencv
from rawpack_packer.images.header import MAX_FRAMES, ImageHeader
from rawpack_packer.images.orientation import exif_orientation, turned_by_xmp
from rawpack_packer.images.pixels import Pixels

MAX_CHUNKS = 1 << 16
"""More chunks than this are refused."""

_ANIMATION, _ALPHA = 0x02, 0x10


@dataclass(frozen=True)
class _Frame:
    """The first frame: where it lies on the canvas, and its chunks in the file."""

    x: int
    y: int
    width: int
    height: int
    alpha: bool
    chunks: tuple[tuple[bytes, int, int], ...]
    """(type, start, end) of its bitstream, and of its ALPH chunk before it where there is one."""


def _chunks(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(type, start, end) of each chunk's body in data[start:end]."""
    for _ in range(MAX_CHUNKS):
        if start == end:
            return
        body = start + 8
        stop = body + int.from_bytes(data[start + 4 : body], "little")
        if body > end or stop > end:
            raise DecodeError("truncated", f"WebP chunk at byte {start} reaches beyond byte {end}")
        yield data[start : start + 4], body, stop
        start = min(stop + (stop - body) % 2, end)
    raise DecodeError("corrupt", f"WebP with more than {MAX_CHUNKS} chunks")


def _container_end(data: bytes) -> int:
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise DecodeError("truncated", f"WebP of {end} bytes by its header ends at byte {len(data)}")
    return end


def _u24(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 3], "little")


def _bitstream_size(data: bytes, kind: bytes, start: int) -> tuple[int, int, bool]:
    """(width, height, alpha) of a VP8 or VP8L bitstream."""
    if kind == b"VP8 ":
        tag, mark, width, height = struct.unpack_from("<B2x3sHH", data, start)
        if tag & 1 or mark != b"\x9d\x01\x2a":
            raise DecodeError("corrupt", f"WebP bitstream at byte {start} does not begin with a key frame")
        return width & 0x3FFF, height & 0x3FFF, False
    mark_byte, fields = struct.unpack_from("<BI", data, start)
    if mark_byte != 0x2F:
        raise DecodeError("corrupt", f"WebP lossless bitstream at byte {start} lacks its mark")
    return (fields & 0x3FFF) + 1, (fields >> 14 & 0x3FFF) + 1, bool(fields >> 28 & 1)


def _still_frame(data: bytes, chunks: Iterator[tuple[bytes, int, int]], x: int = 0, y: int = 0) -> _Frame:
    """The frame that the first bitstream of these chunks makes."""
    alpha_chunk: tuple[tuple[bytes, int, int], ...] = ()
    for chunk in chunks:
        kind, start, _ = chunk
        if kind == b"ALPH":
            alpha_chunk = (chunk,)
        elif kind in (b"VP8 ", b"VP8L"):
            width, height, alpha = _bitstream_size(data, kind, start)
            if kind == b"VP8L":
                alpha_chunk = ()
            return _Frame(x, y, width, height, alpha or bool(alpha_chunk), (*alpha_chunk, chunk))
    raise DecodeError("corrupt", "WebP without an image")


def _animation_frame(data: bytes, start: int, end: int) -> _Frame:
    x, y = 2 * _u24(data, start), 2 * _u24(data, start + 3)
    frame = _still_frame(data, _chunks(data, start + 16, end), x, y)
    if (frame.width, frame.height) != (_u24(data, start + 6) + 1, _u24(data, start + 9) + 1):
        raise DecodeError("corrupt", f"WebP frame at byte {start} is not of the size that it says")
    return frame


def _first_frame(data: bytes) -> _Frame:
    end = _container_end(data)
    for kind, start, stop in _chunks(data, 12, end):
        if kind == b"ANMF":
            return _animation_frame(data, start, stop)
        if kind in (b"ALPH", b"VP8 ", b"VP8L"):
            return _still_frame(data, _chunks(data, start - 8, end))
    raise DecodeError("corrupt", "WebP without an image")


def read_header(data: bytes) -> ImageHeader:
    """Read a WebP's header. All chunks are visited, for EXIF follows the pixels."""
    end = _container_end(data)
    canvas: tuple[int, int] | None = None
    flags, orientation, turned, icc, frames = 0, 1, False, False, 0
    for kind, start, stop in _chunks(data, 12, end):
        if kind == b"VP8X" and canvas is None and stop - start >= 10:
            flags = data[start]
            canvas = _u24(data, start + 4) + 1, _u24(data, start + 7) + 1
        elif kind == b"EXIF":
            orientation = exif_orientation(data[start:stop])
        elif kind == b"XMP ":
            turned |= turned_by_xmp(data[start:stop])
        elif kind == b"ICCP":
            icc = True
        elif kind == b"ANMF":
            frames += 1
    first = _first_frame(data)
    width, height = canvas or (first.width, first.height)
    inside = first.x + first.width <= width and first.y + first.height <= height
    animated = bool(flags & _ANIMATION)
    if not inside or animated != bool(frames) or (not animated and (first.width, first.height) != (width, height)):
        frame = f"{first.width} x {first.height} at {first.x}, {first.y}"
        raise DecodeError("corrupt", f"WebP frame of {frame} on a canvas of {width} x {height}")
    covers = (first.width, first.height) == (width, height)
    return ImageHeader(
        format="webp",
        width=width,
        height=height,
        color="rgb",
        channels=4 if first.alpha else 3,
        bits=8,
        alpha=first.alpha or not covers,
        orientation=orientation,
        xmp_turned=turned and orientation == 1,
        icc=icc,
        frames=min(max(1, frames), MAX_FRAMES),
    )


def decode(data: bytes, header: ImageHeader) -> Pixels:
    """Decode the first frame to stored orientation: RGB (H, W, 3); what is clear or outside the frame is white."""
    frame = _first_frame(data)
    parts = [_chunk(kind, data[start:end]) for kind, start, end in frame.chunks]
    if len(parts) == 2:
        sizes = (frame.width - 1).to_bytes(3, "little") + (frame.height - 1).to_bytes(3, "little")
        parts.insert(0, _chunk(b"VP8X", bytes([_ALPHA, 0, 0, 0]) + sizes))
    body = b"WEBP" + b"".join(parts)
    alone = b"RIFF" + struct.pack("<I", len(body)) + body
    frame_header = ImageHeader("webp", frame.width, frame.height, "rgb", header.channels, 8)
    pixels = opencv.to_pixels(opencv.decode_stored(alone, frame_header))
    if (frame.height, frame.width) == (header.height, header.width):
        return pixels
    canvas = np.full((header.height, header.width, 3), 255, np.uint8)
    canvas[frame.y : frame.y + frame.height, frame.x : frame.x + frame.width] = pixels
    return canvas


def _chunk(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
