"""What C libraries print to file descriptor 2 because their callers cannot be told otherwise."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from rawpack.system.writing import write_all

_STDERR = 2
_capture = threading.Lock()


@contextmanager
def captured_stderr(wanted: Callable[[str], object]) -> Iterator[list[str]]:
    """Catch what is written to file descriptor 2: lines that are `wanted` are in the list at the end, others are passed
    on to where they were meant to go. One thread at a time: others wait."""
    lines: list[str] = []
    with _capture, _memory_file() as captured:
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
                    # Words that nobody takes end no training.
                    with contextlib.suppress(OSError):
                        write_all(stderr, line)
            if stderr is not None:
                os.close(stderr)


def _memory_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("rawpack-stderr"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
