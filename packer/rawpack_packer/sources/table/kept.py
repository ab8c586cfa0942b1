"""Keeps what was found in an archive, for a run that resumes.

A file holds a list of blocks, in msgpack, after the checksum of it all. Nothing of a file with another checksum is
used: the archive is looked through again. `NamedFiles` names the file after the archive, its size, and its time or
version, so nothing that was found in another version is used either.

Before there is a work folder, all of it is in one file without a name, of which nothing is left however the process
ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import xxhash

from rawpack.errors import RawpackError
from rawpack.system import writing

T = TypeVar("T")
_BLOCK = 16
"""Few, because the bytes of labels may be long."""
_SUM_BYTES = 16
_PIECE = 1 << 20
_MOST_BYTES = 1 << 29
"""What is longer is not kept, since it is in memory until then: about ten million members of one archive."""
_VERSION = 3
"""Goes up where members are kept or found in another way."""


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """Bytes in the file without a name of the process that wrote them. Plain data, which other processes can read."""

    process: int
    descriptor: int
    offset: int
    size: int
    sum: bytes

    def read(self) -> bytes:
        """The bytes; none where the process is gone, on another machine, or this one has no /proc."""
        own = self.process == os.getpid()
        try:
            name = self.descriptor if own else f"/proc/{self.process}/fd/{self.descriptor}"
            with open(name, "rb", buffering=0, closefd=not own) as file:
                parts, at = list[bytes](), self.offset
                while (left := self.offset + self.size - at) and (part := os.pread(file.fileno(), left, at)):
                    parts.append(part)
                    at += len(part)
        except OSError:
            return b""
        data = b"".join(parts)
        return data if _sum(data) == self.sum else b""

    def pieces(self) -> Iterator[bytes]:
        """The bytes, in pieces that can be kept."""
        data = self.read()
        return (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))


NO_BYTES = KeptBytes(0, -1, 0, 0, b"")
"""Without any bytes."""


class _UnnamedFile:
    """A file without a name."""

    def __init__(self) -> None:
        self.process, self._end = os.getpid(), 0
        with tempfile.TemporaryFile() as file:
            # Not a number of a standard stream that is closed, which a library may write to.
            self._descriptor = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)

    def add(self, pieces: Iterable[bytes]) -> KeptBytes:
        hasher, at, to = xxhash.xxh3_128(seed=_VERSION), self._end, self._descriptor
        for piece in pieces:
            hasher.update(piece)
            left = memoryview(piece)
            while left:
                written = os.pwrite(to, left, at)
                left, at = left[written:], at + written
        start, self._end = self._end, at
        return KeptBytes(self.process, to, start, at - start, hasher.digest())


_unnamed: _UnnamedFile | None = None
_found: dict[str, KeptBytes] = {}
"""What this process has found since the last job began: the name of the file that it will be in -> the file."""


def keeping(found: Iterator[T], name: str, folder: Path | None) -> Iterator[T]:
    """What is found, which is also written to a file at the end, unless that fails or it is too long. folder: where;
    None keeps it in `stored` until `keep_found`."""
    blocks, block, size = list[bytes](), list[T](), 0
    for one in found:
        yield one
        block.append(one)
        if len(block) == _BLOCK:
            blocks.append(msgspec.msgpack.encode(block))
            block, size = [], size + len(blocks[-1])
            if size > _MOST_BYTES:
                yield from found
                return
    data = msgspec.msgpack.encode([*blocks, msgspec.msgpack.encode(block)])
    with suppress(OSError):  # an archive of which nothing is kept is looked through again
        if folder is None:
            _found[name] = stored([_sum(data), data])
        else:
            _write(folder, name, [_sum(data), data])


def keep_found(folder: Path) -> None:
    """Move what was found in archives on the disk to the work folder of the job that begins."""
    while _found:
        name, piece = _found.popitem()
        with suppress(OSError):
            _write(folder, name, [piece.read()])


def _write(folder: Path, name: str, parts: Iterable[bytes]) -> None:
    writing.make_folder(folder)
    temporary = folder / f"{name}.{os.getpid()}.tmp"
    with writing.create(temporary) as file:
        file.writelines(parts)
    writing.replace(temporary, folder / name)


def read_kept(name: str, kind: Any, folder: Path) -> Iterator[Any] | None:
    """What was kept in a folder, or found by this process; None where there is nothing, or not what was written."""
    try:
        data = _found[name].read() if name in _found else writing.read(folder / name, _MOST_BYTES)
        if data[:_SUM_BYTES] != _sum(memoryview(data)[_SUM_BYTES:]):
            return None
        blocks = msgspec.msgpack.decode(memoryview(data)[_SUM_BYTES:], type=list[bytes])
        decoder = msgspec.msgpack.Decoder(list[kind])
        for block in blocks:  # nothing is used of a list that is not right to its end
            decoder.decode(block)
    except (OSError, RawpackError, msgspec.DecodeError):
        return None
    return (one for block in blocks for one in decoder.decode(block))


def stored(pieces: Iterable[bytes]) -> KeptBytes:
    """Bytes that are there as long as this process. Raises OSError."""
    global _unnamed
    if _unnamed is None or _unnamed.process != os.getpid():  # not the file of the process that this one was forked from
        _unnamed = _UnnamedFile()
    return _unnamed.add(pieces)


def _sum(data: bytes | memoryview) -> bytes:
    return xxhash.xxh3_128_digest(data, seed=_VERSION)
