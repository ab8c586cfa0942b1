"""A lease: the file in the cache that lists what one reader needs right now."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rawpack.system import writing
from rawpack.system.files import is_at, try_lock, write_all

if TYPE_CHECKING:
    from rawpack.remote.cache import CacheFolder, Key

LEASES = "leases"
"""Their folder in the cache."""


class Lease:
    """What one reader needs right now, visible to all processes until the reader or its process ends."""

    def __init__(self, cache: CacheFolder) -> None:
        self.path = cache.folder / LEASES / f"{os.getpid()}-{secrets.token_hex(8)}"
        with cache.locked():
            self._held = [self._begin()]
        weakref.finalize(self, _end_lease, self._held, self.path, os.getpid())

    @property
    def is_there(self) -> bool:
        """Whether other processes can see it: not if the cache was removed."""
        return is_at(self._held[0], self.path)

    def renew(self) -> None:
        """Create it again, empty, after the cache was removed. Within `CacheFolder.locked`."""
        before, self._held[0] = self._held[0], self._begin()
        os.close(before)

    def write(self, keys: Iterable[Key]) -> None:
        """Replace its contents by these files. Within `CacheFolder.locked`."""
        text = "".join(f"{digest}/{name}\n" for digest, name in keys).encode()
        os.ftruncate(self._held[0], 0)
        os.lseek(self._held[0], 0, os.SEEK_SET)
        write_all(self._held[0], text)

    def _begin(self) -> int:
        writing.make_folder(self.path.parent)
        descriptor = try_lock(self.path)
        if descriptor is None:
            # Nobody else knows the name, so its folder was removed at this moment.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        return descriptor


def _end_lease(held: list[int], path: Path, process: int) -> None:
    with contextlib.suppress(OSError):
        if os.getpid() == process:
            path.unlink(missing_ok=True)
    os.close(held[0])
