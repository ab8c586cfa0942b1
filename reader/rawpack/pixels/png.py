"""PNG files of masks: the few kinds that rawpack writes, read with zlib and numpy only.

All rows are stored as they are, or all rows as differences from the row above. numpy reverses that for the whole image
at once. A damaged file raises an error, and never gives a partial picture.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLORS = {1: 0, 3: 2}
"""Channels -> PNG's color type: gray, RGB."""
NO_FILTER, UP = 0, 2
_IHDR = struct.Struct(">IIBBBBB")


def decode(data: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The pixels of a PNG file: a new array of `shape` (H, W, C) and `dtype` (uint8 or uint16).

    Raises DecodeError where the file is damaged or has other pixels, before it allocates memory for them.
    """
    height, width, channels = shape
    packed, header = [], None
    for kind, body in _chunks(data.data):
        if header is None:
            if kind != b"IHDR" or len(body) != _IHDR.size:
                raise DecodeError("corrupt", "PNG that does not begin with IHDR")
            header = _IHDR.unpack(body)
        elif kind == b"IDAT":
            packed.append(body)
    if header != (width, height, dtype.itemsize * 8, COLORS[channels], 0, 0, 0):
        raise DecodeError("corrupt", f"PNG with the header {header}; {dtype} {shape} is expected")
    stride = 1 + width * channels * dtype.itemsize
    if height * stride > sum(map(len, packed)) * 1032:
        raise DecodeError("truncated", f"{shape} cannot be in {len(data)} bytes")
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(b"".join(packed), height * stride)
    except zlib.error as error:
        raise DecodeError("corrupt", f"PNG that does not inflate: {error}") from None
    if len(raw) != height * stride:
        raise DecodeError("truncated", f"PNG with {len(raw)} bytes of pixels; {shape} has {height * stride}")
    rows = np.frombuffer(raw, np.uint8).reshape(height, stride)
    filters = np.unique(rows[:, 0]).tolist()
    pixels = rows[:, 1:].copy()
    if filters == [UP]:
        np.add.accumulate(pixels, axis=0, dtype=np.uint8, out=pixels)
    elif filters != [NO_FILTER]:
        raise DecodeError("unsupported", f"PNG with the row filters {filters}; rawpack writes 0 or 2 in all rows")
    values = pixels.reshape(-1).view(dtype.newbyteorder(">")).astype(dtype, copy=False)
    return values.reshape(shape)


def encode(image: NDArray[Any]) -> NDArray[np.uint8]:
    """A PNG file (n,) of an image (H, W, C): uint8 or uint16, 1 or 3 channels. Its bytes depend on zlib's version."""
    height, width, channels = image.shape
    big = np.ascontiguousarray(image, image.dtype.newbyteorder(">"))
    pixels = big.reshape(height, -1).view(np.uint8)
    # Masks of 16 bits are mostly depths, which change little from row to row. Labels compress best as they are.
    method = UP if image.dtype.itemsize == 2 else NO_FILTER
    rows = np.full((height, 1 + pixels.shape[1]), method, np.uint8)
    rows[:, 1:] = pixels
    if method == UP:
        rows[1:, 1:] -= pixels[:-1]
    header = _IHDR.pack(width, height, image.dtype.itemsize * 8, COLORS[channels], 0, 0, 0)
    file = SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows.data, 6)) + _chunk(b"IEND", b"")
    return np.frombuffer(file, np.uint8)


def holds(shape: tuple[int | None, ...], dtype: str) -> bool:
    """Whether a PNG can hold images of this shape and dtype."""
    return dtype in ("uint8", "uint16") and len(shape) == 3 and shape[2] in COLORS and 0 not in shape


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _chunks(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Type and body of each chunk up to IEND. Raises DecodeError for a wrong checksum."""
    if data[:8] != SIGNATURE:
        raise DecodeError("corrupt", "no PNG signature")
    at, kind = 8, b""
    while kind != b"IEND":
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data):
            raise DecodeError("truncated", f"PNG that ends inside the chunk at byte {at}")
        kind = bytes(data[at + 4 : at + 8])
        if zlib.crc32(data[at + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise DecodeError("corrupt", f"PNG with a wrong checksum of the chunk at byte {at}")
        yield kind, data[at + 8 : end]
        at = end + 4
