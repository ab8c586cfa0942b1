"""Reads video files: lists their frames, selects some, and decodes them to upright RGB.

PyAV is imported inside functions only: it comes with `rawpack[video]`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from rawpack.errors import MissingExtraError

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


def need_av(path: str) -> None:
    """Raise MissingExtraError where PyAV is missing. path: of the source that needs it, printable."""
    if importlib.util.find_spec("av") is None:
        raise MissingExtraError(f"{path} is video, which PyAV decodes: pip install 'rawpack[video]'")


def library() -> str:
    """The decoder of videos with versions: "pyav 18.1.0, libavcodec 62.28.100, libswscale 9.5.100"; "none" without."""
    if importlib.util.find_spec("av") is None:
        return "none"
    import av

    parts = (f"{name} {'.'.join(map(str, av.library_versions[name]))}" for name in ("libavcodec", "libswscale"))
    return f"pyav {av.__version__}, {', '.join(parts)}"
