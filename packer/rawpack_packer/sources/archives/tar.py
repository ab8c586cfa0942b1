"""Reads the headers of a tar archive: names, kinds and offsets of its members.

`tarfile` takes three times as long, ends silently at the first damaged header, and has times as floats. v7, ustar, GNU
and pax archives are read; sizes beyond 8 GiB are base-256 numbers or in pax records. Names are bytes. After the mark of
its end, an archive may have zeros and nothing else: GNU tar and `tarfile` stop there, so they drop what `cat` put
behind it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Literal, NamedTuple

from rawpack_packer.sources.table.columns import Fault

BLOCK = 512
_ZEROS = bytes(BLOCK)
_MOST_EXTENDED = 1 << 20
"""Bytes of a long name or of pax records; those of real archives have a few hundred."""
LONGEST = 1 << 62
"""More bytes than any archive has."""
_TAIL = 1 << 20
"""Bytes after the mark of the end that are compared with zeros at a time."""
_THREADS = 16
"""What reads headers in advance."""
_LEAST_BYTES = 64 << 20
"""Of smaller archives, the headers are read in order."""
_PIECE, _SEARCHED = 256 << 10, 8 << 20
"""Bytes that are read at a time to find a header, and at most."""
_HEADERS = 4 * BLOCK
"""Bytes that are read at a time: a member may have a header with records, these, and its own header."""
_MAGIC, _MAGIC_AT = b"ustar", 257

Read = Callable[[int, int], bytes]
"""offset, size -> bytes of the archive; fewer at its end."""
Kind = Literal["file", "folder", "symlink", "hardlink", "special", "unsupported"]
_KINDS: dict[bytes, Kind] = {
    b"1": "hardlink", b"2": "symlink", b"3": "special", b"4": "special", b"5": "folder", b"6": "special",
    b"D": "folder", b"S": "unsupported", b"M": "unsupported",
}  # fmt: skip
"""Kinds by the type in a header; all others are files. S is a sparse file, M the rest of a file of another volume."""

_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
"""Types that no data follow, whatever size their headers have."""


class Member(NamedTuple):
    """An entry of an archive."""

    name: bytes
    """As the archive has it."""
    kind: Kind
    offset: int
    """Where its bytes begin in the archive."""
    size: int
    mtime_ns: int
    target: bytes
    """Of a link: where it leads."""
    packed: tuple[int, int] | None = None
    """Of a member of a zip archive: see `Spans.packed`."""
    fault: Fault | None = None
    """Why it cannot be read."""


class BadArchiveError(ValueError):
    """An archive that cannot be read to its end: it says why in a few words. The members before that are intact."""

    def __init__(self, message: str, cure: str = "") -> None:
        """cure: what to do, where it is known; it is part of the text."""
        super().__init__(f"{message}: {cure}" if cure else message)
        self.cure = cure


def tar_members(read: Read, start: int = 0, stop: int = LONGEST) -> Iterator[Member]:
    """The members of the archive in bytes start <= i < stop, in order.

    Raises BadArchiveError where it is damaged, or truncated: where its end is not known, the last member may be too.
    """
    at, extended, common = start, dict[bytes, bytes](), dict[bytes, bytes]()
    while True:
        header = read(at, max(0, min(BLOCK, stop - at)))  # negative where it ends within padding
        if header == _ZEROS:
            _check_rest(read, at + BLOCK, stop)
            return
        if len(header) < BLOCK:
            raise BadArchiveError(f"it ends at byte {min(at + len(header), stop)} without a mark of its end")
        _check_sum(header, at)
        kind, size, offset = header[156:157], _number(header[124:136], at), at + BLOCK
        if kind in _WITHOUT_DATA:
            size = 0
        if kind in (b"L", b"K", b"x", b"X", b"g"):
            at = _next(offset, size)
            data = _extension(read, offset, size, stop)
            if kind == b"g":
                common.update(_records(data))
            elif kind in (b"L", b"K"):
                extended[b"path" if kind == b"L" else b"linkpath"] = data.rstrip(b"\0")
            else:
                extended.update(_records(data))
            continue
        more, extended = {**common, **extended} if common else extended, {}
        if b"size" in more and kind not in _WITHOUT_DATA:
            text = more[b"size"]
            size = _bounded(int(text) if text.isdigit() and len(text) < 20 else LONGEST, at)
        if kind == b"S":  # an old GNU sparse file, whose map may go on in more headers
            extends = header[482]
            while extends:
                extends, offset = _extension(read, offset, BLOCK, LONGEST)[504], offset + BLOCK
        at = _next(offset, size)
        if kind == b"V":
            continue
        member = _member(header, kind, offset, size, more)
        # A file's last block may lack its padding.
        if offset + size > stop:
            raise BadArchiveError(f"it is truncated within {member.name[:200].decode('utf-8', 'backslashreplace')}")
        yield member


def is_tar(first: bytes) -> bool:
    """Whether a file that begins with these bytes, `BLOCK` of them, is a tar archive."""
    with suppress(BadArchiveError):
        _check_sum(first, 0)
        return len(first) == BLOCK and first != _ZEROS
    return False


def _check_rest(read: Read, at: int, stop: int) -> None:
    """Raise BadArchiveError where anything but zeros follows the mark of the end."""
    while at < stop and (rest := read(at, min(_TAIL, stop - at))):
        if rest.count(0) < len(rest):
            first = at + len(rest) - len(rest.lstrip(b"\0"))
            if is_tar(read(first, max(0, min(BLOCK, stop - first)))):
                raise BadArchiveError(
                    f"more members follow the mark of its end, from byte {first} on",
                    "were archives joined by cat? Pack them as ONE.tar::TWO.tar, or make one of them: unpack it with "
                    "`tar --ignore-zeros -xf`",
                )
            raise BadArchiveError(f"what follows the mark of its end is not zeros, from byte {first} on")
        at += len(rest)


def _member(header: bytes, kind: bytes, offset: int, size: int, more: dict[bytes, bytes]) -> Member:
    name, known = header[:100].split(b"\0", 1)[0], _KINDS.get(kind, "file")
    if header[257:263] == b"ustar\0" and header[345] and b"path" not in more:
        name = header[345:500].split(b"\0", 1)[0] + b"/" + name
    name = more.get(b"GNU.sparse.name", more.get(b"path", name))
    if more and any(key.startswith(b"GNU.sparse.") for key in more):
        known = "unsupported"
    elif known == "file" and name.endswith(b"/"):
        known = "folder"
    target = more.get(b"linkpath", header[157:257].split(b"\0", 1)[0])
    return Member(name, known, offset, size, _time(header, more), target)


def _check_sum(header: bytes, at: int) -> None:
    """Raise BadArchiveError where a header's checksum is wrong. Old archives add bytes as signed numbers."""
    field = header[148:156].strip(b"\0 ").split(b"\0")[0].strip()
    with suppress(ValueError):
        found = int(field, 8)
        total = _sum(header[:148]) + 8 * 32 + _sum(header[156:384]) + _sum(header[384:])
        if found == total:
            return
        above = sum(byte > 127 for byte in header[:148]) + sum(byte > 127 for byte in header[156:])
        if found == total - 256 * above:
            return
    raise BadArchiveError(f"it has no valid header at byte {at}")


def _sum(part: bytes) -> int:
    """The sum of 256 bytes or fewer, which is half of their Adler-32: the sum by Python takes twenty times as long."""
    return (zlib.adler32(part) & 0xFFFF) - 1


def _number(field: bytes, at: int) -> int:
    if field[0] == 0x80:
        return _bounded(int.from_bytes(field[1:], "big"), at)
    text = field.split(b"\0", 1)[0].strip()
    try:
        return _bounded(int(text, 8) if text else 0, at)
    except ValueError as error:
        raise BadArchiveError(f"the header at byte {at} has no valid size") from error


def _bounded(size: int, at: int) -> int:
    if not 0 <= size < LONGEST - at:
        raise BadArchiveError(f"the header at byte {at} has no valid size")
    return size


def _time(header: bytes, more: dict[bytes, bytes]) -> int:
    """The mtime in ns; 0 where there is no valid one."""
    seconds, _, fraction = more.get(b"mtime", b"").partition(b".")
    with suppress(ValueError, BadArchiveError):
        whole = int(seconds) if seconds else _number(header[136:148], 0)
        nanoseconds = whole * 10**9 + int(fraction[:9].ljust(9, b"0"))
        return nanoseconds if abs(nanoseconds) < LONGEST else 0
    return 0


def _extension(read: Read, offset: int, size: int, stop: int) -> bytes:
    if size > _MOST_EXTENDED:
        raise BadArchiveError(f"the name or the records at byte {offset} have {size} bytes")
    data = read(offset, min(size, stop - offset))
    if len(data) < size:
        raise BadArchiveError(f"it is truncated at byte {offset + len(data)}")
    return data


def _records(data: bytes) -> dict[bytes, bytes]:
    """Pax records: `LENGTH KEY=VALUE` and a newline each, with the length of it all. An empty value takes back a key
    of a global header, which no archive of images has."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data) and data[at] != 0:
        space = data.find(b" ", at, at + 20)
        length = int(data[at:space]) if space > at and data[at:space].isdigit() else 0
        key, equals, value = data[space + 1 : at + length - 1].partition(b"=")
        if length <= space - at or not equals or data[at + length - 1 : at + length] != b"\n":
            raise BadArchiveError("it has pax records that are not valid")
        found[key] = value
        at += length
    return found


def _next(offset: int, size: int) -> int:
    """Where the header after these data is."""
    return offset + (size + BLOCK - 1) // BLOCK * BLOCK


def read_headers_ahead(fd: int, start: int, stop: int) -> None:
    """Have the system keep the headers of the archive in bytes start <= i < stop in memory. Raises OSError.

    Each header says where the next one is, so reading them in order waits for the disk once for each. Here, threads
    begin at places all over the archive, each at the first header that it finds there. If they follow what is not a
    header of this archive, only time is lost. Nothing is done if some of it is in memory, or the system does not say.
    """
    if stop - start >= _LEAST_BYTES:
        edges = [start + (stop - start) * k // _THREADS // BLOCK * BLOCK for k in range(_THREADS)] + [stop]
        if not _in_memory(fd, edges[1:-1]):
            with ThreadPoolExecutor(_THREADS) as threads:
                list(threads.map(partial(_follow, fd), edges[:-1], edges[1:]))


def _in_memory(fd: int, offsets: Sequence[int]) -> bool:
    """Whether the bytes at these offsets are in memory, as far as the system says."""
    if not hasattr(os, "RWF_NOWAIT"):
        return True
    try:
        return all(os.preadv(fd, [bytearray(1)], at, os.RWF_NOWAIT) for at in offsets)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system has no such call


def _follow(fd: int, at: int, stop: int) -> None:
    """Read headers from the first one on that begins between `at` and `stop`."""
    at = _first_header(fd, at, min(stop, at + _SEARCHED))
    try:
        while at < stop:
            first, headers = at, os.pread(fd, _HEADERS, at)
            while (header := headers[at - first :][:BLOCK])[_MAGIC_AT:].startswith(_MAGIC):
                at += BLOCK + -(-_number(header[124:136], at) // BLOCK) * BLOCK
            if at == first:
                return
    except BadArchiveError:
        return


def _first_header(fd: int, at: int, stop: int) -> int:
    """Where the first header between `at` and `stop` begins; `stop` if there is none."""
    for start in range(at, stop, _PIECE):
        piece = os.pread(fd, _PIECE, start)
        found = piece.find(_MAGIC)
        while found >= 0:
            first = found - _MAGIC_AT
            if first % BLOCK == 0 and is_tar(piece[first : first + BLOCK]):
                return start + first
            found = piece.find(_MAGIC, found + 1)
    return stop
