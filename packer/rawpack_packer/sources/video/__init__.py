"""Reads video files: lists their frames, selects some, and decodes them to upright RGB.

PyAV is imported inside functions only: it comes with `rawpack[video]`.
"""

from __future__ import annotations

import importlib.util


def library() -> str:
    """The decoder of videos with versions: "pyav 18.1.0, libavcodec 62.28.100, libswscale 9.5.100"; "none" without."""
    if importlib.util.find_spec("av") is None:
        return "none"
    import av

    parts = (f"{name} {'.'.join(map(str, av.library_versions[name]))}" for name in ("libavcodec", "libswscale"))
    return f"pyav {av.__version__}, {', '.join(parts)}"
