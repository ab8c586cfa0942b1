"""Files of samples that are read soon, asked of the disk before: it works while the ones before them are packed.

Asking costs 10 µs a file, also where it is in memory already, and promises nothing: what is wrong with a file is met,
and told, when it is read.
"""

from __future__ import annotations

import contextlib
import os

from rawpack_packer.sources import Samples
from rawpack_packer.sources.base import OPEN_FLAGS
from rawpack_packer.sources.view import image_file_of

_FILES, _BYTES = 32, 8 << 20
"""How far ahead: no more files, and no further one from so many bytes on."""


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
                _ask(found[0], size)


def _ask(path: str, size: int) -> None:
    # A path with a zero byte is a ValueError.
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(path, OPEN_FLAGS)
        try:
            os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)
