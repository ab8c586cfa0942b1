"""Sets up a process that decodes untrusted images."""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`."""


def init_decoder_process() -> None:
    """Use one thread, and discard what C libraries print about broken images, which are rejected anyway.

    Python's own stderr, with tracebacks, stays.
    """
    import cv2

    # There is one worker per core already.
    cv2.setNumThreads(1)
    _keep_memory()
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)


def _keep_memory() -> None:
    """Have glibc keep freed memory for the next samples. Otherwise, it gives it back to the system after each of them,
    which clears every page before it is used again."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 32 << 20)
        mallopt(_TRIM_THRESHOLD, 256 << 20)
