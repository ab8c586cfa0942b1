"""Image files to pixels: every mode held against known pixels or Pillow, and damage of every kind refused."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal
from unittest import mock

import cv2
import image_corpus as corpus
import numpy as np
import pytest
from image_corpus import Case, Pixels
from PIL import Image, ImageOps, TiffImagePlugin
from reading import SOAK

from rawpack import Reader
from rawpack.errors import DecodeError
from rawpack_packer import pack
from rawpack_packer.destination.journal import REASONS
from rawpack_packer.images import decode_image, read_header, sniff
from rawpack_packer.recipe import make_recipe
from rawpack_packer.samples.sample import prepare

CASES = corpus.cases()
BY_NAME = {(case.format, case.name): case for case in CASES}
FORMATS = ("jpeg", "png", "webp", "bmp", "tiff", "gif", "pnm")


def every_case(test: Callable[[Case], None]) -> Callable[[str], None]:
    """Have a test look at all images of each format, one after another. A note says at which it failed."""

    @pytest.mark.parametrize("format", sorted({case.format for case in CASES}))
    def of_a_format(format: str) -> None:
        for case in CASES:
            if case.format == format:
                try:
                    test(case)
                except BaseException as error:
                    error.add_note(f"{case.format}: {case.name}")
                    raise

    of_a_format.__doc__ = test.__doc__
    return of_a_format


def decoded(data: bytes, color: Literal["rgb", "gray"] = "rgb") -> Pixels:
    return decode_image(data, read_header(data), color=color)


def reason(data: bytes) -> str:
    """Why the file is refused; the test fails where it is not."""
    with pytest.raises(DecodeError) as caught:
        decoded(data)
    assert caught.value.reason in REASONS
    return caught.value.reason


def decoded_or_none(data: bytes, *, max_pixels: int = 1 << 30) -> Pixels | None:
    """None where the file is refused, for a known reason, or larger than may be."""
    try:
        header = read_header(data)
        return decode_image(data, header, color="rgb") if header.width * header.height <= max_pixels else None
    except DecodeError as error:
        if error.reason not in REASONS:
            raise
        return None


def difference(image: Pixels, other: Pixels) -> int:
    assert image.shape == other.shape
    return int(np.abs(image.astype(np.int16) - other).max())


# ------------------------------------------------------------------------------------------- right pixels


@every_case
def test_every_mode_becomes_upright_rgb(case: Case) -> None:
    """Palette, grey, alpha on white, 16 bits, CMYK, all orientations: the right pixels, in an array of one's own."""
    image = decoded(case.data)
    assert difference(image, corpus.expected_pixels(case)) <= case.tolerance
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    assert image.flags.writeable


@every_case
def test_every_mode_becomes_grey(case: Case) -> None:
    """Pillow's luma of the right pixels; of a YCbCr JPEG its Y plane, which Pillow's draft mode gives too."""
    image = decoded(case.data, "gray")
    assert image.flags.c_contiguous
    if read_header(case.data).color == "ycbcr" and case.format == "jpeg":
        with Image.open(io.BytesIO(case.data)) as file:
            file.draft("L", file.size)
            assert file.mode == "L"
            expected = np.asarray(ImageOps.exif_transpose(file))
        assert difference(image[..., 0], expected) == 0
        return
    expected = corpus.grey_of(np.ascontiguousarray(corpus.expected_pixels(case)))
    assert image.shape == (*expected.shape, 1)
    assert difference(image[..., 0], expected) <= max(1, case.tolerance)


def test_photographs_decode_as_pillow_decodes_them(photos: Path) -> None:
    """Real photographs, as cameras and web sites write them."""
    for path in sorted(path for path in photos.rglob("*") if path.is_file())[::40]:
        data = path.read_bytes()
        assert difference(decoded(data), corpus.pillow_pixels(data)) <= 2, path


# ------------------------------------------------------------------------------------------------ headers


@every_case
def test_headers_tell_what_pillow_tells(case: Case) -> None:
    """Format, size, orientation, frames and profile, before anything is decoded; packing counts what it leaves out."""
    header, notes = read_header(case.data), prepare(case.data, make_recipe(size=16)).notes
    assert header.format == case.format == (sniff(case.data[:32]) or "tga")
    # Pillow's own reader of uncompressed TIFF does not read YCbCr in all versions.
    with mock.patch.object(TiffImagePlugin, "READ_LIBTIFF", True), Image.open(io.BytesIO(case.data)) as file:
        upright = ImageOps.exif_transpose(file)
        assert header.upright_size == (upright.height, upright.width)
        if case.format != "tiff":  # Pillow tells a TIFF's size turned
            assert (header.height, header.width) == (file.height, file.width)
            assert header.orientation == file.getexif().get(274, 1)
        assert header.several == ("first_frame_of_several" in notes) == (getattr(file, "n_frames", 1) > 1)
        assert header.icc == ("icc_ignored" in notes) == ("icc_profile" in file.info)
    assert ("by_pillow" in notes) == (case.format not in ("jpeg", "png", "bmp"))


EXIF_LOOP = b"II*\0" + struct.pack("<IH", 8, 1) + struct.pack("<HHII", 0x8769, 4, 1, 8) + struct.pack("<I", 8)


@pytest.mark.parametrize(
    ("block", "orientation"),
    [
        (corpus.exif(6, kind=4), 6),  # as some writers have it, in 32 bits
        (corpus.exif(6, count=2), 1),
        (corpus.exif(9), 1),
        (corpus.exif(6)[:18], 1),
        (b"", 1),
        (b"II*\0\xff\xff\xff\xff" + corpus.exif(6)[8:], 1),
        (corpus.exif(6)[:8] + b"\xff\xff" + b"\0" * 100, 1),
        (EXIF_LOOP, 1),
    ],
)
def test_exif_that_lies_counts_as_upright(block: bytes, orientation: int) -> None:
    """Loops, offsets outside, counts and types that make no sense: no error, no hang, orientation 1."""
    data = corpus.jpeg_with_segment(0xE1, b"Exif\0\0" + block)
    assert read_header(data).orientation == orientation
    assert decoded(data).shape[:2] == read_header(data).upright_size
    data = corpus.png(corpus.scene(), 2, 8, before=corpus.png_chunk(b"eXIf", block))
    np.testing.assert_array_equal(decoded(data), corpus.turned(corpus.scene(), orientation))


RAW_PROFILE = b"\nexif\n%8d\n" % 32 + (b"Exif\0\0" + corpus.exif(6, byte_order=">")).hex().encode()


@pytest.mark.parametrize(
    ("kind", "body", "orientation"),
    [
        (b"tEXt", b"Raw profile type exif\0" + RAW_PROFILE, 6),
        (b"zTXt", b"Raw profile type APP1\0\0" + zlib.compress(RAW_PROFILE), 6),
        (b"tEXt", b"Raw profile type exif\0\nexif\n 9\nnot hexadecimal", 1),
        (b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n 1\n" + b"4" * (1 << 24)), 1),
    ],
)
def test_exif_as_imagemagick_writes_it_into_png_counts(kind: bytes, body: bytes, orientation: int) -> None:
    """Hexadecimal digits in a text chunk; one that is cut off, makes no sense or is packed to be endless is upright."""
    data = corpus.png(corpus.scene(), 2, 8, before=corpus.png_chunk(kind, body))
    np.testing.assert_array_equal(decoded(data), corpus.turned(corpus.scene(), orientation))


# ------------------------------------------------------------------------------------------------- damage


@every_case
def test_a_file_that_is_cut_is_refused_or_whole(case: Case) -> None:
    """Cut anywhere, a file gives the pixels of the whole one or an error: never a partly filled image. That half of one
    is truncated is the reason that a person sees for a download that broke off."""
    whole = decoded(case.data)
    lengths = {0, 1, 2, 8, 12, 20, 30, len(case.data) - 1, len(case.data) - 2, len(case.data) - 5}
    lengths |= set(np.linspace(1, len(case.data) - 1, 25).astype(int).tolist())
    for length in sorted(lengths):
        image = decoded_or_none(case.data[:length])
        if image is not None:
            np.testing.assert_array_equal(image, whole)
    if case.format in FORMATS and case.name not in ("three pages", "animated", "BigTIFF"):
        assert reason(case.data[: len(case.data) // 2]) == "truncated"


@every_case
def test_damage_gives_pixels_or_an_error(case: Case) -> None:
    """Bytes changed, moved or cut by a seeded die: an array of the header's size or a DecodeError, nothing else."""
    dice = np.random.default_rng(zlib.crc32(case.name.encode()))
    for _ in range(30 if SOAK else 10):
        data = bytearray(case.data)
        for at in dice.integers(0, min(len(data), 10 ** int(dice.integers(2, 5))), int(dice.integers(1, 5))).tolist():
            data[at] = int(dice.integers(256))
        if dice.random() < 0.2:
            del data[int(dice.integers(len(data))) :]
        image = decoded_or_none(bytes(data), max_pixels=1 << 20)
        if image is not None:
            assert image.shape == (*read_header(bytes(data)).upright_size, 3)


def test_images_with_transparency_are_counted() -> None:
    """Those with a pixel that is not opaque, whatever says so; an opaque alpha channel is not counted."""
    values = np.random.default_rng(3).integers(0, 255, (40, 30, 4), np.uint8)
    values[..., 3] = 255
    opaque = Image.fromarray(values.copy())
    values[7, 5, 3] = 254
    clear = Image.fromarray(values)
    gray, palette = clear.convert("L"), opaque.convert("RGB").quantize(16)
    first = {"transparency": palette.getpixel((0, 0))}
    counted = [(clear, "PNG", {}), (clear, "WEBP", {"lossless": True}), (clear, "TIFF", {}), (palette, "GIF", first)]
    counted += [(palette, "PNG", first), (gray, "PNG", {"transparency": gray.getpixel((0, 0))})]
    plain = [(opaque, "PNG", {}), (opaque, "WEBP", {"lossless": True}), (gray, "PNG", {"transparency": 255})]
    for images, count in ((counted, 1), (plain, 0)):
        for image, format, options in images:
            notes = prepare(corpus.saved(image, format, **options), make_recipe(size=16)).notes
            assert notes.count("blended") == count, (format, image.mode)


def test_broken_files_print_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """OpenCV's log is silent while a file is decoded, and as it was afterwards."""
    home = getattr(cv2.utils, "logging", cv2)
    level = home.getLogLevel()
    for name in (("tiff", "rgb tiff_lzw"), ("tiff", "rgb jpeg"), ("tiff", "1 bit group4"), ("webp", "lossless")):
        data = BY_NAME[name].data
        decoded_or_none(data[:40] + b"\xff" * 80 + data[120:])
    decoded_or_none(BY_NAME["png", "rgb"].data[:-40])
    assert capfd.readouterr().err == ""
    assert home.getLogLevel() == level


MEASURE = """
import contextlib, pickle, resource, sys
from rawpack_packer.images import decode_image, read_header
from rawpack.errors import DecodeError
for bomb in pickle.load(sys.stdin.buffer):
    header = read_header(bomb)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(DecodeError):
        decode_image(bomb, header, color="rgb")
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def _png_of(packed: bytes, height: int, width: int) -> bytes:
    """RGB whose compressed rows may be too many or too few."""
    head = corpus.png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + corpus.png_chunk(b"IDAT", packed) + corpus.png_chunk(b"IEND", b"")


def test_memory_is_what_the_header_implies() -> None:
    """64 MB or more packed behind a header of 8 x 8 pixels stay packed: in a TIFF, in a tile of one, in a PNG."""
    packed, tile = zlib.compress(bytes(1 << 26), 1), zlib.compress(bytes(100))
    none: tuple[int, list[int]] = (4, [])
    strips = {259: (3, [8])}
    tiles = {273: none, 278: none, 279: none, 259: (3, [5]), 322: (4, [8192]), 323: (4, [8192])}
    tiles |= {324: (4, [8]), 325: (4, [len(tile)])}
    bombs = [
        corpus.tiff([body], channels=3, bits=8, photometric=2, size=(8, 8), extra=extra)
        for body, extra in ((packed, strips), (tile, tiles))
    ]
    bombs.append(_png_of(packed, 8, 8))
    command = [sys.executable, "-c", MEASURE]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, input=pickle.dumps(bombs), capture_output=True, check=True, env=environment)
    grown = [int(line) for line in done.stdout.split()]
    assert len(grown) == len(bombs)
    assert max(grown) < 32, grown


# --------------------------------------------------------------------------------------- format by format


def refusals() -> Iterator[tuple[str, bytes, str]]:
    """(name, file, reason) of what would be decoded wrongly, or differently by different libraries."""
    for data in (b"BMW is a car", b"<svg/>", b"\0" * 99, b"RIFF\0\0\0\0WAVE", b"%!PS-Adobe-3.0 EPSF-3.0"):
        yield f"no image, {data[:4]!r}", data, "not_an_image"
    odd = bytearray(corpus.tga(corpus.scene(), 2, 24))
    odd[16] = 9
    yield "TGA of 9 bits", bytes(odd), "not_an_image"

    data = corpus.jpeg()
    at = data.index(b"\xff\xc0")
    yield "JPEG with two frames", data[:at] + data[at : at + 19] + data[at:], "corrupt"

    data = BY_NAME["png", "rgb"].data
    yield "PNG with a wrong checksum", data[:-14] + bytes([data[-14] ^ 1]) + data[-13:], "corrupt"
    rows = b"".join(b"\0" + row.tobytes() for row in corpus.scene())
    yield "PNG whose rows end", _png_of(zlib.compress(rows[:-9]), corpus.HEIGHT, corpus.WIDTH), "corrupt"
    index = np.zeros((4, 4, 1), np.uint8)
    yield "PNG without palette", corpus.png(index, 3, 8), "corrupt"
    yield "PNG chunk", corpus.png(index, 0, 8, before=corpus.png_chunk(b"ABCD", b"")), "unsupported"
    yield "PNG too wide for OpenCV", corpus.png(np.zeros((1, 1_000_001, 1), np.uint8), 0, 8), "unsupported"

    canvas = bytearray(corpus.saved(corpus.rgba_image(), "WEBP", quality=80))
    canvas[24] += 1
    yield "WebP whose canvas is another", bytes(canvas), "corrupt"
    stored = np.ascontiguousarray(corpus.scene16(3)[..., ::-1])
    _, jp2 = cv2.imencode(".jp2", stored, [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000])
    yield "JPEG 2000 of 16-bit colors", jp2.tobytes(), "unsupported"

    lines = [bytes(4 * corpus.WIDTH)] * corpus.HEIGHT
    yield "BMP masks with holes", corpus.bmp(lines, 32, masks=(0xF0F, 0xFF00, 0xFF), compression=3), "unsupported"
    yield "BMP that holds a JPEG", corpus.bmp(lines, 24, compression=4), "unsupported"
    yield "BMP of 2 bits", corpus.bmp(lines, 2), "unsupported"
    yield "BMP without width", corpus.bmp(lines, 32, size=(corpus.HEIGHT, 0)), "corrupt"
    palette = np.zeros((256, 3), np.uint8)
    for runs in (b"\x05\1", b"\x05\1\0\1", b"\0\x05\1\1"):
        yield f"BMP runs {runs!r}", corpus.bmp([runs], 8, palette=palette, compression=1), "truncated"
    sevens = [bytes([7] * corpus.WIDTH)] * corpus.HEIGHT
    yield "BMP color beyond the palette", corpus.bmp(sevens, 8, palette=palette[:7]), "corrupt"
    data, _ = corpus.bmp_run_length(8)
    (start,) = struct.unpack_from("<I", data, 10)
    moved = data[:10] + struct.pack("<I", start + 1) + data[14:start] + b"\0" + data[start:]
    yield "BMP runs at an odd offset", moved, "unsupported"  # Pillow would skip the wrong bytes

    grey = corpus.grey_of(corpus.scene())
    yield "TIFF of floats", corpus.saved(Image.fromarray(grey.astype(np.float32)), "TIFF"), "unsupported"
    yield "TIFF of 32 bits", corpus.saved(Image.fromarray(grey.astype(np.int32)), "TIFF"), "unsupported"
    rows_of = partial(corpus.tiff, [grey.tobytes()], channels=1, bits=8, photometric=1)
    yield "TIFF of signed samples", rows_of(extra={339: (3, [2])}), "unsupported"
    yield "TIFF packed rarely", rows_of(extra={259: (3, [40000])}), "unsupported"
    yield "TIFF whose strip is too short", rows_of(extra={279: (4, [100])}), "truncated"
    # What Pillow cannot read of its tags, it leaves out, and guesses.
    data = rows_of(extra={320: (3, [1] * 9)})
    at = data.index(struct.pack("<HHI", 320, 3, 9)) + 8
    yield "TIFF tag behind its end", data[:at] + struct.pack("<I", 1 << 30) + data[at + 4 :], "truncated"

    data = BY_NAME["gif", "small first frame"].data
    at = data.index(b"\x2c")
    yield "GIF taller than its codes", data[: at + 7] + b"\7" + data[at + 8 :], "truncated"
    yield "GIF without a frame", data[:at] + b"\x3b", "corrupt"


def test_what_would_be_decoded_wrongly_is_refused() -> None:
    """Each for the reason that a person sees, whichever library decodes."""
    found = {name: (reason(data), wanted) for name, data, wanted in refusals()}
    assert {name: pair for name, pair in found.items() if pair[0] != pair[1]} == {}


def harmless() -> Iterator[tuple[str, bytes, Pixels]]:
    """(name, file, pixels) of what is odd and can be read."""
    scene = corpus.scene()
    data = corpus.jpeg()
    yield "JPEG with stray bytes before its end", data[:-2] + bytes(30) + data[-2:], decoded(data)
    # Most programs go by EXIF alone; Pillow itself would turn a TIFF file.
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6">'
    yield "JPEG that XMP turns", corpus.jpeg(xmp=xmp), decoded(data)
    yield "TIFF that XMP turns", corpus.saved(corpus.rgb_image(), "TIFF", tiffinfo={700: xmp}), scene
    text = bytearray(corpus.png_chunk(b"tEXt", b"Comment\0hello"))
    text[-1] ^= 1
    yield "PNG with a damaged comment", corpus.png(scene, 2, 8, before=bytes(text)), scene
    wide = np.zeros((1, 1_000_000, 1), np.uint8)
    yield "PNG as wide as OpenCV takes", corpus.png(wide, 0, 8), wide.repeat(3, 2)
    palette = np.array([[9, 8, 7], [1, 2, 3]] + [[0, 0, 0]] * 254, np.uint8)
    leaps = corpus.bmp([b"\2\1\0\2\3\1\1\1\0\2\2\2\0\1"], 8, palette=palette, compression=1, size=(4, 8))
    expected = np.tile(palette[0], (4, 8, 1))
    expected[3, :2] = expected[2, 5] = palette[1]
    yield "BMP whose runs leap over pixels", leaps, expected
    loop = bytearray(corpus.saved(corpus.rgb_image(), "TIFF"))
    (first,) = struct.unpack_from("<I", loop, 4)
    (entries,) = struct.unpack_from("<H", loop, first)
    struct.pack_into("<I", loop, first + 2 + 12 * entries, first)
    yield "TIFF whose page is the next one, too", bytes(loop), scene
    animated = BY_NAME["gif", "animated"].data
    yield "GIF that ends behind its first frame", animated[:-200], decoded(animated)


def test_what_is_harmless_is_read() -> None:
    for name, data, expected in harmless():
        np.testing.assert_array_equal(decoded(data), expected, name)
    warnings: list[str] = []
    (_, odd, _), *_ = harmless()
    decode_image(odd, read_header(odd), color="rgb", warnings=warnings)
    assert len(warnings) == 1  # which the caller may count


@pytest.mark.parametrize("bits", [4, 8])
def test_a_bmp_with_a_palette_of_few_grays_is_right_or_refused(bits: int) -> None:
    """Where Pillow takes its pixels for those of another depth, it is refused; in color, it is read."""
    read = set()
    for used in (2, 3, 8, 2**bits - 1, 2**bits):
        index = (corpus.grey_of(corpus.scene()).astype(int) * used // 256).astype(np.uint8)
        ramp = np.arange(used)
        colors = np.random.default_rng(used).integers(0, 256, (used, 3))
        for name, palette in (("ids", ramp), ("levels", ramp * 255 // (used - 1)), ("colors", colors)):
            table = np.broadcast_to(palette.reshape(used, -1), (used, 3)).astype(np.uint8)
            image = decoded_or_none(corpus.bmp_of_index(index, bits, table))
            if image is not None:
                np.testing.assert_array_equal(image, table[index])
                read.add((name, used))
    assert {("colors", used) for used in (2, 3, 8, 2**bits - 1, 2**bits)} <= read
    assert ("levels", 2**bits) in read


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("header", [12, 40])
def test_a_bmp_whose_pixel_offset_lies_is_never_black(bits: int, header: int) -> None:
    """Without an offset, or with one that leaves the palette out, the pixels are right; inside the palette or the
    headers, the file is refused."""
    data, pixels = corpus.bmp_palette(bits, header=header)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 1
    for offset in (0, 14 + header):
        np.testing.assert_array_equal(decoded(data[:10] + struct.pack("<I", offset) + data[14:]), pixels)
    for offset in (1, 14, 13 + header, 15 + header, 14 + header + (4 if header == 40 else 3)):
        assert reason(data[:10] + struct.pack("<I", offset) + data[14:]) == "corrupt"
    beyond = data[:10] + struct.pack("<I", len(data)) + data[14:]
    assert reason(beyond) == "truncated"


def test_damage_in_deflated_tiffs_is_found() -> None:
    """Its checksum is checked: OpenCV alone would return the image with a part missing."""
    data = corpus.saved(corpus.rgb_image(), "TIFF", compression="tiff_adobe_deflate")
    start, count = _tag_value(data, 273), _tag_value(data, 279)
    for position in np.linspace(0.02, 0.98, 12):
        damaged = bytearray(data)
        damaged[start + int(count * position)] ^= 0x55
        assert reason(bytes(damaged)) in ("corrupt", "truncated")


def _tag_value(data: bytes | bytearray, tag: int) -> int:
    with Image.open(io.BytesIO(bytes(data))) as image:
        value: int = image.tag_v2[tag][0]  # type: ignore[attr-defined]
        return value


def test_damage_in_lzw_tiffs_that_libtiff_sees_is_found() -> None:
    """What Pillow's libtiff refuses in the middle of a strip is refused here, not returned with a part missing."""
    data, refused = corpus.saved(corpus.rgb_image(), "TIFF", compression="tiff_lzw"), 0
    random, start, count = np.random.default_rng(3), _tag_value(data, 273), _tag_value(data, 279)
    for _ in range(20):
        damaged = bytearray(data)
        at = start + int(random.integers(count // 4, count // 2))
        damaged[at : at + 50] = random.bytes(50)
        try:
            with Image.open(io.BytesIO(damaged)) as image:
                image.load()
        except OSError:
            refused += 1
            assert reason(bytes(damaged)) in ("corrupt", "truncated")
    assert refused > 5


@pytest.mark.parametrize("format", ["gif", "tiff", "webp", "avif", "jpeg2000", "pnm", "tga"])
def test_pillows_own_limit_has_no_say(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only --max-pixels decides: no warning, no error, and the limit of the process is what it was."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    size = corpus.HEIGHT * corpus.WIDTH
    data = next(case.data for case in CASES if case.format == format and not case.name.startswith("orientation"))
    assert prepare(data, make_recipe(size="keep", max_pixels=size)).size == (corpus.HEIGHT, corpus.WIDTH)
    assert Image.MAX_IMAGE_PIXELS == 10
    with pytest.raises(DecodeError, match="--max-pixels allows") as caught:
        prepare(data, make_recipe(size="keep", max_pixels=size - 1))
    assert caught.value.reason == "too_large"


@pytest.mark.parametrize("orientation", [1, 6])
def test_heic_photographs_are_packed(orientation: int, tmp_path: Path) -> None:
    """With the extra, a photograph as telephones write it is packed upright, its colors close to the original."""
    pillow_heif = pytest.importorskip("pillow_heif")
    source, store = tmp_path / "source", tmp_path / "store"
    source.mkdir()
    options = {"quality": -1, "chroma": 444, "exif": b"Exif\0\0" + corpus.exif(orientation)}
    pillow_heif.from_pillow(corpus.rgb_image()).save(source / "IMG_0001.HEIC", **options)
    data = (source / "IMG_0001.HEIC").read_bytes()
    expected = corpus.turned(corpus.scene(), orientation)
    assert sniff(data[:32]) == "heic"
    assert read_header(data).upright_size == expected.shape[:2]
    pack(source, store, size="keep", workers=0)
    assert difference(Reader(store)[0]["image"], expected) <= 6
