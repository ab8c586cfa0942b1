"""The standard streams, descriptors 0 to 2. Where one is closed, as a daemon's are, the next file gets its number."""

from __future__ import annotations

import os

_LAST = 2


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
