"""Decodes BMP files, because Pillow reads few masks, and OpenCV darkens 16-bit pixels."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.images.header import ImageHeader
from rawpack_packer.images.pixels import Pixels, bands, on_white

_RGB, _RLE8, _RLE4, _BITFIELDS, _ALPHA_BITFIELDS = 0, 1, 2, 3, 6
_PLAIN_MASKS = {16: (0x7C00, 0x03E0, 0x001F, 0), 32: (0xFF0000, 0xFF00, 0xFF, 0)}


@dataclass(frozen=True)
class _Layout:
    """The two headers of a BMP."""

    width: int
    height: int
    top_down: bool
    bits: int
    compression: int
    masks: tuple[int, int, int, int]
    """Red, green, blue, alpha of a 16 or 32-bit pixel; alpha 0: none."""
    palette_offset: int
    palette_entries: int
    entry_bytes: int
    pixel_offset: int


def _read_layout(data: bytes) -> _Layout:
    """Raises struct.error where the file ends before its headers do."""
    pixel_offset, size = struct.unpack_from("<II", data, 10)
    compression = used = 0
    if size == 12:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
    else:
        width, height, _, bits, compression, used = struct.unpack_from("<iiHHI12xI", data, 18)
    masks = _PLAIN_MASKS.get(bits, (0, 0, 0, 0))
    palette_offset = 14 + size
    if compression in (_BITFIELDS, _ALPHA_BITFIELDS):
        count = 4 if compression == _ALPHA_BITFIELDS or size >= 56 else 3
        red, green, blue, *alpha = struct.unpack_from(f"<{count}I", data, 54)
        masks = red, green, blue, alpha[0] if alpha else 0
        palette_offset = max(palette_offset, 54 + 4 * count)
    if bits not in (1, 4, 8, 16, 24, 32):
        raise DecodeError("unsupported", f"BMP of {bits} bits a pixel")
    allowed = {_RLE8: (8,), _RLE4: (4,), _BITFIELDS: (16, 32), _ALPHA_BITFIELDS: (16, 32)}
    if compression and (size == 64 or bits not in allowed.get(compression, ())):
        raise DecodeError("unsupported", f"BMP of {bits} bits a pixel with compression {compression}")
    entry_bytes = 3 if size == 12 else 4
    palette_entries = min(used or 1 << bits, 1 << bits) if bits <= 8 else 0
    if pixel_offset == 0 or pixel_offset == palette_offset:
        # Some writers leave the offset out, or forget the palette in it.
        pixel_offset = palette_offset + entry_bytes * palette_entries
    elif pixel_offset < palette_offset:
        raise DecodeError("corrupt", f"BMP whose pixels begin at byte {pixel_offset}, inside its header")
    if width <= 0 or height == 0 or (height < 0 and compression in (_RLE8, _RLE4)):
        raise DecodeError("corrupt", f"BMP of {width} x {height} pixels")
    return _Layout(
        width=width,
        height=abs(height),
        top_down=height < 0,
        bits=bits,
        compression=compression,
        masks=masks,
        palette_offset=palette_offset,
        # Old writers leave out what they do not use, and begin with the pixels.
        palette_entries=min(palette_entries, (pixel_offset - palette_offset) // entry_bytes),
        entry_bytes=entry_bytes,
        pixel_offset=pixel_offset,
    )


def read_header(data: bytes) -> ImageHeader:
    """Read a BMP's headers. A negative height (rows from the top) comes out positive."""
    layout = _read_layout(data)
    alpha = layout.masks[3] != 0
    return ImageHeader(
        format="bmp",
        width=layout.width,
        height=layout.height,
        color="palette" if layout.bits <= 8 else "rgb",
        channels=1 if layout.bits <= 8 else 3 + alpha,
        bits=layout.bits if layout.bits <= 8 else 5 if layout.bits == 16 else 8,
    )


def decode(data: bytes, header: ImageHeader) -> Pixels:
    """Decode to RGB (H, W, 3); alpha on white, where the file has a mask for it."""
    layout = _read_layout(data)
    if layout.compression in (_RLE8, _RLE4):
        pixels = _colors(data, _run_length_index(data, layout), layout)
    else:
        rows = _rows(data, layout)
        if layout.bits <= 8:
            pixels = _colors(data, _index(rows, layout), layout)
        elif layout.bits == 24:
            pixels = rows[:, : 3 * layout.width].reshape(layout.height, layout.width, 3)[..., ::-1]
        else:
            pixels = _masked(rows, layout)
    return pixels if layout.top_down else pixels[::-1]


def _rows(data: bytes, layout: _Layout) -> NDArray[np.uint8]:
    """The stored rows of an uncompressed BMP, each padded to four bytes."""
    stride = (layout.width * layout.bits + 31) // 32 * 4
    need = stride * layout.height
    if layout.pixel_offset + need > len(data):
        raise DecodeError(
            "truncated", f"BMP needs {need} bytes of pixels from byte {layout.pixel_offset}, ends at {len(data)}"
        )
    return np.frombuffer(data, np.uint8, need, layout.pixel_offset).reshape(layout.height, stride)


def _colors(data: bytes, index: NDArray[np.uint8], layout: _Layout) -> Pixels:
    """RGB of palette indices. Raises DecodeError for a pixel whose color the file does not have."""
    size, start = layout.entry_bytes, layout.palette_offset
    stored = np.frombuffer(data, np.uint8, size * layout.palette_entries, start).reshape(-1, size)
    if index.max() >= len(stored):
        raise DecodeError(
            "corrupt", f"BMP with a pixel of color {index.max()}, and {len(stored)} colors before its pixels"
        )
    return stored[:, 2::-1][index]


def _index(rows: NDArray[np.uint8], layout: _Layout) -> NDArray[np.uint8]:
    if layout.bits == 1:
        return np.unpackbits(rows, axis=1, count=layout.width)
    if layout.bits == 4:
        return np.stack([rows >> 4, rows & 15], axis=2).reshape(layout.height, -1)[:, : layout.width]
    return rows[:, : layout.width]


def _masked(rows: NDArray[np.uint8], layout: _Layout) -> Pixels:
    """RGB of 16 or 32-bit pixels, each channel stretched to 0..255."""
    dtype = "<u2" if layout.bits == 16 else "<u4"
    words = np.ascontiguousarray(rows).view(dtype)[:, : layout.width]
    has_alpha = layout.masks[3] != 0
    image = np.empty((layout.height, layout.width, 3 + has_alpha), np.uint8)
    for channel in range(3 + has_alpha):
        mask = layout.masks[channel]
        shift = (mask & -mask).bit_length() - 1
        width = (mask >> max(shift, 0)).bit_length()
        if mask == 0 or mask >> shift != (1 << width) - 1 or mask >> layout.bits:
            raise DecodeError("unsupported", f"BMP with the channel mask 0x{mask:08X}")
        if layout.bits == 32 and width == 8 and shift % 8 == 0:
            image[..., channel] = rows[:, shift // 8 :: 4]
            continue
        drop = max(0, width - 8)
        top = (1 << (width - drop)) - 1
        stretch = np.rint(np.arange(top + 1) * (255 / top)).astype(np.uint8)
        for band in bands(layout.height, layout.width):
            image[band, :, channel] = stretch[words[band] >> (shift + drop) & top]
    return on_white(image[..., :3], image[..., 3]) if has_alpha else image


def _run_length_index(data: bytes, layout: _Layout) -> NDArray[np.uint8]:
    """Undo RLE8 or RLE4; pixels that the codes skip have index 0. Raises IndexError where the file ends."""
    width, height, at = layout.width, layout.height, layout.pixel_offset
    canvas = bytearray(width * height)
    four = layout.compression == _RLE4
    x = y = 0
    while True:
        count, value = data[at], data[at + 1]
        at += 2
        if count:
            run = bytes([value >> 4, value & 15]) * (count + 1 >> 1) if four else bytes([value]) * count
        elif value == 0:
            x, y = 0, y + 1
            continue
        elif value == 1:
            return np.frombuffer(canvas, np.uint8).reshape(height, width)
        elif value == 2:
            x, y = x + data[at], y + data[at + 1]
            at += 2
            continue
        else:
            count = value
            size = (count + 1) // 2 if four else count
            run = data[at : at + size]
            if len(run) < size:
                raise IndexError
            if four:
                run = bytes(half for byte in run for half in (byte >> 4, byte & 15))
            at += size + size % 2
        if y >= height or x + count > width:
            raise DecodeError("corrupt", f"BMP run of {count} pixels at column {x} of row {y} leaves the image")
        start = y * width + x
        canvas[start : start + count] = run[:count]
        x += count
