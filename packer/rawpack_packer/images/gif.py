"""GIF: the first frame, decoded here, for OpenCV knows GIF only since 4.11."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from rawpack.errors import DecodeError
from rawpack_packer.images.header import MAX_FRAMES, ImageHeader
from rawpack_packer.images.pixels import Pixels

_EXTENSION, _IMAGE, _TRAILER, _GRAPHIC_CONTROL = 0x21, 0x2C, 0x3B, 0xF9
_MAX_CODES = 4096
MAX_BLOCKS = 1 << 20
"""Blocks that are visited for the count of frames, at most."""


@dataclass(frozen=True)
class _Frame:
    """The first image of the file."""

    x: int
    y: int
    width: int
    height: int
    interlaced: bool
    palette: bytes
    """Red, green, blue of each entry; empty where the file has no palette."""
    clear: int | None
    """The index that is transparent."""
    data_offset: int
    """Of the byte that holds the size of the first LZW code."""


def _skip_blocks(data: bytes, at: int) -> int:
    """The offset behind a chain of data blocks."""
    while data[at]:
        at += 1 + data[at]
    return at + 1


def _palette(data: bytes, flags: int, at: int) -> tuple[bytes, int]:
    """The palette at `at`, if the flags say that there is one, and the offset behind it."""
    if not flags & 0x80:
        return b"", at
    end = at + 3 * (2 << (flags & 7))
    return data[at:end], end


def _first_frame(data: bytes) -> _Frame:
    """Raises IndexError or struct.error where the file ends before the frame's pixels."""
    shared, at = _palette(data, data[10], 13)
    clear = None
    while True:
        mark = data[at]
        if mark == _EXTENSION:
            if data[at + 1] == _GRAPHIC_CONTROL and data[at + 2] >= 4:
                clear = data[at + 6] if data[at + 3] & 1 else None
            at = _skip_blocks(data, at + 2)
        elif mark == _IMAGE:
            x, y, width, height, flags = struct.unpack_from("<HHHHB", data, at + 1)
            own, at = _palette(data, flags, at + 10)
            return _Frame(x, y, width, height, bool(flags & 0x40), own or shared, clear, at)
        elif mark == _TRAILER:
            raise DecodeError("corrupt", "GIF without an image")
        else:
            raise DecodeError("corrupt", f"GIF block of unknown type 0x{mark:02X} at byte {at}")


def _count_frames(data: bytes, at: int) -> int:
    """1, for the frame whose data blocks begin at `at`, and those that follow, as far as the file goes."""
    frames = 1
    try:
        at = _skip_blocks(data, at)
        for _ in range(MAX_BLOCKS):
            if data[at] == _IMAGE and frames < MAX_FRAMES:
                frames += 1
                at = _skip_blocks(data, _palette(data, data[at + 9], at + 10)[1] + 1)
            elif data[at] == _EXTENSION:
                at = _skip_blocks(data, at + 2)
            else:
                break
    except IndexError:  # cut off behind the first frame, which is all that is decoded
        pass
    return frames


def read_header(data: bytes) -> ImageHeader:
    """Read a GIF's header. Width and height are the screen's, or the first frame's end where that lies outside."""
    screen_width, screen_height = struct.unpack_from("<HH", data, 6)
    frame = _first_frame(data)
    width = max(screen_width, frame.x + frame.width)
    height = max(screen_height, frame.y + frame.height)
    if frame.width == 0 or frame.height == 0:
        raise DecodeError("corrupt", f"GIF frame of {frame.width} x {frame.height} pixels")
    covers = (frame.width, frame.height) == (width, height)
    return ImageHeader(
        format="gif",
        width=width,
        height=height,
        color="palette",
        channels=1,
        bits=8,
        alpha=frame.clear is not None or not covers,
        frames=_count_frames(data, frame.data_offset + 1),
    )


def decode(data: bytes, header: ImageHeader) -> Pixels:
    """Decode the first frame: RGB (H, W, 3); what is clear or outside the frame is white."""
    frame = _first_frame(data)
    code_bits = data[frame.data_offset]
    if not 1 <= code_bits <= 8:
        raise DecodeError("corrupt", f"GIF whose codes begin with {code_bits} bits")
    size = frame.width * frame.height
    index = np.frombuffer(_unpack(_joined_blocks(data, frame.data_offset + 1), code_bits, size), np.uint8)
    index = index.reshape(frame.height, frame.width)
    if frame.interlaced:
        rows = np.concatenate(
            [np.arange(start, frame.height, step) for start, step in ((0, 8), (4, 8), (2, 4), (1, 2))]
        )
        index = index[np.argsort(rows)]
    table = np.zeros((256, 3), np.uint8)
    if frame.palette:
        table[: len(frame.palette) // 3] = np.frombuffer(frame.palette, np.uint8).reshape(-1, 3)
    else:
        table[:] = np.arange(256, dtype=np.uint8)[:, None]
    if frame.clear is not None:
        table[frame.clear] = 255
    if (frame.height, frame.width) == (header.height, header.width):
        return table[index]
    canvas = np.full((header.height, header.width, 3), 255, np.uint8)
    canvas[frame.y : frame.y + frame.height, frame.x : frame.x + frame.width] = table[index]
    return canvas


def _joined_blocks(data: bytes, at: int) -> bytes:
    """The bodies of a chain of data blocks; the chain may be cut off."""
    parts = []
    while at < len(data) and data[at]:
        parts.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return b"".join(parts)


def _unpack(packed: bytes, code_bits: int, size: int) -> bytes:
    """Undo GIF's LZW until there are `size` bytes; what follows is ignored."""
    clear, end = 1 << code_bits, (1 << code_bits) + 1
    fresh = [bytes([value]) for value in range(clear)] + [b"", b""]
    table = fresh.copy()
    width, limit = code_bits + 1, 2 << code_bits
    mask = limit - 1
    out: list[bytes] = []
    made = waiting = held = 0
    last = b""
    for byte in packed:
        waiting |= byte << held
        held += 8
        while held >= width:
            code = waiting & mask
            waiting >>= width
            held -= width
            if code == clear:
                table = fresh.copy()
                width, limit = code_bits + 1, 2 << code_bits
                mask = limit - 1
                last = b""
                continue
            if code == end:
                raise DecodeError("truncated", f"GIF data end after {made} of {size} pixels")
            if code < len(table):
                entry = table[code]
            elif code == len(table) and last:
                entry = last + last[:1]
            else:
                raise DecodeError("corrupt", f"GIF code {code} before it is defined, after {made} of {size} pixels")
            out.append(entry)
            made += len(entry)
            if made >= size:
                return b"".join(out)[:size]
            if last and len(table) < _MAX_CODES:
                table.append(last + entry[:1])
                if len(table) == limit and width < 12:
                    width += 1
                    limit *= 2
                    mask = limit - 1
            last = entry
    raise DecodeError("truncated", f"GIF data end after {made} of {size} pixels")
