"""The index of a video: its packets in file order, and its frames in display order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.video.pixels import Turn

KEY, SHOWN, DAMAGED = 1, 2, 4
"""Flags of a packet: decoding can begin at it; it becomes a frame that is shown; it is known to be damaged."""
NO_PTS = -(2**63)
"""Stands for a missing timestamp."""
LOST = -1
"""Stands for the packet of a frame that the file should contain and does not."""
_KEYS_BEFORE = 3
"""Additional key packets before those that some frames need, for decoding that must begin further back."""
_LOOKED_AT = 64
"""One of the first 64 frames needs the earliest packet: frames are shown close to where they are decoded."""


@dataclass(frozen=True)
class VideoFile:
    """A video file, before anything in it was read."""

    path: str
    """As the operating system takes it."""
    key: str
    """Its name in messages: its path below the source."""
    state: tuple[int, int]
    """Size in bytes and mtime in ns when it was found."""


@dataclass(frozen=True, eq=False)
class Packets:
    """Consecutive packets of a video, in the order of the file, which is the order of decoding."""

    first: int
    """Number in the video of the first."""
    pts: NDArray[np.int64]
    size: NDArray[np.int32]
    flags: NDArray[np.uint8]
    key_dts: NDArray[np.int64]
    """For each packet with KEY: the timestamp that a seek must aim at."""

    def part(self, start: int, stop: int) -> Packets:
        """Packets start <= number < stop, with the same numbers."""
        low, high = start - self.first, stop - self.first
        before, through = (int(np.count_nonzero(self.flags[:end] & KEY)) for end in (low, high))
        keys = self.key_dts[before:through]
        # Copies: a view would keep all packets of the video in memory.
        return Packets(
            start, self.pts[low:high].copy(), self.size[low:high].copy(), self.flags[low:high].copy(), keys.copy()
        )

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """Numbers of the packets at which decoding can begin."""
        return np.flatnonzero(self.flags & KEY) + self.first

    def start_of(self, packet: int) -> int:
        """The key packet from which the frame of `packet` must be decoded: the last one that is neither decoded nor
        shown later. What is shown before its key packet (an open group of pictures) needs the group before."""
        keys = self.keys
        at = int(np.searchsorted(keys, packet, "right")) - 1
        pts = self.pts[packet - self.first]
        while at > 0 and self.pts[keys[at] - self.first] > pts:
            at -= 1
        return int(keys[at]) if at >= 0 else self.first


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """Frames of a video, all or some, and what it takes to decode them. Plain data, which is sent to workers."""

    stream: int
    origin: int
    """The packet at which decoding from the start begins."""
    packets: Packets | None
    """Those needed; None where frames can only be counted from the start."""
    packet: NDArray[np.int32]
    """(n,): the packet of each frame, or LOST. Without packets, the number of the frame among all decoded ones."""
    times: NDArray[np.int64]
    """(n,): when each frame is shown, in units of `time_base`, ascending."""
    time_base: Fraction
    """Seconds."""
    end: int
    """When the last frame of the video ends."""
    notes: tuple[str, ...] = ()
    """What a summary counts about the video: "rotated", "hdr", ..."""
    turn: Turn = None
    lost: tuple[str, str] = ("truncated", "")
    """Reason and detail of the rejects for LOST frames."""

    def __len__(self) -> int:
        return len(self.packet)

    def seconds(self, k: int) -> float:
        """When frame k is shown."""
        return float(int(self.times[k]) * self.time_base)

    def only(self, frames: NDArray[np.int64]) -> VideoIndex:
        """Some of these frames, ascending, with no more of the packets than they need."""
        packet, packets = self.packet[frames], self.packets
        if packets is not None:
            found, start, stop = packet[packet != LOST], self.origin, self.origin
            if len(found):
                first = min(packets.start_of(int(number)) for number in found[:_LOOKED_AT])
                before = int(np.searchsorted(packets.keys, first)) - _KEYS_BEFORE
                start, stop = max(start, int(packets.keys[max(0, before)])), int(found.max()) + 1
            packets = packets.part(start, stop)
        return replace(self, packets=packets, packet=packet, times=self.times[frames])
