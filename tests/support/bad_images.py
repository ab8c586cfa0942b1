"""Image files that are broken, lie, or are rarely seen: what a crawl of the web or a failing disk brings.

`cases()` is the whole corpus. Each case says what must become of it: `reasons`, one of which its reject must have, or
none where it must decode, to `expected` pixels or, without these, to what Pillow makes of it. Nothing here imports
rawpack.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import image_corpus as corpus
import numpy as np
from image_corpus import Pixels

CUT = frozenset({"truncated"})
BROKEN = frozenset({"corrupt", "truncated", "unsupported"})
RARE = frozenset({"unsupported"})
BOMB = frozenset({"too_large"})


@dataclass(frozen=True)
class Bad:
    """One file."""

    name: str
    """Of the file, with its extension, which may lie."""
    data: bytes
    reasons: frozenset[str] = frozenset()
    expected: Pixels | None = None
    tolerance: int = 2
    """Levels by which decoded RGB may differ from what is expected."""


SEGMENTS = {
    0xC0: "SOF0", 0xC2: "SOF2", 0xC4: "DHT", 0xDB: "DQT", 0xDD: "DRI", 0xDA: "SOS", 0xE0: "APP0", 0xE1: "APP1",
    0xE2: "APP2", 0xEE: "APP14", 0xFE: "COM",
}  # fmt: skip


def segments(data: bytes) -> Iterator[tuple[str, int, int]]:
    """(name, start, end) of each marker segment up to and with the first scan's header; start is at the 0xFF."""
    at = 2
    while True:
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
        yield SEGMENTS[marker], at, at + 2 + length
        if marker == 0xDA:
            return
        at += 2 + length


def rich_jpeg(**options: Any) -> bytes:
    """A JPEG with every kind of marker that cameras write, and restart markers."""
    return corpus.jpeg(
        restart_marker_rows=1, comment=b"a comment", icc_profile=corpus.icc_profile(),
        exif=b"Exif\0\0" + corpus.exif(1), **options,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- cut off


def _cuts() -> Iterator[Bad]:
    for kind, data in (("baseline", rich_jpeg()), ("progressive", rich_jpeg(progressive=True))):
        places = {}
        for name, start, end in segments(data):
            places |= {f"{name} inside": start + 1, f"{name} half": (start + 4 + end) // 2, f"{name} end": end}
        for name, marker in (("RST0", b"\xff\xd0"), ("RST1", b"\xff\xd1"), ("EOI", b"\xff\xd9")):
            places |= {f"{name} before": data.rindex(marker), f"{name} inside": data.rindex(marker) + 1}
        if kind == "progressive":
            for scan in re.finditer(b"\xff\xda", data):
                places |= {f"scan at {scan.start()} before": scan.start(), f"scan at {scan.start()}": scan.end() + 18}
        for place, at in places.items():
            yield Bad(f"cut {kind} {place}.jpg", data[:at], CUT)
    for format in ("png", "webp", "bmp", "tiff", "gif"):
        whole = next(case for case in corpus.cases() if case.format == format)
        yield Bad(f"cut {format}.{format}", whole.data[: len(whole.data) * 95 // 100], CUT)


# ---------------------------------------------------------------------------------------------- corrupt tables


def _patched(data: bytes, name: str, offset: int, value: bytes) -> bytes:
    """The file with bytes at an offset into the payload of its first segment of that name replaced."""
    start = next(start for found, start, _ in segments(data) if found == name) + 4 + offset
    return data[:start] + value + data[start + len(value) :]


def _without(data: bytes, name: str) -> bytes:
    """The file without its segments of that name."""
    for found, start, end in reversed(list(segments(data))):
        if found == name:
            data = data[:start] + data[end:]
    return data


def _tables() -> Iterator[Bad]:
    data = corpus.jpeg()
    # Every decoder has the usual tables, for the frames of motion JPEG.
    yield Bad("no huffman tables.jpg", _without(data, "DHT"), expected=corpus.pillow_pixels(data))
    for name in ("DQT", "SOF0"):
        yield Bad(f"no {name}.jpg", _without(data, name), BROKEN)
    patches: dict[str, tuple[str, int, bytes]] = {
        "huffman code counts beyond 256": ("DHT", 1, b"\xff" * 16),
        "huffman codes that overflow": ("DHT", 1, b"\x03" + b"\0" * 15),
        "huffman table number 9": ("DHT", 0, b"\x09"),
        "quantization table number 9": ("DQT", 0, b"\x09"),
        "quantization table that is not there": ("SOF0", 8, b"\x03"),
        "sampling factor 0": ("SOF0", 7, b"\x00"),
        "sampling factor 15": ("SOF0", 7, b"\xff"),
        "no components": ("SOF0", 5, b"\x00"),
        "two components": ("SOF0", 5, b"\x02"),
        "width 0": ("SOF0", 3, b"\0\0"),
        "height 0": ("SOF0", 1, b"\0\0"),
        "a scan of a component that is not there": ("SOS", 1, b"\x77"),
        "a scan with huffman tables that are not there": ("SOS", 2, b"\x33"),
        "a segment of length 0": ("DQT", -2, b"\0\0"),
        "a segment beyond the file": ("DQT", -2, b"\xff\xff"),
    }
    for name, (segment, offset, value) in patches.items():
        yield Bad(f"{name}.jpg", _patched(data, segment, offset, value), BROKEN)
    scan = data.index(b"\xff\xda") + 14
    yield Bad("zeros for pixels.jpg", data[:scan] + bytes(len(data) - scan - 2) + data[-2:], BROKEN)
    yield Bad("ones for pixels.jpg", data[:scan] + b"\xff" * (len(data) - scan), BROKEN)
    restarts = bytearray(rich_jpeg())
    restarts[restarts.index(b"\xff\xd1") + 1] = 0xD6
    yield Bad("restart markers out of order.jpg", bytes(restarts), BROKEN)


# ---------------------------------------------------------------------------------------------- what lies


def _wrong_extensions() -> Iterator[Bad]:
    endings = {"jpeg": "png", "png": "jpg", "webp": "jpeg", "bmp": "gif", "tiff": "jpg", "gif": "webp"}
    for format, ending in endings.items():
        case = next(case for case in corpus.cases() if case.format == format)
        yield Bad(f"really {format}.{ending}", case.data, expected=case.expected, tolerance=case.tolerance)
    yield Bad("really html.jpg", b"<!DOCTYPE html><html><body>404 Not Found</body></html>", frozenset({"not_an_image"}))
    yield Bad("zeros.jpg", bytes(5000), frozenset({"not_an_image"}))
    yield Bad("no bytes.jpg", b"", frozenset({"empty"}))
    yield Bad("a start and zeros.jpg", b"\xff\xd8\xff" + bytes(500), BROKEN | {"not_an_image"})
    yield Bad("a start alone.jpg", b"\xff\xd8\xff", CUT)
    yield Bad("a start and an end.jpg", b"\xff\xd8\xff\xd9", BROKEN)
    yield Bad("a signature alone.png", b"\x89PNG\r\n\x1a\n", CUT)
    data = corpus.jpeg()
    yield Bad("a block of zeros at the end.jpg", data[: len(data) // 2] + bytes(len(data) // 2), BROKEN)


def png_of(width: int, height: int, body: bytes) -> bytes:
    head = corpus.png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    end = corpus.png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + corpus.png_chunk(b"IDAT", zlib.compress(body, 9)) + end


def _sizes_that_lie() -> Iterator[Bad]:
    data = corpus.jpeg()
    for height in (corpus.HEIGHT + 16, 400, 20_000):
        size = struct.pack(">HH", height, 800 if height == 400 else corpus.WIDTH)
        yield Bad(f"says {height} rows.jpg", _patched(data, "SOF0", 1, size), BROKEN)
    rows = b"".join(b"\0" + row.tobytes() for row in corpus.scene())
    yield Bad("says more rows.png", png_of(corpus.WIDTH, 500, rows), BROKEN)
    yield Bad("says more columns.png", png_of(500, corpus.HEIGHT, rows), BROKEN)
    bmp = bytearray(corpus.saved(corpus.rgb_image(), "BMP"))
    bmp[22:26] = struct.pack("<i", 5000)
    yield Bad("says more rows.bmp", bytes(bmp), BROKEN)
    tiff = corpus.tiff([corpus.scene().tobytes()], channels=3, bits=8, photometric=2, size=(3000, corpus.WIDTH))
    yield Bad("says more rows.tif", tiff, BROKEN)
    webp = bytearray(corpus.saved(corpus.rgb_image(), "WEBP", lossless=True, exif=corpus.exif(1)))
    webp[24:30] = struct.pack("<I", 4000)[:3] * 2
    yield Bad("says another canvas.webp", bytes(webp), BROKEN)


def _bombs() -> Iterator[Bad]:
    side = struct.pack(">H", 65_000)
    yield Bad("bomb.png", png_of(60_000, 60_000, bytes(100_000)), BOMB)
    yield Bad("bomb of 2 gigapixels a side.png", png_of(2**31 - 1, 2**31 - 1, b""), BOMB)
    yield Bad("bomb.jpg", _patched(corpus.jpeg(), "SOF0", 1, side * 2), BOMB)
    gif = corpus.gif_patch(clear=False)
    yield Bad("bomb.gif", gif[:6] + b"\xff" * 4 + gif[10:], BOMB)
    size = (60_000, 60_000)
    yield Bad("bomb.tif", corpus.tiff([b"x" * 100], channels=3, bits=8, photometric=2, size=size), BOMB)
    bmp = corpus.saved(corpus.rgb_image(), "BMP")
    yield Bad("bomb.bmp", bmp[:18] + struct.pack("<ii", *size) + bmp[26:], BOMB)
    # What lies behind the last row is never unpacked.
    pixels = np.zeros((8, 8, 3), np.uint8)
    yield Bad("bomb of 32 megabytes behind 8 x 8.png", png_of(8, 8, bytes(1 << 25)), expected=pixels)


# ---------------------------------------------------------------------------------------------- rarely seen


def _rare_jpegs() -> Iterator[Bad]:
    progressive = corpus.jpeg(progressive=True)
    kinds = {"arithmetic": 0xC9, "arithmetic progressive": 0xCA, "lossless": 0xC3, "hierarchical": 0xC5}
    frames = [(name, corpus.jpeg(), marker, 8) for name, marker in kinds.items()]
    frames += [("12 bit", corpus.jpeg(), 0xC1, 12), ("12 bit progressive", progressive, 0xC2, 12)]
    for name, data, marker, precision in frames:
        at = next(start for found, start, _ in segments(data) if found.startswith("SOF"))
        head = data[: at + 1] + bytes([marker]) + data[at + 2 : at + 4] + bytes([precision])
        yield Bad(f"{name}.jpg", head + data[at + 5 :], RARE)
    yield Bad("10 scans.jpg", progressive)
    yield Bad("90 scans that repeat.jpg", corpus.jpeg_of_many_scans(90), BROKEN)
    yield Bad("20000 scans.jpg", corpus.jpeg_of_many_scans(20_000), RARE)
    cmyk = corpus.saved(corpus.cmyk_image(), "JPEG", quality=95)
    yield Bad("cmyk with adobe.jpg", cmyk, tolerance=3)
    yield Bad("cmyk without adobe.jpg", _without(cmyk, "APP14"), tolerance=3)
    yield Bad("ycck with adobe.jpg", corpus.jpeg_ycck(), tolerance=3)


@cache
def cases() -> tuple[Bad, ...]:
    """Every file of the corpus."""
    makers = (_cuts, _tables, _wrong_extensions, _sizes_that_lie, _bombs, _rare_jpegs)
    found = tuple(case for make in makers for case in make())
    names = [case.name for case in found]
    if len(set(names)) != len(names):
        raise ValueError("two cases share a name")
    return found


def expected_pixels(case: Bad) -> Pixels:
    """What a case without reasons must decode to, upright RGB (H, W, 3)."""
    return corpus.pillow_pixels(case.data) if case.expected is None else case.expected
