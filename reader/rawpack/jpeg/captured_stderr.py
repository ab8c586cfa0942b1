"""Capturing what C libraries print to file descriptor 2 when they report it in no other way."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rawpack.system.files import write_all
from rawpack.system.memory import anonymous_file

_STDERR = 2
_capture = threading.Lock()


@contextmanager
def captured_stderr(wanted: Callable[[str], object]) -> Iterator[list[str]]:
    """Capture what is written to file descriptor 2. At the end of the block, the list has the lines that are `wanted`;
    all other lines are passed on. One thread at a time: others wait."""
    lines: list[str] = []
    with _capture, os.fdopen(anonymous_file(0), "r+b", buffering=0) as captured:
        try:
            stderr = os.dup(_STDERR)
        except OSError:  # closed, as in some daemons
            stderr = None
        os.dup2(captured.fileno(), _STDERR)
        try:
            yield lines
        finally:
            if stderr is None:
                os.close(_STDERR)
            else:
                os.dup2(stderr, _STDERR)
            captured.seek(0)
            for line in captured.read().splitlines(keepends=True):
                text = line.decode(errors="replace").rstrip("\n")
                if wanted(text):
                    lines.append(text)
                elif stderr is not None:
                    # A message that cannot be passed on must not stop the training.
                    with contextlib.suppress(OSError):
                        write_all(stderr, line)
            if stderr is not None:
                os.close(stderr)
