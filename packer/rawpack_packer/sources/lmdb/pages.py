"""Walks the pages of an LMDB file: its keys in their order, and where each value is.

The layout is that of LMDB 0.9 on 64-bit little-endian machines, format version 1 (`mdb.c`: MDB_meta, MDB_page,
MDB_node). Everything that a page says is checked before it is used, and each page is visited once at most.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_HEADER = 16
"""Bytes before the contents of a page."""
_BRANCH, _LEAF, _META = 1, 2, 8
_BIG, _SUB_DATABASE, _DUPLICATES = 1, 2, 4
"""Flags of a node in a leaf."""
_MOST_DEPTH = 32
_META_BYTES = 152
_MOST_PAGE = 1 << 16


class BadLmdbError(ValueError):
    """A file that is no LMDB file, is damaged, or of a kind that is not read. The message says which of them."""


class LmdbEntry(NamedTuple):
    """A key, and where its value is."""

    key: bytes
    offset: int
    size: int
    value: bytes | None
    """The value where it is stored next to its key, as small ones are; None for a value with pages of its own."""


class _LmdbTree(NamedTuple):
    page_bytes: int
    last_page: int
    entries: int
    page: int
    """-1 where the database is empty."""
    about: str
    """What the headers and the size of the file are, for messages."""


def entries(fd: int, size: int) -> Iterator[LmdbEntry]:
    """The entries of the database in an open file of `size` bytes, in the order of their keys. Raises BadLmdbError."""
    root = _root(fd, size)
    seen, found = set[int](), 0
    waiting = [(root.page, 0)] if root.page >= 0 else []
    while waiting:
        number, depth = waiting.pop()
        if number in seen or depth > _MOST_DEPTH:
            raise BadLmdbError(f"it is damaged: page {number} is in a circle")
        seen.add(number)
        page = _page(fd, number, root)
        (flags,) = struct.unpack_from("<H", page, 10)
        if flags & _BRANCH:
            waiting += [(child, depth + 1) for child in _children(page)][::-1]
        elif flags & _LEAF:
            for entry in _leaf(page, number, size, root):
                found += 1
                yield entry
        else:
            raise BadLmdbError(f"it is damaged: page {number} is neither branch nor leaf")
    if found != root.entries:
        raise BadLmdbError(f"it is damaged: it has {found:,} keys, and its header says {root.entries:,}")


def version(fd: int) -> tuple[int, int, bytes]:
    """What changes when an open file is written to: size, mtime and headers."""
    found = os.fstat(fd)
    return found.st_size, found.st_mtime_ns, os.pread(fd, 2 * _MOST_PAGE, 0)


def _root(fd: int, size: int) -> _LmdbTree:
    """What the newer of the two headers says."""
    head = os.pread(fd, _META_BYTES, 0)
    if len(head) < _META_BYTES or struct.unpack_from("<I", head, 16)[0] != _MAGIC:
        raise BadLmdbError("it is not an LMDB file of a 64-bit little-endian machine")
    (page_bytes,) = struct.unpack_from("<I", head, 40)
    if page_bytes not in [1 << bits for bits in range(9, 17)]:  # up to _MOST_PAGE
        raise BadLmdbError(f"it is damaged: it has pages of {page_bytes} bytes")
    headers = []
    for data in (head, os.pread(fd, _META_BYTES, page_bytes)):
        flags, magic, version = struct.unpack_from("<10xH4xII", data) if len(data) == _META_BYTES else (0, 0, 0)
        if magic == _MAGIC and flags & _META:
            last_page, transaction = struct.unpack_from("<qq", data, 136)
            headers.append((transaction, version, last_page, data))
    if not headers:
        raise BadLmdbError("it is damaged: it has no header")
    _, version, last_page, data = max(headers, key=lambda header: header[0])
    if version != _VERSION:
        raise BadLmdbError(f"it has LMDB's format version {version}; version {_VERSION} is read")
    flags, entry_count, page = struct.unpack_from("<4xH26xqq", data, 88)
    if flags & _DUPLICATES:
        raise BadLmdbError("it has several values for a key (MDB_DUPSORT): write it with one value for each key")
    transactions = " and ".join(str(header[0]) for header in headers)
    about = f"{size:,} bytes, pages of {page_bytes:,} up to {last_page:,}, headers of transactions {transactions}"
    return _LmdbTree(page_bytes, last_page, entry_count, page, about)


def _page(fd: int, number: int, root: _LmdbTree) -> bytes:
    if not 2 <= number <= root.last_page:
        raise BadLmdbError(f"it is damaged: it has no page {number} ({root.about})")
    page = os.pread(fd, root.page_bytes, number * root.page_bytes)
    found = struct.unpack_from("<Q", page)[0] if len(page) == root.page_bytes else None
    if found != number:
        there = "the file ends before it" if found is None else f"page {found} is in its place"
        raise BadLmdbError(f"it is damaged or truncated: page {number} is missing, {there} ({root.about})")
    return page


def _nodes(page: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Where each node of a page is, and the four numbers that it begins with."""
    (lower,) = struct.unpack_from("<H", page, 12)
    count = (lower - _HEADER) // 2
    if not 0 <= count <= (len(page) - _HEADER) // 2:
        raise BadLmdbError("it is damaged: a page has more keys than it can hold")
    for at in struct.unpack_from(f"<{count}H", page, _HEADER):
        if at + 8 > len(page):
            raise BadLmdbError("it is damaged: a key is outside its page")
        yield at, *struct.unpack_from("<4H", page, at)


def _children(page: bytes) -> list[int]:
    return [low | high << 16 | flags << 32 for _, low, high, flags, _ in _nodes(page)]


def _leaf(page: bytes, number: int, size: int, root: _LmdbTree) -> Iterator[LmdbEntry]:
    for at, low, high, flags, key_bytes in _nodes(page):
        start, length = at + 8 + key_bytes, low | high << 16
        key = page[at + 8 : start]
        if flags & (_SUB_DATABASE | _DUPLICATES):
            raise BadLmdbError("it holds databases with names: write one database without a name")
        if flags & _BIG:
            first = struct.unpack_from("<Q", page, start)[0] if start + 8 <= len(page) else 0
            if not 2 <= first <= root.last_page or (end := first * root.page_bytes + _HEADER + length) > size:
                raise BadLmdbError(
                    f"it is damaged: the value of key {key[:40]!r} is outside the file: was it truncated?"
                )
            yield LmdbEntry(key, end - length, length, None)
        elif start + length > len(page):
            raise BadLmdbError(f"it is damaged: the value of key {key[:40]!r} is outside its page")
        else:
            yield LmdbEntry(key, number * root.page_bytes + start, length, page[start : start + length])
