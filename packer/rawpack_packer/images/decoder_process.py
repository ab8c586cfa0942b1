"""Sets up a process that decodes untrusted images."""

from __future__ import annotations

import os
import sys


def init_decoder_process() -> None:
    """Use one thread, and discard what C libraries print about broken images, which are rejected anyway.

    Python's own stderr, with tracebacks, stays.
    """
    import cv2

    # There is one worker per core already.
    cv2.setNumThreads(1)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
