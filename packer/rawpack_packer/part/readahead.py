"""Files of samples that are read soon, asked of the disk before: it works while the ones before them are packed.

On a local disk, asking costs 10 µs a file, also where it is in memory already. It promises nothing: what is wrong with
a file is met, and told, when it is read.
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
"""How far ahead: no more files, and no further one from so many bytes on."""
_FORGETFUL = ("fuse", "9p", "virtiofs")
"""Beginnings of names of file systems whose files may leave memory when they are opened again: they would be read
twice."""


class ReadAhead:
    """Of samples that are read in order. Asks for nothing where they are no files, or the system takes no advice."""

    def __init__(self, samples: Samples, rows: range) -> None:
        """rows: numbers of the samples that are read, one after another."""
        self._samples, self._stop = samples, rows.stop if hasattr(os, "posix_fadvise") else rows.start
        self._asked: dict[int, int] = {}
        """Sample -> bytes that were asked for and are not read yet."""
        self._bytes, self._next = 0, rows.start

    def at(self, i: int) -> None:
        """Sample i is read next."""
        self._bytes -= self._asked.pop(i, 0)
        self._next = max(self._next, i + 1)
        while self._next < self._stop and len(self._asked) < _FILES and self._bytes < _BYTES:
            found = image_file_of(self._samples, self._next)
            self._asked[self._next] = size = 0 if found is None else min(found[1], _BYTES)
            self._bytes += size
            self._next += 1
            if found is not None and size > 0:
                _ask(*found)


def _ask(path: str, size: int) -> None:
    # A path with a zero byte is a ValueError.
    with contextlib.suppress(OSError, ValueError):
        if _file_system(os.stat(path).st_dev).startswith(_FORGETFUL):  # noqa: PTH116 - as fast as can be
            return
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            os.posix_fadvise(descriptor, 0, min(size, _BYTES), os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


@cache
def _file_system(device: int) -> str:
    """The name of the file system that a device has, "ext4"; empty where that cannot be told."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            # Root, mount point and options; behind a dash the file system.
            fields = line.split()
            if len(fields) > 2 and fields[2] == number and "-" in fields:
                return fields[fields.index("-") + 1]
    return ""
