"""Bytes in a file without a name, which are there as long as the process that wrote them: nothing is left of them,
however the process ends, and they take no memory."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

import xxhash


@dataclass(frozen=True, slots=True)
class StoredBytes:
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
        return data if xxhash.xxh3_128_digest(data) == self.sum else b""


NO_BYTES = StoredBytes(0, -1, 0, 0, b"")
"""Without any bytes."""


class _UnnamedFile:
    """A file without a name."""

    def __init__(self) -> None:
        self.process, self._end = os.getpid(), 0
        with tempfile.TemporaryFile() as file:
            # Not a number of a standard stream that is closed, which a library may write to.
            self._descriptor = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3)

    def add(self, pieces: Iterable[bytes]) -> StoredBytes:
        hasher, at, to = xxhash.xxh3_128(), self._end, self._descriptor
        for piece in pieces:
            hasher.update(piece)
            left = memoryview(piece)
            while left:
                written = os.pwrite(to, left, at)
                left, at = left[written:], at + written
        start, self._end = self._end, at
        return StoredBytes(self.process, to, start, at - start, hasher.digest())


_unnamed: _UnnamedFile | None = None


def stored(pieces: Iterable[bytes]) -> StoredBytes:
    """Write bytes that are there as long as this process. Raises OSError."""
    global _unnamed
    if _unnamed is None or _unnamed.process != os.getpid():  # not the file of the process that this one was forked from
        _unnamed = _UnnamedFile()
    return _unnamed.add(pieces)
