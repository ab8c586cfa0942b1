"""Image files of every mode that the packer must read, made by Pillow and by hand, a few by simplejpeg and OpenCV.

`cases()` is the whole corpus. A case carries `expected` where the right pixels are known without any decoder
(lossless files written from an array, 16-bit files). Elsewhere OpenCV says what is right of the types that rawpack
reads by Pillow (`opencv_pixels`), and Pillow of the others (`pillow_pixels`).
Nothing here imports rawpack.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageOps

Pixels = NDArray[np.uint8]

HEIGHT, WIDTH = 37, 53


@dataclass(frozen=True)
class Case:
    """One image file and what it must decode to."""

    name: str
    format: str
    data: bytes
    tolerance: int = 1
    """Levels by which decoded RGB may differ from what is expected."""
    expected: Pixels | None = None
    """Upright RGB (H, W, 3) where it is known without a decoder."""


# ---------------------------------------------------------------------------------------------- pictures


@cache
def scene(height: int = HEIGHT, width: int = WIDTH) -> Pixels:
    """A colourful picture without symmetry: smooth waves, one bright corner, a little noise. (H, W, 3)."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    waves = [128 + 100 * np.sin(x / (7 + 3 * c) + c) * np.cos(y / (9 - 2 * c)) for c in range(3)]
    picture = np.stack(waves, axis=2) + np.random.default_rng(5).normal(0, 4, (height, width, 3))
    picture[: height // 4, : width // 5] += (90, 40, -60)
    pixels: Pixels = picture.clip(0, 255).astype(np.uint8)
    pixels.flags.writeable = False
    return pixels


@cache
def alpha(height: int = HEIGHT, width: int = WIDTH) -> Pixels:
    """Every alpha from 0 to 255, clear at the top left. (H, W)."""
    ramp = np.linspace(0, 255, height * width).reshape(height, width)
    return ramp.round().astype(np.uint8)


@cache
def scene16(channels: int) -> NDArray[np.uint16]:
    """16-bit values whose low byte matters if a decoder rounds or clips. (H, W, channels)."""
    high = np.concatenate([scene(), alpha()[..., None]], axis=2)[..., :channels].astype(np.uint16)
    low = np.random.default_rng(6).integers(0, 256, high.shape).astype(np.uint16)
    return (high << 8 | low).astype(np.uint16)


def grey_of(pixels: Pixels) -> Pixels:
    """Pillow's luma of RGB pixels. (H, W)."""
    return np.asarray(Image.fromarray(pixels).convert("L"))


def as_rgb(grey: NDArray[Any]) -> Pixels:
    """Grey (H, W) repeated three times."""
    return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=2)


def as_rgb_levels(samples: NDArray[Any], bits: int) -> Pixels:
    """RGB (H, W, 3) of grey or RGB samples (H, W, channels) of so many bits."""
    levels = samples >> (bits - 8) if bits > 8 else samples.astype(np.uint16) * 255 // (2**bits - 1)
    return np.broadcast_to(levels, (*samples.shape[:2], 3)).astype(np.uint8)


def on_white(pixels: NDArray[Any], opacity: NDArray[Any]) -> Pixels:
    """Exact compositing on white, rounded to nearest: pixels (H, W, 3), opacity (H, W) of 255."""
    weight = opacity.astype(np.float64)[..., None] / 255
    return np.rint(pixels * weight + 255 * (1 - weight)).astype(np.uint8)


def pillow_pixels(data: bytes) -> Pixels:
    """Pillow's upright RGB of the first frame, alpha on white. (H, W, 3)."""
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image)
        if "A" in upright.mode or "transparency" in upright.info:
            top = upright.convert("RGBA")
            white = Image.new("RGBA", top.size, (255, 255, 255, 255))
            return np.asarray(Image.alpha_composite(white, top).convert("RGB"))
        return np.asarray(upright.convert("RGB"))


def opencv_pixels(data: bytes) -> Pixels:
    """OpenCV's RGB of the first frame, alpha on white. (H, W, 3)."""
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    image = image[..., None] if image.ndim == 2 else image
    if image.shape[2] == 4:
        return on_white(image[..., 2::-1], image[..., 3])
    return np.broadcast_to(image[..., ::-1], (*image.shape[:2], 3)).astype(np.uint8)


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Pixels as stored, upright by EXIF's orientation."""
    turn: dict[int, Callable[[Pixels], Pixels]] = {
        1: lambda p: p,
        2: np.fliplr,
        3: lambda p: np.rot90(p, 2),
        4: np.flipud,
        5: lambda p: np.rot90(np.fliplr(p)),
        6: lambda p: np.rot90(p, 3),
        7: lambda p: np.rot90(np.fliplr(p), 3),
        8: np.rot90,
    }
    return turn[orientation](pixels)


def expected_pixels(case: Case) -> Pixels:
    """What a case must decode to, within its tolerance."""
    if case.expected is not None:
        return case.expected
    return opencv_pixels(case.data) if case.format in ("webp", "tiff", "bmp") else pillow_pixels(case.data)


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    """The bytes Pillow writes."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def animated(format: str, colors: int | None = None, **options: Any) -> bytes:
    """Three frames, or pages, of which the scene is the first."""
    frames = [Image.fromarray(np.roll(scene(), 9 * i, axis=1)) for i in range(3)]
    frames = [frame.quantize(colors) for frame in frames] if colors else frames
    return saved(frames[0], format, save_all=True, append_images=frames[1:], **options)


def rgb_image() -> Image.Image:
    return Image.fromarray(scene())


def rgba_image() -> Image.Image:
    return Image.fromarray(np.dstack([scene(), alpha()]))


def palette_image(colors: int = 256) -> Image.Image:
    return rgb_image().quantize(colors)


def icc_profile() -> bytes:
    """A real sRGB profile."""
    from PIL import ImageCms

    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def exif(orientation: int, *, byte_order: str = "<", kind: int = 3, count: int = 1) -> bytes:
    """A TIFF block that holds one tag, the orientation (kind 3 is a 16-bit number)."""
    mark = b"II*\0" if byte_order == "<" else b"MM\0*"
    value = struct.pack(byte_order + ("HH" if kind == 3 else "I"), *((orientation, 0) if kind == 3 else (orientation,)))
    return mark + struct.pack(byte_order + "IHHHI", 8, 1, 274, kind, count) + value + struct.pack(byte_order + "I", 0)


# -------------------------------------------------------------------------------------------------- JPEG


def jpeg(**options: Any) -> bytes:
    return saved(rgb_image(), "JPEG", **{"quality": 92, **options})


def jpeg_with_segment(marker: int, payload: bytes, data: bytes | None = None) -> bytes:
    """A JPEG with one more segment right behind SOI."""
    data = jpeg() if data is None else data
    return data[:2] + struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload + data[2:]


def cmyk_image() -> Image.Image:
    """CMYK with a real black plane."""
    colour = 255 - scene().astype(np.int16)
    black = colour.min(axis=2) // 2
    return Image.fromarray(np.dstack([colour - black[..., None], black]).astype(np.uint8), mode="CMYK")


def jpeg_ycck() -> bytes:
    """Adobe's YCCK: the planes are YCbCr of the (inverted) CMY, and K; marked by transform 2."""
    inverted = 255 - np.asarray(cmyk_image())
    planes = Image.fromarray(np.ascontiguousarray(inverted[..., :3])).convert("YCbCr")
    # Pillow inverts CMYK when it writes: hand it the complement of what the file shall hold.
    stacked = 255 - np.dstack([np.asarray(planes), inverted[..., 3]])
    data = saved(Image.fromarray(stacked, mode="CMYK"), "JPEG", quality=95)
    at = data.index(b"Adobe") + 11
    return data[:at] + b"\2" + data[at + 1 :]


def jpeg_of_many_scans(scans: int) -> bytes:
    """A progressive JPEG that repeats its last scan until there are that many."""
    data = jpeg(progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * (scans - data.count(b"\xff\xda")) + data[-2:]


def _jpegs() -> Iterable[Case]:
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        yield Case(f"rgb {subsampling}", "jpeg", jpeg(subsampling=subsampling), 2)
    for code in ("440", "411"):  # which Pillow does not write
        data = bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(scene()), 92, "RGB", code))
        yield Case(f"rgb {':'.join(code)}", "jpeg", data, 2)
    yield Case("grey", "jpeg", saved(rgb_image().convert("L"), "JPEG"), 1)
    yield Case("progressive", "jpeg", jpeg(progressive=True), 2)
    yield Case("optimised, restarts", "jpeg", jpeg(optimize=True, restart_marker_rows=1), 2)
    yield Case("adobe rgb", "jpeg", jpeg(keep_rgb=True), 2)
    yield Case("cmyk", "jpeg", saved(cmyk_image(), "JPEG", quality=95), 3)
    yield Case("ycck", "jpeg", jpeg_ycck(), 3)
    yield Case("icc", "jpeg", jpeg(icc_profile=icc_profile()), 2)
    yield Case("bytes behind EOI", "jpeg", jpeg() + b"trailing bytes", 2)
    yield Case("fill bytes", "jpeg", jpeg().replace(b"\xff\xdb", b"\xff\xff\xff\xdb", 1), 2)
    for orientation in range(1, 9):
        data = jpeg_with_segment(0xE1, b"Exif\0\0" + exif(orientation, byte_order="<>"[orientation % 2]))
        yield Case(f"orientation {orientation}", "jpeg", data, 2)


# --------------------------------------------------------------------------------------------------- PNG


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Start x, start y, step x, step y of each pass."""


def png(samples: NDArray[Any], color_type: int, bits: int, *, before: bytes = b"", interlace: bool = False) -> bytes:
    """A PNG by hand: samples (H, W, channels), unfiltered rows; `before` goes between IHDR and IDAT."""

    def rows(part: NDArray[Any]) -> bytes:
        flat = part.reshape(len(part), -1)
        packed = [row.tobytes() for row in flat.astype(">u2")] if bits == 16 else _packed(flat.astype(np.uint8), bits)
        return b"".join(b"\0" + row for row in packed)

    height, width = samples.shape[:2]
    parts = [samples]
    if interlace:
        parts = [samples[y::dy, x::dx] for x, y, dx, dy in ADAM7]
    raw = b"".join(rows(part) for part in parts if part.size)
    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, int(interlace))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [png_chunk(b"IHDR", header), before, png_chunk(b"IDAT", zlib.compress(raw)), png_chunk(b"IEND", b"")]
    )


def png_palette(bits: int, *, clear: bool = False, **options: Any) -> tuple[bytes, Pixels]:
    """A palette PNG and its pixels, with a tRNS of graded alphas if `clear`."""
    colors = np.random.default_rng(bits).integers(0, 256, (2**bits, 3)).astype(np.uint8)
    opacity = np.full(2**bits, 255, np.uint8)
    before = png_chunk(b"PLTE", colors.tobytes())
    if clear:
        some = 2 ** (bits - 1)
        opacity[:some] = np.linspace(0, 200, some).astype(np.uint8)
        before += png_chunk(b"tRNS", opacity[:some].tobytes())
    index = grey_of(scene()) >> (8 - bits)
    return png(index[..., None], 3, bits, before=before, **options), on_white(colors[index], opacity[index])


def _pngs() -> Iterable[Case]:
    rgb, grey, opacity = scene(), grey_of(scene()), alpha()
    yield Case("rgb", "png", saved(rgb_image(), "PNG"), 0, rgb)
    yield Case("rgba", "png", saved(rgba_image(), "PNG"), 1, on_white(rgb, opacity))
    yield Case("grey", "png", saved(Image.fromarray(grey), "PNG"), 0, as_rgb(grey))
    la = Image.fromarray(np.dstack([grey, opacity]), mode="LA")
    yield Case("grey alpha", "png", saved(la, "PNG"), 1, on_white(as_rgb(grey), opacity))
    for bits in (1, 2, 4):
        levels = grey[..., None] >> (8 - bits)
        for interlace in (False, True):
            data = png(levels, 0, bits, interlace=interlace)
            yield Case(f"grey {bits} bit{' interlaced' * interlace}", "png", data, 0, as_rgb_levels(levels, bits))
    for bits in (1, 2, 4, 8):
        for clear in (False, True):
            data, pixels = png_palette(bits, clear=clear, interlace=bits == 4)
            yield Case(f"palette {bits} bit{' tRNS' * clear}", "png", data, int(clear), pixels)
    yield Case("rgb interlaced", "png", png(rgb, 2, 8, interlace=True), 0, rgb)
    one, two, three, four = scene16(1), np.dstack([scene16(1), alpha().astype(np.uint16) * 257]), scene16(3), scene16(4)
    for samples, color_type, bits in ((rgb, 2, 8), (grey[..., None], 0, 8), (grey[..., None] >> 4, 0, 4), (one, 0, 16),
                                      (three, 2, 16)):  # fmt: skip
        key = samples[20, 30]
        before = png_chunk(b"tRNS", struct.pack(f">{len(key)}H", *key.tolist()))
        levels = as_rgb_levels(samples, bits)
        matte = np.where((samples == key).all(axis=2, keepdims=True), np.uint8(255), levels)
        yield Case(f"{len(key)} x {bits} tRNS", "png", png(samples, color_type, bits, before=before), 0, matte)
    yield Case("grey 16", "png", png(one, 0, 16), 0, as_rgb_levels(one, 16))
    yield Case("grey 16 interlaced", "png", png(one, 0, 16, interlace=True), 0, as_rgb_levels(one, 16))
    yield Case("grey alpha 16", "png", png(two, 4, 16), 1, on_white(as_rgb_levels(one, 16), opacity))
    yield Case("rgb 16", "png", png(three, 2, 16), 0, as_rgb_levels(three, 16))
    yield Case("rgba 16", "png", png(four, 6, 16), 1, on_white(three >> 8, four[..., 3] >> 8))
    background = png_chunk(b"bKGD", struct.pack(">HHH", 255, 0, 0)) + png_chunk(b"gAMA", struct.pack(">I", 100000))
    rgba = np.dstack([rgb, opacity])
    yield Case("rgba bKGD gAMA", "png", png(rgba, 6, 8, before=background), 1, on_white(rgb, opacity))
    yield Case("icc", "png", saved(rgb_image(), "PNG", icc_profile=icc_profile()), 0, rgb)
    for orientation in (2, 6, 8):
        data = png(rgb, 2, 8, before=png_chunk(b"eXIf", exif(orientation)))
        yield Case(f"orientation {orientation}", "png", data, 0, turned(rgb, orientation))
    yield Case("animated", "png", animated("PNG"), 0, rgb)


# -------------------------------------------------------------------------------------------------- WebP


def webp_with_a_small_first_frame() -> bytes:
    """20 x 30 pixels of the scene at (6, 10) of the canvas."""

    def numbers(*values: int) -> bytes:
        return b"".join(struct.pack("<I", value)[:3] for value in values)

    part = saved(Image.fromarray(np.ascontiguousarray(scene()[:20, :30])), "WEBP", lossless=True)[12:]
    frame = (b"ANMF", numbers(5, 3, 29, 19, 50) + b"\0" + part)
    canvas = (b"VP8X", b"\2\0\0\0" + numbers(WIDTH - 1, HEIGHT - 1))
    body = b"WEBP"
    for kind, data in (canvas, (b"ANIM", b"\0\0\xff\xff\0\0"), frame, frame):
        body += kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _webps() -> Iterable[Case]:
    rgb = scene()
    yield Case("lossy", "webp", saved(rgb_image(), "WEBP", quality=80), 1)
    yield Case("lossless", "webp", saved(rgb_image(), "WEBP", lossless=True), 0, rgb)
    yield Case("lossy alpha", "webp", saved(rgba_image(), "WEBP", quality=80), 1)
    exact = saved(rgba_image(), "WEBP", lossless=True, exact=True)
    yield Case("lossless alpha", "webp", exact, 1, on_white(rgb, alpha()))
    yield Case("animated", "webp", animated("WEBP", lossless=True, duration=50), 0, rgb)
    patch = np.full_like(rgb, 255)
    patch[6:26, 10:40] = rgb[:20, :30]
    yield Case("animated, small first frame", "webp", webp_with_a_small_first_frame(), 0, patch)
    yield Case("icc", "webp", saved(rgb_image(), "WEBP", lossless=True, icc_profile=icc_profile()), 0, rgb)
    for orientation in (2, 6, 8):
        data = saved(rgb_image(), "WEBP", lossless=True, exif=b"Exif\0\0" + exif(orientation))
        yield Case(f"orientation {orientation}", "webp", data, 0, turned(rgb, orientation))


# --------------------------------------------------------------------------------------------------- BMP


def bmp(
    rows: Iterable[bytes],
    bits: int,
    *,
    palette: NDArray[np.uint8] | None = None,
    compression: int = 0,
    masks: tuple[int, ...] = (),
    top_down: bool = False,
    header: int = 40,
    size: tuple[int, int] = (HEIGHT, WIDTH),
) -> bytes:
    """A BMP by hand: `rows` in stored order, padded here; masks are (red, green, blue[, alpha])."""
    height, width = size
    body = b"".join(rows) if compression in (1, 2) else b"".join(row + b"\0" * (-len(row) % 4) for row in rows)
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        used = 0 if palette is None else len(palette)
        signed = -height if top_down else height
        info = struct.pack("<IiiHHIIiiII", header, width, signed, 1, bits, compression, len(body), 2835, 2835, used, 0)
        tail = b"".join(struct.pack("<I", mask) for mask in masks)
        info += tail if header == 40 else tail.ljust(header - 40, b"\0")
    table = b""
    if palette is not None:
        blank = np.zeros((len(palette), 1), np.uint8)
        table = (palette[:, ::-1] if header == 12 else np.hstack([palette[:, ::-1], blank])).tobytes()
    offset = 14 + len(info) + len(table)
    return b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, offset) + info + table + body


def _packed(index: NDArray[Any], bits: int) -> list[bytes]:
    """The rows of an index (H, W), each from a new byte on."""
    spread = np.unpackbits(index[..., None], axis=2)[..., 8 - bits :].reshape(len(index), -1)
    return [np.packbits(row).tobytes() for row in spread]


def bmp_palette(bits: int, **options: Any) -> tuple[bytes, Pixels]:
    """A palette BMP and its pixels."""
    palette = np.random.default_rng(bits).integers(0, 256, (2**bits, 3)).astype(np.uint8)
    index = grey_of(scene()) >> (8 - bits)
    return bmp_of_index(index, bits, palette, **options), palette[index]


def bmp_of_index(index: NDArray[np.uint8], bits: int, palette: NDArray[np.uint8], **options: Any) -> bytes:
    """A BMP of indices (H, W) of a palette."""
    rows = _packed(index if options.get("top_down") else index[::-1], bits)
    return bmp(rows, bits, palette=palette, **options)


def bmp_run_length(bits: int) -> tuple[bytes, Pixels]:
    """RLE8 or RLE4: encoded runs, one absolute run a row, end-of-line and end-of-bitmap codes."""
    palette = np.random.default_rng(bits).integers(0, 256, (2**bits, 3)).astype(np.uint8)
    index = (grey_of(scene()) >> 6).repeat(3, axis=1)[:, :WIDTH].copy()
    body = b""
    for row in index[::-1]:
        x = 0
        while x < WIDTH:
            run = int((row[x:] != row[x]).argmax()) or WIDTH - x
            if x == 0:  # an absolute run of five
                part = row[:5]
                packed = part.tobytes() if bits == 8 else _packed(part[None], 4)[0]
                body += b"\0\5" + packed + b"\0" * (len(packed) % 2)
                x = 5
                continue
            value = int(row[x]) if bits == 8 else int(row[x]) * 17
            body += bytes([run, value])
            x += run
        body += b"\0\0"
    data = bmp([body + b"\0\1"], bits, palette=palette, compression=1 if bits == 8 else 2)
    return data, palette[index]


def bmp_565() -> tuple[bytes, Pixels]:
    """16 bits a pixel by masks, and the pixels, with 5 or 6 bits stretched to 0..255."""
    red, green, blue = (scene()[..., c].astype(np.uint32) >> shift for c, shift in enumerate((3, 2, 3)))
    words = (red << 11 | green << 5 | blue).astype("<u2")
    pixels = np.dstack([red * 255 / 31, green * 255 / 63, blue * 255 / 31])
    data = bmp([row.tobytes() for row in words[::-1]], 16, masks=(0xF800, 0x07E0, 0x001F), compression=3)
    return data, np.rint(pixels).astype(np.uint8)


def _bmps() -> Iterable[Case]:
    rgb, opacity = scene(), alpha()
    flat = [row.tobytes() for row in rgb[..., ::-1]]
    quads = [row.tobytes() for row in np.dstack([rgb[..., ::-1], opacity])[::-1]]
    masks = (0xFF0000, 0xFF00, 0xFF)
    v5 = bmp(quads, 32, masks=(*masks, 0xFF000000), compression=3, header=124)
    yield Case("24 bit", "bmp", saved(rgb_image(), "BMP"), 0, rgb)
    yield Case("24 bit top-down", "bmp", bmp(flat, 24, top_down=True), 0, rgb)
    yield Case("24 bit OS/2", "bmp", bmp(flat[::-1], 24, header=12), 0, rgb)
    yield Case("8 bit grey", "bmp", saved(Image.fromarray(grey_of(rgb)), "BMP"), 0, as_rgb(grey_of(rgb)))
    yield Case("32 bit, fourth byte unused", "bmp", bmp(quads, 32), 0, rgb)
    yield Case("32 bit masks", "bmp", bmp(quads, 32, masks=masks, compression=3), 0, rgb)
    yield Case("32 bit alpha mask", "bmp", v5, 1, on_white(rgb, opacity))
    yield Case("32 bit, by Pillow", "bmp", saved(rgba_image(), "BMP"), 1)
    made = {
        "1 bit palette": bmp_palette(1),
        "4 bit palette top-down": bmp_palette(4, top_down=True),
        "8 bit palette": bmp_palette(8),
        "8 bit palette OS/2": bmp_palette(8, header=12),
        "RLE8": bmp_run_length(8),
        "RLE4": bmp_run_length(4),
        "16 bit 565": bmp_565(),
    }
    for name, (data, pixels) in made.items():
        yield Case(name, "bmp", data, int("565" in name), pixels)


# -------------------------------------------------------------------------------------------------- TIFF


def tiff(
    strips: list[bytes],
    *,
    channels: int,
    bits: int,
    photometric: int,
    big_endian: bool = False,
    size: tuple[int, int] = (HEIGHT, WIDTH),
    extra: dict[int, tuple[int, list[int]]] | None = None,
) -> bytes:
    """An uncompressed TIFF by hand, its strips packed; `extra`: tag to (type, values), without values no tag."""
    order = ">" if big_endian else "<"
    height, width = size
    offsets, at = [], 8
    for strip in strips:
        offsets.append(at)
        at += len(strip)
    at += at % 2
    rows = -(-height // len(strips))
    tags: dict[int, tuple[int, list[int]]] = {
        256: (4, [width]),
        257: (4, [height]),
        258: (3, [bits] * channels),
        259: (3, [1]),
        262: (3, [photometric]),
        273: (4, offsets),
        277: (3, [channels]),
        278: (4, [rows]),
        279: (4, [len(strip) for strip in strips]),
        **(extra or {}),
    }
    entries, outside = b"", b""
    end = at + 2 + 12 * sum(bool(values) for _, values in tags.values()) + 4
    for tag, (kind, values) in sorted(tags.items()):
        if not values:
            continue
        value = struct.pack(order + {3: "H", 4: "I"}[kind] * len(values), *values)
        if len(value) > 4:
            outside += b"\0" * (len(outside) % 2)
            pointer = struct.pack(order + "I", end + len(outside))
            outside += value
            value = pointer
        entries += struct.pack(order + "HHI", tag, kind, len(values)) + value.ljust(4, b"\0")
    body = b"".join(strips)
    mark = b"MM\0*" if big_endian else b"II*\0"
    head = mark + struct.pack(order + "I", at) + body
    return head.ljust(at, b"\0") + struct.pack(order + "H", len(entries) // 12) + entries + b"\0\0\0\0" + outside


def _strips(samples: NDArray[Any], rows: int = 10) -> list[bytes]:
    return [samples[y : y + rows].tobytes() for y in range(0, len(samples), rows)]


def _tiffs() -> Iterable[Case]:
    """What Pillow and OpenCV write, and rare tags: tifffile writes all other layouts in `test_tiffs.py`."""
    rgb, opacity = scene(), alpha()
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        data = saved(rgb_image(), "TIFF", compression=compression)
        yield Case(f"rgb {compression}", "tiff", data, 0, rgb)
    yield Case("rgb jpeg", "tiff", saved(rgb_image(), "TIFF", compression="jpeg", quality=92), 2)
    yield Case("ycbcr", "tiff", saved(rgb_image().convert("YCbCr"), "TIFF", compression="raw"), 2)
    bilevel = rgb_image().convert("1")
    for compression in ("raw", "group3", "group4"):
        data = saved(bilevel, "TIFF", compression=compression)
        yield Case(f"1 bit {compression}", "tiff", data, 0, as_rgb(np.asarray(bilevel) * 255))
    yield Case("palette", "tiff", saved(palette_image(), "TIFF"), 0)
    yield Case("palette lzw", "tiff", saved(palette_image(), "TIFF", compression="tiff_lzw"), 0)
    la = Image.fromarray(np.dstack([grey_of(rgb), opacity]), mode="LA")
    for compression in ("raw", "tiff_lzw", "lzma", "zstd"):
        data = saved(la, "TIFF", compression=compression)
        yield Case(f"grey alpha {compression}", "tiff", data, 1, on_white(as_rgb(grey_of(rgb)), opacity))
    yield Case("rgba lzw", "tiff", saved(rgba_image(), "TIFF", compression="tiff_lzw"), 1, on_white(rgb, opacity))
    yield Case("cmyk lzw", "tiff", saved(cmyk_image(), "TIFF", compression="tiff_lzw"), 3)
    yield Case("BigTIFF", "tiff", saved(rgb_image(), "TIFF", big_tiff=True), 0, rgb)
    yield Case("icc", "tiff", saved(rgb_image(), "TIFF", icc_profile=icc_profile()), 0, rgb)
    yield Case("three pages", "tiff", animated("TIFF"), 0, rgb)
    big = tiff(_strips(scene16(3).astype(">u2")), channels=3, bits=16, photometric=2, big_endian=True)
    yield Case("rgb 16 big endian", "tiff", big, 0, as_rgb_levels(scene16(3), 16))
    for stored in (scene16(1), scene16(4), np.dstack([rgb, opacity])):
        bits, channels = 8 * stored.itemsize, stored.shape[2]
        pixels = as_rgb_levels(stored[..., :3], bits)
        pixels = on_white(pixels, stored[..., 3] >> (bits - 8)) if channels == 4 else pixels
        # LZW and differences, and alpha that no tag tells of.
        bgra = np.ascontiguousarray(stored if channels == 1 else stored[..., [2, 1, 0, 3]])
        data = cv2.imencode(".tif", bgra, [cv2.IMWRITE_TIFF_COMPRESSION, 5])[1].tobytes()
        yield Case(f"{channels} x {bits} lzw, by OpenCV", "tiff", data, 1, pixels)
    for orientation in range(1, 9):
        data = tiff(_strips(rgb), channels=3, bits=8, photometric=2, extra={274: (3, [orientation])})
        yield Case(f"orientation {orientation}", "tiff", data, 0, turned(rgb, orientation))
    data = saved(rgb_image(), "TIFF", compression="tiff_lzw", tiffinfo={274: 6})
    yield Case("lzw, orientation 6", "tiff", data, 0, turned(rgb, 6))
    colors = np.random.default_rng(9).integers(0, 256, (256, 3))
    for bits, wide in ((4, 257), (8, 1)):  # some color maps hold values of 8 bits
        index = grey_of(rgb) >> (8 - bits)
        extra = {320: (3, (colors[: 2**bits] * wide).T.reshape(-1).tolist())}
        data = tiff([b"".join(_packed(index, bits))], channels=1, bits=bits, photometric=3, extra=extra)
        yield Case(f"palette of {bits} bits, {wide}", "tiff", data, 0, colors[index].astype(np.uint8))


# --------------------------------------------------------------------------------------------------- GIF


def gif_patch(*, clear: bool, bits: int = 2) -> bytes:
    """A first frame that covers only a part of the canvas, by hand: 4 colours, uncompressed LZW codes of `bits` + 1."""
    index = np.arange(6 * 8) % 4
    # A clear code before every pair keeps all codes of one width.
    clear_code = 1 << bits
    codes = [c for pair in index.reshape(-1, 2) for c in (clear_code, *pair.tolist())] + [clear_code + 1]
    digits = "".join(format(code, f"0{bits + 1}b") for code in codes[::-1])
    body = int(digits, 2).to_bytes(-(-len(digits) // 8), "little")
    control = b"\x21\xf9\4" + struct.pack("<BHB", int(clear), 0, 2) + b"\0"
    table = bytes(GIF_TABLE.reshape(-1).tolist())
    return b"".join(
        [
            b"GIF89a" + struct.pack("<HHBBB", 12, 10, 0x91, 0, 0) + table + control,
            b"\x2c" + struct.pack("<HHHHB", 3, 2, 8, 6, 0) + bytes([bits]),
            bytes([len(body)]) + body + b"\0\x3b",
        ]
    )


GIF_TABLE = np.array([[10, 20, 30], [200, 0, 0], [0, 200, 0], [0, 0, 200]], np.uint8)


def gif_patch_pixels(*, clear: bool) -> Pixels:
    pixels = np.full((10, 12, 3), 255, np.uint8)
    table = GIF_TABLE.copy()
    if clear:
        table[2] = 255
    pixels[2:8, 3:11] = table[np.arange(48) % 4].reshape(6, 8, 3)
    return pixels


def _gifs() -> Iterable[Case]:
    for colors in (2, 4, 16, 256):
        image = palette_image(colors)
        data = saved(image, "GIF", interlace=False)
        yield Case(f"{colors} colours", "gif", data, 0, np.asarray(image.convert("RGB")))
    full = np.asarray(palette_image().convert("RGB"))
    yield Case("interlaced", "gif", saved(palette_image(), "GIF", interlace=True), 0, full)
    yield Case("grey", "gif", saved(rgb_image().convert("L"), "GIF"), 0, as_rgb(grey_of(scene())))
    clear = np.where(np.asarray(palette_image())[..., None] == 7, np.uint8(255), full)
    yield Case("transparent", "gif", saved(palette_image(), "GIF", transparency=7), 0, clear)
    first = np.asarray(palette_image(64).convert("RGB"))
    yield Case("animated", "gif", animated("GIF", 64), 0, first)
    yield Case("small first frame", "gif", gif_patch(clear=False), 0, gif_patch_pixels(clear=False))
    yield Case("small clear first frame", "gif", gif_patch(clear=True), 0, gif_patch_pixels(clear=True))
    for bits in (8, 9, 11):
        data = gif_patch(clear=False, bits=bits)
        yield Case(f"codes from {bits} bits", "gif", data, 0, gif_patch_pixels(clear=False))
    noise = np.random.default_rng(8).integers(0, 256, (150, 160)).astype(np.uint8)
    yield Case("noise that fills the code table", "gif", saved(Image.fromarray(noise), "GIF"), 0, as_rgb(noise))


# --------------------------------------------------------------------------- AVIF, JPEG 2000, PNM, TGA


def _avifs() -> Iterable[Case]:
    rgb, options = scene(), {"quality": 100, "subsampling": "4:4:4"}
    yield Case("rgb", "avif", saved(rgb_image(), "AVIF", **options), 4, rgb)
    yield Case("alpha", "avif", saved(rgba_image(), "AVIF", **options), 4, on_white(rgb, alpha()))
    yield Case("animated", "avif", animated("AVIF", **options), 4, rgb)
    for orientation in (6, 8):
        data = saved(rgb_image(), "AVIF", exif=exif(orientation), **options)
        yield Case(f"orientation {orientation}", "avif", data, 4, turned(rgb, orientation))


def _jpeg2000s() -> Iterable[Case]:
    rgb, grey = scene(), grey_of(scene())
    la = Image.fromarray(np.dstack([grey, alpha()]), mode="LA")
    for stream in (False, True):
        note = ", stream alone" * stream
        yield Case(f"rgb{note}", "jpeg2000", saved(rgb_image(), "JPEG2000", no_jp2=stream), 0, rgb)
        data = saved(la, "JPEG2000", no_jp2=stream)
        yield Case(f"grey alpha{note}", "jpeg2000", data, 1, on_white(as_rgb(grey), alpha()))
    data = saved(Image.fromarray(scene16(1)[..., 0]), "JPEG2000")
    yield Case("grey 16", "jpeg2000", data, 0, as_rgb_levels(scene16(1), 16))


def _pnms() -> Iterable[Case]:
    for samples in (scene(), grey_of(scene())[..., None], scene16(3), scene16(1)):
        bits, channels = 8 * samples.itemsize, samples.shape[2]
        kind = "ppm" if channels == 3 else "pgm"
        data = cv2.imencode(f".{kind}", np.ascontiguousarray(samples[..., ::-1]))[1].tobytes()
        yield Case(f"{kind} {bits}", "pnm", data, 0, as_rgb_levels(samples, bits))
    ten = scene16(1)[..., 0] >> 6
    data = f"P5 #\n {WIDTH} {HEIGHT} 1023\n".encode() + ten.astype(">u2").tobytes()
    yield Case("pgm 10", "pnm", data, 0, as_rgb(np.rint(ten * (255 / 1023))))
    bilevel = rgb_image().convert("1")
    yield Case("pbm", "pnm", saved(bilevel, "PPM"), 0, as_rgb(np.asarray(bilevel) * 255))


def tga(samples: Pixels, kind: int, depth: int, *, flags: int = 0x20) -> bytes:
    """A TGA by hand: samples as stored, from the top unless `flags` say otherwise."""
    size = samples.shape[1], samples.shape[0]
    head = struct.pack("<BBBHHBHHHHBB", 0, 0, kind, 0, 0, 0, 0, 0, *size, depth, flags)
    return head + np.ascontiguousarray(samples).tobytes()


def _tgas() -> Iterable[Case]:
    rgb, grey = scene(), grey_of(scene())
    bgra = np.dstack([rgb[..., ::-1], alpha()])
    yield Case("rgb", "tga", tga(rgb[..., ::-1], 2, 24), 0, rgb)
    yield Case("rgb from the bottom", "tga", tga(rgb[::-1, :, ::-1], 2, 24, flags=0), 0, rgb)
    yield Case("alpha", "tga", tga(bgra, 2, 32, flags=0x28), 1, on_white(rgb, alpha()))
    yield Case("fourth byte unused", "tga", tga(bgra, 2, 32), 0, rgb)
    yield Case("grey", "tga", saved(Image.fromarray(grey), "TGA"), 0, as_rgb(grey))
    colors = np.asarray(palette_image().convert("RGB"))
    yield Case("palette", "tga", saved(palette_image(), "TGA"), 0, colors)
    yield Case("runs", "tga", saved(rgb_image(), "TGA", compression="tga_rle"), 0, rgb)


MAKERS: dict[str, Callable[[], Iterable[Case]]] = {
    "jpeg": _jpegs,
    "png": _pngs,
    "webp": _webps,
    "bmp": _bmps,
    "tiff": _tiffs,
    "gif": _gifs,
    "avif": _avifs,
    "jpeg2000": _jpeg2000s,
    "pnm": _pnms,
    "tga": _tgas,
}


@cache
def cases() -> tuple[Case, ...]:
    """Every file of the corpus, a few hundred kilobytes in all."""
    return tuple(case for make in MAKERS.values() for case in make())
