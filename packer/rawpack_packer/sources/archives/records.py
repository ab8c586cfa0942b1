"""The records of a RecordIO file, as mxnet writes them: where each one is, and what its header says.

A record is one or more parts: the magic number, a flag and the length of its data in one number, and the data, padded
to 4 bytes. Data with the magic number at a multiple of 4 is cut there, and the magic number left out. The data of an
image record is a header, labels if there are several, and an image file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Self

from rawpack.errors import UsageError
from rawpack_packer.sources.table.spans import Rows, Spans, read_range

_MAGIC = struct.pack("<I", 0xCED7230A)
_LENGTH = (1 << 29) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_PART = struct.Struct("<4sI")
_HEADER = struct.Struct("<IfQQ")
"""Number of labels that follow, or 0; the label, if it is 0; both halves of the id, the lower one first."""
_LABEL = slice(4, 8)
"""The label in the header."""
_MOST_LABELS = 1 << 16
_AHEAD = 128
"""Bytes that are read of each record at once: the header, some labels, and the first bytes of the image."""
_SNIFFED = 32
_COPY = "copy the file again, or make it again"


class Record(NamedTuple):
    """One record of a file."""

    start: int
    """The position of its first byte."""
    end: int
    """The position after its last byte, with padding."""
    split: bool
    """Whether it has several parts."""
    offset: int
    """The position of the image; of a record in several parts, that of the record."""
    before: int
    """Bytes of its data before the image."""
    size: int
    """Bytes of the image."""
    first: bytes
    """The first bytes of the image."""
    several: bool
    """Whether labels follow the header, rather than being in it."""
    labels: bytes
    """float32, little-endian."""
    id: int
    high: int
    """The upper half of the id."""


def records(fd: int, size: int, where: str) -> Iterator[Record]:
    """The records of an open file of `size` bytes, in order. where: the file, printable.

    Raises UsageError where it is no RecordIO file, is damaged or truncated, or a record is no image record.
    """
    at = 0
    while at < size:
        head = os.pread(fd, _AHEAD, at)
        flag, length = _part(head, at, size, where)
        if flag == _WHOLE:
            end, data = at + _PART.size + _padded(length), head[_PART.size : _PART.size + length]
        elif flag == _FIRST:
            end, length = _end(fd, at, size, where)
            # As rare as the magic number in an image: the whole record may be read.
            data = joined(read_range(fd, at, end - at))
        else:
            raise UsageError(f"{where} is damaged at byte {at:,}: a record begins in its middle; {_COPY}")
        if length < _HEADER.size:
            raise UsageError(
                f"{where}: the record at byte {at:,} has {length} bytes, too few for an image with a label"
            )
        several, _, low, high = _HEADER.unpack_from(data)
        before = _HEADER.size + 4 * several
        if several > _MOST_LABELS or before > length:
            raise UsageError(f"{where}: the record at byte {at:,} declares {several:,} labels; {_COPY}")
        if len(data) < min(before + _SNIFFED, length):
            data = read_range(fd, at + _PART.size, min(before + _SNIFFED, length))
        labels = data[_HEADER.size : before] if several else data[_LABEL]
        first = data[before : before + _SNIFFED]
        offset = at if flag == _FIRST else at + _PART.size + before
        yield Record(at, end, flag == _FIRST, offset, before, length - before, first, several > 0, labels, low, high)
        at = end


def joined(record: bytes) -> bytes:
    """The data of all parts of a record, with the magic number between them again."""
    parts, at = [], 0
    while at < len(record):
        length = _PART.unpack_from(record, at)[1] & _LENGTH
        at += _PART.size
        parts.append(record[at : at + length])
        at += _padded(length)
    return _MAGIC.join(parts)


@dataclass(frozen=True, eq=False)
class RecordImages(Spans):
    """The images of records: see `Spans`. The offset of one in several parts is that of its record."""

    split: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Images in several parts: number -> bytes of the record in the file, and bytes of its data before the image."""

    def _reader(self, i: int, most: int | None = None) -> partial[bytes]:
        if (found := self.split.get(i)) is None:
            return super()._reader(i, most)
        return partial(_read_split, offset=int(self.offset[i]), size=found[0], before=found[1])

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `HasImageFiles`."""
        path = self.archives.paths[int(self.archive[i])]
        size, _ = self.split.get(i, (int(self.states[i, 0]), 0))
        return path, int(self.offset[i]), size

    def pick(self, rows: Rows, /) -> Self:
        split = {k: self.split[row] for k, row in enumerate(rows.tolist() if self.split else ()) if row in self.split}
        return replace(super().pick(rows), split=split)


def _read_split(fd: int, offset: int, size: int, before: int) -> bytes:
    return joined(read_range(fd, offset, size))[before:]


def _end(fd: int, at: int, size: int, where: str) -> tuple[int, int]:
    """Where the record in several parts at byte `at` ends, and how many bytes of data it has."""
    here, total, flag = at, -len(_MAGIC), _FIRST
    while flag != _LAST:
        flag, length = _part(os.pread(fd, _PART.size, here), here, size, where)
        if flag not in ((_FIRST,) if here == at else (_MIDDLE, _LAST)):
            raise UsageError(f"{where} is damaged at byte {here:,}: the record at byte {at:,} does not end; {_COPY}")
        here += _PART.size + _padded(length)
        total += len(_MAGIC) + length
        if total > _LENGTH:
            raise UsageError(f"{where} is damaged at byte {at:,}: no record has more than {_LENGTH:,} bytes; {_COPY}")
    return here, total


def _part(head: bytes, at: int, size: int, where: str) -> tuple[int, int]:
    """The flag of the part that begins with `head` at byte `at`, and the length of its data."""
    if not head.startswith(_MAGIC[: len(head)]) or (at == 0 and len(head) < len(_MAGIC)):
        if at == 0:
            begins = head[: len(_MAGIC)].hex(" ")
            raise UsageError(f"{where} is no RecordIO file: it begins with {begins}, not with {_MAGIC.hex(' ')}")
        raise UsageError(f"{where} is damaged at byte {at:,}: no record begins there; {_COPY}")
    if len(head) < _PART.size:
        raise _truncated(where, at)
    word = _PART.unpack_from(head)[1]
    if at + _PART.size + _padded(word & _LENGTH) > size:
        raise _truncated(where, at)
    return word >> 29, word & _LENGTH


def _truncated(where: str, at: int) -> UsageError:
    return UsageError(f"{where} is truncated: it ends inside the record at byte {at:,}; {_COPY}")


def _padded(length: int) -> int:
    return (length + 3) & ~3
