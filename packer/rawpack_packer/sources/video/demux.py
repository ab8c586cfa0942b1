"""The index of a video, without decoding more of it than its first frames: the packets tell when each frame is shown.

Where they do not, because timestamps are missing or the first frames are not those that the packets promise, the frames
are counted by decoding them all. That is slow, and right.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.video.container import OpenVideo, text_of_error
from rawpack_packer.sources.video.decoding import is_last
from rawpack_packer.sources.video.first import First, look
from rawpack_packer.sources.video.index import (
    DAMAGED,
    KEY,
    LOST,
    NO_PTS,
    SHOWN,
    FramePosition,
    Packets,
    VideoIndex,
)

_BEAT_EVERY = 256
_MOST_LOST = 1 << 24
"""A header may promise any number of frames."""
_VP8_SHOWN = 0x10
"""In the first byte of a VP8 frame."""
_RATE = Fraction(25)
"""Of raw streams that say none, as FFmpeg takes it."""
_JITTER = 0.05
"""Of a frame's duration: that timestamps are rounded is no variable rate."""


@dataclass
class _Read:
    """What demuxing a stream gave."""

    stream: int
    unit: Fraction
    """Seconds."""
    rate: Fraction | None
    notes: list[str] = field(default_factory=list)
    pts: array[int] = field(default_factory=lambda: array("q"))
    dts: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("i"))
    flags: bytearray = field(default_factory=bytearray)
    last: int = NO_PTS
    """When the last frame is shown, and how long, 0 where that is not said."""
    duration: int = 0
    sound: int = NO_PTS
    """When the last packet is decoded before anything is missing."""
    broken: str = ""
    """What is wrong with the container, from some packet on."""
    early: bool = False
    """The container says that it is longer than the file."""
    missing: int | None = None
    """Packets that the container lists and has not; None where it lists none."""


def make_index(place: FramePosition, beat: Callable[[int], None]) -> VideoIndex:
    """Look through a video. Raises DecodeError where nothing in it can be decoded, SourceChangedError where it changed.

    beat: told how many packets were looked at, now and then.
    """
    video = OpenVideo(place)
    try:
        read = _read(video, beat)
        video.check()
    finally:
        video.close()
    pts, dts = np.array(read.pts, np.int64), np.array(read.dts, np.int64)
    flags = np.frombuffer(bytes(read.flags), np.uint8)
    aim = np.where(dts == NO_PTS, pts, np.minimum(pts, dts))[np.flatnonzero(flags & KEY)]
    first = look(place, read.stream, Packets(0, pts, np.array(read.size, np.int32), flags, aim))
    read.notes += first.notes
    index = _promised(read, first) if first.trusted else _counted(place, read, beat)
    index = _with_lost(replace(index, turn=first.turn), read)
    if not len(index):
        raise DecodeError("corrupt", "it has no frame that can be decoded")
    return index


def _promised(read: _Read, first: First) -> VideoIndex:
    """The index by what the packets say."""
    pts = first.packets.pts
    shown = np.flatnonzero(first.packets.flags & SHOWN)
    order = shown[np.argsort(pts[shown])].astype(np.int32)
    times = pts[order]
    if _varies(times):
        read.notes.append("variable_rate")
    end = _end(times, read.unit, read.duration)
    return VideoIndex(read.stream, first.origin, first.packets, order, times, _ratio(read.unit), end)


def _read(video: OpenVideo, beat: Callable[[int], None]) -> _Read:
    """Every packet of the stream, up to where the container breaks off."""
    import av

    stream = video.stream
    read = _Read(stream.index, stream.time_base or Fraction(1, 1000), stream.average_rate or stream.guessed_rate)
    if video.streams > 1:
        read.notes.append("several_streams")
    # 0 and None: it does not say.
    if stream.sample_aspect_ratio not in (None, 0, 1):
        read.notes.append("not_square")
    vp8 = stream.codec_context.name in ("vp8", "libvpx")
    # Only in words is it told that a container is damaged. They are not listened to before: while a file is opened,
    # threads of FFmpeg would call back into Python.
    av.logging.set_level(av.logging.ERROR)
    try:
        with av.logging.Capture() as words:
            for packet in video.container.demux(stream):
                read.broken = read.broken or _told(words, video.format)
                if not is_last(packet):
                    _add(read, packet, vp8=vp8)
                if len(read.flags) % _BEAT_EVERY == 0:
                    beat(len(read.flags))
    except av.error.FFmpegError as error:
        read.broken = read.broken or text_of_error(error)
    finally:
        av.logging.set_level(None)
    read.early = video.ends_early()
    if video.format.startswith("mov"):
        read.missing = max(0, len(stream.index_entries) - len(read.flags))
    return read


def _told(words: list[tuple[int, str, str]], container: str) -> str:
    """What the container's demuxer complained of since it was last asked."""
    declared = next((text.strip() for _, name, text in words if name == container), "")
    words.clear()
    return declared


def _add(read: _Read, packet: Any, *, vp8: bool) -> None:
    shown = packet.size > 0 and not packet.is_discard and not (vp8 and not memoryview(packet)[0] & _VP8_SHOWN)
    pts = NO_PTS if packet.pts is None else packet.pts
    read.pts.append(pts)
    read.dts.append(NO_PTS if packet.dts is None else packet.dts)
    read.size.append(packet.size)
    damaged = packet.is_corrupt or bool(read.broken)
    read.flags.append(KEY * packet.is_keyframe | SHOWN * shown | DAMAGED * damaged)
    if not damaged and packet.dts is not None:
        read.sound = packet.dts
    if shown and pts >= read.last:
        read.last, read.duration = pts, packet.duration or 0


def _counted(place: FramePosition, read: _Read, beat: Callable[[int], None]) -> VideoIndex:
    """The index of a video whose packets do not tell, by decoding all of it, up to the first damage."""
    import av

    read.notes.append("counted")
    video, times, wrong = OpenVideo(place, read.stream), array("q"), ""
    try:
        for packet in video.container.demux(video.careful()):
            frames = packet.decode() if packet.size or is_last(packet) else []
            if any(frame.is_corrupt for frame in frames):
                wrong = "the picture is damaged"
                break
            times.extend(NO_PTS if frame.pts is None else frame.pts for frame in frames)
            if len(times) % _BEAT_EVERY < len(frames):
                beat(len(times))
    except av.error.FFmpegError as error:
        wrong = text_of_error(error)
    finally:
        video.close()
    shown, unit = np.array(times, np.int64), read.unit
    if not len(shown) or shown[0] == NO_PTS or np.any(np.diff(shown) <= 0):
        unit, shown = 1 / (read.rate or _RATE), np.arange(len(shown), dtype=np.int64)
    read.broken, read.missing = wrong or read.broken, None
    numbers = np.arange(len(shown), dtype=np.int32)
    return VideoIndex(read.stream, 0, None, numbers, shown, _ratio(unit), _end(shown, unit, 0))


def _with_lost(index: VideoIndex, read: _Read) -> VideoIndex:
    """The index, with frames that are LOST where the file should have more than it has: one at least where nobody knows
    how many. What is shown later than frames that are missing has no number, and so is LOST too."""
    index = replace(index, notes=tuple(read.notes))
    if not (read.early or read.broken) or read.missing == 0:
        return index
    packets, gap = index.packets, _gap(index.times, Fraction(*index.time_base))
    followed = not read.early and packets is not None and bool(packets.flags[-1] & DAMAGED)
    count = int(not followed) if read.missing is None else read.missing
    count = count if count <= _MOST_LOST else 1
    packet = index.packet.copy()
    if packets is not None and read.sound > NO_PTS:
        # What is missing is decoded later than this, and is shown no earlier than it is decoded.
        packet[(index.times > read.sound + gap) & ((packets.flags[packet] & DAMAGED) == 0)] = LOST
    after = index.end + gap * np.arange(count, dtype=np.int64)
    return replace(
        index,
        packet=np.concatenate([packet, np.full(count, LOST, np.int32)]),
        times=np.concatenate([index.times, after]),
        end=int(after[-1]) + gap if count else index.end,
        lost=("truncated", "the file has ended") if read.early else ("damaged", f"it cannot be read on: {read.broken}"),
    )


def _end(times: NDArray[np.int64], unit: Fraction, duration: int) -> int:
    """When the last frame ends."""
    return (int(times[-1]) + (duration or _gap(times, unit))) if len(times) else 0


def _gap(times: NDArray[np.int64], unit: Fraction) -> int:
    """How long a frame is shown, mostly."""
    return max(1, int(np.median(np.diff(times))) if len(times) > 1 else int(1 / (_RATE * unit)))


def _varies(times: NDArray[np.int64]) -> bool:
    gaps = np.diff(times)
    return len(gaps) > 1 and int(gaps.max() - gaps.min()) > 1 + int(_JITTER * np.median(gaps))


def _ratio(value: Fraction) -> tuple[int, int]:
    return value.numerator, value.denominator
