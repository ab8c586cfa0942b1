"""Anonymous shared memory: nothing of it has a name, so nothing can be left behind or collide."""

from __future__ import annotations

import os
import sys
import tempfile


def anonymous_file(size: int) -> int:
    """The descriptor of `size` zero bytes without a name: a memfd, or an unlinked file where there is none."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("rawpack", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
