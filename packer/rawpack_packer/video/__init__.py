"""From a video file to upright RGB frames, by number: what is in it, which frames are taken, and how each is decoded.

PyAV is loaded only inside functions: `rawpack[video]` brings it.
"""

from __future__ import annotations

import importlib.util

from rawpack.errors import MissingExtraError


def need_av(path: str) -> None:
    """Raise MissingExtraError where PyAV is missing. path: printable, of what asked for it."""
    if importlib.util.find_spec("av") is None:
        raise MissingExtraError(f"{path} is video, which PyAV decodes: pip install 'rawpack[video]'")
