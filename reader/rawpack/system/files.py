"""Files and their descriptors: opening untrusted ones, writing all bytes, keeping files above the standard streams
(descriptors 0 to 2), and locks that end with their process, however that ends.

Where a standard stream is closed, as a daemon's are, the next file gets its number.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rawpack.errors import DamagedStoreError, StoreError, UsageError
from rawpack.system.limits import limit_behind
from rawpack.system.writing import descriptor_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LAST = 2
# O_NONBLOCK: opening a pipe must not wait for a writer.
_PLAIN = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _PLAIN |= getattr(os, _name, 0)


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[int, int]]:
    """The descriptor and the size in bytes of a plain file, opened for reading without ever blocking. It is closed at
    the end of the block. Links are followed: a store's files may be on other disks, or in a cache that links to them.

    Raises FileNotFoundError; DamagedStoreError for a folder, pipe or device; StoreError where opening fails.
    """
    try:
        descriptor = os.open(path, _PLAIN)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedStoreError(f"{path} is a symbolic link that leads back to itself") from None
        limit = limit_behind(error)
        raise StoreError(f"cannot open {path}: {error.strerror or error}{limit and ': '}{limit}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedStoreError(f"{path} is not a plain file")
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def read_plain(path: Path, limit: int) -> bytes:
    """All bytes of a plain file. Raises as `open_plain`, DamagedStoreError for more than `limit` bytes, and OSError,
    with the path, where they cannot be read."""
    with open_plain(path) as (descriptor, size):
        if size > limit:
            raise DamagedStoreError(f"{path} has {size} bytes, more than the {limit} that are allowed")
        with open(descriptor, "rb", closefd=False) as file:
            try:
                return file.read(size)
            except OSError as error:
                error.filename = os.fspath(path)
                raise


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of `data` at the descriptor's position. Raises OSError where the system takes less.

    `os.write`, and a Python file without a buffer, may write only a part, on a nearly full disk for example. They
    report that only by the count that they return.
    """
    left = memoryview(data).cast("B")
    while left:
        count = os.write(descriptor, left)
        if not count:
            raise OSError(errno.EIO, "the system wrote nothing of what was left")
        left = left[count:]


def above_streams(descriptor: int) -> int:
    """The same file under a number above the standard streams'; the descriptor is closed if it has one of theirs.

    For what lives long, and what children are given: a child's own streams would replace it, and what a library prints
    would be written into it.
    """
    if descriptor > _LAST:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LAST + 1)
    finally:
        os.close(descriptor)


def fill_closed_streams() -> None:
    """Open the null device as every standard stream that is closed, for this process and its children.

    For a process that writes files, wherever they are opened: what a library prints must not get into them.
    """
    # The system gives out the lowest number that is free.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def try_lock(path: Path, flags: int = os.O_RDWR | os.O_CREAT, *, shared: bool = False) -> int | None:
    """Lock a file without waiting, and return its descriptor. None where somebody else has locked it, or where it is
    missing and `flags` do not create it. shared: with others that share it. Raises UsageError where the system has no
    such locks, and as `writing.descriptor_of`."""
    if fcntl is None:
        raise UsageError("files behind URLs need locks that this system does not have: copy them to this machine first")
    while True:
        try:
            descriptor = descriptor_of(path, flags, of_any_user=True)
        except FileNotFoundError:
            return None
        except PermissionError:
            if shared or flags & os.O_CREAT:  # whoever shares a lock wants to read the file
                raise
            return None  # of another user, who may be using it
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            # If it was removed or renamed after it was opened, the lock would keep nobody out.
            if is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def share(descriptor: int) -> None:
    """Turn a lock of `try_lock` into one that others share."""
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Release a lock of `try_lock`, and close its descriptor. A child that was forked meanwhile has that too, and would
    keep the lock if it were only closed here."""
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at this path."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
