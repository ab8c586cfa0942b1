"""Memory between pages that nobody may touch, and a child process that would die of doing so."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def between_unmapped_pages(pages: int) -> NDArray[np.uint8]:
    """So many pages; reading or writing a byte before the first or after the last ends the process."""
    page, size = mmap.PAGESIZE, pages * mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, size + 2 * page), np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for at in (0, size + page):
        assert protect(whole.ctypes.data + at, page, 0) == 0
    return whole[page : page + size]


def check_unharmed(code: str, *folders: Path) -> None:
    """Run code in a child process, and see it reach its end. folders: where it finds further modules."""
    environment = {"PYTHONPATH": ":".join([*map(str, folders), *sys.path]), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", f"{code}\nprint('unharmed')"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ran.stdout.strip() == "unharmed", f"exit code {ran.returncode}: {ran.stderr}"
