"""Locks on files that end with their process, however that ends: the system's, by `flock`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rawpack.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def try_lock(path: Path, flags: int = os.O_RDWR | os.O_CREAT, *, shared: bool = False) -> int | None:
    """Lock a file without waiting, and return its descriptor. None where somebody else has locked it, or where it is
    missing and `flags` do not create it. shared: with others that share it. Raises UsageError where the system has no
    such locks."""
    if fcntl is None:
        raise UsageError("files behind URLs need locks that this system does not have: copy them to this machine first")
    while True:
        try:
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
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


def is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at this path."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False
