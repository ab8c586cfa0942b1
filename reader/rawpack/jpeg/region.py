"""Decoding a box of a JPEG, and only the rows of blocks that the box needs.

Where a restart marker ends every row of MCUs, as in the files that rawpack packs, rows of MCUs are independent of one
another. The header with another height, some of the rows with renumbered markers, and an end marker are then a valid
small JPEG, which any decoder decodes. Where chroma is subsampled vertically, decoding interpolates between rows, so a
box that touches the edge of its MCU rows needs one row more. Any other file is decoded completely and sliced; the
result is identical to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.jpeg.decoder import CHANNELS, Color, Data, Pixels, as_bytes, check_options, check_out
from rawpack.jpeg.header import EOI, JpegHeader, read_header

Box = tuple[int, int, int, int]
"""(y, x, height, width) in stored pixels."""

_MCU_WIDTH = {"444": 8, "422": 16, "420": 16, "440": 8, "411": 32, "gray": 8}
_HUFFMAN_SEQUENTIAL = (0xC0, 0xC1)
_WHOLE_SPECTRUM = b"\x00\x3f\x00"
_RESTART_CODES = bytes(range(0xD0, 0xD8)) * 1024  # 8,192 rows: the most that 65,535 pixels make
_LEAST_ROWS, _LEAST_SHARE = 2, 1 / 16
"""How many MCU rows a cut must leave out: decoding so few is as fast as finding the markers and copying the others."""
Decode = Callable[..., Pixels]
"""A function with the parameters of `JpegDecoder.decode`."""


def restart_interval(width: int, subsampling: str) -> int:
    """MCUs in a row of an image `width` pixels wide: the restart interval with which `decode_box` can cut between rows.

    `subsampling`: "444", "422", "420", "440", "411" or "gray". Raises UsageError for any other.
    """
    if subsampling not in _MCU_WIDTH:
        raise UsageError(f"subsampling {subsampling!r}: choose one of {', '.join(map(repr, _MCU_WIDTH))}")
    return -(-width // _MCU_WIDTH[subsampling])


def decode_box(
    decode: Decode,
    data: Data,
    box: Box,
    *,
    color: Color = "rgb",
    scale: int = 1,
    out: Pixels | None = None,
    warnings: list[str] | None = None,
) -> Pixels:
    """The part `box` = (y, x, h, w) of the image that `decode` returns for `data`; else as `JpegDecoder.decode`.

    With `scale`, the reduced image is sliced from (y // scale, x // scale), h and w divided by `scale` and rounded up.
    Without `out`, the result may be a view of a larger array, with gaps between its rows. Damage outside the rows that
    the box needs may remain unnoticed. Raises UsageError for a box that is not within the image.
    """
    check_options(color, scale)
    view = as_bytes(data)
    header = read_header(view)
    y, x, h, w = map(index, box)
    if not (0 <= y < y + h <= header.height and 0 <= x < x + w <= header.width):
        size = f"{header.height} x {header.width} pixels (height x width)"
        raise UsageError(f"box (y, x, h, w) = {tuple(box)} is not within an image of {size}")
    top, left, height, width = y // scale, x // scale, -(-h // scale), -(-w // scale)
    if out is not None:
        check_out(out, (height, width, CHANNELS[color]))

    image = None
    mcu_height = header.mcu_shape[0]
    margin = scale if header.mixes_rows and color != "gray" else 0
    first = max(0, top * scale - margin) // mcu_height
    end = -(-min(header.height, (top + height) * scale + margin) // mcu_height)
    cut = _cut_rows(view, header, first, end)
    if cut is not None:
        image = _decode_cleanly(decode, cut, color, scale)
        top -= first * mcu_height // scale if image is not None else 0
    if image is None:
        image = decode(data, color=color, scale=scale, warnings=warnings)
    part = image[top : top + height, left : left + width]
    if out is None:
        return part
    np.copyto(out, part)
    return out


def _decode_cleanly(decode: Decode, cut: bytearray, color: Color, scale: int) -> Pixels | None:
    """The image of a cut; None after an error or a warning, which the whole file will show to be serious or not."""
    warnings: list[str] = []
    try:
        image = decode(cut, color=color, scale=scale, warnings=warnings)
    except DecodeError:
        return None
    return None if warnings else image


def _cut_rows(data: memoryview, header: JpegHeader, first: int, end: int) -> bytearray | None:
    """A JPEG of the MCU rows first:end; None where the file cannot be cut, or cutting would save too little."""
    mcu_height, mcu_width = header.mcu_shape
    rows = -(-header.height // mcu_height)
    if rows - (end - first) < max(_LEAST_ROWS, rows * _LEAST_SHARE):
        return None
    scan_header, scan_offset = header.scan_header, header.scan_offset
    if not (
        header.restart_interval == -(-header.width // mcu_width)
        and header.process in _HUFFMAN_SEQUENTIAL
        and scan_header[:1] == bytes((header.components,))
        and scan_header[-3:] == _WHOLE_SPECTRUM
    ):
        return None
    ends = _row_ends(np.frombuffer(data, np.uint8)[scan_offset:], rows)
    if ends is None:
        return None

    begin_at = scan_offset + (int(ends[first - 1]) + 2 if first else 0)
    cut = bytearray(data[:scan_offset])
    height = min(header.height, end * mcu_height) - first * mcu_height
    cut[header.height_offset : header.height_offset + 2] = height.to_bytes(2, "big")
    cut += data[begin_at : scan_offset + int(ends[end - 1])]
    cut += EOI
    if first % 8:
        numbers = ends[first : end - 1] + (2 * scan_offset - begin_at + 1)
        np.frombuffer(cut, np.uint8)[numbers] = np.frombuffer(_RESTART_CODES, np.uint8, len(numbers))
    return cut


def _row_ends(scan: NDArray[np.uint8], rows: int) -> NDArray[np.intp] | None:
    """Where each row ends in the entropy-coded bytes: at its restart marker, the last row at the end marker.

    None unless there are exactly these markers, in order, and the data ends with the end marker.
    """
    prefixes: NDArray[np.intp] = np.flatnonzero(scan[:-1] == 0xFF)
    codes = scan[prefixes + 1]
    is_marker = codes % 0xFF != 0  # neither 0x00, a stuffed byte, nor 0xFF, a fill byte
    if codes[is_marker].tobytes() != _RESTART_CODES[: rows - 1] + EOI[1:]:
        return None
    ends = prefixes[is_marker]
    return ends if ends[-1] == len(scan) - 2 else None
