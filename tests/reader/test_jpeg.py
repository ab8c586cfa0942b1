"""JPEG decoding: the same pixels and the same refusals from every backend, and boxes that equal the whole, sliced."""

from __future__ import annotations

import io
import re
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from draws import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from image_corpus import saved
from pictures import encoded
from PIL import Image
from reading import without_core

from rawpack import jpeg
from rawpack.errors import DecodeError, RawpackError, UsageError
from rawpack.jpeg import choice, header, region
from rawpack.jpeg.choice import BACKENDS, open_backend

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]

SAMPLING = {
    "444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "411": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> jpeg.JpegDecoder:
    """Each backend that works on this machine."""
    if request.param not in WORKING:
        pytest.skip(f"{request.param} does not work here")
    return WORKING[request.param]


WORKING = {name: opened for name in BACKENDS if isinstance(opened := open_backend(name), jpeg.JpegDecoder)}


MCU_WIDTH = {"444": 8, "422": 16, "420": 16, "440": 8, "411": 32, "gray": 8}


def scene(height: int, width: int, seed: int = 0) -> Pixels:
    """RGB with edges, gradients and some noise, so that every block differs from its neighbours."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), np.uint8)
    smooth = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.int16)
    noisy = smooth + rng.integers(-9, 10, (height, width, 3), np.int16)
    return np.asarray(noisy.clip(0, 255), np.uint8)


def encode(image: Pixels, subsampling: str = "420", quality: int = 90, interval: int | None = None) -> bytes:
    """By OpenCV, with a restart marker after every row of MCUs unless `interval` says otherwise."""
    if interval is None:
        interval = -(-image.shape[1] // MCU_WIDTH[subsampling])
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    if subsampling == "gray":
        pixels = np.ascontiguousarray(image[..., 1])
    else:
        pixels = np.ascontiguousarray(image[..., ::-1])
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLING[subsampling]]
    return cv2.imencode(".jpg", pixels, options)[1].tobytes()


def pillow(data: bytes, mode: str | None = None) -> Pixels:
    image = Image.open(io.BytesIO(data))
    array = np.asarray(image if mode is None else image.convert(mode))
    return array[..., None] if array.ndim == 2 else array


def difference(a: Pixels, b: Pixels) -> int:
    assert a.shape == b.shape
    return int(np.abs(a.astype(np.int16) - b).max())


def with_segment(data: bytes, marker: int, payload: bytes) -> bytes:
    return data[:2] + struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload + data[2:]


def offset_of(data: bytes, marker: int) -> int:
    """Where the first segment with that marker starts, found without rawpack."""
    at = 2
    while data[at + 1] != marker:
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return at


# ---------------------------------------------------------------- pixels


sizes = st.tuples(st.integers(1, 70), st.integers(1, 70))
subsamplings = st.sampled_from([*SAMPLING, "gray"])


TURNED = Image.Exif()
TURNED[0x0112] = 6


@settings(max_examples=tries(100))
@given(sizes, subsamplings, st.integers(20, 100), st.integers(0, 5))
def test_every_backend_agrees_with_pillow(size: tuple[int, int], subsampling: str, quality: int, seed: int) -> None:
    """Whatever the size, sampling and quality: within two levels of Pillow, and exactly alike."""
    data = encode(scene(*size, seed), subsampling, quality)
    for backend in WORKING.values():
        image = backend.decode(data)
        assert difference(image, pillow(data, "RGB")) <= 2
        np.testing.assert_array_equal(image, WORKING["opencv"].decode(data))


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_blocks": 3}, {"optimize": True}, {"exif": TURNED}]
)
def test_other_kinds_of_jpeg_decode_alike(backend: jpeg.JpegDecoder, options: dict[str, Any]) -> None:
    """Progressive files, optimized tables and any restart interval come out as Pillow has them, turned or not."""
    data = encoded(scene(61, 83), "JPEG", quality=88, **options)
    assert difference(backend.decode(data), pillow(data)) <= 2


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_scales_are_those_of_libjpeg(backend: jpeg.JpegDecoder, color: jpeg.Color) -> None:
    """Sides are divided and rounded up, and the pixels are the ones of Pillow's draft mode, also of color as gray.
    A gray file as RGB has its plane three times."""
    for scale in (1, 2, 4, 8):
        for height, width in ((64, 96), (61, 83), (17, 9)):
            data = encode(scene(height, width))
            stored = Image.open(io.BytesIO(data))
            stored.draft("L" if color == "gray" else "RGB", (max(1, width // scale), max(1, height // scale)))
            expected = np.asarray(stored).reshape(-(-height // scale), -(-width // scale), 1 if color == "gray" else 3)
            assert difference(backend.decode(data, scale=scale, color=color), expected) <= 2
    gray = encode(scene(40, 50), "gray")
    np.testing.assert_array_equal(
        backend.decode(gray, color=color), np.repeat(pillow(gray), 3 if color == "rgb" else 1, 2)
    )


CMYK = saved(Image.fromarray(np.dstack([scene(48, 56), scene(48, 56, 1)[..., :1]]), "CMYK"), "JPEG", quality=95)


def test_cmyk_planes_come_as_stored(backend: jpeg.JpegDecoder) -> None:
    """CMYK and YCCK give the four planes of libjpeg; Pillow's, with Adobe's inversion put back, are within 3 levels.
    Nobody converts them to RGB on the quiet, or invents four planes."""
    for data, color in ((CMYK, "rgb"), (CMYK, "gray"), (encode(scene(20, 20)), "cmyk")):
        with pytest.raises(DecodeError) as raised:
            backend.decode(data, color=color)  # type: ignore[arg-type]
        assert raised.value.reason == "unsupported"
    at = offset_of(CMYK, 0xEE) + 15
    for data in (CMYK, CMYK[:at] + b"\x02" + CMYK[at + 1 :]):
        if backend.name != "opencv":  # which does not hand over four planes
            image = backend.decode(data, color="cmyk")
            assert image.shape == (48, 56, 4)
            assert difference(255 - image, pillow(data)) <= 3


def test_out_is_filled_and_returned(backend: jpeg.JpegDecoder) -> None:
    """The caller's memory, be it one row of a batch, gets the pixels; its neighbours are untouched. Another shape, type
    or layout is a UsageError that names both shapes, and nothing is written."""
    data, batch = encode(scene(33, 47)), np.full((3, 33, 47, 3), 7, np.uint8)
    out = batch[1]
    assert backend.decode(data, out=out) is out
    np.testing.assert_array_equal(batch[1], backend.decode(data))
    assert (batch[::2] == 7).all()
    for wrong in (
        np.full((33, 48, 3), 7, np.uint8),
        np.full((33, 47, 3), 7, np.float32),
        np.full((33, 94, 3), 7, np.uint8)[:, ::2],
        np.broadcast_to(np.uint8(7), (33, 47, 3)),
    ):
        with pytest.raises(UsageError, match=re.escape(str(wrong.shape))) as raised:
            backend.decode(data, out=wrong)
        assert "(33, 47, 3)" in str(raised.value)
        assert (wrong == 7).all()


def test_any_bytes_serve(backend: jpeg.JpegDecoder, tmp_path: Path) -> None:
    """bytes, bytearray, memoryview, arrays, and slices of a mapped file all decode alike."""
    data = encode(scene(33, 47))
    (tmp_path / "shard").write_bytes(b"before" + data + b"after")
    mapped = np.memmap(tmp_path / "shard", np.uint8, "r")[6 : 6 + len(data)]
    for given_data in (bytearray(data), memoryview(data), memoryview(mapped), mapped):
        np.testing.assert_array_equal(backend.decode(given_data), backend.decode(data))
    with pytest.raises(UsageError, match="contiguous"):
        backend.decode(np.frombuffer(data, np.uint8)[::2])


def test_threads_may_share_a_decoder(backend: jpeg.JpegDecoder) -> None:
    """Of whole and damaged files at once, each thread gets its own image or the error of its own file."""
    files = [encode(scene(90, 110, seed)) for seed in range(8)]
    expected = [backend.decode(data) for data in files]

    def decode(number: int) -> None:
        data = files[number % 8]
        if number % 3 == 0:
            assert refused(backend, data[:700] + data[-2:]) == "corrupt"
        elif number % 3 == 1:
            assert refused(backend, data[: len(data) // 2]) == "truncated"
        else:
            np.testing.assert_array_equal(backend.decode(data), expected[number % 8])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(decode, range(480)))


# ---------------------------------------------------------------- damage


def refused(backend: jpeg.JpegDecoder, data: bytes) -> str:
    with pytest.raises(DecodeError) as raised:
        backend.decode(data)
    return raised.value.reason


def test_truncation_is_found_wherever_it_is(backend: jpeg.JpegDecoder, capfd: pytest.CaptureFixture[str]) -> None:
    """A file cut at or after any marker is "truncated", also where just the end marker is missing; no output."""
    image = scene(45, 70)
    files = [encode(image, interval=0), encode(image), encode(image, "gray"), encoded(image, "JPEG", progressive=True)]
    for data in files:
        markers = [at for at in range(2, len(data)) if data[at - 2] == 0xFF and data[at - 1] != 0]
        for length in sorted({at + more for at in markers for more in (-1, 0, 1, 3) if 2 <= at + more < len(data)}):
            assert refused(backend, data[:length]) == "truncated", f"cut at {length} of {len(data)}"
    assert capfd.readouterr() == ("", "")


def test_what_is_no_jpeg_is_refused_with_its_reason(backend: jpeg.JpegDecoder) -> None:
    """Empty files, other files, empty shells; huge sizes, before memory is taken for them; and what nobody decodes."""
    data = encode(scene(16, 16))
    frame = offset_of(data, 0xC0)
    huge = data[: frame + 5] + struct.pack(">HH", 65000, 65000) + data[frame + 9 :]
    twelve_bits = data[: frame + 4] + b"\x0c" + data[frame + 5 :]
    no_height = data[: frame + 5] + b"\x00\x00" + data[frame + 7 :]
    for odd, reason in (
        (b"", "empty"),
        (b"once upon a time " * 50, "not_an_image"),
        (b"\xff\xd8" + bytes(1000), "truncated"),
        (b"\xff\xd8\xff\xd9" + bytes(100), "corrupt"),
        (b"\xff\xd8\xff\xe0\x00\x01" + bytes(100), "corrupt"),
        (huge, "truncated"),
        (twelve_bits, "unsupported"),
        (no_height, "unsupported"),
    ):
        assert refused(backend, odd) == reason


def test_grey_parts_are_never_returned(backend: jpeg.JpegDecoder, capfd: pytest.CaptureFixture[str]) -> None:
    """Missing image data, a foreign marker, restart markers out of order, invalid codes: "corrupt", no output. Bytes
    left before the end marker too, unless they cannot be data: zeros, or one byte over and over."""
    plain, restart = encode(scene(64, 64), interval=0), encode(scene(64, 64))
    scan, first_restart = offset_of(plain, 0xDA) + 14, restart.index(b"\xff\xd0", offset_of(restart, 0xDA))
    broken = {
        "a hole": plain[: scan + (len(plain) - scan) // 2] + plain[-2:],
        "an early end": plain[: scan + 90] + b"\xff\xd9" + plain[scan + 92 :],
        "a restart marker where none belongs": plain[: scan + 90] + b"\xff\xd3" + plain[scan + 92 :],
        "a wrong restart marker": restart[:first_restart] + b"\xff\xd5" + restart[first_restart + 2 :],
        "a missing row": restart[:first_restart] + restart[restart.index(b"\xff\xd1", first_restart) :],
        "junk in a row": restart[:first_restart] + bytes(9) + restart[first_restart:],
        "invalid codes": plain[: scan + 90] + b"\xff\x00" * 60 + plain[scan + 210 :],
        "many bytes left": restart[:-2] + bytes(range(1, 90)) + restart[-2:],
        "zeros and a byte left": restart[:-2] + bytes(20) + b"\1" + restart[-2:],
        "data left": restart[:-2] + restart[-30:-2].replace(b"\xff", b"") + restart[-2:],
    }
    assert {name: refused(backend, data) for name, data in broken.items()} == dict.fromkeys(broken, "corrupt")
    for filler in (bytes(1), bytes(3000), b"\x55" * 4, b"\xaa" * 100):
        np.testing.assert_array_equal(backend.decode(restart[:-2] + filler + restart[-2:]), backend.decode(restart))
    assert capfd.readouterr() == ("", "")


@settings(max_examples=tries(400))
@given(st.data())
def test_random_damage_ends_in_an_image_or_a_decode_error(data: st.DataObject) -> None:
    """Bytes overwritten, removed or put in anywhere: the right shape or a DecodeError, whole or a box, from all."""
    original = encode(scene(40, 40), data.draw(subsamplings))
    at = data.draw(st.integers(0, len(original)))
    junk = data.draw(st.binary(max_size=8) | st.sampled_from([b"\xff\xd0", b"\xff\xd1", b"\xff\xd9", b"\xff\xff"]))
    damaged = original[:at] + junk + original[at + data.draw(st.integers(0, 40)) :]
    cut_both_ways(damaged)
    for backend in WORKING.values():
        with suppress(DecodeError):
            header = jpeg.read_header(damaged)
            assert region.decode_box(backend.decode, damaged, (0, 0, 1, 1)).shape == (1, 1, 3)
            assert backend.decode(damaged).shape == (header.height, header.width, 3)


READY = encode(scene(96, 64))
"""A file that boxes are cut out of."""
JFIF, TABLES, FRAME = (offset_of(READY, marker) for marker in (0xE0, 0xDB, 0xC0))
WITHOUT_JFIF = READY[:2] + READY[TABLES:]  # which would overrule an Adobe segment
HARMLESS = {
    "unknown JFIF revision": READY[: JFIF + 9] + b"\x07" + READY[JFIF + 10 :],
    "Unknown Adobe color transform": with_segment(WITHOUT_JFIF, 0xEE, b"Adobe" + bytes(6) + b"\x09"),
    "extraneous bytes before marker 0xd9": READY[:-2] + bytes(10) + READY[-2:],
    "extraneous bytes before marker 0xc0": READY[:FRAME] + b"junk" + READY[FRAME:],
    "bad ICC marker": with_segment(READY, 0xE2, b"ICC_PROFILE\x00\x03\x02" + bytes(200)),
}


@pytest.mark.parametrize("words", HARMLESS)
def test_harmless_oddities_do_not_lose_a_sample(
    backend: jpeg.JpegDecoder, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The image comes, with libjpeg's words for whoever asks and no output; damage beside them is found."""
    odd, warnings = HARMLESS[words], list[str]()
    np.testing.assert_array_equal(backend.decode(odd, warnings=warnings), backend.decode(READY))
    if warnings or words != "bad ICC marker":  # not every version of every library reads profiles
        assert len(warnings) == 1
        assert words in warnings[0]
    assert refused(backend, odd[: len(odd) * 3 // 4]) == "truncated"
    restart = odd.index(b"\xff\xd0", offset_of(odd.replace(b"junk", b""), 0xDA))
    assert refused(backend, odd[:restart] + bytes(9) + odd[restart:]) == "corrupt"
    assert capfd.readouterr() == ("", "")


def test_junk_in_the_header_hides_no_segment_about_the_pixels(backend: jpeg.JpegDecoder) -> None:
    """A broken segment looks like junk. One with the orientation or the color transform changes the pixels; an unknown
    transform is not guessed where the colors are named R, G, B."""
    data = encode(scene(64, 64))
    exif = with_segment(data, 0xE1, b"Exif\0\0" + bytes(20))
    adobe = with_segment(data, 0xEE, b"Adobe\0\x64" + bytes(5))
    for whole in (exif, adobe):
        backend.decode(whole)
        at = next(k for k in range(2, 100) if whole[k : k + 4] in (exif[2:6], adobe[2:6]))
        for broken in (whole[:at] + b"\xfe" + whole[at + 1 :], whole[: at + 3] + b"\x02" + whole[at + 4 :]):
            assert refused(backend, broken) == "corrupt"
    backend.decode(exif[: offset_of(exif, 0xC0)] + b"junk" + exif[offset_of(exif, 0xC0) :])
    named = encoded(scene(64, 64), "JPEG", keep_rgb=True)
    at = named.index(b"Adobe") + 11
    assert refused(backend, named[:at] + b"\x09" + named[at + 1 :]) == "corrupt"


def test_unusual_sampling_is_decoded_by_whoever_can(
    monkeypatch: pytest.MonkeyPatch, fresh_choice: Callable[[], jpeg.JpegDecoder]
) -> None:
    """Sampling factors that simplejpeg refuses: `jpeg.decode` gives the pixels all the same, or what is wrong. Where
    OpenCV does not work, the refusal stays."""
    bits = "".join(f"{level.bit_length():04b}{level:b}0" for level in (20, 30, 9, 5, 7))  # two Y, two Cb and one Cr
    data = b"\xff\xd8" + int(bits + "1" * (-len(bits) % 8), 2).to_bytes(-(-len(bits) // 8), "big") + b"\xff\xd9"
    components = bytes((0, 0x21, 0, 1, 0x12, 0, 2, 0x11, 0))
    for marker, body in (
        (0xDA, b"\x03\0\0\1\0\2\0\0\x3f\0"),
        (0xC4, b"\x10" + bytes((1, *[0] * 15)) + b"\0"),
        (0xC4, b"\0" + bytes((0, 0, 0, 8, *[0] * 12)) + bytes(range(8))),
        (0xC0, struct.pack(">BHHB", 8, 16, 16, 3) + components),
        (0xDB, b"\0" + b"\x08" * 64),
    ):
        data = with_segment(data, marker, body)
    assert refused(WORKING["simplejpeg"], data) == "unsupported"
    assert difference(jpeg.decode(data), pillow(data)) <= 2
    with pytest.raises(DecodeError, match="truncated"):
        jpeg.decode(data[:-3])
    assert refused(WORKING["simplejpeg"], data[:-3] + b"\xff\xd9") == "unsupported"
    with pytest.raises(DecodeError, match="corrupt"):
        jpeg.decode(data[:-3] + b"\xff\xd9")
    monkeypatch.setitem(sys.modules, "cv2", None)
    fresh_choice()
    with pytest.raises(DecodeError, match="unsupported"):
        jpeg.decode(data)


def test_a_lossless_file_is_never_reduced(backend: jpeg.JpegDecoder) -> None:
    """libjpeg-turbo 3 ignores the scale there, and would write the whole picture beyond the end of a smaller array."""
    data = b"\xff\xd8" + bytes(64 * 64 // 8) + b"\xff\xd9"
    for marker, body in (
        (0xDA, b"\x01\x01\x00\x01\x00\x00"),
        (0xC4, b"\x00\x01" + bytes(16)),
        (0xC3, struct.pack(">BHHB", 8, 64, 64, 1) + b"\x01\x11\x00"),
    ):
        data = with_segment(data, marker, body)
    with suppress(DecodeError):  # libjpeg-turbo 2 does not decode it at all
        assert (backend.decode(data) == 128).all()
    for scale in (2, 4, 8):
        for decode in (jpeg.decode, backend.decode):
            with pytest.raises(DecodeError, match="lossless") as refusal:
                decode(data, scale=scale)
            assert refusal.value.reason == "unsupported"


# ---------------------------------------------------------------- boxes


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, int], jpeg.Box]:
    height, width = draw(st.integers(1, 150)), draw(st.integers(1, 60))
    h, w = draw(st.integers(1, height)), draw(st.integers(1, width))
    return (height, width), (draw(st.integers(0, height - h)), draw(st.integers(0, width - w)), h, w)


@settings(max_examples=tries(400))
@given(boxes(), subsamplings, st.sampled_from(["rgb", "gray"]), st.sampled_from([1, 2, 4, 8]), st.integers(0, 3))
def test_a_box_is_the_whole_sliced(
    case: tuple[tuple[int, int], jpeg.Box], subsampling: str, color: jpeg.Color, scale: int, seed: int
) -> None:
    """Bit for bit; of the reduced image from (y // scale, x // scale), with sides divided and rounded up."""
    size, (y, x, h, w) = case
    data = encode(scene(*size, seed), subsampling)
    top, left, height, width = y // scale, x // scale, -(-h // scale), -(-w // scale)
    for backend in WORKING.values():
        part = region.decode_box(backend.decode, data, (y, x, h, w), color=color, scale=scale)
        assert part.shape[:2] == (height, width)
        if scale == 1 or min(size) > 6 * scale:
            expected = backend.decode(data, color=color, scale=scale)[top : top + height, left : left + width]
            np.testing.assert_array_equal(part, expected)


def cut_both_ways(data: bytes) -> int:
    """Assert that the native core and Python cut the same rows out of a file, byte by byte; how often they cut."""
    try:
        header = jpeg.read_header(data)
    except DecodeError:
        return 0
    rows = -(-header.height // region.mcu_shape(header.sampling)[0])
    spans = [(first, end) for first in range(rows) for end in range(first + 1, rows + 1)][:: 1 + rows**2 // 20]

    def cut() -> list[tuple[bytes, int] | None]:
        parts = [region._cut_rows(memoryview(data), header, *span) for span in spans]
        return [part and (bytes(part[0]), part[1]) for part in parts]

    made = cut()
    with without_core():
        assert made == cut()
    return sum(part is not None for part in made)


@pytest.mark.parametrize(
    ("data", "is_cut"),
    [
        (READY, True),
        (with_segment(READY, 0xE5, b"\xff\xd0\xff\xd9\xff\xda" * 9), True),
        (re.sub(b"\xff([\xd0-\xd7])", b"\xff\xff\xff\\1", READY), True),
        (READY + b"trailing", False),
        (encode(scene(96, 64), interval=0), False),
        (encode(scene(96, 64), interval=3), False),
        (encoded(scene(96, 64), "JPEG", progressive=True, restart_marker_rows=1), False),
    ],
    ids=["plain", "APP5", "fill", "trailing", "none", "3", "progressive"],
)
def test_only_files_of_the_right_build_are_cut(data: bytes, is_cut: bool) -> None:
    """The library is handed a small JPEG, of the needed rows only; other files are decoded whole: all exact."""
    seen: list[Pixels] = []

    def decode(data: jpeg.Data, **options: Any) -> Pixels:
        seen.append(pillow(bytes(data)))
        return jpeg.decoder().decode(data, **options)

    np.testing.assert_array_equal(region.decode_box(decode, data, (40, 8, 20, 40)), jpeg.decode(data)[40:60, 8:48])
    assert [one.shape for one in seen] == [(32 if is_cut else 96, 64, 3)]
    assert (cut_both_ways(data) > 0) == is_cut


def test_boxes_that_cannot_be_had_are_refused() -> None:
    """Empty, negative or too large ones; and over a damaged row, though the rows are cut from their file."""
    for box in ((0, 0, 0, 5), (0, 0, 5, 0), (-1, 0, 5, 5), (0, -1, 5, 5), (30, 0, 4, 5), (0, 40, 5, 8)):
        with pytest.raises(UsageError, match="33 x 47"):
            jpeg.decode(encode(scene(33, 47)), box=box)
    data = encode(scene(256, 64), "444")
    start = data.index(b"\xff\xd3", offset_of(data, 0xDA)) + 2
    for damaged, words in (
        (data[: start + 20] + b"\xff\x00" * 20 + data[start + 60 :], "corrupt"),
        (data[:-50], "trunc"),
    ):
        with pytest.raises(DecodeError, match=words):
            jpeg.decode(damaged, box=(30, 0, 20, 64))


LIES = ["swapped", "lost", "twice", "unmarked", "ends", "cut", "height", "width", "interval", "sampling"]


def lies(data: bytes, kind: str, k: int) -> bytes:
    """A file whose restart markers or header are not those of its rows. k: which row, or by how much."""
    start = offset_of(data, 0xDA)
    markers = [at for at in range(start, len(data) - 1) if data[at] == 0xFF and 0xD0 <= data[at + 1] <= 0xD7]
    at, after = markers[k % (len(markers) - 1)], markers[k % (len(markers) - 1) + 1]
    frame, interval = offset_of(data, 0xC0), offset_of(data, 0xDD)
    return {
        "swapped": data[: at + 1] + data[after + 1 : after + 2] + data[at + 2 : after + 1] + data[at + 1 : at + 2],
        "lost": data[:at] + data[after:],
        "twice": data[:after] + data[at:],
        "unmarked": data[:at] + data[at + 2 :],
        "ends": data[:at] + b"\xff\xd9",
        "cut": data[: at + 3],
        "height": data[: frame + 5] + (1 + k * 9 % 250).to_bytes(2, "big") + data[frame + 7 :],
        "width": data[: frame + 7] + (1 + k * 7 % 120).to_bytes(2, "big") + data[frame + 9 :],
        "interval": data[: interval + 4] + (k % 9).to_bytes(2, "big") + data[interval + 6 :],
        "sampling": data[: frame + 11] + (0x12, 0x21, 0x11, 0x14)[k % 4].to_bytes(1, "big") + data[frame + 12 :],
    }[kind] + (data[after + 2 :] if kind == "swapped" else b"")


@settings(max_examples=tries(300))
@given(boxes(), subsamplings, st.sampled_from(LIES), st.integers(0, 40))
def test_lying_files_give_right_pixels_or_an_error(
    case: tuple[tuple[int, int], jpeg.Box], subsampling: str, kind: str, k: int
) -> None:
    """A box has the pixels of the whole; where that is refused, so is the box, or it has those of intact rows."""
    (height, width), box = case
    height, box = height + 70, (box[0] + 35, *box[1:])
    intact = encode(scene(height, width), subsampling)
    data = lies(intact, kind, k)
    y, x, h, w = box
    whole = part = None
    with suppress(DecodeError):
        whole = jpeg.decode(data)
    if whole is not None and (y + h > whole.shape[0] or x + w > whole.shape[1]):
        return
    with suppress(DecodeError, UsageError):
        part = jpeg.decode(data, box=box)
    if whole is not None:
        assert part is not None
        np.testing.assert_array_equal(part, whole[y : y + h, x : x + w])
    elif part is not None and kind not in ("width", "sampling"):  # which may turn intact rows into others
        kept = min(h, jpeg.read_header(data).height - 1 - y)  # the color of a lie's last row has no neighbor below
        np.testing.assert_array_equal(part[:kept], jpeg.decode(intact)[y : y + kept, x : x + w])


@pytest.fixture
def fresh_choice() -> Iterator[Callable[[], jpeg.JpegDecoder]]:
    """Chooses anew."""

    def choose() -> jpeg.JpegDecoder:
        for chosen in (choice.decoder, choice.open_backend, choice.last_resort):
            chosen.cache_clear()
        return jpeg.decoder()

    yield choose
    for chosen in (choice.decoder, choice.open_backend, choice.last_resort):
        chosen.cache_clear()


def test_the_first_that_works_is_chosen(
    monkeypatch: pytest.MonkeyPatch, fresh_choice: Callable[[], jpeg.JpegDecoder]
) -> None:
    """simplejpeg, or the next one, or the one in RAWPACK_JPEG; where none works, an error says what to install."""
    monkeypatch.delenv("RAWPACK_JPEG", raising=False)
    assert fresh_choice().name == "simplejpeg"
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    if "turbojpeg" in WORKING:
        assert fresh_choice().name == "turbojpeg"
    monkeypatch.setitem(sys.modules, "turbojpeg", None)
    with pytest.raises(RawpackError, match=r"pip install simplejpeg.*simplejpeg: .*turbojpeg: "):
        fresh_choice()
    for name, words in (
        ("nvjpeg", r"'nvjpeg'.*simplejpeg, turbojpeg"),
        ("simplejpeg", "RAWPACK_JPEG=simplejpeg does not work here: .*simplejpeg"),
    ):
        monkeypatch.setenv("RAWPACK_JPEG", name)
        with pytest.raises(RawpackError, match=words):
            fresh_choice()


def header_of(data: bytes) -> object:
    try:
        return jpeg.read_header(memoryview(data))
    except DecodeError as error:
        return error.reason, error.detail


def header_alone(data: bytes, monkeypatch: pytest.MonkeyPatch) -> object:
    """What a file's header is where no other came before."""
    with monkeypatch.context() as patch:
        patch.setattr(header, "_last", (b"", b"", 0, None))
        return header_of(data)


@pytest.mark.parametrize(
    "options", [{}, {"optimize": True}, {"progressive": True}, {"restart_marker_rows": 1}], ids=str
)
def test_a_header_that_is_kept_does_not_change_the_next(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of other codes; and each byte of a header changed in several ways, and the file cut off there."""
    first, second, *others = [encoded(scene(40, 40, seed), "JPEG", **options) for seed in range(9)]
    others += [encoded(scene(40, 48), "JPEG", optimize=True), encoded(scene(40, 40), "JPEG", quality=60)]
    for data in others:
        assert header_of(data) == header_alone(data, monkeypatch)
    random = np.random.default_rng(0)
    for at in range(jpeg.read_header(memoryview(second)).scan_offset + 6):
        values = [0x00, 0xFF, 0xC4, 0xDA, int(random.integers(256))]
        for changed in [second[:at], *(second[:at] + bytes([value]) + second[at + 1 :] for value in values)]:
            header_of(first)
            assert header_of(changed) == header_alone(changed, monkeypatch), at
