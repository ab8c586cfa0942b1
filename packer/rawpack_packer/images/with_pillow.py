"""Decodes BMP, GIF, WebP, AVIF, JPEG 2000, PNM, TGA and HEIC files with Pillow: one plugin for each type.

This module also handles what Pillow would clip, paint black, or accept although it is damaged: PNM and JPEG 2000 with
more than 8 bits, incomplete JPEG 2000 and WebP, BMP whose colors or pixels are not where they should be. TIFF is in
`tiff`.
"""

from __future__ import annotations

import importlib
import io
import logging
import math
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import AvifImagePlugin, Image, TiffImagePlugin

from rawpack.errors import DecodeError
from rawpack_packer.errors import check_memory, is_no_fault_of_data
from rawpack_packer.images.header import (
    ImageHeader,
    Pixels,
    apply_orientation,
    bands,
    cmyk_to_rgb,
    exif_orientation,
    note_depth,
    on_white,
)

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile


_PLUGINS = {
    "bmp": "PIL.BmpImagePlugin:BmpImageFile",
    "gif": "PIL.GifImagePlugin:GifImageFile",
    "tiff": "PIL.TiffImagePlugin:TiffImageFile",
    "webp": "PIL.WebPImagePlugin:WebPImageFile",
    "avif": "PIL.AvifImagePlugin:AvifImageFile",
    "jpeg2000": "PIL.Jpeg2KImagePlugin:Jpeg2KImageFile",
    "pnm": "PIL.PpmImagePlugin:PpmImageFile",
    "tga": "PIL.TgaImagePlugin:TgaImageFile",
    "heic": "pillow_heif:HeifImageFile",
}
"""The class that reads each type. `Image.open` would load and ask others too, some of which run programs."""

_OPENING_PIXELS = 1 << 28
"""Pillow's limit before the size is known: some plugins allocate the whole canvas when they open a file."""
_BMP_MODES = {1: ("1", "P;1"), 4: ("P;4",), 8: ("P", "L")}
"""Bits of a BMP with a palette -> how Pillow must unpack them; of a palette of few grays, it unpacks them wrongly."""
_RUN_LENGTHS, _BITFIELDS = (1, 2), 3
_WEBP_ANIMATED, _WEBP_ALPHA = 0x02, 0x10
_CUT = (IndexError, struct.error)
_TRUNCATED = ("truncated", "not enough", "expecting to read", "reached eof", "end of file", "read error")
UNSUPPORTED = ("unknown pixel mode", "palette size", "unsupported", "not supported", "samples per pixel", "unknown tga")
"""Words in what Pillow raises for files that are not damaged."""

only_thread = threading.RLock()
"""Held while Pillow's limits or the filters of warnings, which belong to the whole process, are changed."""
# Pillow logs some broken files, and without a handler Python prints that.
logging.getLogger("PIL").addHandler(logging.NullHandler())
# A process decodes one image on one thread; other processes use the other cores.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


@contextmanager
def opened(data: bytes, format: str, max_pixels: int) -> Iterator[ImageFile]:
    """The file in Pillow, not decoded yet. Inside the block, Pillow's own limit is `max_pixels`.

    Raises DecodeError for whatever goes wrong inside: for damaged files, plugins raise nearly every kind of exception.
    """
    with only_thread, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        before = Image.MAX_IMAGE_PIXELS, TiffImagePlugin.READ_LIBTIFF
        Image.MAX_IMAGE_PIXELS = max_pixels
        # Pillow's own reader of uncompressed TIFF leaves missing pixels black.
        TiffImagePlugin.READ_LIBTIFF = True
        try:
            with _plugin(format)(io.BytesIO(data), "") as image:
                yield image
        except (DecodeError, MemoryError):
            raise
        except Exception as error:
            if is_no_fault_of_data(error):
                raise
            if format == "webp":
                # libwebp calls a file corrupt when it gets no memory for the canvas.
                check_memory("to open a WebP file")
            raise DecodeError(_reason(error, data), f"{format}: {error}") from error
        finally:
            Image.MAX_IMAGE_PIXELS, TiffImagePlugin.READ_LIBTIFF = before


def _plugin(format: str) -> type[ImageFile]:
    module, _, name = _PLUGINS[format].partition(":")
    try:
        plugin: type[ImageFile] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        if format != "heic":
            raise
        raise DecodeError("unsupported", f"HEIC needs pillow-heif: pip install 'rawpack[heic]' ({error})") from error
    return plugin


def _reason(error: Exception, data: bytes) -> str:
    """The code of a reject for what a plugin raised."""
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return "too_large"
    text = str(error).lower()
    if isinstance(error, (EOFError, IndexError, struct.error)) or isinstance(
        error.__cause__, (IndexError, struct.error)
    ):
        return "truncated"
    no_frame = "no more images in gif" in text and not data.endswith(b";")  # which ends every GIF
    if no_frame or any(word in text for word in _TRUNCATED):
        return "truncated"
    return "unsupported" if any(word in text for word in UNSUPPORTED) else "corrupt"


def read_header(data: bytes, format: str) -> ImageHeader:
    """Open the file and read its header; no pixel is decoded."""
    if format == "webp":
        data = _clear_webp(data)
    with opened(data, format, _OPENING_PIXELS) as image:
        exif, mode = image.info.get("exif"), image.mode
        return ImageHeader(
            format=format,
            width=image.width,
            height=image.height,
            color={"P": "palette", "PA": "palette", "CMYK": "cmyk"}.get(mode, "gray" if mode[0] in "1LIF" else "rgb"),
            channels=len(image.getbands()),
            bits=16 if mode[0] in "IF" else 8,
            orientation=exif_orientation(exif) if isinstance(exif, bytes) else 1,
            icc="icc_profile" in image.info,
            several=_has_several(image),
        )


def _has_several(image: ImageFile) -> bool:
    """Whether there is a second frame; in a file that ends after the first, there is none."""
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception as error:  # plugins raise nearly every kind
        if is_no_fault_of_data(error):
            raise
        return False


def decode(data: bytes, header: ImageHeader, notes: list[str], *, deep: bool = False) -> NDArray[Any]:
    """Decode the first frame, upright: gray (H, W, 1) or RGB (H, W, 3); white where it is clear or has no pixels.
    deep: as uint16, of a file of 16 bits; else uint8. notes: see `on_white` and `note_depth`."""
    if header.format == "webp":
        data = _clear_webp(data)
    with opened(data, header.format, header.width * header.height) as image:
        return apply_orientation(_first_frame(data, image, notes, deep), header.orientation)


def _first_frame(data: bytes, image: ImageFile, notes: list[str], deep: bool) -> NDArray[Any]:
    """The pixels as stored."""
    codec, frame, start, args = image.tile[0] if image.tile else ("", None, 0, None)
    if codec == "ppm" and isinstance(args, tuple):
        return _scaled_pnm(data[start:], image, args[1], notes, deep)
    if image.format == "JPEG2000":
        _check_jpeg2000(data, image.mode)
    colors = _colors_of_bmp(data, image) if image.format == "BMP" else None
    image.load()
    if colors is not None and (last := int(np.asarray(image).max())) >= colors:
        raise DecodeError("corrupt", f"BMP with a pixel of color {last}, and {colors} colors before its pixels")
    if image.mode.startswith("I"):
        values = np.asarray(image)[..., None].astype(np.uint16)
        if deep:
            return values
        note_depth(values, notes)
        return (values >> 8).astype(np.uint8)
    opaque = image.format == "TGA" and data[17] & 15 == 0  # no bits of its fourth byte are alpha
    pixels = to_pixels(image, notes, opaque=opaque)
    if image.format == "GIF" and frame is not None and "transparency" not in image.info:
        canvas = np.full_like(pixels, 255)
        x0, y0, x1, y1 = frame
        canvas[y0:y1, x0:x1] = pixels[y0:y1, x0:x1]
        return canvas
    return pixels


def to_pixels(image: ImageFile, notes: list[str], *, opaque: bool = False) -> Pixels:
    """Gray (H, W, 1) or RGB (H, W, 3) of a loaded image of 8 bits, alpha on white; `opaque` ignores alpha. notes: see
    `on_white`."""
    mode = image.mode
    palette = image.palette.mode if mode == "P" and image.palette is not None else ""
    alpha = mode in ("LA", "RGBA") or palette == "RGBA" or "transparency" in image.info
    if mode == "CMYK":
        return cmyk_to_rgb(np.asarray(image), inverted=False)
    if mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "YCbCr"):
        raise DecodeError("unsupported", f"{image.format} whose pixels are {mode}")
    if alpha and not opaque:
        both = np.asarray(image if mode == "LA" else image.convert("RGBA"))
        return on_white(both[..., :-1], both[..., -1], notes)
    wanted = "L" if mode in ("1", "L", "LA") else "RGB"
    pixels = np.asarray(image if mode == wanted else image.convert(wanted))
    return pixels.reshape(*pixels.shape[:2], -1)


def _scaled_pnm(body: bytes, image: ImageFile, top: int, notes: list[str], deep: bool) -> NDArray[Any]:
    """A binary PNM whose largest value is not 255, stretched to 0..255; of 16 bits, the high byte. deep: its values."""
    shape = image.height, image.width, len(image.getbands())
    dtype, need = ("u1", math.prod(shape)) if top < 256 else (">u2", 2 * math.prod(shape))
    if len(body) < need:
        raise DecodeError("truncated", f"PNM contains {len(body)} of {need} bytes")
    values: NDArray[Any] = np.frombuffer(body, dtype, math.prod(shape)).reshape(shape)
    if deep:
        return values.astype(np.uint16)
    if top > 255:
        note_depth(values, notes, top.bit_length())
    pixels = np.empty(shape, np.uint8)
    for rows in bands(*shape[:2]):
        band = values[rows]
        pixels[rows] = band >> 8 if top == 65535 else np.rint(np.minimum(band, top) * (255 / top))
    return pixels


def _colors_of_bmp(data: bytes, image: ImageFile) -> int | None:
    """How many colors a BMP has before its pixels; None without a palette.

    Raises DecodeError where Pillow would take headers for pixels, or unpack pixels wrongly.
    """
    (size,) = struct.unpack_from("<I", data, 14)
    (bits,) = struct.unpack_from("<H", data, 24 if size == 12 else 28)
    compression = used = 0
    if size > 12:
        compression, used = struct.unpack_from("<I12xI", data, 30)
    head = 14 + size + 12 * (compression == _BITFIELDS and size == 40)
    start, args = image.tile[0].offset, image.tile[0].args
    mode = args[0] if isinstance(args, tuple) else args
    if start < head:
        raise DecodeError("corrupt", f"BMP whose pixels begin at byte {start}, inside its header")
    # It aligns run lengths with the file, not with the pixels.
    if mode not in _BMP_MODES.get(bits, (mode,)) or (compression in _RUN_LENGTHS and start % 2):
        raise DecodeError("unsupported", f"BMP of {bits} bits, compression {compression}, that Pillow reads as {mode}")
    return min(used or 1 << bits, (start - head) // (3 if size == 12 else 4)) if bits <= 8 else None


def _check_jpeg2000(data: bytes, mode: str) -> None:
    """Raise DecodeError for more than 8 bits of color, and where the code stream ends between two tiles."""
    at = data.find(b"\xff\x4f\xff\x51") + 42
    bits = 1 + max(value & 127 for value in data[at : at + 3 * data[at - 1] : 3])
    if bits > 8 and not mode.startswith("I"):
        # Pillow rounds them to 8, and the brightest to 0.
        raise DecodeError("unsupported", f"JPEG 2000 of {mode} with {bits} bits")
    at = data.find(b"\xff\x90")
    while 0 <= at <= len(data) - 12 and data[at : at + 2] == b"\xff\x90":
        length = int.from_bytes(data[at + 6 : at + 10], "big")
        if length == 0:  # the last tile, up to the end
            return
        at += length
    if at < 0 or data[at : at + 2] != b"\xff\xd9":
        # Pillow would leave the missing tiles black.
        raise DecodeError("truncated", f"JPEG 2000 ends at byte {len(data)}, before the end of its code stream")


def _clear_webp(data: bytes) -> bytes:
    """The file; an animation with its alpha flag set, so that pixels outside its first frame come out transparent.

    Raises DecodeError where the file is shorter than its header says.
    """
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > len(data):
        raise DecodeError("truncated", f"WebP of {end} bytes by its header ends at byte {len(data)}")
    if data[12:16] == b"VP8X" and len(data) > 30 and data[20] & _WEBP_ANIMATED:
        return data[:20] + bytes([data[20] | _WEBP_ALPHA]) + data[21:]
    return data


_GREY = ("1", "L", "LA", "La")
"""Modes without colors, besides those whose names begin with I;16."""


def is_pillow(value: Any) -> bool:
    """Whether a value is a PIL image. Does not import Pillow."""
    return type(value).__module__.startswith("PIL.") and hasattr(value, "convert")


def is_grey(image: Any) -> bool:
    """Whether a PIL image has no colors."""
    return image.mode in _GREY or image.mode.startswith("I;16")


def check_mode(image: Any) -> None:
    """Raise DecodeError for a PIL image whose values have no range, so that no value is white."""
    if image.mode in ("I", "F"):
        raise DecodeError(
            "bad_field", f"the image is a PIL image of mode {image.mode}, no picture: pass np.asarray(image)"
        )


def deep_file(image: Any) -> bytes | None:
    """A PIL image of 16-bit gray as a PNG file, upright, which is packed as any other; None for all other images."""
    if not image.mode.startswith("I;16"):
        return None
    from rawpack_packer.images.header import apply_orientation, exif_orientation

    image.load()
    turn = exif_orientation(image.info.get("exif") or b"") if image.format is not None else 1
    values = apply_orientation(np.asarray(image).astype(np.uint16)[..., None], turn)
    return cv2.imencode(".png", np.ascontiguousarray(values))[1].tobytes()


def pixels_of(image: Any) -> NDArray[np.uint8]:
    """The pixels of a PIL image: (H, W) or (H, W, 1) where it is grey, else (H, W, 3). Raises DecodeError.

    Transparent pixels are laid on white; grey of 16 bits loses its low byte. An image from `PIL.Image.open` is turned
    upright by its EXIF orientation. One that was made by `convert`, `rotate`, `resize`, ... is not: Pillow leaves the
    tag on it, turned or not.
    """
    from rawpack_packer.images.header import apply_orientation, exif_orientation, on_white

    check_mode(image)
    image.load()  # turns a TIFF upright, and removes its tag
    if image.mode == "La":
        image = image.convert("LA")  # the only mode that Pillow converts it to
    opened = image.format is not None
    transparent = getattr(image, "has_transparency_data", True)  # not known before Pillow 10.1
    if image.mode.startswith("I;16"):
        pixels = (np.asarray(image) >> 8).astype(np.uint8)
    elif image.mode in ("L", "RGB") and not (opened and transparent):
        pixels = np.asarray(image)
    elif transparent:
        rgba = np.asarray(image.convert("RGBA"))
        pixels = on_white(rgba[..., :3], rgba[..., 3], [])
    else:
        pixels = np.asarray(image.convert("RGB"))
    if pixels.ndim == 3 and is_grey(image):
        pixels = pixels[..., :1]  # the channels of RGB are equal
    turn = exif_orientation(image.info.get("exif") or b"") if opened else 1
    if turn == 1:
        return pixels
    return np.ascontiguousarray(apply_orientation(pixels.reshape(*pixels.shape[:2], -1), turn))
