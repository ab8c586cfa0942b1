"""TFRecord files: where their records are, and the `tf.train.Example` in each.

A record is the length of its data, the checksum of the length, the data, and its checksum. An Example maps names to
features, each a list of bytes, of float32 or of int64. It is read as TensorFlow and protobuf write it: names before
values, and one map in each message.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.images import sniff
from rawpack_packer.sources.archives.opened import OpenArchive, Pass
from rawpack_packer.sources.table.named_files import NamedFiles

_HEAD, _SUM = struct.Struct("<QI"), struct.Struct("<I")
IMAGE, BYTES, FLOATS, INTS = 1, 10, 18, 26
"""The kinds of features, by the tags of their lists; of image files 1."""
_LENGTH = rb"([\x80-\xff]{0,9}[\0-\x7f])"
_ITEM, _SEQUENCES = re.compile(rb"\n" + _LENGTH), b"\x12"
_NAME = re.compile(rb"\n" + _LENGTH + rb"\n" + _LENGTH)
_LIST = re.compile(rb"\x12" + _LENGTH + rb"([\n\x12\x1a])" + _LENGTH)
_NO_LIST = b"\x12\0"
_TAGS = {FLOATS: b"\x0d", INTS: b"\x08"}
"""What is before each number where they are not packed."""
_LONG, _SNIFFED = 0x80, 32
"""Bytes of an entry whose length needs more than one byte; and those that show whether something is an image."""
_AHEAD, _LEAST = 4096, 1024
"""Bytes that are read at once of a long record; and those that have the beginning of a feature."""
_MANY, _KNOWN = 1 << 10, 1 << 14
"""Values of a feature, and short entries of maps, that are remembered."""
_MOST_TEXT = 1 << 20
_COPY = "copy the file again, or make it again"


class BadExampleError(ValueError):
    """A record holds no Example. The text says what it is, where that is known."""


class FoundFeature(NamedTuple):
    """A feature of a record."""

    kind: int
    """`IMAGE` where the only value begins as an image file; 0 without values, not even empty ones."""
    start: int
    stop: int
    """Of bytes, where the first value is; 0 without one."""
    values: bytes
    """Its values, one after another, in this machine's byte order; nothing of an image, or what is too long for a
    text."""
    lengths: tuple[int, ...]
    """Of these values, if they are bytes."""
    number: int
    """How many values there are; 1 of an image."""


@dataclass
class ExampleData:
    """The data of a record, of which only some bytes may have been read."""

    size: int
    some: bytes
    """What was read last."""
    read: Callable[[int, int], bytes]
    """Reads bytes from a position on."""
    first: int = 0
    """Where `some` is in the data."""

    def at(self, start: int, least: int) -> tuple[bytes, int]:
        """Bytes with at least `least` from `start` on, or all that there are; and where `start` is in them."""
        stop = min(start + least, self.size)
        if not self.first <= start <= stop <= self.first + len(self.some):
            self.some, self.first = self.read(start, min(max(least, _AHEAD), self.size - start)), start
        return self.some, start - self.first

    def part(self, start: int, stop: int) -> bytes:
        some, at = self.at(start, stop - start)
        return some[at : at + stop - start]

    def features(self, known: dict[bytes, tuple[str, FoundFeature]]) -> Iterator[tuple[str, FoundFeature, bool]]:
        """The features, each with its name, and whether it has bytes that no record before had. known: short entries of
        records before, since many records have the same. Raises BadExampleError."""
        data, at = self.at(0, _LEAST)
        found = _ITEM.match(data)
        after = 0 if found is None else found.end() + _varint(found[1])
        if found is None or after != self.size:
            if 0 < after < self.size and self.part(after, after + 1) == _SEQUENCES:
                raise BadExampleError("a tf.train.SequenceExample: make a tf.train.Example of each image")
            raise BadExampleError
        at = found.end()
        while at < self.size:
            data, i = self.at(at, _LEAST)
            size = 2 + data[i + 1] if i + 1 < len(data) and data[i + 1] < _LONG else 0
            entry = data[i : i + size]
            before = known.get(entry) if size else None
            if before is not None:
                name, one = before
            else:
                size, name, one = self._read_entry(at)
                if entry and len(known) < _KNOWN:
                    known[entry] = name, one
            if one.stop:
                one = FoundFeature(one.kind, one.start + at, one.stop + at, one.values, one.lengths, one.number)
            yield name, one, before is None
            at += size
        if at > self.size:
            raise BadExampleError

    def _read_entry(self, at: int) -> tuple[int, str, FoundFeature]:
        """The entry of the map at a position: its size, the name, and the feature, with positions in the entry. Raises
        BadExampleError."""
        item = _ITEM.match(head := self.part(at, min(at + _LEAST, self.size)))
        size = 0 if item is None else item.end() + _varint(item[1])
        named = _NAME.match(head := head[:size])
        if named is None:
            raise BadExampleError
        stop = named.end() + _varint(named[2])
        name, kind, start = head[named.end() : stop].decode("utf-8", "backslashreplace"), 0, size
        value = _LIST.match(head, stop)
        if value is not None and value.end(1) + _varint(value[1]) == size == value.end() + _varint(value[3]):
            kind, start = value[2][0], value.end()
        elif head[stop:] != _NO_LIST:
            raise BadExampleError
        begins = last = 0
        if kind == BYTES and start < size:
            if (first := _ITEM.match(head, start)) is None:
                raise BadExampleError
            begins, last = first.end(), first.end() + _varint(first[1])
            is_image = last == size and sniff(head[begins : begins + _SNIFFED]) is not None
            if is_image or size > _MOST_TEXT:
                return size, name, FoundFeature(IMAGE if is_image else BYTES, begins, last, b"", (), 1)
        return size, name, FoundFeature(kind, begins, last, *_values(kind, self.part(at + start, at + size)))


class FoundExample(NamedTuple):
    """A record, without the bytes of its images."""

    offset: int
    size: int
    """The bytes of the record in the file, with checksums."""
    features: dict[str, FoundFeature]
    fault: str
    """Why it cannot be packed; empty where nothing is wrong."""


class ExamplePass(Pass):
    """One pass through TFRecord files: iterating it gives the number of each, and its records.

    Only what is around the images is read, and their checksums are left to the workers. But a record is read as a whole
    if anything in it is new, such as the name of a class: otherwise a damaged one could change what all of them are.
    """

    def __init__(self, files: NamedFiles) -> None:
        super().__init__(files)
        self._what, self._kind = "examples", FoundExample
        self._seen = dict[str, set[tuple[int, bytes]]]()
        """Values of each feature, until there are many."""
        self._known = dict[bytes, tuple[str, FoundFeature]]()

    def _members(self, archive: OpenArchive, k: int) -> Iterator[FoundExample]:
        where = self._files.name(k)
        for offset, size, data in records(archive, where):
            found, bad, is_new = dict[str, FoundFeature](), None, False
            try:
                for name, one, is_other in data.features(self._known):
                    found[name] = one
                    is_new = (is_other and self._is_new(name, one)) or is_new
            except BadExampleError as error:
                bad, is_new = error, True
            if is_new:
                try:
                    data_of(archive.read(offset, size), f"the record at byte {offset:,}")
                except DecodeError as error:
                    yield FoundExample(offset, size, {}, error.detail)
                    continue
            if bad is not None:
                raise UsageError(f"{where}: the record at byte {offset:,} contains {str(bad) or 'no tf.train.Example'}")
            yield FoundExample(offset, size, found, "")

    def _is_new(self, name: str, one: FoundFeature) -> bool:
        """Whether a feature has a value that the records before do not have, unless they have many."""
        seen, value = self._seen.setdefault(name, set()), (one.kind, one.values)
        if len(seen) < _MANY and value not in seen:
            seen.add(value)
            return True
        try:
            return one.kind == BYTES and one.values.decode() is None
        except UnicodeDecodeError:
            return True


def _values(kind: int, data: bytes) -> tuple[bytes, tuple[int, ...], int]:
    """The values of a list as `FoundFeature` has them, their lengths and their number. Raises BadExampleError."""
    if kind not in _TAGS:
        items = _items(data)
        return b"".join(items), tuple(map(len, items)), len(items)
    item = _ITEM.match(data)
    if item is not None and item.end() + _varint(item[1]) == len(data):
        packed = data[item.end() :]
    else:
        numbers = re.findall(_TAGS[kind] + (rb"(.{4})" if kind == FLOATS else _LENGTH), data, re.DOTALL)
        packed = b"".join(numbers)
        if len(packed) + len(numbers) != len(data):
            raise BadExampleError
    if kind == FLOATS and len(packed) % 4:
        raise BadExampleError
    values = _varints(packed) if kind == INTS else np.frombuffer(packed, "<f4").astype(np.float32)
    return values.tobytes(), (), len(values)


def records(archive: OpenArchive, where: str) -> Iterator[tuple[int, int, ExampleData]]:
    """Offset and size of each record of an open file, and its data. where: the file, printable. Raises UsageError for
    what is not a TFRecord file, damaged or truncated; DecodeError for damaged compression."""
    at = 0
    while head := archive.read(at, _HEAD.size + _AHEAD):
        is_cut = len(head) < _HEAD.size
        length, said = (0, 0) if is_cut else _HEAD.unpack_from(head)
        if not is_cut and masked_crc(head[:8]) != said:
            if at:
                raise UsageError(f"{where} is damaged at byte {at:,}: no record begins there; {_COPY}")
            raise UsageError(f"{where} is no TFRecord file: it does not begin with a length and its checksum")
        size = _HEAD.size + length + _SUM.size
        if is_cut or at + size > archive.size or (archive.reader and len(archive.read(at + size - 1, 1)) < 1):
            raise UsageError(f"{where} is truncated: it ends inside the record at byte {at:,}; {_COPY}")
        some, start = head[_HEAD.size : _HEAD.size + length], at + _HEAD.size
        yield at, size, ExampleData(length, some, lambda at, size, start=start: archive.read(start + at, size))  # type: ignore[misc]
        at += size


def data_of(record: bytes, where: str) -> bytes:
    """The data of a whole record. where: the record, printable. Raises DecodeError where its checksum does not fit."""
    data = record[_HEAD.size : -_SUM.size]
    if _SUM.unpack(record[-_SUM.size :])[0] != masked_crc(data):
        raise DecodeError("corrupt", f"{where} does not match its checksum")
    return data


def masked_crc(data: bytes) -> int:
    """The checksum of TFRecord files: CRC-32C, rotated and with a constant added."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(data: bytes) -> int:
    return data[0] if len(data) == 1 else sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data))


def _varints(data: bytes) -> NDArray[np.int64]:
    """Numbers, one after another. Raises BadExampleError."""
    code = np.frombuffer(data, np.uint8)
    if data.isascii():
        return code.astype(np.int64)
    last = np.flatnonzero(code < 0x80)
    starts = np.concatenate([[0], last[:-1] + 1])
    if not len(last) or last[-1] + 1 != len(code) or (last - starts).max() > 9:
        raise BadExampleError
    shifts = 7 * (np.arange(len(code)) - np.repeat(starts, last - starts + 1))
    return np.bitwise_or.reduceat((code & 0x7F).astype(np.uint64) << shifts.astype(np.uint64), starts).view(np.int64)


def _items(data: bytes) -> list[bytes]:
    """The bytes of a list of bytes. Raises BadExampleError."""
    found, at = list[bytes](), 0
    while at < len(data):
        item = _ITEM.match(data, at)
        if item is None or (at := item.end() + _varint(item[1])) > len(data):
            raise BadExampleError
        found.append(data[item.end() : at])
    return found
