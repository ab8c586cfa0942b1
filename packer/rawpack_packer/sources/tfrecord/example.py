"""TFRecord files: where their records are, and the `tf.train.Example` in each.

A record is the length of its data, the checksum of the length, the data, and its checksum. An Example maps names to
features, each a list of bytes, of float32 or of int64. It is read as TensorFlow and protobuf write it: names before
values, and one map in each message.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
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
_AHEAD, _LEAST = 4096, 1024
"""Bytes that are read at once of a long record; and those that have the beginning of a feature."""
_MOST_TEXT = 1 << 20
_COPY = "copy the file again, or make it again"


class BadExampleError(ValueError):
    """A record holds no Example. The text says what it is."""

    def __init__(self, what: str = "no tf.train.Example") -> None:
        super().__init__(what)


class ExampleFeature(NamedTuple):
    """Where a feature is in a record's data."""

    kind: int
    """0 where it has no values, not even empty ones."""
    start: int
    stop: int


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
        """The bytes from `start` to `stop`."""
        some, at = self.at(start, stop - start)
        return some[at : at + stop - start]

    def features(self) -> Iterator[tuple[str, ExampleFeature]]:
        """The features by their names. Raises BadExampleError."""
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
            name = _NAME.match(data, i)
            if name is None:
                raise BadExampleError
            end, stop = at - i + name.end(1) + _varint(name[1]), name.end() + _varint(name[2])
            value = _LIST.match(data, stop)
            feature = ExampleFeature(0, end, end)
            if value is not None and value.end(1) + _varint(value[1]) + at - i == end:
                start = value.end() + at - i
                feature = ExampleFeature(value[2][0], start, start + _varint(value[3]))
            if feature.stop != end or end > self.size or (not feature.kind and data[stop : stop + 2] != _NO_LIST):
                raise BadExampleError
            yield data[name.end() : stop].decode("utf-8", "backslashreplace"), feature
            at = end


class FoundFeature(NamedTuple):
    """A feature of a record."""

    kind: int
    """`IMAGE` where the only value begins as an image file."""
    start: int
    stop: int
    """Of bytes, where the first value is in the record; 0 without one."""
    values: bytes
    """The list, except that of an image."""


class FoundExample(NamedTuple):
    """A record, without the bytes of its images."""

    offset: int
    size: int
    """The bytes of the record in the file, with checksums."""
    features: dict[str, FoundFeature]
    fault: str
    """Why it cannot be packed; empty where nothing is wrong."""


class ExamplePass(Pass):
    """One pass through TFRecord files: iterating it gives the number of each, and its records."""

    def __init__(self, files: NamedFiles) -> None:
        super().__init__(files)
        self._what, self._kind = "examples", FoundExample

    def _members(self, archive: OpenArchive, k: int) -> Iterator[FoundExample]:
        where = self._files.name(k)
        for offset, size, data in _records(archive, where):
            try:
                yield FoundExample(offset, size, {name: _found(data, one) for name, one in data.features()}, "")
            except BadExampleError as error:
                with suppress(DecodeError):
                    checked(archive.read(offset, size), "")
                    raise UsageError(f"{where}: the record at byte {offset:,} holds {error}") from None
                yield FoundExample(offset, size, {}, f"the record at byte {offset:,} is damaged")


def _found(data: ExampleData, one: ExampleFeature) -> FoundFeature:
    from rawpack_packer.images import sniff

    if one.kind != BYTES or one.start == one.stop:
        return FoundFeature(one.kind, 0, 0, data.part(one.start, one.stop))
    head = data.part(one.start, min(one.stop, one.start + _LEAST))
    item = _ITEM.match(head)
    if item is None:
        raise BadExampleError
    start, size = one.start + item.end(), _varint(item[1])
    is_image = start + size == one.stop and sniff(head[item.end() :]) is not None
    values = b"" if is_image or one.stop - one.start > _MOST_TEXT else data.part(one.start, one.stop)
    return FoundFeature(IMAGE if is_image else BYTES, start + _HEAD.size, start + size + _HEAD.size, values)


def values_of(kind: int, data: bytes) -> list[bytes] | NDArray[Any]:
    """The values of a list: bytes, or float32 or int64. Raises BadExampleError."""
    if kind not in _TAGS:
        return _items(data)
    item = _ITEM.match(data)
    is_packed = item is not None and item.end() + _varint(item[1]) == len(data)
    packed = data[item.end() :] if item is not None and is_packed else _unpacked(data, kind)
    if kind == INTS:
        return _varints(packed)
    if len(packed) % 4:
        raise BadExampleError
    return np.frombuffer(packed, "<f4").astype(np.float32)


def _records(archive: OpenArchive, where: str) -> Iterator[tuple[int, int, ExampleData]]:
    """Offset and size of each record of an open file, and its data. where: the file, printable. Raises UsageError for
    what is no TFRecord file, damaged or truncated; DecodeError for damaged compression."""
    at = 0
    while head := archive.read(at, _HEAD.size + _AHEAD):
        if len(head) < _HEAD.size:
            raise _truncated(where, at)
        length, said = _HEAD.unpack_from(head)
        if masked_crc(head[:8]) != said:
            if at:
                raise UsageError(f"{where} is damaged at byte {at:,}: no record begins there; {_COPY}")
            raise UsageError(f"{where} is no TFRecord file: it does not begin with a length and its checksum")
        size = _HEAD.size + length + _SUM.size
        if at + size > archive.size or (archive.reader and len(archive.read(at + size - 1, 1)) < 1):
            raise _truncated(where, at)
        start = at + _HEAD.size
        some = head[_HEAD.size : _HEAD.size + length]
        yield at, size, ExampleData(length, some, partial(_read_after, archive, start))
        at += size


def _read_after(archive: OpenArchive, start: int, at: int, size: int) -> bytes:
    return archive.read(start + at, size)


def checked(record: bytes, where: str) -> bytes:
    """A whole record. where: the record, printable. Raises DecodeError where its checksum does not fit."""
    if _SUM.unpack(record[-_SUM.size :])[0] != masked_crc(record[_HEAD.size : -_SUM.size]):
        raise DecodeError("corrupt", f"{where} does not match its checksum")
    return record


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


def _unpacked(data: bytes, kind: int) -> bytes:
    """Numbers that are written each with a tag, without the tags. Raises BadExampleError."""
    found = re.findall(_TAGS[kind] + (rb"(.{4})" if kind == FLOATS else _LENGTH), data, re.DOTALL)
    if sum(map(len, found)) + len(found) != len(data):
        raise BadExampleError
    return b"".join(found)


def _items(data: bytes) -> list[bytes]:
    """The bytes of a list of bytes. Raises BadExampleError."""
    found, at = list[bytes](), 0
    while at < len(data):
        item = _ITEM.match(data, at)
        if item is None or (at := item.end() + _varint(item[1])) > len(data):
            raise BadExampleError
        found.append(data[item.end() : at])
    return found


def _truncated(where: str, at: int) -> UsageError:
    return UsageError(f"{where} is truncated: it ends inside the record at byte {at:,}; {_COPY}")
