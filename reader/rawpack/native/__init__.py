"""The native core: finds the library that `reader/native` is compiled to, loads it, checks its version.

Where it cannot be used, NumPy makes the same pixels, more slowly: see `docs/explanation/native.md`.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from functools import cache
from pathlib import Path

# `reader/native/build.py` runs this file for LIBRARY where rawpack cannot be imported: only the standard library here.

VERSION = 3
"""What `rawpack_version` of the library must return. Both are raised when a call changes."""


def library_name(system: str, machine: str) -> str:
    """system: as `sys.platform`; machine: as `os.uname()` has it. Machines that share a checkout have one each."""
    return f"_core-{VERSION}-{system}-{machine}{'.dylib' if system == 'darwin' else '.so'}"


LIBRARY = Path(__file__).with_name(library_name(sys.platform, os.uname().machine if hasattr(os, "uname") else "other"))
_VARIABLE = "RAWPACK_NATIVE"
_LANES = ("portable C", "AVX2", "NEON")
"""By what `rawpack_lanes` returns."""


@cache
def library() -> ctypes.CDLL | None:
    """The library, loaded once in a process; None where NumPy is used. Warns where nobody asked for that.

    Worker processes do not warn: whoever starts some for what the core would do calls this first.
    """
    core, what = _opened()
    if core is None and os.environ.get(_VARIABLE) not in ("0", "quiet"):
        # Worker processes inherit it: they use what this process uses.
        os.environ[_VARIABLE] = "0"
        from rawpack.system.user import warn

        warn(
            f"the native core is {what}. NumPy makes the same pixels instead, but takes several times as long. "
            f"To build the core, install a C compiler and reinstall rawpack; {_VARIABLE}=0 turns off this warning"
        )
    return core


def state() -> str:
    """What the library uses of this machine, such as "AVX2"; or "off: " and the reason. Does not warn."""
    return _opened()[1]


@cache
def _opened() -> tuple[ctypes.CDLL | None, str]:
    if os.environ.get(_VARIABLE) == "0":
        return None, f"off: {_VARIABLE}=0"
    if not LIBRARY.exists():
        return None, f"off: {LIBRARY} does not exist"
    try:
        if not _is_whole(LIBRARY):
            return None, f"off: {LIBRARY} is cut short"
        core = ctypes.CDLL(str(LIBRARY))
        version = core.rawpack_version()
        lanes = _LANES[core.rawpack_lanes()] if version == VERSION else ""
    except (OSError, AttributeError) as error:
        return None, f"off: {LIBRARY} cannot be loaded ({error})"
    if version != VERSION:
        return None, f"off: {LIBRARY} has version {version}, and {VERSION} is needed"
    return core, lanes


def _is_whole(library: Path) -> bool:
    """Whether a 64-bit ELF file reaches to the end of its table of sections, which linkers write last: loading one that
    was cut short can end the process. Of others, the loader says what is wrong. Raises OSError."""
    with library.open("rb") as file:
        header = file.read(64)
        size = file.seek(0, os.SEEK_END)
    if len(header) < 64 or header[:6] != b"\x7fELF\2\1":
        return True
    table, (row, rows) = int.from_bytes(header[40:48], "little"), struct.unpack_from("<HH", header, 58)
    return bool(size >= table + row * rows)
