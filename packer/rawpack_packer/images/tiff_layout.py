"""Where a TIFF's first image lies, by its first directory."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from rawpack.errors import DecodeError
from rawpack_packer.images.header import MAX_FRAMES
from rawpack_packer.images.orientation import ORIENTATION_TAG, valid_orientation

WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, CMYK, YCBCR = 0, 1, 2, 3, 5, 6
UNCOMPRESSED, DEFLATE, OLD_DEFLATE, PACKBITS, LZW, JPEG = 1, 8, 32946, 32773, 5, 7
CCITT = (2, 3, 4)
ASSOCIATED, UNASSOCIATED = 1, 2
"""Kinds of alpha: colours multiplied by it, or not."""

_TYPES = {1: "B", 3: "H", 4: "I", 16: "Q"}
_ICC_TAG = 34675


@dataclass(frozen=True)
class Layout:
    """The tags that matter, checked against each other and against the file's size."""

    order: str
    """"<" or ">": of the tags, and of 16-bit samples."""
    width: int
    height: int
    bits: int
    samples: int
    photometric: int
    compression: int
    planar: bool
    """Each sample has a plane, with pieces of its own."""
    predictor: int
    sample_format: int
    """1: unsigned integers."""
    low_bit_first: bool
    extra: int | None
    """Kind of the sample behind the colours, 0 unspecified; None where the file does not say."""
    tiled: bool
    piece_width: int
    """Of a tile, or the image's width for strips."""
    piece_height: int
    pieces: tuple[tuple[int, int], ...]
    """(offset, bytes) of each strip or tile, all inside the file."""
    colormap: tuple[int, ...]
    """All reds, all greens, all blues, 16 bits each; empty without one."""
    orientation: int
    orientation_offset: int | None
    """Of the orientation's 16-bit value in the file."""
    icc: bool

    @property
    def alpha(self) -> int:
        """ASSOCIATED, UNASSOCIATED, or 0 where no sample is an alpha."""
        if self.samples <= self.colors:
            return 0
        # OpenCV writes RGBA without saying so.
        kind = UNASSOCIATED if self.extra is None else self.extra
        return kind if kind in (ASSOCIATED, UNASSOCIATED) else 0

    @property
    def colors(self) -> int:
        """Samples of a pixel that are colour: 1, 3 or 4."""
        return {RGB: 3, YCBCR: 3, CMYK: 4}.get(self.photometric, 1)


class _Directory:
    """Random access to the values of one directory's tags. Offsets outside the file raise struct.error."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.order = "<" if data[:2] == b"II" else ">"
        self.big = data[2 if self.order == ">" else 3] == 0 and 43 in (data[2], data[3])
        self.first = self._unpack("Q" if self.big else "I", 8 if self.big else 4)[0]
        self.entries: dict[int, tuple[int, int, int]] = {}
        """Tag -> (type, count, offset of the value or of its offset)."""
        for at in range(*self._entry_range(self.first)):
            tag, kind, count = self._unpack("HHQ" if self.big else "HHI", at)
            self.entries.setdefault(tag, (kind, count, at + (12 if self.big else 8)))

    def _unpack(self, code: str, at: int) -> tuple[int, ...]:
        if at < 0 or at > len(self.data):
            raise struct.error("offset outside the file")
        return struct.unpack_from(self.order + code, self.data, at)

    def _entry_range(self, directory: int) -> tuple[int, int, int]:
        """Start, end and step of a directory's entries, which end inside the file."""
        (count,) = self._unpack("Q" if self.big else "H", directory)
        start, step = directory + (8 if self.big else 2), 20 if self.big else 12
        if start + count * step > len(self.data):
            raise struct.error("directory reaches beyond the file")
        return start, start + count * step, step

    def value_offset(self, tag: int) -> int:
        kind, count, at = self.entries[tag]
        size = struct.calcsize("<" + _TYPES[kind]) * count
        return self._unpack("Q" if self.big else "I", at)[0] if size > (8 if self.big else 4) else at

    def values(self, tag: int, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        if tag not in self.entries:
            return default
        kind, count, _ = self.entries[tag]
        if kind not in _TYPES:
            raise DecodeError("corrupt", f"TIFF tag {tag} of type {kind}")
        if count > len(self.data):
            raise struct.error("more values than the file has bytes")
        return self._unpack(f"{count}{_TYPES[kind]}", self.value_offset(tag))

    def value(self, tag: int, default: int | None = None) -> int:
        values = self.values(tag)
        if values:
            return values[0]
        if default is None:
            raise DecodeError("corrupt", f"TIFF without tag {tag}")
        return default

    def count_pages(self) -> int:
        """Directories in the chain, up to MAX_FRAMES; a chain that loops or leaves the file ends there."""
        seen: set[int] = set()
        at = self.first
        try:
            while at and at not in seen and len(seen) < MAX_FRAMES:
                end = self._entry_range(at)[1]
                seen.add(at)
                (at,) = self._unpack("Q" if self.big else "I", end)
        except struct.error:
            pass
        return len(seen)


def count_pages(data: bytes) -> int:
    """Pages of a TIFF, from 1 to MAX_FRAMES."""
    return max(1, _Directory(data).count_pages())


def read_layout(data: bytes) -> Layout:
    """Read the first directory. Raises DecodeError, or struct.error for an offset outside the file."""
    tags = _Directory(data)
    width, height = tags.value(256), tags.value(257)
    if width == 0 or height == 0:
        raise DecodeError("corrupt", f"TIFF of {width} x {height} pixels")
    samples, photometric = tags.value(277, 1), tags.value(262)
    bits = tags.values(258, (1,))
    formats = tags.values(339, (1,))
    if len(set(bits)) != 1 or len(set(formats)) != 1:
        raise DecodeError("unsupported", f"TIFF whose samples differ: bits {bits[:8]}, formats {formats[:8]}")
    planar = tags.value(284, 1) == 2 and samples > 1
    tiled = 322 in tags.entries
    piece_width = tags.value(322) if tiled else width
    piece_height = tags.value(323) if tiled else min(tags.value(278, height), height)
    if piece_width == 0 or piece_height == 0:
        raise DecodeError("corrupt", f"TIFF in pieces of {piece_width} x {piece_height} pixels")
    orientation = tags.value(ORIENTATION_TAG, 1)
    has_short = ORIENTATION_TAG in tags.entries and tags.entries[ORIENTATION_TAG][:2] == (3, 1)
    return Layout(
        order=tags.order,
        width=width,
        height=height,
        bits=bits[0],
        samples=samples,
        photometric=photometric,
        compression=tags.value(259, 1),
        planar=planar,
        predictor=tags.value(317, 1),
        sample_format=formats[0],
        low_bit_first=tags.value(266, 1) == 2,
        extra=tags.value(338) if 338 in tags.entries else None,
        tiled=tiled,
        piece_width=piece_width,
        piece_height=piece_height,
        pieces=_read_pieces(tags, -(-width // piece_width) * -(-height // piece_height) * (samples if planar else 1)),
        colormap=tags.values(320) if photometric == PALETTE else (),
        orientation=valid_orientation(orientation) if has_short else 1,
        orientation_offset=tags.value_offset(ORIENTATION_TAG) if has_short else None,
        icc=_ICC_TAG in tags.entries,
    )


def _read_pieces(tags: _Directory, expected: int) -> tuple[tuple[int, int], ...]:
    """(offset, bytes) of each piece, checked to be as many as expected, and inside the file."""
    offsets = tags.values(324) or tags.values(273)
    counts = tags.values(325) or tags.values(279)
    if not counts and len(offsets) == 1:  # old files of one strip leave the count out: it is the rest
        counts = (max(0, len(tags.data) - offsets[0]),)
    if len(offsets) < expected or len(counts) < expected:
        found = min(len(offsets), len(counts))
        raise DecodeError("corrupt", f"TIFF with {found} strips or tiles where its size asks for {expected}")
    pieces = tuple(zip(offsets[:expected], counts[:expected], strict=True))
    for offset, count in pieces:
        if offset + count > len(tags.data):
            end = offset + count
            raise DecodeError("truncated", f"TIFF strip or tile reaches byte {end} of {len(tags.data)}")
    return pieces
