"""Writing to a descriptor so that all of it is written."""

from __future__ import annotations

import errno
import os


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of `data` where the descriptor stands. Raises OSError where the system takes less.

    `os.write`, and a Python file without a buffer, may take a part and say so by nothing but the count: on a disk that
    is nearly full, for one.
    """
    left = memoryview(data).cast("B")
    while left:
        count = os.write(descriptor, left)
        if not count:
            raise OSError(errno.EIO, "the system took nothing of what was to be written")
        left = left[count:]
