"""Reads video files: lists their frames, selects some, and decodes them to upright RGB.

PyAV is imported inside functions only: it comes with `rawpack[video]`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

EXTENSIONS = frozenset(
    (
        ".mp4", ".m4v", ".mov", ".qt", ".3gp", ".3g2", ".mkv", ".webm", ".avi", ".divx", ".mpg", ".mpeg", ".vob",
        ".m2ts", ".mts", ".wmv", ".asf", ".flv", ".f4v", ".ogv", ".mxf", ".nut", ".y4m", ".ivf", ".obu", ".dv", ".rm",
        ".rmvb", ".h264", ".264", ".h265", ".265", ".hevc", ".m2v",
    )
)  # fmt: skip
"""A file with one of these is a video without a look inside. Not .ts, which is more often TypeScript."""
SNIFF_BYTES = 400
"""Enough for three packets of a transport stream."""
_TS_PACKET = 188
_BOXES = (b"moov", b"mdat", b"wide")
_IMAGE_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis", b"crx ", b"jpeg")
_AUDIO_BRANDS = (b"M4A ", b"M4B ", b"M4P ", b"F4A ", b"F4B ")
EBML = b"\x1a\x45\xdf\xa3"


def sniff_video(first: bytes) -> bool:
    """Whether a file that begins with these bytes, `SNIFF_BYTES` of them, is probably a video."""
    if first[4:8] == b"ftyp":
        return first[8:12] not in _IMAGE_BRANDS + _AUDIO_BRANDS
    if first[4:8] in _BOXES or (first[:4] == b"RIFF" and first[8:12] == b"AVI "):
        return True
    if first.startswith((EBML, b"\0\0\1\xba", b"\0\0\1\xb3", b"DKIF", b"FLV\1", b"YUV4MPEG2 ")):
        return True
    return len(first) > 2 * _TS_PACKET and all(first[at] == 0x47 for at in (0, _TS_PACKET, 2 * _TS_PACKET))


def is_video(path: Path) -> bool:
    """Whether a file is a video by its name or its first bytes."""
    if path.suffix.lower() in EXTENSIONS:
        return True
    try:
        with path.open("rb") as file:
            return sniff_video(file.read(SNIFF_BYTES))
    except OSError:
        return False


def library() -> str:
    """The decoder of videos with versions: "pyav 18.1.0, libavcodec 62.28.100, libswscale 9.5.100"; "none" without."""
    if importlib.util.find_spec("av") is None:
        return "none"
    import av

    parts = (f"{name} {'.'.join(map(str, av.library_versions[name]))}" for name in ("libavcodec", "libswscale"))
    return f"pyav {av.__version__}, {', '.join(parts)}"
