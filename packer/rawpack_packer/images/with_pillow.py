"""GIF, TIFF, WebP, AVIF, JPEG 2000, PNM, TGA and HEIC: opened by Pillow, one plugin for each, pixels made of its modes.

Where Pillow is silent about damage, something else looks: zlib at the checksums of Deflate in TIFF, and at stderr for
what libtiff complains of. What Pillow would clip or paint black is made here: 16 bits, CMYK, old palettes, and alpha on
white.
"""

from __future__ import annotations

import importlib
import io
import logging
import math
import mmap
import re
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import AvifImagePlugin, Image, TiffImagePlugin, TiffTags

from rawpack.errors import DecodeError
from rawpack.jpeg.captured_stderr import captured_stderr
from rawpack_packer.images.header import ImageHeader
from rawpack_packer.images.orientation import (
    ORIENTATION_TAG,
    apply_orientation,
    exif_orientation,
    turned_by_xmp,
    valid_orientation,
)
from rawpack_packer.images.pixels import Pixels, bands, cmyk_to_rgb, on_white

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

_PLUGINS = {
    "gif": "PIL.GifImagePlugin:GifImageFile",
    "tiff": "PIL.TiffImagePlugin:TiffImageFile",
    "webp": "PIL.WebPImagePlugin:WebPImageFile",
    "avif": "PIL.AvifImagePlugin:AvifImageFile",
    "jpeg2000": "PIL.Jpeg2KImagePlugin:Jpeg2KImageFile",
    "pnm": "PIL.PpmImagePlugin:PpmImageFile",
    "tga": "PIL.TgaImagePlugin:TgaImageFile",
    "heic": "pillow_heif:HeifImageFile",
}
"""The one class that reads each type. `Image.open` would load and ask others, some of which run programs."""
FORMATS = frozenset(_PLUGINS)

_OPENING_PIXELS = 1 << 28
"""Pillow's limit before the size is known: some plugins make room for the whole canvas when they open a file."""
_BITS, _COMPRESSION, _PHOTOMETRIC, _PLANAR, _COLORMAP, _EXTRA, _SAMPLE_FORMAT = 258, 259, 262, 284, 320, 338, 339
_STRIP_OFFSETS, _ROWS_PER_STRIP, _STRIP_COUNTS = 273, 278, 279
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_COUNTS = 322, 323, 324, 325
_WHITE_IS_ZERO, _YCBCR, _DEFLATE = 0, 6, (8, 32946)
_LIBTIFF = re.compile(r"(tempfile\.tif|_?[A-Z]\w+|): ")
_USUAL = frozenset({1, 2, 3, 4, 5, 7, 32773, 34925, 50000, *_DEFLATE})
"""Compressions of which a failure is the file's, and not that of a libtiff without a decoder for it."""
_SKIPPED = re.compile(r"Skipping tag (\d+)")
_METADATA_TAGS = 700
"""Tags from here on, EXIF and profiles among them, do not make pixels."""
_CUT = (EOFError, IndexError, struct.error)
_MAX_TILE_PIXELS = 1 << 24
_WEBP_ANIMATED, _WEBP_ALPHA = 0x02, 0x10

_LITTLE_MEMORY = 256 << 20
_pillow = threading.RLock()
# Pillow logs some broken files, and Python prints what is logged for nobody.
logging.getLogger("PIL").addHandler(logging.NullHandler())
# A process decodes one image on one thread, like the others beside it.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


@contextmanager
def _opened(data: bytes, format: str, max_pixels: int) -> Iterator[ImageFile]:
    """The file in Pillow, nothing decoded, with Pillow's own limit at `max_pixels` for as long as this lasts.

    One thread at a time: the limit and the filter of warnings are the process's. Raises DecodeError for whatever goes
    wrong inside: plugins raise nearly every kind of exception for what strangers wrote.
    """
    with _pillow, warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        before = Image.MAX_IMAGE_PIXELS, TiffImagePlugin.READ_LIBTIFF
        Image.MAX_IMAGE_PIXELS = max_pixels
        # Pillow's own reader of plain TIFF leaves what is missing black.
        TiffImagePlugin.READ_LIBTIFF = True
        try:
            with _plugin(format)(io.BytesIO(data), "") as image:
                _check_skipped(complaints)
                yield image
        except (DecodeError, MemoryError):
            raise
        except Exception as error:
            if format == "webp":
                # libwebp takes memory for the whole canvas as it opens a file, and calls one corrupt when it gets none.
                _check_memory()
            raise DecodeError(_reason(error, data, complaints), f"{format}: {error}") from error
        finally:
            Image.MAX_IMAGE_PIXELS, TiffImagePlugin.READ_LIBTIFF = before


def _check_memory() -> None:
    """Raise MemoryError where this process can get hardly any more memory."""
    try:
        mmap.mmap(-1, _LITTLE_MEMORY).close()
    except (OSError, ValueError):
        raise MemoryError("no memory to open a WebP file") from None


def _plugin(format: str) -> type[ImageFile]:
    module, _, name = _PLUGINS[format].partition(":")
    try:
        plugin: type[ImageFile] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        if format != "heic":
            raise
        raise DecodeError("unsupported", f"HEIC needs pillow-heif: pip install 'rawpack[heic]' ({error})") from None
    return plugin


_TRUNCATED = ("truncated", "not enough", "expecting to read", "reached eof", "end of file", "read error")
_UNSUPPORTED = ("unknown pixel mode", "unsupported", "not supported", "samples per pixel", "unknown tga")


def _check_skipped(complaints: list[warnings.WarningMessage]) -> None:
    """Raise DecodeError where Pillow left out tags that make the pixels, for their values lie behind the file's end."""
    for complaint in complaints:
        text = str(complaint.message)
        tag = _SKIPPED.search(text)
        if text == "Truncated File Read" or (tag and int(tag[1]) < _METADATA_TAGS):
            raise DecodeError("truncated", f"TIFF: {text}")


def _reason(error: Exception, data: bytes, complaints: list[warnings.WarningMessage]) -> str:
    """The code of a reject for what a plugin raised, and warned of before."""
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return "too_large"
    text, cause = str(error).lower(), error.__cause__
    said = "\n".join([text, *(str(one.message).lower() for one in complaints)])
    no_image = "no more images in gif" in said and not data.endswith(b";")  # behind which GIF has nothing
    if no_image or any(word in said for word in _TRUNCATED):
        return "truncated"
    if isinstance(error, _CUT) or isinstance(cause, (IndexError, struct.error)):
        return "truncated"
    if any(word in text for word in _UNSUPPORTED):
        return "unsupported"
    # Of a compression that Pillow does not know; a missing tag is named in the same way.
    no_tag = cause.args[0] in TiffTags.TAGS_V2 if isinstance(cause, KeyError) else True
    return "corrupt" if no_tag else "unsupported"


def read_header(data: bytes, format: str) -> ImageHeader:
    """Open the file and look; no pixel is decoded."""
    if format == "webp":
        data = _clear_webp(data)
    with _opened(data, format, _OPENING_PIXELS) as image:
        info, mode = image.info, image.mode
        width, height = image.size
        orientation = exif_orientation(_bytes(info.get("exif")))
        if isinstance(image, TiffImagePlugin.TiffImageFile):
            stored = image.tag_v2.get(ORIENTATION_TAG)
            orientation = valid_orientation(stored) if isinstance(stored, int) else 1
            if orientation >= 5:
                width, height = height, width  # Pillow tells a TIFF's size turned
        sixteen = mode in ("I", "F") or mode.startswith("I;16")
        return ImageHeader(
            format=format,
            width=width,
            height=height,
            color={"P": "palette", "PA": "palette", "CMYK": "cmyk"}.get(mode, "grey" if mode[0] in "1LIF" else "rgb"),
            channels=len(image.getbands()),
            bits=16 if sixteen else 8,
            orientation=orientation,
            xmp_turned=orientation == 1 and turned_by_xmp(_bytes(info.get("xmp"))),
            icc="icc_profile" in info,
            several=_has_several(image),
        )


def _has_several(image: ImageFile) -> bool:
    """Whether there is a second frame or page; a file that breaks off behind the first has none."""
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # as many kinds as plugins
        return False


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""


def decode(data: bytes, header: ImageHeader) -> Pixels:
    """Decode the first frame upright: grey (H, W, 1) or RGB (H, W, 3); what is clear or outside the frame is white."""
    if header.format == "webp":
        data = _clear_webp(data)
    with _opened(data, header.format, header.width * header.height) as image:
        if isinstance(image, TiffImagePlugin.TiffImageFile):
            upright = _tiff(data, image, header)
        else:
            upright = apply_orientation(_still(data, image), header.orientation)
    if upright.shape[:2] != header.upright_size:
        found = f"{upright.shape[1]} x {upright.shape[0]}"
        raise DecodeError(
            "corrupt", f"{header.format} of {header.width} x {header.height} by its header decodes to {found}"
        )
    return upright


def _still(data: bytes, image: ImageFile) -> Pixels:
    """The pixels of what is no TIFF, as stored."""
    codec, frame, start, args = image.tile[0] if image.tile else ("", None, 0, None)
    if codec == "ppm" and isinstance(args, tuple):
        return _scaled_pnm(data[start:], image, args[1])
    if image.format == "JPEG2000":
        _check_jpeg2000(data)
    if image.format == "JPEG2000" and not image.mode.startswith("I") and _jpeg2000_bits(data) > 8:
        # Pillow rounds them to 8, and the brightest to 0.
        raise DecodeError("unsupported", f"JPEG 2000 of {image.mode} with {_jpeg2000_bits(data)} bits")
    image.load()
    if image.mode.startswith("I"):
        return (np.asarray(image) >> 8).astype(np.uint8)[..., None]
    opaque = image.format == "TGA" and data[17] & 15 == 0  # no bits of its fourth byte are alpha
    pixels = _to_pixels(image, opaque=opaque)
    if image.format == "GIF" and frame is not None and "transparency" not in image.info:
        canvas = np.full_like(pixels, 255)
        x0, y0, x1, y1 = frame
        canvas[y0:y1, x0:x1] = pixels[y0:y1, x0:x1]
        return canvas
    return pixels


def _to_pixels(image: ImageFile, *, opaque: bool = False) -> Pixels:
    """Grey (H, W, 1) or RGB (H, W, 3) of a loaded image of 8 bits; its alpha is left out if `opaque`."""
    mode = image.mode
    palette = image.palette.mode if mode in ("P", "PA") and image.palette is not None else ""
    alpha = mode in ("LA", "La", "PA", "RGBA") or palette == "RGBA" or "transparency" in image.info
    if mode == "CMYK":
        return cmyk_to_rgb(np.asarray(image), inverted=False)
    if mode not in ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "YCbCr"):
        raise DecodeError("unsupported", f"{image.format} whose pixels are {mode}")
    if alpha and not opaque:
        both = np.asarray(image if mode in ("LA", "La") else image.convert("RGBA"))
        return on_white(both[..., :-1], both[..., -1], premultiplied=mode == "La")
    pixels = np.array(image.convert("L" if mode in ("1", "L", "LA") else "RGB"))
    return pixels.reshape(*pixels.shape[:2], -1)


def _scaled_pnm(body: bytes, image: ImageFile, top: int) -> Pixels:
    """A binary PNM whose largest value is not 255: stretched to 0..255, of 16 bits the high byte."""
    shape = image.height, image.width, len(image.getbands())
    dtype, need = ("u1", math.prod(shape)) if top < 256 else (">u2", 2 * math.prod(shape))
    if len(body) < need:
        raise DecodeError("truncated", f"PNM holds {len(body)} of {need} bytes")
    values: NDArray[Any] = np.frombuffer(body, dtype, math.prod(shape)).reshape(shape)
    pixels = np.empty(shape, np.uint8)
    for rows in bands(*shape[:2]):
        band = values[rows]
        pixels[rows] = band >> 8 if top == 65535 else np.rint(np.minimum(band, top) * (255 / top))
    return pixels


def _jpeg2000_bits(data: bytes) -> int:
    """Bits of the finest component, by the header of the code stream."""
    at = data.find(b"\xff\x4f\xff\x51") + 42
    return 1 + max(value & 127 for value in data[at : at + 3 * data[at - 1] : 3])


def _check_jpeg2000(data: bytes) -> None:
    """Raise DecodeError where the code stream breaks off between two tiles: those that are missing would be black."""
    at = data.find(b"\xff\x90")
    while 0 <= at <= len(data) - 12 and data[at : at + 2] == b"\xff\x90":
        length = int.from_bytes(data[at + 6 : at + 10], "big")
        if length == 0:  # of a last one that goes on to the end
            return
        at += length
    if at < 0 or data[at : at + 2] != b"\xff\xd9":
        raise DecodeError("truncated", f"JPEG 2000 ends at byte {len(data)}, before the end of its code stream")


def _clear_webp(data: bytes) -> bytes:
    """A whole WebP; an animation is said to have alpha, so that what its first frame leaves free comes out clear."""
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise DecodeError("truncated", f"WebP of {end} bytes by its header ends at byte {len(data)}")
    if data[12:16] == b"VP8X" and len(data) > 30 and data[20] & _WEBP_ANIMATED:
        return data[:20] + bytes([data[20] | _WEBP_ALPHA]) + data[21:]
    return data


def _tiff(data: bytes, image: TiffImagePlugin.TiffImageFile, header: ImageHeader) -> Pixels:
    """The upright pixels of a TIFF: Pillow turns them itself."""
    tags = image.tag_v2
    bits = _numbers(tags, _BITS) or (1,)
    if _PHOTOMETRIC not in tags:
        raise DecodeError("corrupt", "TIFF that does not say what its samples mean: white may be 0 or 1")
    if set(_numbers(tags, _SAMPLE_FORMAT)) - {1} or image.mode in ("I", "F", "LAB"):
        raise DecodeError("unsupported", f"TIFF of {bits[0]} bits, whose samples are not small unsigned integers")
    if tags.get(_PLANAR) == 2 and image.mode in ("LA", "La", "PA", "RGBA") and (len(bits) == 2 or _EXTRA not in tags):
        raise DecodeError("unsupported", f"TIFF in {len(bits)} planes")  # Pillow takes the alpha for another plane
    _check_tiff(data, tags, header, len(bits) * bits[0])
    image.info.pop("xmp", None)  # by which Pillow would turn it
    _load_tiff(image, tags.get(_COMPRESSION, 1))
    if image.mode.startswith("I;16"):
        grey = (np.asarray(image) >> (bits[0] - 8)).astype(np.uint8)[..., None]
        return np.invert(grey) if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO else grey
    if image.mode == "P":
        table = np.array(_numbers(tags, _COLORMAP), np.uint16)
        # Some writers store 8-bit colors where 16-bit ones belong.
        table = (table >> 8 if table.max() > 255 else table).astype(np.uint8)
        index = np.asarray(image)
        if 3 * (int(index.max()) + 1) > len(table):
            raise DecodeError("corrupt", f"TIFF with a pixel of color {index.max()}, and {len(table) // 3} colors")
        colors: Pixels = np.ascontiguousarray(table.reshape(3, -1).T)[index]
        return colors
    return _to_pixels(image)


def _load_tiff(image: TiffImagePlugin.TiffImageFile, compression: int) -> None:
    """Decode, and raise for all that libtiff complains of: it goes on behind codes of CCITT or JPEG that it cannot
    read, says so on stderr, and Pillow takes what comes."""
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
    raise DecodeError("unsupported" if rare or "not configured" in detail else "corrupt", detail)


def _check_tiff(data: bytes, tags: TiffImagePlugin.ImageFileDirectory_v2, header: ImageHeader, bits: int) -> None:
    """Raise DecodeError for what libtiff in Pillow would take, or take too much memory for. bits: of a whole pixel."""
    width, height = header.width, min(header.height, *(_numbers(tags, _ROWS_PER_STRIP) or (header.height,)))
    if _TILE_WIDTH in tags:
        width, height = tags[_TILE_WIDTH], tags[_TILE_HEIGHT]
        if width * height > max(_MAX_TILE_PIXELS, 4 * header.width * header.height):
            raise DecodeError("unsupported", f"TIFF in tiles of {width} x {height} pixels")
    pieces = list(
        zip(
            _numbers(tags, _TILE_OFFSETS) or _numbers(tags, _STRIP_OFFSETS),
            _numbers(tags, _TILE_COUNTS) or _numbers(tags, _STRIP_COUNTS),
            strict=False,
        )
    )
    for offset, count in pieces:
        if offset + count > len(data):
            end = offset + count
            raise DecodeError("truncated", f"TIFF strip or tile reaches byte {end} of {len(data)}")
    compression = tags.get(_COMPRESSION, 1)
    if compression in _DEFLATE:
        for offset, count in pieces:
            _check_deflate(memoryview(data)[offset : offset + count], (width * bits + 7) // 8 * height)
    full = (header.width * bits + 7) // 8 * header.height
    held = sum(count for _, count in pieces)
    if compression == 1 and pieces and held < full and tags.get(_PHOTOMETRIC) != _YCBCR:  # of which some is left out
        raise DecodeError("truncated", f"TIFF strips or tiles hold {held} of {full} bytes")


def _check_deflate(packed: memoryview, most: int) -> None:
    """Raise DecodeError where Deflate data break off or a checksum is wrong; no more than `most` bytes are unpacked."""
    inflate = zlib.decompressobj()
    rest: bytes | memoryview = packed
    try:
        while most > 0 and not inflate.eof:
            most -= len(inflate.decompress(rest, min(most, 1 << 20)))
            if not inflate.unconsumed_tail:
                break
            rest = inflate.unconsumed_tail
        if not inflate.eof:
            # All bytes are there: what is left is the checksum, which is read only when more is asked for.
            inflate.decompress(inflate.unconsumed_tail, 1)
    except zlib.error as error:
        raise DecodeError("corrupt", f"TIFF strip or tile: {error}") from error


def _numbers(tags: TiffImagePlugin.ImageFileDirectory_v2, tag: int) -> tuple[int, ...]:
    """The integers of a tag; none where it is missing or holds something else."""
    found = tags.get(tag, ())
    values: tuple[int, ...] = found if isinstance(found, tuple) else (found,)
    return values if all(isinstance(value, int) for value in values) else ()
