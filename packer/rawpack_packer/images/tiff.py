"""TIFF files: reads tags and converts colors here, and decodes samples with the libtiff in Pillow.

Pillow has modes for only some combinations of samples, and mixes up planes. So it gets each plane as an image of gray
samples, as wide as all samples of a row, and libtiff unpacks it. JPEG and YCbCr are left to Pillow, because there
libtiff also converts the colors.
"""

from __future__ import annotations

import io
import math
import re
import struct
import warnings
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import TiffImagePlugin

from rawpack.errors import DecodeError
from rawpack.jpeg.captured_stderr import captured_stderr
from rawpack_packer.images.header import ImageHeader
from rawpack_packer.images.orientation import ORIENTATION_TAG, apply_orientation, turned_by_xmp, valid_orientation
from rawpack_packer.images.pixels import Pixels, cmyk_to_rgb, on_white
from rawpack_packer.images.with_pillow import UNSUPPORTED, only_thread, opened, to_pixels

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER = 256, 257, 258, 259, 262, 266
_SAMPLES, _PLANAR, _FAX3, _FAX4, _PREDICTOR, _COLORMAP = 277, 284, 292, 293, 317, 320
_STRIP_OFFSETS, _ROWS_PER_STRIP, _STRIP_COUNTS = 273, 278, 279
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS = 322, 323, 324, 325
_EXTRA, _SAMPLE_FORMAT, _XMP, _ICC = 338, 339, 700, 34675
_TAGS = frozenset(
    {
        *(_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER, _SAMPLES, _PLANAR, _FAX3, _FAX4, _PREDICTOR),
        *(_STRIP_OFFSETS, _ROWS_PER_STRIP, _STRIP_COUNTS, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS),
        *(_COLORMAP, _EXTRA, _SAMPLE_FORMAT, ORIENTATION_TAG, _XMP, _ICC),
    }
)
"""All others are ignored."""

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6
_COLORS = {
    _WHITE_IS_ZERO: ("gray", 1),
    _BLACK_IS_ZERO: ("gray", 1),
    _RGB: ("rgb", 3),
    _PALETTE: ("palette", 1),
    _CMYK: ("cmyk", 4),
    _YCBCR: ("ycbcr", 3),
}
"""Photometric interpretation -> color, and its samples in a pixel without extra ones."""
_ASSOCIATED, _UNASSOCIATED, _COREL = 1, 2, 999
"""Extra samples that are alpha; the last one is written by Corel Draw 10."""

_JPEGS, _DEFLATE, _WEBP = (6, 7), (8, 32946), 50001
_WITH_PREDICTOR = (5, *_DEFLATE, 34925, 50000)
_USUAL = frozenset({1, 2, 3, 4, 7, 32773, *_WITH_PREDICTOR})
"""If decoding one of these fails, the file is damaged; others may only be missing from this libtiff."""
_MAX_TILE_PIXELS, _MAX_SAMPLES = 1 << 24, 8
_LIBTIFF = re.compile(r"(tempfile\.tif|_?[A-Z]\w+|): ")
_SKIPPED = re.compile(r"Skipping tag (\d+)")
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


@dataclass(frozen=True)
class _TiffLayout:
    """How the samples of the first page are stored."""

    order: str
    width: int
    height: int
    bits: int
    samples: int
    photometric: int
    compression: int
    planes: int
    """As many as samples, or 1 where a pixel's samples are next to each other."""
    predictor: int
    alpha: int | None
    """Kind of the first extra sample; None without one."""
    tiled: bool
    piece: tuple[int, int]
    """(height, width) of a strip or tile."""
    grid: tuple[int, int]
    """Strips or tiles in a column and in a row of each plane."""
    pieces: list[tuple[int, int]]
    """Offset and length of each strip or tile, plane after plane."""

    @property
    def lanes(self) -> int:
        """Samples of a pixel in one plane."""
        return self.samples // self.planes

    @property
    def colors_by_libtiff(self) -> bool:
        return self.photometric == _YCBCR or self.compression in (*_JPEGS, _WEBP)

    def piece_bytes(self, rows: int) -> int:
        return (self.piece[1] * self.lanes * self.bits + 7) // 8 * rows


@dataclass(frozen=True)
class _Page:
    """The first page's tags, as far as they matter here."""

    numbers: dict[int, tuple[int, ...]]
    xmp: bytes
    icc: bool
    several: bool
    """Whether there is another page."""

    def number(self, tag: int, default: int) -> int:
        return self.numbers.get(tag, (default,))[0]


def _read_page(data: bytes) -> _Page:
    """Raises DecodeError, or struct.error where the file ends."""
    head = data[:16] if b"+" in data[2:4] else data[:8]
    if head[:4] == b"MM\0+":
        head = b"MM+\0" + head[4:]  # Pillow recognizes BigTIFF by its third byte
    with only_thread, warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        tags, file = TiffImagePlugin.ImageFileDirectory_v2(head), io.BytesIO(data)
        first, values = tags.next, {}
        try:
            file.seek(first)
            tags.load(file)
            for tag in _TAGS & set(tags):
                found = tags.get(tag, ())
                values[tag] = found if isinstance(found, tuple) else (found,)
        except (SyntaxError, ValueError, OverflowError) as error:
            raise DecodeError("corrupt", f"TIFF: {error}") from error
    numbers = {tag: found for tag, found in values.items() if found and all(isinstance(n, int) for n in found)}
    for complaint in complaints:
        text = str(complaint.message)
        skipped = _SKIPPED.search(text)
        missing = not {_WIDTH, _HEIGHT, _PHOTOMETRIC} <= set(numbers)
        if missing or text == "Truncated File Read" or (skipped and int(skipped[1]) in _TAGS - {_XMP, _ICC}):
            raise DecodeError("truncated", f"TIFF: {text}")
    xmp = values.get(_XMP, (b"",))[0]
    several = tags.next not in (0, first)
    return _Page(numbers, xmp if isinstance(xmp, bytes) else b"", icc=_ICC in values, several=several)


def read_header(data: bytes) -> ImageHeader:
    """Read the tags of the first page."""
    page = _read_page(data)
    width, height = page.number(_WIDTH, 0), page.number(_HEIGHT, 0)
    if width <= 0 or height <= 0:
        raise DecodeError("corrupt", f"TIFF of {width} x {height} pixels")
    orientation = valid_orientation(page.number(ORIENTATION_TAG, 1))
    return ImageHeader(
        format="tiff",
        width=width,
        height=height,
        color=_COLORS.get(page.number(_PHOTOMETRIC, -1), ("other", 1))[0],
        channels=page.number(_SAMPLES, 1),
        bits=page.number(_BITS, 1),
        orientation=orientation,
        xmp_turned=orientation == 1 and turned_by_xmp(page.xmp),
        icc=page.icc,
        several=page.several,
    )


def decode(data: bytes, header: ImageHeader) -> Pixels:
    """Decode the first page, upright: gray (H, W, 1) or RGB (H, W, 3), alpha on white."""
    page = _read_page(data)
    layout = _layout(data, page, header)
    if page.number(_FILL_ORDER, 1) == 2 and not layout.colors_by_libtiff:
        data = data.translate(_REVERSED)  # the tags have been read
    _check_pieces(data, layout)
    if layout.colors_by_libtiff:
        with opened(data, "tiff", layout.width * layout.height) as image:
            image.info.pop("xmp", None)  # by which Pillow would turn it
            _load(image, layout.compression)
            return to_pixels(image)
    planes = [_plane(data, page, layout, number) for number in range(layout.planes)]
    samples = planes[0] if len(planes) == 1 else np.concatenate(planes, axis=2)
    return apply_orientation(_colored(samples, page, layout), header.orientation)


def _layout(data: bytes, page: _Page, header: ImageHeader) -> _TiffLayout:
    """Raises DecodeError for layouts that are not decoded."""
    if _PHOTOMETRIC not in page.numbers:
        raise DecodeError("corrupt", "TIFF without a photometric interpretation: white may be 0 or 1")
    photometric, compression = page.number(_PHOTOMETRIC, -1), page.number(_COMPRESSION, 1)
    bits, samples = set(page.numbers.get(_BITS, (1,))), header.channels
    what = f"TIFF of {samples} x {max(bits)} bits, photometric {photometric}, compression {compression}"
    colors = _COLORS.get(photometric, ("other", 0))[1]
    extra = page.numbers.get(_EXTRA, ())
    known = bits <= {1, 2, 4, 8, 12, 16} and len(bits) == 1 and compression in TiffImagePlugin.COMPRESSION_INFO
    if not known or not colors or set(page.numbers.get(_SAMPLE_FORMAT, ())) - {1}:
        raise DecodeError("unsupported", f"{what}, sample format {page.numbers.get(_SAMPLE_FORMAT, ())[:1]}")
    if compression in _JPEGS and photometric in (_RGB, _YCBCR) and _SAMPLES not in page.numbers:
        samples = 3
    # OpenCV writes RGBA without saying so.
    if not colors <= samples <= min(colors + max(1, len(extra)), _MAX_SAMPLES):
        raise DecodeError("unsupported", f"{what}: {colors} samples are color, one more may be alpha")
    tiled = _TILE_WIDTH in page.numbers
    height, width = header.height, header.width
    piece = min(height, page.number(_ROWS_PER_STRIP, height)), width
    if tiled:
        piece = page.number(_TILE_HEIGHT, 0), page.number(_TILE_WIDTH, 0)
        if math.prod(piece) > max(_MAX_TILE_PIXELS, 4 * width * height):
            raise DecodeError("unsupported", f"TIFF in tiles of {piece[1]} x {piece[0]} pixels")
    if min(piece) <= 0:
        raise DecodeError("corrupt", f"TIFF in strips or tiles of {piece[1]} x {piece[0]} pixels")
    grid = -(-height // piece[0]), -(-width // piece[1])
    planes = samples if page.number(_PLANAR, 1) == 2 else 1
    offsets = page.numbers.get(_TILE_OFFSETS, ()) or page.numbers.get(_STRIP_OFFSETS, ())
    counts = page.numbers.get(_TILE_COUNTS, ()) or page.numbers.get(_STRIP_COUNTS, ())
    if len(offsets) == 1 and not counts:
        counts = (max(0, len(data) - offsets[0]),)  # old files of one strip leave it out
    return _TiffLayout(
        order="<" if data[:1] == b"I" else ">",
        width=width,
        height=height,
        bits=bits.pop(),
        samples=samples,
        photometric=photometric,
        compression=compression,
        planes=planes,
        predictor=page.number(_PREDICTOR, 1) if compression in _WITH_PREDICTOR else 1,
        alpha=(extra[0] if extra else _UNASSOCIATED) if samples > colors else None,
        tiled=tiled,
        piece=piece,
        grid=grid,
        pieces=list(zip(offsets, counts, strict=False))[: math.prod(grid) * planes],
    )


def _check_pieces(data: bytes, layout: _TiffLayout) -> None:
    """Raise DecodeError for damage that libtiff in Pillow would accept, or use too much memory for."""
    for offset, count in layout.pieces:
        if offset + count > len(data):
            raise DecodeError("truncated", f"TIFF strip or tile reaches byte {offset + count} of {len(data)}")
    if layout.compression in _DEFLATE:
        for offset, count in layout.pieces:
            _check_deflate(memoryview(data)[offset : offset + count], layout.piece_bytes(layout.piece[0]))
    if layout.colors_by_libtiff:
        return
    down, across = layout.grid
    if len(layout.pieces) < down * across * layout.planes:
        found = f"{len(layout.pieces)} strips or tiles"
        raise DecodeError("corrupt", f"TIFF with {found} where its size needs {down * across * layout.planes}")
    held = sum(count for _, count in layout.pieces)
    full = layout.planes * layout.piece_bytes(layout.piece[0] * down if layout.tiled else layout.height) * across
    if layout.compression == 1 and held < full:
        raise DecodeError("truncated", f"TIFF strips or tiles hold {held} of {full} bytes")


def _check_deflate(packed: memoryview, most: int) -> None:
    """Raise DecodeError where Deflate data are damaged or a checksum is wrong. Unpacks at most `most` bytes."""
    inflate = zlib.decompressobj()
    try:
        inflate.decompress(packed, max(1, most))
        if not inflate.eof:
            # What is left is the checksum, which is read only when more is asked for.
            inflate.decompress(inflate.unconsumed_tail, 1)
    except zlib.error as error:
        raise DecodeError("corrupt", f"TIFF strip or tile: {error}") from error


def _load(image: Any, compression: int) -> None:
    """Decode, and raise for all that libtiff reports: after invalid codes of CCITT or JPEG it continues, reports
    them on stderr only, and Pillow returns the pixels."""
    failure: OSError | None = None
    with captured_stderr(_LIBTIFF.match) as said:
        try:
            image.load()
        except OSError as error:
            failure = error
    if not said and failure is None:
        return
    detail = f"TIFF with compression {compression}: {said[0] if said else failure}"
    rare = failure is not None and compression not in _USUAL
    unsupported = rare or any(word in detail for word in ("not configured", *UNSUPPORTED))
    raise DecodeError("unsupported" if unsupported else "corrupt", detail)


def _plane(data: bytes, page: _Page, layout: _TiffLayout, number: int) -> NDArray[Any]:
    """The samples of a plane: (H, W, samples in it), uint8 or uint16; those of 1, 2 and 4 bits stretched to 0..255."""
    share = len(layout.pieces) // layout.planes
    pieces = layout.pieces[number * share : (number + 1) * share]
    by_libtiff = layout.lanes == 1 or layout.predictor == 1
    directory = {
        _WIDTH: (layout.width * layout.lanes,),
        _HEIGHT: (layout.height,),
        _BITS: (layout.bits,),
        _COMPRESSION: (layout.compression,),
        _PHOTOMETRIC: (_BLACK_IS_ZERO,),
        _SAMPLES: (1,),
        _FAX3: (page.number(_FAX3, 0),),
        _FAX4: (page.number(_FAX4, 0),),
        _PREDICTOR: (layout.predictor if by_libtiff else 1,),
        _TILE_OFFSETS if layout.tiled else _STRIP_OFFSETS: tuple(offset for offset, _ in pieces),
        _TILE_COUNTS if layout.tiled else _STRIP_COUNTS: tuple(count for _, count in pieces),
    }
    if layout.tiled:
        directory |= {_TILE_WIDTH: (layout.piece[1] * layout.lanes,), _TILE_HEIGHT: (layout.piece[0],)}
    else:
        directory[_ROWS_PER_STRIP] = (layout.piece[0],)
    shape = layout.height, layout.width, layout.lanes
    with opened(_with_directory(data, layout.order, directory), "tiff", math.prod(shape)) as image:
        _load(image, layout.compression)
        values = np.asarray(image).reshape(shape)
    if layout.bits == 1:
        return values.astype(np.uint8) * np.uint8(255)
    if layout.bits > 8:
        values = values.astype(np.uint16, copy=False)
    if by_libtiff:
        return values
    if layout.predictor != 2 or layout.bits not in (8, 16):
        raise DecodeError("unsupported", f"TIFF of {layout.bits} bits with predictor {layout.predictor}")
    summed = np.empty_like(values)
    for x in range(0, layout.width, layout.piece[1]):
        columns = slice(x, x + layout.piece[1])
        np.add.accumulate(values[:, columns], axis=1, dtype=values.dtype, out=summed[:, columns])
    return summed


def _with_directory(data: bytes, order: str, tags: dict[int, tuple[int, ...]]) -> bytes:
    """A TIFF file with the same data, in which these tags are the only page's."""
    at = len(data) + len(data) % 2
    outside = at + 2 + 12 * len(tags) + 4
    entries, values = b"", b""
    for tag, numbers in sorted(tags.items()):
        value = struct.pack(f"{order}{len(numbers)}I", *numbers)
        if len(value) > 4:
            values, value = values + value, struct.pack(order + "I", outside + len(values))
        entries += struct.pack(order + "HHI", tag, 4, len(numbers)) + value
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", at)
    count = struct.pack(order + "H", len(tags))
    return b"".join([head, data[8:], bytes(at - len(data)), count, entries, bytes(4), values])


def _colored(samples: NDArray[Any], page: _Page, layout: _TiffLayout) -> Pixels:
    """Gray or RGB of the samples (H, W, n) of pixels, alpha on white."""
    colors = _COLORS[layout.photometric][1]
    image: Pixels = samples if layout.bits <= 8 else (samples >> (layout.bits - 8)).astype(np.uint8)
    alpha, image = image[..., colors:], image[..., :colors]
    if layout.photometric == _PALETTE:
        image = _looked_up(samples[..., 0], page, layout.bits)
    elif layout.photometric == _CMYK:
        image = cmyk_to_rgb(image, inverted=False)
    elif layout.photometric == _WHITE_IS_ZERO:
        image = np.invert(image)
    if layout.alpha in (_ASSOCIATED, _UNASSOCIATED, _COREL):
        return on_white(image, alpha[..., 0], premultiplied=layout.alpha == _ASSOCIATED)
    return image


def _looked_up(index: NDArray[Any], page: _Page, bits: int) -> Pixels:
    table = np.array(page.numbers.get(_COLORMAP, ()), np.uint16)
    if bits < 8:
        index = index // (255 // (2**bits - 1))
    if 3 * (int(index.max()) + 1) > len(table):
        raise DecodeError("corrupt", f"TIFF with a pixel of color {index.max()}, and {len(table) // 3} colors")
    # Some writers store 8-bit colors where 16-bit ones belong.
    table = (table >> 8 if table.max() > 255 else table).astype(np.uint8)
    colors: Pixels = np.ascontiguousarray(table[: len(table) // 3 * 3].reshape(3, -1).T)[index]
    return colors
