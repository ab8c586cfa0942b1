"""Opening untrusted files: plain files only, without following links, and without ever blocking."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rawpack.errors import DamagedStoreError, StoreError

# O_NONBLOCK: opening a pipe must not wait for a writer.
_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOFOLLOW", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[int, int]]:
    """The descriptor and the size in bytes of a plain file, which is closed at the end of the block.

    Raises FileNotFoundError; DamagedStoreError for a link, folder, pipe or device; StoreError where opening fails.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedStoreError(
                f"{path} is a symbolic link; a store's files are not followed elsewhere: put the file itself there"
            ) from None
        raise StoreError(f"cannot open {path}: {error.strerror or error}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedStoreError(f"{path} is not a plain file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def read_plain(path: Path, limit: int) -> bytes:
    """All bytes of a plain file. Raises as `open_plain`, and DamagedStoreError for more than `limit` bytes."""
    with open_plain(path) as (descriptor, size):
        if size > limit:
            raise DamagedStoreError(f"{path} has {size} bytes, more than the {limit} that are allowed")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(size)
