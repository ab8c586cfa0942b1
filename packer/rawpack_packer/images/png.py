"""PNG files: checks chunks and checksums here, and decodes pixels with OpenCV.

OpenCV gets only the critical chunks. So gamma, background, profiles and animation do not affect the pixels in any of
its versions, and libpng has nothing to warn about.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.images.header import (
    BLENDED,
    ImageHeader,
    Pixels,
    bands,
    exif_orientation,
    note_depth,
    on_white,
    on_white_16,
)

_MAX_CHUNKS = 1 << 20
_MAX_TEXT = 1 << 20
"""Bytes of a metadata text that are read."""
_MAX_SIDE = 1_000_000
"""libpng's limit; OpenCV's own is 2^20."""
_SILENT = 0
"""Level of OpenCV's log."""
_PROFILES = (b"Raw profile type exif", b"Raw profile type APP1")

_COLORS = {0: ("gray", 1), 2: ("rgb", 3), 3: ("palette", 1), 4: ("gray", 2), 6: ("rgb", 4)}
_BITS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(type, start, end) of each chunk's body, up to and with IEND. Raises DecodeError where the file ends earlier."""
    at = 8
    for _ in range(_MAX_CHUNKS):
        kind = data[at + 4 : at + 8]
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data):
            raise DecodeError("truncated", f"PNG ends at byte {len(data)}, inside the chunk at byte {at}")
        yield kind, at + 8, end
        if kind == b"IEND":
            return
        at = end + 4
    raise DecodeError("corrupt", f"PNG with more than {_MAX_CHUNKS} chunks")


def read_header(data: bytes) -> ImageHeader:
    """Visit all chunks, because metadata may follow the pixels; no pixel is decompressed."""
    icc, several = False, False
    exif, profile = b"", b""
    fields: tuple[int, ...] | None = None
    for kind, start, end in _chunks(data):
        if fields is None:
            if kind != b"IHDR" or end - start != 13:
                raise DecodeError("corrupt", "PNG that does not begin with IHDR")
            fields = struct.unpack_from(">IIBBBBB", data, start)
        elif kind == b"iCCP":
            icc = True
        elif kind == b"eXIf":
            exif = data[start:end]
        elif kind in (b"tEXt", b"zTXt", b"iTXt"):
            # ImageMagick wrote EXIF as text before PNG had a chunk for it.
            profile = _raw_profile(_text(kind, data[start:end])) or profile
        elif kind == b"acTL" and end - start == 8:
            several = int.from_bytes(data[start : start + 4], "big") > 1
    if fields is None:
        raise DecodeError("corrupt", "PNG without IHDR")
    width, height, bits, color_type, compression, filtering, interlace = fields
    size_is_valid = 0 < width < 1 << 31 and 0 < height < 1 << 31
    if not size_is_valid or bits not in _BITS.get(color_type, ()) or compression or filtering or interlace > 1:
        raise DecodeError("corrupt", f"PNG of {width} x {height} pixels, color type {color_type}, {bits} bits")
    color, channels = _COLORS[color_type]
    return ImageHeader(
        format="png",
        width=width,
        height=height,
        color=color,
        channels=channels,
        bits=bits,
        orientation=exif_orientation(exif or profile),
        icc=icc,
        several=several,
    )


def _text(kind: bytes, body: bytes) -> bytes:
    """The profile in a tEXt, zTXt or iTXt chunk, decompressed; empty without one."""
    keyword, _, text = body.partition(b"\0")
    packed = kind == b"zTXt"
    if keyword not in _PROFILES:
        return b""
    if kind == b"iTXt":
        packed = text[:1] == b"\1"
        text = text[2:].split(b"\0", 2)[-1]
    elif packed:
        text = text[1:]
    try:
        return zlib.decompressobj().decompress(text, _MAX_TEXT) if packed else text[:_MAX_TEXT]
    except zlib.error:
        return b""


def _raw_profile(text: bytes) -> bytes:
    """The EXIF block that ImageMagick wrote as text: a name, a length, and hexadecimal digits."""
    try:
        block = bytes.fromhex(b"".join(text.split()[2:]).decode("ascii"))
    except ValueError:
        return b""
    return block if block.startswith((b"Exif\0\0", b"II", b"MM")) else b""


def decode(data: bytes, header: ImageHeader, notes: list[str], *, deep: bool = False) -> NDArray[Any]:
    """Decode without turning: gray (H, W, 1) or RGB (H, W, 3), transparency on white. deep: as uint16, of a file of 16
    bits; else uint8. notes: see `on_white` and `note_depth`."""
    kept = _critical_chunks(data)
    if not kept[b"IDAT"] or (header.color == "palette" and not kept[b"PLTE"]):
        raise DecodeError("corrupt", "PNG without pixels or without the palette that it needs")
    clear_gray = None
    if header.color == "gray" and kept[b"tRNS"]:
        # OpenCV drops the transparent gray.
        clear_gray = int.from_bytes(kept.pop(b"tRNS")[0][8:-4], "big")
    image = _decoded(data, kept, header)
    clear = None
    if clear_gray is not None and image.shape[2] == 1:
        # Values of less than 8 bits come stretched to 0..255.
        clear = image == clear_gray * (255 // (2**header.bits - 1) if header.bits < 8 else 1)
    if image.dtype == np.uint16 and not deep:
        note_depth(image[..., :3] if image.shape[2] == 4 else image, notes)
    pixels = _deep_pixels(image, notes) if deep else _to_pixels(image, notes)
    if clear is not None and clear.any():
        notes.append(BLENDED)
        np.putmask(pixels, clear, np.iinfo(pixels.dtype).max)
    return pixels


def decode_values(data: bytes, header: ImageHeader) -> NDArray[Any]:
    """The values of a mask: (H, W, 1) or (H, W, 3), uint8 or uint16.

    The indices of a palette, the levels of gray and RGB; levels of less than 8 bits are stretched to 0..255. Raises
    DecodeError for alpha and for an orientation.
    """
    if header.channels in (2, 4) or header.orientation != 1:
        raise DecodeError("unsupported", "a mask with an alpha channel or an EXIF orientation: store its values alone")
    kept = _critical_chunks(data)
    kept[b"tRNS"] = []
    stretched = 1
    if header.color == "palette":
        # As a gray image, it decodes to its indices, stretched if they have less than 8 bits.
        kept[b"PLTE"] = []
        body = b"IHDR" + bytes(kept[b"IHDR"][0][8:17]) + b"\0" + bytes(kept[b"IHDR"][0][18:21])
        kept[b"IHDR"] = [memoryview(struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body)))]
        stretched = 255 // (2**header.bits - 1) if header.bits < 8 else 1
    if not kept[b"IDAT"]:
        raise DecodeError("corrupt", "PNG without pixels")
    image = _decoded(data, kept, header)
    if stretched > 1:
        image //= stretched
    return np.ascontiguousarray(image[..., ::-1])


def _critical_chunks(data: bytes) -> dict[bytes, list[memoryview]]:
    """The chunks that make the pixels, their checksums verified, by type and in the order of a valid file."""
    kept: dict[bytes, list[memoryview]] = {kind: [] for kind in (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")}
    whole = memoryview(data)
    for kind, start, end in _chunks(data):
        if kind not in kept:
            if kind[:1].isupper():
                raise DecodeError("unsupported", f"PNG with a critical chunk of unknown type {kind!r}")
            continue
        if zlib.crc32(whole[start - 4 : end]) != int.from_bytes(whole[end : end + 4], "big"):
            raise DecodeError("corrupt", f"PNG chunk {kind.decode()} at byte {start - 8}: wrong checksum")
        if kind == b"IDAT" or not kept[kind]:
            kept[kind].append(whole[start - 8 : end + 4])
    return kept


@contextmanager
def quiet_opencv() -> Iterator[None]:
    """OpenCV's log off: it would report every broken file on stderr."""
    home: Any = getattr(cv2.utils, "logging", cv2)  # moved there in OpenCV 5
    before = home.getLogLevel()
    home.setLogLevel(_SILENT)
    try:
        yield
    finally:
        home.setLogLevel(before)


def _decoded(data: bytes, chunks: dict[bytes, list[memoryview]], header: ImageHeader) -> NDArray[Any]:
    """What OpenCV makes of the chunks: (H, W, 1), BGR (H, W, 3) or BGRA (H, W, 4), uint8 or uint16."""
    size = f"{header.width} x {header.height}"
    if max(header.height, header.width) > _MAX_SIDE:
        raise DecodeError("unsupported", f"PNG of {size} pixels; OpenCV takes {_MAX_SIDE} a side")
    file = b"".join([data[:8], *(part for parts in chunks.values() for part in parts)])
    try:
        with quiet_opencv():
            image = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise DecodeError("corrupt", f"OpenCV refuses this PNG: {error.err}") from error
    if image is None:
        raise DecodeError("corrupt", "OpenCV cannot decode this PNG")
    if image.shape[:2] != (header.height, header.width):
        raise DecodeError("corrupt", f"PNG of {size} by its header decodes to {image.shape[1]} x {image.shape[0]}")
    return image[..., None] if image.ndim == 2 else image


def _deep_pixels(stored: NDArray[np.uint16], notes: list[str]) -> NDArray[np.uint16]:
    """As `_to_pixels`, of 16 bits, as uint16."""
    color = np.ascontiguousarray(stored[..., 2::-1] if stored.shape[2] > 1 else stored)
    return color if stored.shape[2] < 4 else on_white_16(color, stored[..., 3], notes)


def _to_pixels(stored: NDArray[Any], notes: list[str]) -> Pixels:
    """Gray (H, W, 1) or RGB (H, W, 3) uint8 of OpenCV's layout, alpha on white; may work in place."""
    height, width, channels = stored.shape
    eight_bits = stored.dtype == np.uint8
    if eight_bits and channels == 1:
        return stored
    pixels = stored if eight_bits and channels == 3 else np.empty((height, width, min(channels, 3)), np.uint8)
    for rows in bands(height, width):
        band: Pixels = stored[rows] if eight_bits else (stored[rows] >> 8).astype(np.uint8)
        if channels == 4 and band[..., 3].min() < 255:
            band = on_white(band[..., :3], band[..., 3], notes)
        if channels == 1:
            pixels[rows] = band
        else:
            code = cv2.COLOR_BGRA2RGB if band.shape[2] == 4 else cv2.COLOR_BGR2RGB
            cv2.cvtColor(band, code, dst=pixels[rows])
    return pixels
