"""Looks through an LMDB file by liblmdb, in a child process: its keys in their order, and where each value is.

liblmdb trusts its file, so that a damaged one can kill the process. Nor does it open a file twice in one process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rawpack_packer.isolated import ChildDiedError, IsolatedCalls
from rawpack_packer.text import plain

if TYPE_CHECKING:
    import lmdb

_MAGIC = 0xBEEFC0DE
_TIMEOUT_S = 300.0
_MOST_VALUE = 4096
"""Bytes of a value that comes with its key."""
_DATABASE_BYTES = 48
"""Bytes of a value that stands for a database with a name."""
_MOST_PAGE = 1 << 16


class BadLmdbError(ValueError):
    """A file that is no LMDB file, is damaged, or of a kind that is not read. The message says which of them."""


class LmdbEntry(NamedTuple):
    """A key, and where its value is."""

    key: bytes
    offset: int
    size: int
    value: bytes | None
    """If it was asked for and is small."""


def entries(path: str, wanted: re.Pattern[bytes], *, at_once: int = 10_000) -> Iterator[LmdbEntry]:
    """The entries of the database in a file, in the order of their keys. Raises BadLmdbError.

    wanted: values come with the keys in which this is found, up to `_MOST_VALUE` bytes. at_once: entries that the child
    process reads before it answers.
    """
    done, last = 0, b""
    with IsolatedCalls(_TIMEOUT_S, plain(path)) as child:
        while True:
            try:
                found = child.call(_read, path, wanted, at_once, done, last)
            except ChildDiedError as died:
                raise BadLmdbError(f"it crashes or hangs LMDB ({died}): it is damaged or truncated") from died
            if not found:
                return
            done, last = done + len(found), found[-1][0]
            yield from map(LmdbEntry._make, found)


def _read(path: str, wanted: re.Pattern[bytes], at_once: int, done: int, last: bytes) -> list[tuple[Any, ...]]:
    """The next entries after the first `done`, whose last key is `last`; none at the end. Runs in the child process."""
    import lmdb

    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)  # where liblmdb writes which assertion has failed
    try:
        with open(path, "rb") as file:
            head = file.read(20)
            if len(head) < 20 or struct.unpack_from("<I", head, 16)[0] != _MAGIC:
                raise BadLmdbError("it is not an LMDB file of a 64-bit little-endian machine")
            # lock=False: no lock file is made or opened.
            with (
                lmdb.open(
                    os.fsencode(path), subdir=False, readonly=True, lock=False, readahead=False, max_dbs=1
                ) as env,
                env.begin(buffers=True) as transaction,
            ):
                found = list(islice(_after(last, file.fileno(), env, transaction, wanted), at_once))
                count = env.stat()["entries"]
    except lmdb.Error as error:
        raise BadLmdbError(f"it is damaged or truncated: {str(error).rpartition(': ')[2]}") from error
    if done + len(found) > count or (not found and done < count):
        raise BadLmdbError(f"it is damaged: it has {done + len(found):,} keys, and its header says {count:,}")
    return found


def _after(
    last: bytes, fd: int, env: lmdb.Environment, transaction: lmdb.Transaction, wanted: re.Pattern[bytes]
) -> Iterator[tuple[bytes, int, int, bytes | None]]:
    """The entries after the key `last`."""
    import lmdb

    database: Any = env.open_db(None, txn=transaction)
    flags = database.flags(transaction)
    if flags["dupsort"]:
        raise BadLmdbError("it has several values for a key (MDB_DUPSORT): write it with one value for each key")
    is_sorted = not flags["integerkey"] and not flags["reverse_key"]
    file_bytes, page_bytes, begin, after = os.fstat(fd).st_size, env.stat()["psize"], None, last
    cursor = transaction.cursor()
    for key_data, value in cursor if cursor.set_range(last) else ():
        key, size, address = bytes(key_data), len(value), _address(key_data)
        if begin is None:
            begin = _map_begin(fd, address, page_bytes, env.info()["last_pgno"])
            if key == last:
                continue
        if not key or (is_sorted and key <= after):
            raise BadLmdbError(f"it is damaged: key {key[:40]!r} is not after {after[:40]!r}")
        page = (address - begin) // page_bytes
        if (there := _number(begin + page * page_bytes)) != page:
            raise BadLmdbError(f"it is damaged: page {page} is missing, page {there} is in its place")
        # A value without bytes has no address; small ones follow their keys.
        offset = (_address(value) if size else address + len(key)) - begin
        if not 0 <= offset <= offset + size <= file_bytes:
            raise BadLmdbError(f"it is damaged: the value of key {key[:40]!r} is outside the file: was it truncated?")
        if size == _DATABASE_BYTES:
            with suppress(lmdb.IncompatibleError):
                env.open_db(key, txn=transaction, create=False)
                raise BadLmdbError("it contains databases with names: write one database without a name")
        yield key, offset, size, bytes(value) if size <= _MOST_VALUE and wanted.search(key) else None
        after = key


def _map_begin(fd: int, address: int, page_bytes: int, last_page: int) -> int:
    """The address of the map of a file, by an address in one of its pages: each page begins with its own number."""
    step = min(mmap.PAGESIZE, page_bytes)
    for begin in range(address - address % step, address - page_bytes, -step):
        number = _number(begin)
        if number <= last_page and os.pread(fd, 16, number * page_bytes) == ctypes.string_at(begin, 16):
            return begin - number * page_bytes
    raise BadLmdbError("it is damaged: a page has the number of another one")


def _number(begin: int) -> int:
    """The number that the page at an address begins with."""
    return int.from_bytes(ctypes.string_at(begin, 8), "little")


def _address(data: Any) -> int:
    """The address of the first byte of a buffer."""
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])
