"""The native core (a stand-in for tests on this branch)."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from pathlib import Path

VERSION = 1


@functools.cache
def library() -> ctypes.CDLL | None:
    """The library, compiled for this process; None where there is no compiler."""
    if os.environ.get("RAWPACK_NATIVE") == "0":
        return None
    source = Path(__file__).parents[2] / "native" / "resample.c"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "core.so"
        flags = ["-O2", "-std=c11", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden"]
        if subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", str(made), str(source)], check=False).returncode:
            return None
        return ctypes.CDLL(str(made))


def state() -> str:
    """What the library uses, or "off: " and the reason."""
    return "off: no compiler" if library() is None else "on"
