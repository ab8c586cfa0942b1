"""Asks the system to read the files, or ranges of files, of the next samples while earlier samples are packed.

This takes 10 µs per file on a local disk, even if the file is already in memory. Errors are ignored here and reported
when the file is read.
"""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path

from rawpack_packer.sources import Samples
from rawpack_packer.sources.files import OPEN_FLAGS
from rawpack_packer.sources.optional import image_file_of

_FILES, _BYTES = 32, 8 << 20
"""How far ahead: at most this many files, and no further file once this many bytes have been asked for."""
_GAP = 4096
"""Bytes between two ranges of a file that are asked for together: in archives, a header comes between members."""
_FORGETFUL = ("fuse", "9p", "virtiofs")
"""Prefixes of file systems that may drop a file's pages when it is opened again: files would be read twice."""


class ReadAhead:
    """For samples that are read in order. Does nothing for samples without files, or without `posix_fadvise`."""

    def __init__(self, samples: Samples, rows: range) -> None:
        """rows: the numbers of the samples, in the order of reading."""
        self._samples, self._stop = samples, rows.stop if hasattr(os, "posix_fadvise") else rows.start
        self._asked: dict[int, int] = {}
        """Sample -> bytes that were asked for and have not been read yet."""
        self._bytes, self._next = 0, rows.start
        self._joined = False
        """Whether the last ranges were parts of one file: then one call asks for several."""

    def at(self, i: int) -> None:
        """Call before sample i is read."""
        self._bytes -= self._asked.pop(i, 0)
        self._next = max(self._next, i + 1)
        if self._joined and len(self._asked) > _FILES // 2:
            return
        ranges, count = list[tuple[str, int, int]](), 0
        while self._next < self._stop and len(self._asked) < _FILES and self._bytes < _BYTES:
            found = image_file_of(self._samples, self._next)
            self._asked[self._next] = size = 0 if found is None else min(found[2], _BYTES)
            self._bytes += size
            self._next += 1
            if found is None or size <= 0:
                continue
            (path, offset, _), count = found, count + 1
            if ranges and ranges[-1][0] == path and 0 <= offset - ranges[-1][2] <= _GAP:
                offset = ranges.pop()[1]
            ranges.append((path, offset, found[1] + size))
        self._joined = len(ranges) < count
        for path, start, end in ranges:
            _ask(path, start, end - start)


def _ask(path: str, offset: int, size: int) -> None:
    # ValueError: a zero byte in the path.
    with contextlib.suppress(OSError, ValueError):
        if _file_system(os.stat(path).st_dev).startswith(_FORGETFUL):  # noqa: PTH116 - as fast as can be
            return
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


@cache
def _file_system(device: int) -> str:
    """The name of the file system on a device, such as "ext4"; empty if unknown."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            # The file system is the field after a dash.
            fields = line.split()
            if len(fields) > 2 and fields[2] == number and "-" in fields:
                return fields[fields.index("-") + 1]
    return ""
