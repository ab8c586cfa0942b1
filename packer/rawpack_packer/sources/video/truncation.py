"""Whether a video file ends before its container does: by the lengths that containers of several kinds begin with."""

from __future__ import annotations

import os

_HEAD = 16
_SEGMENT = b"\x18\x53\x80\x67"
_EBML = b"\x1a\x45\xdf\xa3"
_LOOKED_AT = 4096
"""Bytes in which a Matroska file's segment begins."""
_MOST_BOXES = 1_000_000


def ends_early(fd: int, size: int, container: str) -> bool:
    """Whether the file of `size` bytes is cut short. container: FFmpeg's name of its kind.

    Of kinds that say no length, such as transport streams, it is never known.
    """
    if container.startswith("mov"):
        return _boxes_end_early(fd, size)
    if container.startswith("matroska"):
        return _segment_ends_early(fd, size)
    if container == "avi":
        head = os.pread(fd, _HEAD, 0)
        return head[:4] == b"RIFF" and 8 + int.from_bytes(head[4:8], "little") > size
    return False


def _boxes_end_early(fd: int, size: int) -> bool:
    """MP4 and QuickTime: boxes one after another, each with its length."""
    at = 0
    for _ in range(_MOST_BOXES):
        head = os.pread(fd, _HEAD, at)
        if len(head) < 8 or not head[4:8].isalnum():
            return False  # the end, or a few bytes behind it that are no box
        length = int.from_bytes(head[:4], "big")
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        if length < 8:
            return False  # 0: as far as the file goes
        at += length
        if at > size:
            return True
    return False


def _segment_ends_early(fd: int, size: int) -> bool:
    """Matroska and WebM: one segment, whose length may be unknown."""
    head = os.pread(fd, _LOOKED_AT, 0)
    at = head.find(_SEGMENT)
    if not head.startswith(_EBML) or at < 0 or at + 5 > len(head):
        return False
    width = 9 - head[at + 4].bit_length()
    length = int.from_bytes(head[at + 4 : at + 4 + width], "big") & ((1 << 7 * width) - 1)
    unknown = (1 << 7 * width) - 1
    return length != unknown and at + 4 + width + length > size
