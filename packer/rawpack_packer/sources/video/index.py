"""What is in a video: its packets as they lie in the file, and its frames in the order in which they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.video.select import Selection

KEY, SHOWN, DAMAGED = 1, 2, 4
"""Of a packet: decoding can begin at it; a frame of it is shown; it is known to be damaged."""
NO_PTS = -(2**63)
"""Stands for a timestamp that is not there."""
LOST = -1
"""Stands for the packet of a frame that the file should have and has not."""
KEYS_BEFORE = 3
"""Key packets that a run has beyond those that it needs, for decoding that must begin further back."""
_LOOKED_AT = 64
"""Of its first frames, one needs what lies first: frames are shown not far from where they are decoded."""


@dataclass(frozen=True)
class FramePosition:
    """A video file."""

    path: str
    """As the operating system takes it."""
    key: str
    """Its name in messages: its path below the source."""
    state: tuple[int, int]
    """Size in bytes and mtime in ns when it was found."""


@dataclass(frozen=True, eq=False)
class Packets:
    """A run of a video's packets, in the order of the file, which is that of decoding."""

    first: int
    """Number in the video of the first."""
    pts: NDArray[np.int64]
    size: NDArray[np.int32]
    flags: NDArray[np.uint8]
    key_dts: NDArray[np.int64]
    """Of those with KEY: where a seek must aim."""

    def part(self, start: int, stop: int) -> Packets:
        """Packets start <= number < stop, numbered as before."""
        low, high = start - self.first, stop - self.first
        before = int(np.count_nonzero(self.flags[:low] & KEY))
        flags = self.flags[low:high]
        keys = self.key_dts[before : before + int(np.count_nonzero(flags & KEY))]
        return Packets(start, self.pts[low:high].copy(), self.size[low:high].copy(), flags.copy(), keys.copy())

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """Numbers of the packets at which decoding can begin."""
        return np.flatnonzero(self.flags & KEY) + self.first

    def start_of(self, packet: int) -> int:
        """From where on the frame of a packet must be decoded: the last key packet that is neither decoded nor shown
        later. What is shown before its key packet (an open group of pictures) needs the group before."""
        keys = self.keys
        at = int(np.searchsorted(keys, packet, "right")) - 1
        pts = self.pts[packet - self.first]
        while at > 0 and self.pts[keys[at] - self.first] > pts:
            at -= 1
        return int(keys[at]) if at >= 0 else self.first


@dataclass(frozen=True, eq=False)
class PacketRun:
    """Some frames of a video and what it takes to decode them. Plain data: it travels to workers."""

    stream: int
    origin: int
    """The packet at which decoding from the start begins."""
    packets: Packets | None
    """Those needed; None where frames can only be counted, from the start on."""
    packet: NDArray[np.int64]
    """(n,): of each frame. Where there are no packets, its number among all that are decoded. Or LOST."""
    times: NDArray[np.int64]
    """(n,): when each is shown, in units of the time base."""
    numbers: NDArray[np.int64]
    """(n,): of each frame among all frames of the video, in the order in which they are shown."""
    time_base: tuple[int, int]
    """Numerator and denominator, in seconds."""
    lost: tuple[str, str]
    """Reason and detail of what is LOST."""
    turn: tuple[int, int, int, int] | None
    """See `pixels.Turn`."""

    def __len__(self) -> int:
        return len(self.packet)

    def seconds(self, k: int) -> float:
        """When frame k is shown."""
        return int(self.times[k]) * self.time_base[0] / self.time_base[1]


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """A whole video."""

    stream: int
    origin: int
    packets: Packets | None
    packet: NDArray[np.int32]
    times: NDArray[np.int64]
    """Rising."""
    time_base: tuple[int, int]
    end: int
    """When the last frame ends."""
    lost: tuple[str, str] = ("truncated", "")
    turn: tuple[int, int, int, int] | None = None
    """See `pixels.Turn`."""
    notes: tuple[str, ...] = ()
    """What a summary counts of the video: "rotated", "hdr", ..."""

    def __len__(self) -> int:
        return len(self.packet)

    def pick(self, selection: Selection) -> NDArray[np.int64]:
        """Numbers of the frames that a selection takes."""
        return selection.pick(self.times, Fraction(*self.time_base), self.end)

    def run(self, numbers: NDArray[np.int64]) -> PacketRun:
        """Some frames, and no more of the packets than they need."""
        packet = self.packet[numbers].astype(np.int64)
        packets, found = self.packets, packet[packet != LOST]
        if packets is not None:
            if len(found):
                keys = packets.keys
                before = int(np.searchsorted(keys, min(packets.start_of(int(number)) for number in found[:_LOOKED_AT])))
                start = int(keys[max(0, before - KEYS_BEFORE)]) if len(keys) else self.origin
                packets = packets.part(max(self.origin, start), int(found.max()) + 1)
            else:
                packets = packets.part(self.origin, self.origin)
        times = self.times[numbers]
        return PacketRun(
            self.stream, self.origin, packets, packet, times, numbers, self.time_base, self.lost, self.turn
        )
