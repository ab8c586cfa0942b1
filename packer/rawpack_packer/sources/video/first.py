"""The first frames of a video: whether they are those that its packets promise, and what is to be told of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rawpack_packer.sources.video.container import OpenVideo
from rawpack_packer.sources.video.decoding import is_last
from rawpack_packer.sources.video.index import KEY, NO_PTS, SHOWN, FramePosition, Packets
from rawpack_packer.sources.video.pixels import Turn, notes_of, turn_of

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_FRAMES, _PACKETS = 8, 200
"""So many are decoded: frames, or packets where no frame comes."""


@dataclass(frozen=True)
class First:
    """What the first frames say."""

    trusted: bool
    """The packets tell which frames there are, and when."""
    origin: int
    """The packet at which decoding can begin."""
    packets: Packets
    """Without those SHOWN that nothing can decode, because what they need lies before the first key packet."""
    notes: tuple[str, ...]
    turn: Turn


def look(place: FramePosition, stream: int, packets: Packets) -> First:
    """Decode the first frames of the video whose packets are these."""
    keys = np.flatnonzero(packets.flags & KEY)
    origin = int(keys[0]) if len(keys) else 0
    frames, damaged, whole = _decode(place, stream, origin)
    notes, turn = (notes_of(frames[0]), turn_of(frames[0])) if frames else ((), None)
    flags = packets.flags.copy()
    flags[:origin] &= ~np.uint8(SHOWN)
    times = np.sort(packets.pts[np.flatnonzero(flags & SHOWN)])
    if not len(keys) or not len(times) or times[0] == NO_PTS or np.any(np.diff(times) == 0):
        return First(False, 0, packets, notes, turn)
    seen = [NO_PTS if frame.pts is None else frame.pts for frame in frames]
    if seen and not damaged:
        if seen[0] == packets.pts[origin]:
            # Leading frames of the first group need one that is not there: decoders pass over them.
            flags[packets.pts < seen[0]] &= ~np.uint8(SHOWN)
            times = times[times >= seen[0]]
        if seen != times[: len(seen)].tolist() or (whole and len(seen) != len(times)):
            return First(False, 0, packets, notes, turn)
    if np.count_nonzero(flags & SHOWN) < np.count_nonzero(packets.flags & SHOWN):
        notes = (*notes, "began_without_key")
    return First(True, origin, replace(packets, flags=flags), notes, turn)


def _decode(place: FramePosition, stream: int, origin: int) -> tuple[list[VideoFrame], bool, bool]:
    """The first frames, whether damage was met, and whether these are all there are."""
    import av

    frames: list[VideoFrame] = []
    damaged = whole = False
    video = OpenVideo(place, stream)
    try:
        for number, packet in enumerate(video.container.demux(video.careful())):
            if len(frames) >= _FRAMES or number >= origin + _PACKETS:
                break
            whole = is_last(packet)
            if number < origin or not (packet.size or whole):
                continue
            try:
                frames += packet.decode()
            except av.error.FFmpegError:
                damaged = True
    except av.error.FFmpegError:
        damaged = True
    finally:
        video.close()
    return frames, damaged or any(frame.is_corrupt for frame in frames), whole
