"""TIFF files: Pillow decodes those of the layouts in a table, which it reads right; the rest is refused here.

Pillow guesses where a tag is missing or behind the end of the file, and returns wrong pixels for some layouts. So the
tags are read and checked here first, and where strips and tiles are stored.
"""

from __future__ import annotations

import io
import re
import warnings
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import ImagePalette, TiffImagePlugin

from rawpack.errors import DecodeError
from rawpack.jpeg.captured_stderr import captured_stderr
from rawpack_packer.images.header import ORIENTATION_TAG, ImageHeader, note_depth, valid_orientation
from rawpack_packer.images.png import quiet_opencv
from rawpack_packer.images.with_pillow import UNSUPPORTED, only_thread, opened, to_pixels

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER = 256, 257, 258, 259, 262, 266
_SAMPLES, _PLANAR, _FAX3, _FAX4, _PREDICTOR, _COLORMAP = 277, 284, 292, 293, 317, 320
_STRIP_OFFSETS, _ROWS_PER_STRIP, _STRIP_COUNTS = 273, 278, 279
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS = 322, 323, 324, 325
_EXTRA, _SAMPLE_FORMAT, _ICC = 338, 339, 34675
_DECIDING = frozenset(
    {
        *(_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER, _SAMPLES, _PLANAR, _FAX3, _FAX4, _PREDICTOR),
        *(_STRIP_OFFSETS, _ROWS_PER_STRIP, _STRIP_COUNTS, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS),
        *(_COLORMAP, _EXTRA, _SAMPLE_FORMAT, ORIENTATION_TAG),
    }
)
"""The tags that decide pixels."""

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6
_COLORS = {_WHITE_IS_ZERO: "gray", _BLACK_IS_ZERO: "gray", _RGB: "rgb", _PALETTE: "palette", _CMYK: "cmyk"}
_ONE = ((1,), ())
_LAYOUTS: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = {
    **{(gray, bits): _ONE for gray in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _PALETTE) for bits in (1, 2, 4, 8)},
    (_WHITE_IS_ZERO, 16): _ONE,
    (_BLACK_IS_ZERO, 12): _ONE,
    (_BLACK_IS_ZERO, 16): _ONE,
    (_BLACK_IS_ZERO, 8): ((1, 2), ()),
    (_RGB, 8): ((3, 4, 5), (3,)),
    (_RGB, 16): ((3, 4), (3,)),
    (_CMYK, 8): ((4, 5), (4,)),
    (_CMYK, 16): ((4,), (4,)),
    (_YCBCR, 8): ((3,), (3,)),
}
"""(photometric interpretation, bits) -> the numbers of samples that Pillow reads right: of pixels with their samples
side by side, and of separate planes. Extra samples that it does not know, it refuses itself."""
_JPEGS, _DEFLATES, _WEBP = (6, 7), (8, 32946), 50001
_USUAL = (1, 2, 3, 4, 5, 7, *_DEFLATES, 32773, 34925, 50000)
"""If decoding one of these compressions fails, the file is damaged; others may only be missing from this libtiff."""
_COMPRESSIONS = (*_USUAL, 6, _WEBP)
_PREDICTORS = (1, 2)
_MAX_TILE_PIXELS = 1 << 24
_LIBTIFF = re.compile(r"(tempfile\.tif|_?[A-Z]\w+|): ")
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
_CUT = rf"Truncated File Read|Corrupt EXIF data|.*Skipping tag ({'|'.join(map(str, sorted(_DECIDING)))})$"
"""Warnings by which Pillow says that a tag which decides pixels is behind the end of the file."""


@dataclass(frozen=True)
class _Page:
    """The first page's tags, as far as they matter here."""

    numbers: dict[int, tuple[int, ...]]
    icc: bool
    several: bool
    """Whether there is another page."""

    def number(self, tag: int, default: int) -> int:
        return self.numbers.get(tag, (default,))[0]


def _read_page(data: bytes) -> _Page:
    """Raises DecodeError, or struct.error where the file ends."""
    if data.startswith(b"MM\0+"):
        raise DecodeError("unsupported", "TIFF is a BigTIFF in big-endian order, which Pillow does not read")
    file = io.BytesIO(data)
    with only_thread, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", _CUT)
        tags = TiffImagePlugin.ImageFileDirectory_v2(data[:16] if data[2:3] == b"+" else data[:8])
        first = tags.next
        try:
            file.seek(first)
            tags.load(file)
            present = {tag: tags.get(tag) for tag in (*_DECIDING, _ICC) if tag in tags}
        except Warning as error:
            raise DecodeError("truncated", f"TIFF: {error}") from error
        except (SyntaxError, ValueError, OverflowError) as error:
            raise DecodeError("corrupt", f"TIFF: {error}") from error
    values = {tag: value if isinstance(value, tuple) else (value,) for tag, value in present.items()}
    numbers = {tag: value for tag, value in values.items() if value and all(isinstance(n, int) for n in value)}
    several = tags.next not in (0, first)
    return _Page(numbers, icc=_ICC in values, several=several)


def read_header(data: bytes) -> ImageHeader:
    """Read the tags of the first page."""
    page = _read_page(data)
    width, height = page.number(_WIDTH, 0), page.number(_HEIGHT, 0)
    if width <= 0 or height <= 0:
        raise DecodeError("corrupt", f"TIFF of {width} x {height} pixels")
    return ImageHeader(
        format="tiff",
        width=width,
        height=height,
        color=_COLORS.get(page.number(_PHOTOMETRIC, -1), "other"),
        channels=page.number(_SAMPLES, 1),
        bits=page.number(_BITS, 1),
        orientation=valid_orientation(page.number(ORIENTATION_TAG, 1)),
        icc=page.icc,
        several=page.several,
    )


def decode(data: bytes, header: ImageHeader, notes: list[str], *, deep: bool = False) -> NDArray[Any]:
    """Decode the first page, upright: gray (H, W, 1) or RGB (H, W, 3), alpha on white. deep: as uint16, of a file of
    more than 8 bits; else uint8. notes: see `on_white` and `note_depth`."""
    page = _read_page(data)
    _check_layout(page)
    _check_pieces(data, page, header)
    photometric, colors = page.number(_PHOTOMETRIC, -1), page.numbers.get(_COLORMAP, ())
    with opened(data, "tiff", header.width * header.height) as image:
        image.info.pop("xmp", None)  # by which Pillow would turn it
        if photometric == _PALETTE and max(colors) < 256:
            # Some writers store 8-bit colors where 16-bit ones belong.
            image.palette = ImagePalette.raw("RGB;L", bytes(colors))
        _load(image, page.number(_COMPRESSION, 1))
        if not image.mode.startswith("I"):
            if deep:
                return _deep_colors(data, header, page)
            pixels = to_pixels(image, notes)
            if header.bits > 8:
                note_depth(pixels, notes)
            return pixels
        values = np.asarray(image)[..., None].astype(np.uint16)
        if photometric == _WHITE_IS_ZERO:
            values = (1 << header.bits) - 1 - values
        if deep:
            return values
        note_depth(values, notes, header.bits)
        return (values >> header.bits - 8).astype(np.uint8)


def _deep_colors(data: bytes, header: ImageHeader, page: _Page) -> NDArray[np.uint16]:
    """RGB (H, W, 3) of 16 bits, which Pillow makes bytes: by OpenCV, in the plainest of layouts only."""
    plain = header.color == "rgb" and header.channels == 3 and page.number(_PLANAR, 1) == 1 and header.orientation == 1
    if plain:
        with quiet_opencv():
            image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
        if image is not None and image.dtype == np.uint16 and image.shape == (header.height, header.width, 3):
            return np.ascontiguousarray(image[..., ::-1])
    raise DecodeError(
        "unsupported", "TIFF of 16 bits that is not plain gray or upright RGB cannot keep them: convert it to PNG"
    )


def _check_layout(page: _Page) -> None:
    """Raise DecodeError for a layout that Pillow does not read, or reads wrongly."""
    if _PHOTOMETRIC not in page.numbers:
        raise DecodeError("corrupt", "TIFF without a photometric interpretation: white may be 0 or 1")
    photometric, compression = page.number(_PHOTOMETRIC, -1), page.number(_COMPRESSION, 1)
    bits, predictor, planes = page.number(_BITS, 1), page.number(_PREDICTOR, 1), page.number(_PLANAR, 1)
    samples = page.number(_SAMPLES, 3 if compression in _JPEGS and photometric in (_RGB, _YCBCR) else 1)
    side_by_side, separate = _LAYOUTS.get((photometric, bits), ((), ()))
    fits = samples in (side_by_side if planes == 1 or samples == 1 else separate)
    formats = page.numbers.get(_SAMPLE_FORMAT, (1,))
    if not fits or compression not in _COMPRESSIONS or predictor not in _PREDICTORS or set(formats) != {1}:
        raise DecodeError(
            "unsupported",
            f"TIFF of {samples} x {bits} bits{', in planes' if planes == 2 else ''}: photometric {photometric}, "
            f"compression {compression}, predictor {predictor}, sample format {formats[0]}",
        )
    if photometric == _PALETTE and len(page.numbers.get(_COLORMAP, ())) != 3 << bits:
        raise DecodeError("corrupt", f"TIFF of {bits} bits without the {1 << bits} colors that it needs")


def _check_pieces(data: bytes, page: _Page, header: ImageHeader) -> None:
    """Raise DecodeError for damaged strips or tiles that libtiff would accept, or need too much memory for."""
    height, width = header.height, header.width
    rows, columns = min(height, page.number(_ROWS_PER_STRIP, height)), width
    tiled = _TILE_WIDTH in page.numbers
    if tiled:
        rows, columns = page.number(_TILE_HEIGHT, 0), page.number(_TILE_WIDTH, 0)
        if rows * columns > max(_MAX_TILE_PIXELS, 4 * width * height):
            raise DecodeError("unsupported", f"TIFF in tiles of {columns} x {rows} pixels")
    if min(rows, columns) <= 0:
        raise DecodeError("corrupt", f"TIFF in strips or tiles of {columns} x {rows} pixels")
    offsets = page.numbers.get(_TILE_OFFSETS, ()) or page.numbers.get(_STRIP_OFFSETS, ())
    counts = page.numbers.get(_TILE_COUNTS, ()) or page.numbers.get(_STRIP_COUNTS, ())
    if len(offsets) == 1 and not counts:
        counts = (max(0, len(data) - offsets[0]),)  # old files of one strip leave it out
    samples, compression = header.channels, page.number(_COMPRESSION, 1)
    planes = samples if page.number(_PLANAR, 1) == 2 else 1
    down, across = -(-height // rows), -(-width // columns)
    needed, row_bytes = down * across * planes, (columns * (samples // planes) * header.bits + 7) // 8
    pieces = list(zip(offsets, counts, strict=False))[:needed]
    for offset, count in pieces:
        if offset + count > len(data):
            raise DecodeError("truncated", f"TIFF strip or tile reaches byte {offset + count} of {len(data)}")
    if len(pieces) < needed and compression not in _JPEGS:
        raise DecodeError("corrupt", f"TIFF with {len(pieces)} strips or tiles where its size needs {needed}")
    held, full = sum(count for _, count in pieces), row_bytes * across * planes * (down * rows if tiled else height)
    if compression == 1 and page.number(_PHOTOMETRIC, -1) != _YCBCR and held < full:
        raise DecodeError("truncated", f"TIFF strips or tiles contain {held} of {full} bytes")
    if compression in _DEFLATES:
        if page.number(_FILL_ORDER, 1) == 2:
            data = data.translate(_REVERSED)
        for offset, count in pieces:
            _check_deflate(memoryview(data)[offset : offset + count], row_bytes * rows)


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


def _load(image: ImageFile, compression: int) -> None:
    """Decode, and raise for all that libtiff reports: after invalid codes of CCITT or JPEG it continues, reports
    them on stderr only, and Pillow returns the pixels."""
    failure: OSError | None = None
    with captured_stderr(_LIBTIFF.match) as messages:
        try:
            image.load()
        except OSError as error:
            failure = error
    if not messages and failure is None:
        return
    detail = f"TIFF with compression {compression}: {messages[0] if messages else failure}"
    rare = failure is not None and compression not in _USUAL
    unsupported = rare or any(word in detail for word in ("not configured", *UNSUPPORTED))
    raise DecodeError("unsupported" if unsupported else "corrupt", detail)
