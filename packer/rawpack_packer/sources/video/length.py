"""How long a video file is by its container, which shows how much is missing of one that was cut."""

from __future__ import annotations

from collections.abc import Callable

from rawpack_packer.sources.video import EBML

ReadAt = Callable[[int, int], bytes]
_SEGMENT = b"\x18\x53\x80\x67"
_SEGMENT_WITHIN = 4096
"""Bytes in which a Matroska file's segment begins."""
_MAX_PARTS = 1_000_000
_NO_LENGTH = 0xFFFFFFFF
"""In place of the length of a RIFF chunk whose writer could not go back."""
_MAX_BYTES = 1 << 40
"""Of a file, as it counts: a damaged header may claim any length, and must not outweigh all other files."""


def declared_bytes(read_at: ReadAt, *containers: str) -> int:
    """How long a file is by its container, whatever it has. containers: FFmpeg's names for the format, any of these.

    read_at: the bytes from an offset on, by their number and the offset; fewer at the end of the file.
    0 for formats that record no length, such as transport streams, and where it is unknown, as in a live recording.
    """
    lengths = [0]
    for name in containers:
        if name.startswith("matroska"):
            lengths.append(_segment_end(read_at(_SEGMENT_WITHIN, 0)))
        elif name.startswith(("mov", "avi")):
            lengths.append(_end_of(read_at, _box_bytes if name.startswith("mov") else _riff_bytes))
    return min(max(lengths), _MAX_BYTES)


def _end_of(read_at: ReadAt, length_of: Callable[[bytes], int]) -> int:
    """Where the last part of a file ends, which may be behind its end. length_of: how long a part is, by its first 16
    bytes; 0 where it is none, as a few trailing bytes are, or reaches to the end of the file."""
    at = 0
    for _ in range(_MAX_PARTS):
        length = length_of(read_at(16, at)) if at < _MAX_BYTES else 0
        if not length:
            break
        at += length
    return at


def _box_bytes(head: bytes) -> int:
    """MP4 and QuickTime: a sequence of boxes, each with its length."""
    if len(head) < 8 or not head[4:8].isalnum():
        return 0
    length = int.from_bytes(head[:4], "big")
    if length == 1:
        length = int.from_bytes(head[8:16], "big")
    return length if length >= 8 else 0


def _riff_bytes(head: bytes) -> int:
    """AVI: RIFF chunks, of which long files have several. A writer that cannot go back leaves 0 or the greatest number
    in place of their length."""
    length = int.from_bytes(head[4:8], "little")
    return 8 + length if head[:4] == b"RIFF" and 0 < length < _NO_LENGTH else 0


def _segment_end(head: bytes) -> int:
    """Matroska and WebM: one segment, whose length may be unknown."""
    at = head.find(_SEGMENT)
    if not head.startswith(EBML) or at < 0 or at + 5 > len(head):
        return 0
    width = 9 - head[at + 4].bit_length()
    unknown = (1 << 7 * width) - 1
    length = int.from_bytes(head[at + 4 : at + 4 + width], "big") & unknown
    return at + 4 + width + length if length != unknown else 0
