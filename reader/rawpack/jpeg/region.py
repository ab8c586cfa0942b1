"""Decoding a box of a JPEG, and only the rows of blocks that the box needs.

Where a restart marker ends every row of MCUs, as in the files that rawpack packs, rows of MCUs are independent of one
another. The header with another height, some of the rows with renumbered markers, and an end marker are then a valid
small JPEG, which any decoder decodes. The native core finds the markers, or a regular expression without it. If chroma
is subsampled vertically, decoding interpolates between rows, so a box that touches the edge of its MCU rows needs one
row more.

Any other file is decoded completely and sliced. The result is identical to the bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from operator import index

from rawpack import native
from rawpack.errors import DecodeError, UsageError
from rawpack.jpeg.decoder import Box, Color, Data, Pixels, as_bytes, result_shape
from rawpack.jpeg.header import EOI, HUFFMAN_SEQUENTIAL, JpegHeader, mcu_shape, mixes_rows, read_header
from rawpack.native.calls import row_ends

_WHOLE_SPECTRUM = b"\x00\x3f\x00"
_RESTART_CODES = bytes(range(0xD0, 0xD8)) * 1024  # 8,192 rows: the most that 65,535 pixels make
_RESTART_MARKERS = b"".join(bytes((0xFF, code)) for code in _RESTART_CODES)
_MARKER = re.compile(rb"\xff[^\x00\xff]", re.DOTALL)  # neither a stuffed byte nor a fill byte
_LEAST_ROWS, _LEAST_SHARE = 2, 1 / 16
"""How many MCU rows a cut must leave out: decoding so few is as fast as finding the markers and copying the others."""
Decode = Callable[..., Pixels]
"""A function with the parameters of `JpegDecoder.decode`."""


def decode_box(
    decode: Decode,
    data: Data,
    box: Box,
    *,
    color: Color = "rgb",
    scale: int = 1,
    warnings: list[str] | None = None,
) -> Pixels:
    """The part `box` = (y, x, h, w) of the image that `decode` returns for `data`; else as `JpegDecoder.decode`.

    With `scale`, the reduced image is sliced from (y // scale, x // scale), h and w divided by `scale` and rounded up.
    The result may be a view of a larger array, with gaps between its rows. Damage outside the rows that the box needs
    may remain unnoticed. Raises UsageError for a box that is not within the image.
    """
    view = as_bytes(data)
    header = read_header(view)
    result_shape(header, color, scale)  # refuses what is no color or scale of this image
    y, x, h, w = map(index, box)
    if not (0 <= y < y + h <= header.height and 0 <= x < x + w <= header.width):
        size = f"{header.height} x {header.width} pixels (height x width)"
        raise UsageError(f"box (y, x, h, w) = {tuple(box)} is not within an image of {size}")
    top, left, height, width = y // scale, x // scale, -(-h // scale), -(-w // scale)
    mcu_height, _ = mcu_shape(header.sampling)
    margin = scale if mixes_rows(header.sampling) and color != "gray" else 0
    first = max(0, top * scale - margin) // mcu_height
    end = -(-min(header.height, (top + height) * scale + margin) // mcu_height)
    cut = _cut_rows(view, header, first, end)
    if cut is not None:
        # After an error or a warning, the whole file will show whether it is serious.
        told: list[str] = []
        try:
            image = decode(cut[0], color=color, scale=scale, warnings=told, header=cut[1])
        except DecodeError:
            told.append("an error")
        if not told:
            return image[top - first * mcu_height // scale :][:height, left : left + width]
    image = decode(view, color=color, scale=scale, warnings=warnings, header=header)
    return image[top : top + height, left : left + width]


def _cut_rows(data: memoryview, header: JpegHeader, first: int, end: int) -> tuple[memoryview, JpegHeader] | None:
    """A JPEG of the MCU rows first:end; None where the file cannot be cut, or cutting would save too little."""
    mcu_height, mcu_width = mcu_shape(header.sampling)
    rows = -(-header.height // mcu_height)
    if rows - (end - first) < max(_LEAST_ROWS, rows * _LEAST_SHARE):
        return None
    scan_header, scan_offset, height_offset = header.scan_header, header.scan_offset, header.height_offset
    if not (
        header.restart_interval == -(-header.width // mcu_width)
        and header.process in HUFFMAN_SEQUENTIAL
        and scan_header[:1] == bytes((header.components,))
        and scan_header[-3:] == _WHOLE_SPECTRUM
    ):
        return None
    ends = (_row_ends if native.library() is None else row_ends)(data, scan_offset, rows, end)
    if ends is None:
        return None

    begin_at = ends[first - 1] + 2 if first else scan_offset
    height = min(header.height, end * mcu_height) - first * mcu_height
    cut = bytearray(data[:scan_offset])
    cut[height_offset : height_offset + 2] = height.to_bytes(2, "big")
    cut += data[begin_at : ends[end - 1]]
    cut += EOI
    if first % 8:
        shift = scan_offset + 1 - begin_at
        for at, code in zip(ends[first : end - 1], _RESTART_CODES, strict=False):
            cut[at + shift] = code
    return memoryview(cut), JpegHeader(height, *header[1:])


def _row_ends(data: memoryview, scan_offset: int, rows: int, end: int) -> list[int] | None:
    found = list(islice(_MARKER.finditer(data, scan_offset), end))
    ends, markers = list(map(re.Match.start, found)), b"".join(map(re.Match.group, found))
    if end == rows:
        return ends if markers == _RESTART_MARKERS[: 2 * rows - 2] + EOI and ends[-1] == len(data) - 2 else None
    return ends if markers == _RESTART_MARKERS[: 2 * end] and data[-2:] == EOI else None
