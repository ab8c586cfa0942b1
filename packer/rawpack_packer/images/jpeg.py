"""JPEG files: reads the header in more detail than the reader needs, decodes pixels with `rawpack.jpeg`, checks by its
structure alone whether a file is complete, and has the quantization tables of `--jpeg-tables jpegli`.

Those tables are made for natural images. The encoder is libjpeg-turbo, without jpegli's adaptive quantization. The
numbers and the formula are from `lib/jpegli/quant.cc` and `lib/jpegli/encode.cc` of https://github.com/google/jpegli;
what a quality means is measured here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import mul
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rawpack import jpeg
from rawpack.errors import DecodeError
from rawpack.jpeg.header import JpegHeader, header_of, mcu_shape, segments
from rawpack_packer.images.header import (
    ImageHeader,
    JpegDetails,
    Pixels,
    cmyk_to_rgb,
    exif_orientation,
    to_color,
)

MAX_SCANS = 100
"""Files with more scans are refused: each scan costs a pass over the whole image, and encoders write about 10."""

_EOI, _SOS, _DHT, _DQT, _DRI = 0xD9, 0xDA, 0xC4, 0xDB, 0xDD
_APP0, _APP1, _APP2, _APP14 = 0xE0, 0xE1, 0xE2, 0xEE

_SOF = {
    0xC0: "baseline",
    0xC1: "extended",
    0xC2: "progressive",
    0xC3: "lossless",
    **dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF), "hierarchical"),
    **dict.fromkeys((0xC9, 0xCA, 0xCB), "arithmetic"),
}


def read_header(data: bytes) -> ImageHeader:
    """Read the segments up to the first scan, and no entropy-coded data."""
    orientation, icc, adobe = 1, False, None
    seen_exif = seen_jfif = False
    frame: bytes | None = None
    sof = ""
    scan_offset, scan_components = len(data), 0
    for marker, start, end in segments(memoryview(data)):
        body = start + 4
        if marker in _SOF:
            if frame is not None:
                raise DecodeError("corrupt", "JPEG with two frame headers")
            sof, frame = _SOF[marker], data[body:end]
        elif marker == _APP0 and data.startswith(b"JFIF\0", body):
            seen_jfif = True
        elif marker == _APP1 and not seen_exif and data.startswith(b"Exif\0\0", body):
            seen_exif = True
            orientation = exif_orientation(data[body:end])
        elif marker == _APP2 and data.startswith(b"ICC_PROFILE\0", body):
            icc = True
        elif marker == _APP14 and end - body >= 12 and data.startswith(b"Adobe", body):
            adobe = data[body + 11]
        elif marker == _SOS:
            scan_offset, scan_components = start, data[body] if end > body else 0
    if frame is None:
        raise DecodeError("corrupt", "JPEG scan without a frame header")
    if len(frame) < 6 or len(frame) < 6 + 3 * frame[5]:
        raise DecodeError("corrupt", f"JPEG frame header of {len(frame)} bytes is too short")
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    precision, components, table = frame[0], frame[5], frame[6 : 6 + 3 * frame[5]]
    if height == 0 and width:
        raise DecodeError("unsupported", "JPEG whose height comes after the first scan (DNL)")
    if width == 0 or components == 0:
        raise DecodeError("corrupt", f"JPEG of {width} x {height} pixels with {components} components")
    return ImageHeader(
        format="jpeg",
        width=width,
        height=height,
        color=_color(components, adobe, table, seen_jfif),
        channels=components,
        bits=precision,
        orientation=orientation,
        icc=icc,
        jpeg=JpegDetails(
            sof=sof,
            scan_offset=scan_offset,
            one_scan=sof in ("baseline", "extended") and scan_components == components,
        ),
    )


def _color(components: int, adobe: int | None, table: bytes, seen_jfif: bool) -> str:
    """The color space by libjpeg's rules: JFIF, then Adobe's marker, then the names of the components."""
    if components == 1:
        return "gray"
    if components == 3:
        if not seen_jfif and (adobe == 0 or (adobe is None and table[::3] == b"RGB")):
            return "rgb"
        return "ycbcr"
    if components == 4:
        return "ycck" if adobe == 2 else "cmyk"
    return "other"


def decode(data: bytes, header: ImageHeader, *, color: str, scale: int, warnings: list[str] | None) -> Pixels:
    """Decode without turning: RGB (H, W, 3), or gray (H, W, 1) if `color` is "gray" or the file is gray.

    See `decode_image`. CMYK and YCCK are assumed to be inverted, as Adobe's programs write them. Arithmetic coding and
    lossless JPEG are refused, because only some builds of libjpeg decode them.
    """
    details = header.jpeg
    if details is None:
        raise DecodeError("corrupt", f"header of a {header.format} file given for a JPEG")
    if details.sof in ("lossless", "arithmetic", "hierarchical") or header.bits != 8:
        raise DecodeError("unsupported", f"{header.bits}-bit {details.sof} JPEG")
    if header.color == "other":
        raise DecodeError("unsupported", f"JPEG with {header.channels} components")
    if not details.one_scan:
        scans = data.count(b"\xff\xda", details.scan_offset)
        if scans > MAX_SCANS:
            raise DecodeError("unsupported", f"JPEG with {scans} scans; at most {MAX_SCANS} are decoded")
    if header.color in ("cmyk", "ycck"):
        inks = jpeg.decode(data, color="cmyk", scale=scale, warnings=warnings)
        return to_color(cmyk_to_rgb(inks, inverted=True), color)
    stored: Literal["rgb", "gray"] = "gray" if color == "gray" or header.color == "gray" else "rgb"
    return jpeg.decode(data, color=stored, scale=scale, warnings=warnings)


_BASELINE, _EXTENDED = 0xC0, 0xC1
_APPS, _COM = range(0xE0, 0xF0), 0xFE
_BETWEEN_SCANS = frozenset({_SOS, _DHT, _DQT, _DRI, _COM, *_APPS})
_scan_end = re.compile(rb"\xff[^\x00\xd0-\xd7]", re.DOTALL)
_marker = re.compile(rb"\xff[^\x00]", re.DOTALL)
_restart = re.compile(rb"\xff[\xd0-\xd7]")
_SHARES = [1 << (15 - k) for k in range(16)]
"""The share of the 65,536 codes that one code of 1 to 16 bits takes."""
_LEAST_BITS = 2
"""Bits of the shortest block in a sequential file: a code for the first coefficient, and one for the end."""


def is_whole(data: bytes) -> bool:
    """Whether the file has everything that its header announces, up to an end marker in its last bytes.

    True means that all tables of the scans are defined, restart markers are in order and as many as needed, every
    component has a scan, and nothing follows the end. Damage inside entropy-coded data may be missed. False means that
    the file must be decoded to know: some intact files are unusual too.
    """
    if data[-2:] != b"\xff\xd9":
        return False
    view = memoryview(data)
    try:
        markers = list(segments(view))
        header = header_of(view, markers)
    except DecodeError:
        return False
    tables, quantizers, interval = set[int](), set[int](), header.restart_interval
    components, seen = _components(data, markers), set[tuple[int, int, int]]()
    scans, expected = 0, 2
    for marker, at, end in markers:
        if at != expected:
            return False  # junk between segments
        expected = end
        _note_tables(data, marker, at, end, tables, quantizers)
    if not components or any(
        table not in quantizers or not (1 <= factors >> 4 <= 4 and 1 <= factors & 15 <= 4)
        for factors, table in components.values()
    ):
        return False
    at, end = markers[-1][1:]
    while True:
        scanned = _scan(data[at + 4 : end], set(components), tables, progressive=header.process > _EXTENDED)
        if not scanned or scanned & seen or scans == MAX_SCANS:
            return False
        seen |= scanned
        scans += 1
        start = end
        # Without an interval, a restart marker ends the scan too early.
        stop = (_scan_end if interval else _marker).search(data, start)
        if stop is None:
            return False
        if not _scan_is_long_enough(header, data, start, stop.start(), interval, components, len(scanned)):
            return False
        at = stop.start()
        # Segments up to the next scan, or the end.
        while (marker := data[at + 1]) != _EOI:
            if marker not in _BETWEEN_SCANS or data[at] != 0xFF or at + 4 > len(data):
                return False
            end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
            if end < at + 4 or end + 2 > len(data):
                return False
            if marker == _SOS:
                break
            if marker == _DRI:
                interval = int.from_bytes(data[at + 4 : at + 6], "big")
            _note_tables(data, marker, at, end, tables, quantizers)
            at = end
        else:
            return at + 2 == len(data) and {name for name, first, _ in seen if first == 0} == set(components)


def _components(data: bytes, markers: list[tuple[int, int, int]]) -> dict[int, tuple[int, int]]:
    """Component -> (sampling factors, number of its quantization table); empty unless there is exactly one frame."""
    frames = [(at, end) for marker, at, end in markers if 0xC0 <= marker <= 0xCF and marker not in (_DHT, 0xC8, 0xCC)]
    if len(frames) != 1:
        return {}
    at, end = frames[0]
    table = data[at + 10 : end]
    return {table[k]: (table[k + 1], table[k + 2]) for k in range(0, len(table) - 2, 3)}


def _note_tables(data: bytes, marker: int, at: int, end: int, tables: set[int], quantizers: set[int]) -> None:
    """Add the numbers of the valid Huffman and quantization tables that a segment defines."""
    at += 4
    if marker == _DHT:
        while at + 17 <= end:
            counts = data[at + 1 : at + 17]
            used, codes = sum(map(mul, counts, _SHARES)), sum(counts)
            if used > 1 << 16 or codes > 256 or at + 17 + codes > end:
                return
            tables.add(data[at])
            at += 17 + codes
    elif marker == _DQT:
        while at < end:
            size = 65 + 64 * (data[at] >> 4)
            if at + size > end:
                return
            quantizers.add(data[at] & 15)
            at += size


def _scan(header: bytes, components: set[int], tables: set[int], *, progressive: bool) -> set[tuple[int, int, int]]:
    """(component, first coefficient, bits known before) of a scan; empty where its header is invalid."""
    if len(header) < 4 or len(header) != 4 + 2 * header[0] or not 1 <= header[0] <= 4:
        return set()
    first, last, high = header[-3], header[-2], header[-1] >> 4
    names = [header[1 + 2 * k] for k in range(header[0])]
    if not set(names) <= components or len(set(names)) != len(names):
        return set()
    if not progressive and (first, last, high) != (0, 63, 0):
        return set()
    if not first <= last <= 63 or (progressive and (last > 0) == (first == 0)):
        return set()
    for k in range(header[0]):
        chosen = header[2 + 2 * k]
        if first == 0 and high == 0 and chosen >> 4 not in tables:
            return set()
        if last > 0 and 16 | (chosen & 15) not in tables:
            return set()
    return {(name, first, high) for name in names}


def _scan_is_long_enough(
    header: JpegHeader,
    data: bytes,
    start: int,
    stop: int,
    interval: int,
    components: dict[int, tuple[int, int]],
    scans: int,
) -> bool:
    """Whether a scan's data has its restart markers, in order, and enough bits for all of its blocks."""
    restarts = [data[match.start() + 1] & 7 for match in _restart.finditer(data, start, stop)] if interval else []
    if restarts != [k & 7 for k in range(len(restarts))]:
        return False
    if header.process not in (_BASELINE, _EXTENDED) or scans != len(components):
        return stop > start  # in progressive or separate scans, each component has other units
    height, width = mcu_shape(header.sampling)
    units = -(-header.height // height) * -(-header.width // width)
    if interval and len(restarts) != -(-units // interval) - 1:
        return False
    blocks = 1 if len(components) == 1 else sum((s >> 4) * (s & 15) for s, _ in components.values())
    return (stop - start) * 8 >= units * blocks * _LEAST_BITS


Floats = NDArray[np.float64]
TABLES_VERSION = 2
"""Recorded in stores. To be increased when any value of a table changes, or the codes do."""
_PERCENT = (0, 2, 6, 10, 20, 40, 60, 100, 5000)
"""By which the standard's steps are multiplied, from quality 100 to 1."""
_DISTANCES = (0.01, 0.208, 0.558, 0.887, 1.57, 2.753, 3.905, 5.936, 287)
_DISTANCES_FULL = (0.01, 0.15, 0.415, 0.688, 1.32, 2.48, 3.48, 5.39, 243)
"""The distance at which photographs have the same median PSNR: with 4:2:0, which suits gray too; with 4:2:2 and 4:4:4.
Of 400 of ImageNet at 256 pixels, by `scripts/measure_jpeg_quality.py`; the last is a guess, where most steps are 255.
"""
_SCALE, _SCALE_420 = 1.7396601, 1.22
"""The factor of all values, and a further one for 4:2:0."""
_KNEE = 1.5
"""The distance from which steps of low frequencies grow more slowly than the distance."""


def _table(text: str) -> Floats:
    return np.array(text.split(), np.float64)


_LUMA = _table("""
    1.23974 1.72271 2.92122 2.81274 3.33982 3.4636 3.84092 3.86956
    1.72271 2.09289 2.84568 2.70451 3.44077 3.16623 4.02521 4.03532
    2.92122 2.84568 2.95874 3.38629 3.61952 3.90463 3.75784 4.23745
    2.81274 2.70451 3.38629 3.38006 4.16799 4.80551 4.78426 4.60593
    3.33982 3.44077 3.61952 4.16799 4.57985 4.92324 5.57411 5.48533
    3.4636 3.16623 3.90463 4.80551 4.92324 5.43936 5.0939 6.08723
    3.84092 4.02521 3.75784 4.78426 5.57411 5.0939 5.43846 5.40374
    3.86956 4.03532 4.23745 4.60593 5.48533 6.08723 5.40374 4.37787
""")
_CHROMA = _table("""
    2.92173 4.49768 7.35634 6.58389 8.53561 8.79943 9.18834 9.4827
    4.49768 6.30955 7.02461 7.15645 8.04906 7.01243 6.71192 8.38031
    7.35634 7.02461 6.8921 6.88282 8.78223 6.87748 7.88582 8.67909
    6.58389 7.15645 6.88282 7.00307 7.72235 7.95543 7.47341 8.36293
    8.53561 8.04906 8.78223 7.72235 6.77801 9.48492 9.0437 8.05318
    8.79943 7.01243 6.87748 7.95543 9.48492 8.60761 9.9227 64.25135
    9.18834 6.71192 7.88582 7.47341 9.0437 9.9227 63.18494 83.35294
    9.4827 8.38031 8.67909 8.36293 8.05318 64.25135 83.35294 114.89202
""")
_EXPONENTS = _table("""
    1 0.51 0.67 0.74 1 1 1 1
    0.51 0.66 0.69 0.87 1 1 1 1
    0.67 0.69 0.84 0.83 0.96 1 1 1
    0.74 0.87 0.83 1 1 0.91 0.91 1
    1 1 0.96 1 1 1 1 1
    1 1 1 0.91 1 1 1 1
    1 1 1 0.91 1 1 1 1
    1 1 1 1 1 1 1 1
""")
_CHROMA_420 = _table("""
    0.4093 0.3209 0.3477 0.3333 0.3144 0.2823 0.3214 0.3354
    0.3209 0.3111 0.3489 0.2801 0.3059 0.3119 0.4135 0.3445
    0.3477 0.3489 0.3586 0.3257 0.2727 0.3754 0.3369 0.3484
    0.3333 0.2801 0.3257 0.302 0.3515 0.341 0.3971 0.3839
    0.3144 0.3059 0.2727 0.3515 0.3105 0.3397 0.2716 0.3836
    0.2823 0.3119 0.3754 0.341 0.3397 0.3212 0.3203 0.0726
    0.3214 0.4135 0.3369 0.3971 0.2716 0.3203 0.0798 0.0553
    0.3354 0.3445 0.3484 0.3839 0.3836 0.0726 0.0553 0.3368
""")
"""What chroma's steps are multiplied with, where it has a quarter of the pixels."""


@lru_cache(maxsize=8)
def jpegli_tables(quality: int, subsampling: str) -> tuple[list[int], list[int]]:
    """The tables of luma and chroma, 64 steps each, row by row, which have the PSNR of a quality with the standard's.
    quality: 1 to 100. subsampling: "420", "422", "444", or "" for gray."""
    percent = 5000 / quality if quality < 50 else 200 - 2 * quality  # as libjpeg does
    distances = _DISTANCES_FULL if subsampling in ("422", "444") else _DISTANCES
    return tables_at(float(np.interp(percent, _PERCENT, distances)), subsampling)


def tables_at(distance: float, subsampling: str) -> tuple[list[int], list[int]]:
    """The tables for the visible difference that jpegli aims at: its own quality 90 is 1.0."""
    scale = np.full(64, distance)
    if distance >= _KNEE:
        scale = np.maximum(distance / 2, _KNEE ** (1 - _EXPONENTS) * distance**_EXPONENTS)
    scale *= _SCALE
    luma, chroma = _LUMA * scale, _CHROMA * scale
    if subsampling == "420":
        luma, chroma = luma * _SCALE_420, chroma * _SCALE_420 * _CHROMA_420
    made = [np.floor(table + 0.5).clip(1, 255).astype(int).tolist() for table in (luma, chroma)]
    return made[0], made[1]


def tables_library() -> str:
    """The encoder of files with these tables, and its version."""
    import PIL
    from PIL import features

    return (
        f"pillow {PIL.__version__} (libjpeg-turbo {features.version('libjpeg_turbo')}), rawpack.jpegli {TABLES_VERSION}"
    )
