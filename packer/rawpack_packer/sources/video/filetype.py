"""Checks a file's name and bytes before FFmpeg opens it: whether it is a video, and whether it is truncated."""

from __future__ import annotations

import os
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
_EBML = b"\x1a\x45\xdf\xa3"
_SEGMENT = b"\x18\x53\x80\x67"
_SEGMENT_WITHIN = 4096
"""Bytes in which a Matroska file's segment begins."""
_MAX_BOXES = 1_000_000


def sniff_video(first: bytes) -> bool:
    """Whether a file that begins with these bytes, `SNIFF_BYTES` of them, is probably a video."""
    if first[4:8] == b"ftyp":
        return first[8:12] not in _IMAGE_BRANDS + _AUDIO_BRANDS
    if first[4:8] in _BOXES or (first[:4] == b"RIFF" and first[8:12] == b"AVI "):
        return True
    if first.startswith((_EBML, b"\0\0\1\xba", b"\0\0\1\xb3", b"DKIF", b"FLV\1", b"YUV4MPEG2 ")):
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


def ends_early(fd: int, size: int, container: str) -> bool:
    """Whether a file of `size` bytes is shorter than its container says. container: FFmpeg's name for the format.

    False for formats that record no length, such as transport streams.
    """
    if container.startswith("mov"):
        return _boxes_end_early(fd, size)
    head = os.pread(fd, _SEGMENT_WITHIN, 0)
    if container.startswith("matroska"):
        return _segment_ends_early(head, size)
    return container == "avi" and head[:4] == b"RIFF" and 8 + int.from_bytes(head[4:8], "little") > size


def _boxes_end_early(fd: int, size: int) -> bool:
    """MP4 and QuickTime: a sequence of boxes, each with its length."""
    at = 0
    for _ in range(_MAX_BOXES):
        head = os.pread(fd, 16, at)
        if len(head) < 8 or not head[4:8].isalnum():
            return False  # the end, or a few trailing bytes that are no box
        length = int.from_bytes(head[:4], "big")
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        if length < 8:
            return False  # 0: up to the end of the file
        at += length
        if at > size:
            return True
    return False


def _segment_ends_early(head: bytes, size: int) -> bool:
    """Matroska and WebM: one segment, whose length may be unknown."""
    at = head.find(_SEGMENT)
    if not head.startswith(_EBML) or at < 0 or at + 5 > len(head):
        return False
    width = 9 - head[at + 4].bit_length()
    unknown = (1 << 7 * width) - 1
    length = int.from_bytes(head[at + 4 : at + 4 + width], "big") & unknown
    return length != unknown and at + 4 + width + length > size
