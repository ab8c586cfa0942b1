"""PNG files of masks: the few kinds that rawpack writes, read with zlib and numpy only, which is faster than OpenCV.

All rows are stored as they are, or all rows as differences from the row above. A damaged file raises an error, and
never gives a partial picture.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLORS = {1: 0, 3: 2}
"""Channels -> PNG's color type: gray, RGB."""
NO_FILTER, UP = 0, 2
_FILTERS = {1: NO_FILTER, 2: UP}
"""Bytes of a value -> the filter of all rows. Masks of 16 bits are mostly depths, which change little from row to row.
Labels compress best as they are."""
_IHDR = struct.Struct(">IIBBBBB")


def decode(data: NDArray[np.uint8], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The pixels of a PNG file that `encode` made: a new array of `shape` (H, W, C) and `dtype` (uint8 or uint16).

    Raises DecodeError where the file is damaged or has other pixels. Takes no more memory than its bytes inflate to.
    """
    height, width, channels = shape
    head, file = _head(shape, dtype), data.data
    if file[: len(head)] != head:
        raise DecodeError("corrupt", f"PNG whose header is not that of {dtype} {shape}")
    body = file[len(head) : -len(_END)]
    if file[-len(_END) :] != _END or body[:8] != struct.pack(">I", len(body) - 12) + b"IDAT":
        raise DecodeError("truncated", "PNG that is not one chunk of pixels and an end")
    if zlib.crc32(body[4:-4]) != int.from_bytes(body[-4:], "big"):
        raise DecodeError("corrupt", "PNG with a wrong checksum of its pixels")
    stride = 1 + width * channels * dtype.itemsize
    try:
        raw = zlib.decompressobj().decompress(body[8:-4], height * stride)
    except zlib.error as error:
        raise DecodeError("corrupt", f"PNG that does not inflate: {error}") from error
    if len(raw) != height * stride:
        raise DecodeError("truncated", f"PNG with {len(raw)} bytes of pixels; {shape} has {height * stride}")
    rows = np.frombuffer(raw, np.uint8).reshape(height, stride)
    method = _FILTERS[dtype.itemsize]
    if (rows[:, 0] != method).any():
        raise DecodeError("unsupported", f"PNG with other row filters than {method}, which rawpack writes for {dtype}")
    pixels = rows[:, 1:].copy()
    if method == UP:
        for above, row in itertools.pairwise(pixels):
            row += above
    values = pixels.reshape(-1).view(dtype.newbyteorder(">")).astype(dtype, copy=False)
    return values.reshape(shape)


def encode(image: NDArray[Any]) -> NDArray[np.uint8]:
    """A PNG file (n,) of an image (H, W, C): uint8 or uint16, 1 or 3 channels. Its bytes depend on zlib's version."""
    height = image.shape[0]
    big = np.ascontiguousarray(image, image.dtype.newbyteorder(">"))
    pixels = big.reshape(height, -1).view(np.uint8)
    method = _FILTERS[image.dtype.itemsize]
    rows = np.full((height, 1 + pixels.shape[1]), method, np.uint8)
    rows[:, 1:] = pixels
    if method == UP:
        rows[1:, 1:] -= pixels[:-1]
    file = _head(image.shape, image.dtype) + _chunk(b"IDAT", zlib.compress(rows.data, 6)) + _END
    return np.frombuffer(file, np.uint8)


def holds(shape: tuple[int | None, ...], dtype: str) -> bool:
    """Whether a PNG can hold images of this shape and dtype."""
    return dtype in ("uint8", "uint16") and len(shape) == 3 and shape[2] in COLORS and 0 not in shape


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _head(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """How the file of an image (H, W, C) begins: its signature and its header."""
    height, width, channels = shape
    return SIGNATURE + _chunk(b"IHDR", _IHDR.pack(width, height, dtype.itemsize * 8, COLORS[channels], 0, 0, 0))


_END = _chunk(b"IEND", b"")
