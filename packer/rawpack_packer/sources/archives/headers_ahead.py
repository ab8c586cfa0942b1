"""Reads the headers of a tar archive that is not in memory, several at a time.

Each header says where the next one is, so reading them in order waits for the disk once for each. Here, threads begin
at places all over the archive, each at the first header that it finds there. All they do is have the system keep the
headers in memory. If they follow what is not a header of this archive, only time is lost.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rawpack_packer.sources.archives.tar import BLOCK, BadArchiveError, is_tar, size_of

_THREADS = 16
_LEAST_BYTES = 64 << 20
"""Of smaller archives, the headers are read in order."""
_PIECE, _SEARCHED = 256 << 10, 8 << 20
"""Bytes that are read at a time to find a header, and at most."""
_HEADERS = 4 * BLOCK
"""Bytes that are read at a time: a member may have a header with records, these, and its own header."""
_MAGIC, _MAGIC_AT = b"ustar", 257


def read_headers_ahead(fd: int, start: int, stop: int) -> None:
    """Have the headers of the archive in bytes start <= i < stop in memory. Does nothing if some of it is there, or if
    the system does not say. Raises OSError."""
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
                at += BLOCK + -(-size_of(header, at) // BLOCK) * BLOCK
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
