"""What a process that decodes strangers' images sets up first."""

from __future__ import annotations

import os
import sys


def init_decoder_process() -> None:
    """One thread, and silence: C libraries' words on broken images, which are rejected anyway, reach no terminal.

    Python's own stderr, with the traceback of what nobody expected, stays.
    """
    import cv2

    # One worker a core is the parallelism; more threads would only fight.
    cv2.setNumThreads(1)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
