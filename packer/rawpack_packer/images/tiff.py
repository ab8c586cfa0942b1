"""TIFF: plain, Deflate and PackBits data decoded here, LZW, JPEG and CCITT by OpenCV.

Decoded here, because OpenCV knows neither grey with alpha nor 4-bit grey, loses colour under a low alpha, and returns
images with missing parts when Deflate data are damaged. LZW, JPEG and CCITT hold no checksum: damage inside them that
still makes valid codes shows as wrong pixels, in libtiff as everywhere; what libtiff complains of is refused.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.images import opencv
from rawpack_packer.images.header import ImageHeader
from rawpack_packer.images.pixels import Pixels, cmyk_to_rgb, on_white
from rawpack_packer.images.tiff_layout import (
    ASSOCIATED,
    BLACK_IS_ZERO,
    CCITT,
    CMYK,
    DEFLATE,
    JPEG,
    LZW,
    OLD_DEFLATE,
    PACKBITS,
    PALETTE,
    RGB,
    UNCOMPRESSED,
    WHITE_IS_ZERO,
    YCBCR,
    Layout,
    count_pages,
    read_layout,
)

_COLORS = {
    WHITE_IS_ZERO: "grey",
    BLACK_IS_ZERO: "grey",
    RGB: "rgb",
    PALETTE: "palette",
    CMYK: "cmyk",
    YCBCR: "ycbcr",
}
_MAX_PIECE_PIXELS = 1 << 24
_REVERSED_BITS = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)[:, ::-1], axis=1)[:, 0]


def read_header(data: bytes) -> ImageHeader:
    """Read the first directory of a TIFF; strips and tiles are checked to lie inside the file."""
    layout = read_layout(data)
    return ImageHeader(
        format="tiff",
        width=layout.width,
        height=layout.height,
        color=_COLORS.get(layout.photometric, "other"),
        channels=layout.samples,
        bits=layout.bits,
        alpha=layout.alpha != 0,
        orientation=layout.orientation,
        icc=layout.icc,
        frames=count_pages(data),
    )


def decode(data: bytes, header: ImageHeader) -> Pixels:
    """Decode the first page to stored orientation: grey (H, W, 1) or RGB (H, W, 3), alpha on white."""
    layout = read_layout(data)
    what = f"TIFF of {layout.samples} x {layout.bits} bits, photometric {layout.photometric}"
    if layout.sample_format != 1 or layout.bits not in (1, 2, 4, 8, 16) or header.color == "other":
        raise DecodeError("unsupported", f"{what}, sample format {layout.sample_format}")
    if layout.samples not in (layout.colors, layout.colors + 1):
        raise DecodeError("unsupported", f"{what}: {layout.colors} samples are colour, one more may be alpha")
    tile_pixels = layout.piece_width * layout.piece_height if layout.tiled else 0
    if tile_pixels > max(_MAX_PIECE_PIXELS, 4 * layout.width * layout.height):
        raise DecodeError("unsupported", f"TIFF in tiles of {layout.piece_width} x {layout.piece_height} pixels")
    by_opencv = layout.compression in (LZW, JPEG, *CCITT) or layout.photometric == YCBCR
    if by_opencv:
        return _decode_by_opencv(data, header, layout, what)
    if layout.compression not in (UNCOMPRESSED, DEFLATE, OLD_DEFLATE, PACKBITS):
        raise DecodeError("unsupported", f"TIFF with compression {layout.compression}")
    if layout.predictor not in (1, 2) or (layout.predictor == 2 and layout.bits < 8):
        raise DecodeError("unsupported", f"{what} with predictor {layout.predictor}")
    return _to_pixels(_read_samples(data, layout), layout)


_BY_OPENCV = {
    *((photometric, bits, 1) for photometric in (WHITE_IS_ZERO, BLACK_IS_ZERO) for bits in (1, 8, 16)),
    *((RGB, bits, samples) for bits in (8, 16) for samples in (3, 4)),
    (PALETTE, 4, 1),
    (PALETTE, 8, 1),
    (CMYK, 8, 4),
    (YCBCR, 8, 3),
}
"""(photometric, bits, samples) that OpenCV decodes right."""


def _decode_by_opencv(data: bytes, header: ImageHeader, layout: Layout, what: str) -> Pixels:
    if (layout.photometric, layout.bits, layout.samples) not in _BY_OPENCV:
        raise DecodeError("unsupported", f"{what} with compression {layout.compression}")
    if layout.planar and layout.bits == 16:
        raise DecodeError("unsupported", f"{what} in planes, with compression {layout.compression}")
    stored: bytes | bytearray = data
    if layout.orientation_offset is not None and layout.orientation != 1:
        # libtiff turns some kinds of image by this tag, and leaves others.
        stored = bytearray(data)
        stored[layout.orientation_offset : layout.orientation_offset + 2] = b"\1\0" if layout.order == "<" else b"\0\1"
    image = opencv.decode_stored(stored, header)
    if layout.photometric == WHITE_IS_ZERO and layout.bits == 16:
        np.invert(image, out=image)
    alpha = "ignored"
    if layout.alpha and layout.photometric == RGB:
        # libtiff multiplies 8-bit colours by an alpha that says of itself that they are not, and leaves all others.
        multiplied = layout.bits == 8 and layout.extra is not None
        alpha = "premultiplied" if multiplied or layout.alpha == ASSOCIATED else "straight"
    return opencv.to_pixels(image, alpha=alpha)


def _read_samples(data: bytes, layout: Layout) -> NDArray[np.uint8]:
    """(H, W, samples): 8-bit and smaller samples as they are, of 16-bit ones the high byte."""
    canvas = np.empty((layout.height, layout.width, layout.samples), np.uint8)
    across = -(-layout.width // layout.piece_width)
    down = -(-layout.height // layout.piece_height)
    for number, (offset, count) in enumerate(layout.pieces):
        plane, place = divmod(number, across * down)
        y, x = place // across * layout.piece_height, place % across * layout.piece_width
        # A tile is always whole, the last strip is not.
        rows = layout.piece_height if layout.tiled else min(layout.piece_height, layout.height - y)
        piece = _read_piece(data, offset, count, rows, layout)
        target = canvas[y : y + rows, x : x + layout.piece_width]
        if layout.planar:
            target = target[..., plane : plane + 1]
        target[...] = piece[: target.shape[0], : target.shape[1]]
    return canvas


def _read_piece(data: bytes, offset: int, count: int, rows: int, layout: Layout) -> NDArray[np.uint8]:
    """One strip or tile: (rows, piece width, samples in it)."""
    samples = 1 if layout.planar else layout.samples
    row_bytes = (layout.piece_width * samples * layout.bits + 7) // 8
    need = rows * row_bytes
    raw = _decompress(data, offset, count, need, layout.compression)
    if len(raw) < need:
        raise DecodeError("truncated", f"TIFF strip or tile at byte {offset} holds {len(raw)} of {need} bytes")
    packed = np.frombuffer(raw, np.uint8, need).reshape(rows, row_bytes)
    if layout.low_bit_first and (layout.compression == UNCOMPRESSED or layout.bits < 8):
        packed = _REVERSED_BITS[packed]
    shape = (rows, layout.piece_width, samples)
    if layout.bits == 16:
        words: NDArray[Any] = packed.view(layout.order + "u2").reshape(shape)
        if layout.predictor == 2:
            words = np.add.accumulate(words.astype(np.uint16), axis=1, dtype=np.uint16)
        return (words >> 8).astype(np.uint8)
    if layout.bits == 8:
        values = packed.reshape(shape)
        return np.add.accumulate(values, axis=1, dtype=np.uint8) if layout.predictor == 2 else values
    single = np.unpackbits(packed, axis=1)[:, : layout.piece_width * samples * layout.bits]
    if layout.bits == 1:
        return single.reshape(shape)
    weights = (1 << np.arange(layout.bits, dtype=np.uint8))[::-1]
    small: NDArray[np.uint8] = (single.reshape(*shape, layout.bits) * weights).sum(axis=3, dtype=np.uint8)
    return small


def _decompress(data: bytes, offset: int, count: int, need: int, compression: int) -> bytes | memoryview:
    """The piece's bytes: `need` of them, or fewer where the piece does not hold so many."""
    packed = memoryview(data)[offset : offset + count]
    if compression == UNCOMPRESSED:
        return packed[:need]
    if compression == PACKBITS:
        return _unpack_bits(packed, need)
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(packed, need)
        if not inflate.eof:
            # All bytes are there: what is left is the checksum, which is read only when more is asked for.
            inflate.decompress(inflate.unconsumed_tail, 1)
    except zlib.error as error:
        raise DecodeError("corrupt", f"TIFF strip or tile at byte {offset}: {error}") from error
    return raw


def _unpack_bits(packed: memoryview, need: int) -> bytes:
    """Undo PackBits until there are `need` bytes."""
    out = bytearray()
    at = 0
    while len(out) < need and at < len(packed):
        head = packed[at]
        if head < 128:
            out += packed[at + 1 : at + 2 + head]
            at += 2 + head
        else:
            if head > 128:
                out += bytes(packed[at + 1 : at + 2]) * (257 - head)
            at += 2
    return bytes(out[:need])


def _to_pixels(samples: NDArray[np.uint8], layout: Layout) -> Pixels:
    """Colours of raw samples (H, W, samples)."""
    colors, top = layout.colors, min(255, (1 << layout.bits) - 1)
    image = samples[..., :colors]
    if layout.photometric == PALETTE:
        image = _looked_up(image[..., 0], layout)
    elif layout.photometric == CMYK:
        image = cmyk_to_rgb(image, inverted=False)
    elif top != 255:
        image = image * np.uint8(255 // top)
    if layout.photometric == WHITE_IS_ZERO:
        image = np.invert(image)
    if layout.alpha:
        opacity = samples[..., colors] * np.uint8(255 // top)
        return on_white(image, opacity, premultiplied=layout.alpha == ASSOCIATED)
    return image


def _looked_up(index: NDArray[np.uint8], layout: Layout) -> Pixels:
    entries = 1 << layout.bits
    if layout.bits > 8 or len(layout.colormap) < 3 * entries:
        found = f"{len(layout.colormap)} palette values for {layout.bits} bits"
        raise DecodeError("corrupt", f"TIFF with {found}")
    table = np.array(layout.colormap[: 3 * entries], np.uint16)
    # Some writers store 8-bit colours where 16-bit ones belong.
    eight_bits = (table >> 8 if table.max() > 255 else table).astype(np.uint8)
    return np.ascontiguousarray(eight_bits.reshape(3, entries).T)[index]
