"""File descriptors: writing all bytes, and keeping files above the standard streams, descriptors 0 to 2.

Where a standard stream is closed, as a daemon's are, the next file gets its number.
"""

from __future__ import annotations

import errno
import os

_LAST = 2


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
    import fcntl

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
