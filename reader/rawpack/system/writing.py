"""Writes all given bytes to a descriptor."""

from __future__ import annotations

import errno
import os


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
