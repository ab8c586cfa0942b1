"""Warnings that point at the user's code, however deep the call is."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_PACKAGE = __name__.partition(".")[0]


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Issue a warning of rawpack at the innermost line outside the package."""
    # Python 3.12 has `skip_file_prefixes` for this.
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{_PACKAGE}: {message}", category, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] == _PACKAGE
