"""Reads video files: lists their frames, selects some, and decodes them to upright RGB.

PyAV is imported inside functions only: it comes with `rawpack[video]`.
"""

from __future__ import annotations

import importlib.util

NOTES: dict[str, str] = {
    "rotated": "videos turned or mirrored upright, as they say",
    "odd_rotation": "videos to be turned by no multiple of 90 degrees, which was not done",
    "not_square": "videos whose pixels are not square, stored as they are",
    "interlaced": "videos of interlaced frames, stored as they are",
    "more_than_8_bits": "videos of more than 8 bits a channel, stored as 8",
    "hdr": "videos of a high dynamic range, stored without tone mapping",
    "transparent": "videos with transparency, which was dropped",
    "colors_unsaid": "videos that do not say how their colors are coded, taken for BT.601",
    "several_streams": "files with several videos, of which the largest was taken",
    "variable_rate": "videos of a variable frame rate",
    "counted": "videos whose timestamps do not tell which frames there are: counted by decoding, and packed from the "
    "start on",
    "began_without_key": "videos that begin with frames that nothing can decode, which were left out",
}
"""Counts of videos in a summary -> what is counted."""


def library() -> str:
    """The decoder of videos with versions: "pyav 18.1.0, libavcodec 62.28.100, libswscale 9.5.100"; "none" without."""
    if importlib.util.find_spec("av") is None:
        return "none"
    import av

    parts = (f"{name} {'.'.join(map(str, av.library_versions[name]))}" for name in ("libavcodec", "libswscale"))
    return f"pyav {av.__version__}, {', '.join(parts)}"
