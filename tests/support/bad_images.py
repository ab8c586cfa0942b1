"""Image files that are broken, lie, or are rarely seen: what a crawl of the web or a failing disk brings.

`cases()` is the whole corpus. Each case says what must become of it: `reasons`, one of which its reject must have, or
none where it must decode, to `expected` pixels or, without these, to what Pillow makes of it. Nothing here imports
rawpack.
"""

from __future__ import annotations

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
        seen = set[str]()
        for name, start, end in segments(data):
            if name in seen:
                continue
            seen.add(name)
            places = {"before": start, "inside": start + 1, "behind": start + 2, "length": start + 3}
            places |= {"half": (start + 4 + end) // 2, "last byte": end - 1, "end": end}
            for place, at in places.items():
                # What is left of the shortest is no JPEG's beginning any more.
                yield Bad(f"cut {kind} {name} {place}.jpg", data[:at], CUT | ({"not_an_image"} if at < 3 else set()))
        for name, marker in (("RST0", b"\xff\xd0"), ("RST1", b"\xff\xd1"), ("EOI", b"\xff\xd9")):
            at = data.rindex(marker)
            for place, behind in (("before", 0), ("inside", 1)):
                yield Bad(f"cut {kind} {name} {place}.jpg", data[: at + behind], CUT)
        if kind == "progressive":
            at = 0
            for number in range(data.count(b"\xff\xda")):
                at = data.index(b"\xff\xda", at + 1)
                yield Bad(f"cut progressive scan {number} before.jpg", data[:at], CUT)
                yield Bad(f"cut progressive scan {number} inside.jpg", data[: at + 20], CUT)
    for format in ("png", "webp", "bmp", "tiff", "gif"):
        whole = next(case for case in corpus.cases() if case.format == format)
        for share in (30, 60, 95):
            data = whole.data[: len(whole.data) * share // 100]
            yield Bad(f"cut {format} at {share} percent.{format}", data, CUT)


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
    yield Bad("no quantization tables.jpg", _without(data, "DQT"), BROKEN)
    # Every decoder has the usual tables, for the frames of motion JPEG.
    yield Bad("no huffman tables.jpg", _without(data, "DHT"), expected=corpus.pillow_pixels(data))
    yield Bad("no frame header.jpg", _without(data, "SOF0"), BROKEN)
    yield Bad("huffman code counts beyond 256.jpg", _patched(data, "DHT", 1, b"\xff" * 16), BROKEN)
    yield Bad("huffman codes that overflow.jpg", _patched(data, "DHT", 1, b"\x03" + b"\0" * 15), BROKEN)
    yield Bad("huffman table number 9.jpg", _patched(data, "DHT", 0, b"\x09"), BROKEN)
    yield Bad("quantization table number 9.jpg", _patched(data, "DQT", 0, b"\x09"), BROKEN)
    yield Bad("quantization table that is not there.jpg", _patched(data, "SOF0", 8, b"\x03"), BROKEN)
    yield Bad("sampling factor 0.jpg", _patched(data, "SOF0", 7, b"\x00"), BROKEN)
    yield Bad("sampling factor 15.jpg", _patched(data, "SOF0", 7, b"\xff"), BROKEN)
    yield Bad("no components.jpg", _patched(data, "SOF0", 5, b"\x00"), BROKEN)
    yield Bad("two components.jpg", _patched(data, "SOF0", 5, b"\x02"), BROKEN)
    yield Bad("width 0.jpg", _patched(data, "SOF0", 3, b"\0\0"), BROKEN)
    yield Bad("height 0.jpg", _patched(data, "SOF0", 1, b"\0\0"), BROKEN)
    yield Bad("a scan of a component that is not there.jpg", _patched(data, "SOS", 1, b"\x77"), BROKEN)
    yield Bad("a scan with huffman tables that are not there.jpg", _patched(data, "SOS", 2, b"\x33"), BROKEN)
    start = next(start for name, start, _ in segments(data) if name == "DQT")
    yield Bad("a segment of length 0.jpg", data[: start + 2] + b"\0\0" + data[start + 4 :], BROKEN)
    yield Bad("a segment beyond the file.jpg", data[: start + 2] + b"\xff\xff" + data[start + 4 :], BROKEN)
    scan = data.index(b"\xff\xda") + 14
    yield Bad("zeros for pixels.jpg", data[:scan] + bytes(len(data) - scan - 2) + data[-2:], BROKEN)
    yield Bad("ones for pixels.jpg", data[:scan] + b"\xff" * (len(data) - scan), BROKEN)
    restarts = bytearray(rich_jpeg())
    at = restarts.index(b"\xff\xd1")
    restarts[at + 1] = 0xD6
    yield Bad("restart markers out of order.jpg", bytes(restarts), BROKEN)
    png = corpus.saved(corpus.rgb_image(), "PNG")
    palette = corpus.saved(corpus.palette_image(), "PNG")
    yield Bad("a wrong checksum.png", png[:-20] + bytes([png[-20] ^ 1]) + png[-19:], BROKEN)
    start = palette.index(b"PLTE") - 4
    length = struct.unpack(">I", palette[start : start + 4])[0] + 12
    yield Bad("no palette.png", palette[:start] + palette[start + length :], BROKEN)


# ---------------------------------------------------------------------------------------------- what lies


def _wrong_extensions() -> Iterator[Bad]:
    endings = {"jpeg": "png", "png": "jpg", "webp": "jpeg", "bmp": "gif", "tiff": "jpg", "gif": "webp"}
    for format, ending in endings.items():
        case = next(case for case in corpus.cases() if case.format == format)
        yield Bad(f"really {format}.{ending}", case.data, expected=case.expected, tolerance=case.tolerance)
    yield Bad("really html.jpg", b"<!DOCTYPE html><html><body>404 Not Found</body></html>", frozenset({"not_an_image"}))
    yield Bad("really pdf.jpg", b"%PDF-1.4\n" + bytes(500), frozenset({"not_an_image"}))
    yield Bad("really zip.png", b"PK\3\4" + bytes(500), frozenset({"not_an_image"}))


def _zeros() -> Iterator[Bad]:
    yield Bad("no bytes.jpg", b"", frozenset({"empty"}))
    yield Bad("no bytes.png", b"", frozenset({"empty"}))
    yield Bad("zeros.jpg", bytes(5000), frozenset({"not_an_image"}))
    yield Bad(
        "a block of zeros at the end.jpg", (data := corpus.jpeg())[: len(data) // 2] + bytes(len(data) // 2), BROKEN
    )
    yield Bad("a start and zeros.jpg", b"\xff\xd8\xff" + bytes(500), BROKEN | {"not_an_image"})
    yield Bad("a start alone.jpg", b"\xff\xd8\xff", CUT)
    yield Bad("a start and an end.jpg", b"\xff\xd8\xff\xd9", BROKEN)
    yield Bad("a signature alone.png", b"\x89PNG\r\n\x1a\n", CUT)
    yield Bad("a signature and zeros.png", b"\x89PNG\r\n\x1a\n" + bytes(500), BROKEN)


def png_of(width: int, height: int, body: bytes, color: int = 2) -> bytes:
    head = corpus.png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0))
    end = corpus.png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + corpus.png_chunk(b"IDAT", zlib.compress(body, 9)) + end


def gif_of(width: int, height: int) -> bytes:
    data = bytearray(corpus.gif_patch(clear=False))
    data[6:10] = struct.pack("<HH", width, height)
    return bytes(data)


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
    yield Bad("bomb of 3.6 gigapixels.png", png_of(60_000, 60_000, bytes(100_000)), BOMB)
    yield Bad("bomb of 2 gigapixels a side.png", png_of(2**31 - 1, 2**31 - 1, b""), BOMB)
    yield Bad(
        "bomb of 4.2 gigapixels.jpg", _patched(corpus.jpeg(), "SOF0", 1, struct.pack(">HH", 65_000, 65_000)), BOMB
    )
    yield Bad("bomb of 4.3 gigapixels.gif", gif_of(65_535, 65_535), BOMB)
    # What lies behind the last row is never unpacked.
    yield Bad(
        "bomb of 32 megabytes behind 8 x 8.png", png_of(8, 8, bytes(1 << 25)), expected=np.zeros((8, 8, 3), np.uint8)
    )
    size = (60_000, 60_000)
    yield Bad("bomb.tif", corpus.tiff([b"x" * 100], channels=3, bits=8, photometric=2, size=size), BOMB)
    bmp = bytearray(corpus.saved(corpus.rgb_image(), "BMP"))
    bmp[18:26] = struct.pack("<ii", 60_000, 60_000)
    yield Bad("bomb.bmp", bytes(bmp), BOMB)


# ---------------------------------------------------------------------------------------------- rarely seen


def sof(marker: int, precision: int = 8, data: bytes | None = None) -> bytes:
    """A JPEG whose frame header is of another kind."""
    data = corpus.jpeg() if data is None else data
    at = next(start for name, start, _ in segments(data) if name.startswith("SOF"))
    return data[: at + 1] + bytes([marker]) + data[at + 2 : at + 4] + bytes([precision]) + data[at + 5 :]


def without_adobe(data: bytes) -> bytes:
    return _without(data, "APP14")


def _rare_jpegs() -> Iterator[Bad]:
    yield Bad("arithmetic.jpg", sof(0xC9), RARE)
    yield Bad("arithmetic progressive.jpg", sof(0xCA), RARE)
    yield Bad("arithmetic lossless.jpg", sof(0xCB), RARE)
    yield Bad("lossless.jpg", sof(0xC3), RARE)
    for marker in (0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF):
        yield Bad(f"hierarchical {marker:x}.jpg", sof(marker), RARE)
    yield Bad("12 bit.jpg", sof(0xC1, precision=12), RARE)
    yield Bad("12 bit progressive.jpg", sof(0xC2, 12, corpus.jpeg(progressive=True)), RARE)
    yield Bad("16 bit lossless.jpg", sof(0xC3, precision=16), RARE)
    yield Bad("extended.jpg", sof(0xC1))
    yield Bad("10 scans.jpg", corpus.jpeg(progressive=True))
    yield Bad("90 scans that repeat.jpg", corpus.jpeg_of_many_scans(90), BROKEN)
    yield Bad("1000 scans.jpg", corpus.jpeg_of_many_scans(1000), RARE)
    yield Bad("20000 scans.jpg", corpus.jpeg_of_many_scans(20_000), RARE)
    cmyk = corpus.saved(corpus.cmyk_image(), "JPEG", quality=95)
    yield Bad("cmyk with adobe.jpg", cmyk, tolerance=3)
    yield Bad("cmyk without adobe.jpg", without_adobe(cmyk), tolerance=3)
    yield Bad("ycck with adobe.jpg", corpus.jpeg_ycck(), tolerance=3)


def _rare_others() -> Iterator[Bad]:
    wanted = {
        "png": ("grey 1 bit", "grey 1 bit interlaced", "palette 1 bit", "grey 16", "grey alpha 16", "rgb 16", "rgba 16",
                "animated"),
        "webp": tuple(case.name for case in corpus.cases() if case.format == "webp" and "anim" in case.name),
        "gif": ("animated", "small first frame"),
        "tiff": ("three pages", "1 bit group4", "rgb 16 big endian"),
    }  # fmt: skip
    for case in corpus.cases():
        if case.name in wanted.get(case.format, ()):
            yield Bad(f"{case.name}.{case.format}", case.data, expected=case.expected, tolerance=case.tolerance)


def _exif() -> Iterator[Bad]:
    def block(*entries: bytes, following: int) -> bytes:
        return b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + struct.pack("<I", following)

    pointer = struct.pack("<HHII", 0x8769, 4, 1, 8)
    loops = {
        "a directory that follows itself": block(following=8),
        "a pointer to its own directory": block(pointer, following=0),
        "both": block(pointer, pointer, following=8),
        "65535 entries": b"II*\0" + struct.pack("<IH", 8, 65_535) + bytes(200),
        "an offset beyond": b"II*\0" + struct.pack("<I", 0xFFFFFFFF),
        "a count of 4 billion": block(struct.pack("<HHII", 0x0112, 3, 0xFFFFFFFF, 8), following=0),
        "nothing": b"",
    }
    for name, data in loops.items():
        # Pillow has its own opinion of some of these: the pixels are those of the file without the block.
        whole = corpus.pillow_pixels(corpus.jpeg())
        yield Bad(f"exif of {name}.jpg", corpus.jpeg_with_segment(0xE1, b"Exif\0\0" + data), expected=whole)
        chunk = corpus.png(corpus.scene(), 2, 8, before=corpus.png_chunk(b"eXIf", data))
        yield Bad(f"exif of {name}.png", chunk, expected=np.asarray(corpus.scene()), tolerance=0)


@cache
def cases() -> tuple[Bad, ...]:
    """Every file of the corpus."""
    makers = (
        _cuts, _tables, _wrong_extensions, _zeros, _sizes_that_lie, _bombs, _rare_jpegs, _rare_others, _exif
    )  # fmt: skip
    found = tuple(case for make in makers for case in make())
    names = [case.name for case in found]
    if len(set(names)) != len(names):
        raise ValueError("two cases share a name")
    return found


def expected_pixels(case: Bad) -> Pixels:
    """What a case without reasons must decode to, upright RGB (H, W, 3)."""
    return corpus.pillow_pixels(case.data) if case.expected is None else case.expected
