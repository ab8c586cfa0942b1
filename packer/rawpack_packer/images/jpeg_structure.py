"""Checks whether a JPEG file is complete by its structure alone: this is fast, because nothing is decoded."""

from __future__ import annotations

import re
from operator import mul

from rawpack.errors import DecodeError
from rawpack.jpeg.header import JpegHeader, header_of, segments
from rawpack_packer.images.jpeg import MAX_SCANS

_EOI, _SOS, _DHT, _DQT, _DRI = 0xD9, 0xDA, 0xC4, 0xDB, 0xDD
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
        found = list(segments(view))
        header = header_of(view, found)
    except DecodeError:
        return False
    tables, quantizers, interval = set[int](), set[int](), header.restart_interval
    components, seen = _components(data, found), set[tuple[int, int, int]]()
    scans, expected = 0, 2
    for marker, at, end in found:
        if at != expected:
            return False  # junk between segments
        expected = end
        _note_tables(data, marker, at, end, tables, quantizers)
    if not components or any(
        table not in quantizers or not (1 <= factors >> 4 <= 4 and 1 <= factors & 15 <= 4)
        for factors, table in components.values()
    ):
        return False
    at, end = found[-1][1:]
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


def _components(data: bytes, found: list[tuple[int, int, int]]) -> dict[int, tuple[int, int]]:
    """Component -> (sampling factors, number of its quantization table); empty unless there is exactly one frame."""
    frames = [(at, end) for marker, at, end in found if 0xC0 <= marker <= 0xCF and marker not in (_DHT, 0xC8, 0xCC)]
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
    restarts = [data[found.start() + 1] & 7 for found in _restart.finditer(data, start, stop)] if interval else []
    if restarts != [k & 7 for k in range(len(restarts))]:
        return False
    if header.process not in (_BASELINE, _EXTENDED) or scans != len(components):
        return stop > start  # in progressive or separate scans, each component has other units
    height, width = header.mcu_shape
    units = -(-header.height // height) * -(-header.width // width)
    if interval and len(restarts) != -(-units // interval) - 1:
        return False
    blocks = 1 if len(components) == 1 else sum((s >> 4) * (s & 15) for s, _ in components.values())
    return (stop - start) * 8 >= units * blocks * _LEAST_BITS
