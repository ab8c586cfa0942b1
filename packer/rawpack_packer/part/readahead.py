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

    def at(self, i: int) -> None:
        """Call before sample i is read."""
        self._bytes -= self._asked.pop(i, 0)
        self._next = max(self._next, i + 1)
        while self._next < self._stop and len(self._asked) < _FILES and self._bytes < _BYTES:
            found = image_file_of(self._samples, self._next)
            self._asked[self._next] = size = 0 if found is None else min(found[2], _BYTES)
            self._bytes += size
            self._next += 1
            if found is not None and size > 0:
                _ask(*found)


def _ask(path: str, offset: int, size: int) -> None:
    # ValueError: a zero byte in the path.
    with contextlib.suppress(OSError, ValueError):
        if _file_system(os.stat(path).st_dev).startswith(_FORGETFUL):  # noqa: PTH116 - as fast as can be
            return
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            os.posix_fadvise(descriptor, offset, min(size, _BYTES), os.POSIX_FADV_WILLNEED)
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
