"""Frames that are known by when they are shown: found by a seek to the key frame before, where that is far.

A seek is believed only as far as it proves itself. The packets behind it must be those of the index, in their order,
and the first frame must be the key frame itself, and be called so by the decoder. Where that fails, or a frame does not
come, decoding begins further back, at last at the start. So a frame is the one that decoding from the start gives; and
behind damage, the one that decoding from its own key frame gives, whatever was read before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from rawpack_packer.sources.video.decoding import Decoding
from rawpack_packer.sources.video.index import DAMAGED, FramePosition, PacketRun, Packets

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_FORWARD = 64
"""A key packet no further ahead is reached by decoding on, not by a seek."""
_AIMS = 3
"""Keys that are aimed at, one before the other: a seek may land behind its aim."""
_SURE = 2
"""Key packets that decoding goes back before damage is believed."""
_MOST_BACK = 8
"""Doublings of that, before it begins at the start."""


class _AstrayError(Exception):
    """Decoding from here does not give what it should."""


class Seeking(Decoding):
    """See the module."""

    def __init__(self, place: FramePosition, run: PacketRun) -> None:
        super().__init__(place, run)
        assert run.packets is not None
        self._packets: Packets = run.packets
        self._by_pts = np.argsort(run.packets.pts, kind="stable")
        self._sorted = run.packets.pts[self._by_pts]
        damaged = np.flatnonzero(run.packets.flags & DAMAGED) + run.packets.first
        self._known = set(damaged.tolist())
        """Damaged packets, as far as is known before anything is decoded."""
        self._faults: set[int] = set()
        """The same, with those that the decoder complained of since it began."""
        self._spoilt: set[int] = set()
        """Packets whose pictures came out damaged: no matter to what is shown before."""
        self._failed: dict[tuple[int, int], int] = {}
        """Key packet of frames, and where decoding begins -> the first packet that is damaged; so are all behind it."""
        self._tainted = False
        """The decoder has met damage since it was opened."""
        self._in_vain = False
        """Decoding began at the start for a frame, and it did not come: no other is worth that."""
        self._aim = self._begun = self._fed = 0
        """The packet at which decoding was to begin, the one at which it began, and the one that comes next."""
        self._shown: int | None = None
        """When the frame is shown that came out last."""
        self._limit: int | None = None
        """The packet before which decoding ends."""

    def frame(self, k: int) -> VideoFrame:
        """Frame k of the run. Raises DecodeError where there is none, or what it needs is damaged.

        Which it is depends on nothing but the file: what was asked for before decides only how soon it is known.
        """
        packet, pts = int(self._run.packet[k]), int(self._run.times[k])
        start = max(self._run.origin, self._packets.start_of(packet))
        if self._ahead(start, pts) and not self._stained():
            frame, _ = self._attempt(start, packet, pts)
            if frame is not None and not self._stained():
                return frame
        missing, tried = False, set[int]()
        for place in self._places(start):
            far = len(tried) > _SURE
            if place in tried or (far and (self._in_vain or not missing)):
                continue
            tried.add(place)
            if self._failed.get((start, place), packet + 1) <= packet:
                continue
            if self._aim != place or not self._ahead(start, pts):
                self._begin(place)
            frame, wrong = self._attempt(start, packet, pts)
            if frame is not None and wrong is None:
                return frame
            if wrong is None:
                missing = True
            else:
                self._failed[start, place] = min(wrong, self._failed.get((start, place), wrong))
        self._in_vain |= missing
        raise self.fault(k, "no picture came of the data: they are damaged, or those that they build on")

    def _places(self, start: int) -> Iterator[int]:
        """Where decoding may begin for a frame whose key packet is `start`, the best first.

        Behind a seek, a decoder may take for damage what the seek has left out: two groups before tell. A frame that
        does not come at all may need more.
        """
        yield start
        for back in range(1, _SURE + 1):
            yield self._before(start, back)
        for doubled in range(1, _MOST_BACK):
            yield self._before(start, _SURE << doubled)
        yield self._run.origin

    def _ahead(self, start: int, pts: int) -> bool:
        """Whether decoding on leads to a frame."""
        begun = self._video is not None and self._limit is None and self._begun <= start <= self._fed + _FORWARD
        return begun and (self._shown is None or self._shown < pts)

    def _stained(self) -> bool:
        """Whether any damage was met since decoding began, but for what is shown before its key packet."""
        first, begun = self._packets.first, self._begun
        faults = {number for number in self._faults if number < self._fed}
        if begun != self._run.origin:
            # Nothing is known of packets outside the run: a decoder is fed some, to give out what it holds back.
            known = range(first, first + len(self._packets.pts))
            faults = {number for number in faults if number not in known or self._pts(number) >= self._pts(begun)}
        return bool(faults or self._spoilt)

    def _attempt(self, start: int, packet: int, pts: int) -> tuple[VideoFrame | None, int | None]:
        """A frame, None where it did not come, and the first packet that it needs and that is damaged."""
        frame = self._until(pts)
        wrong = self._first_fault(start, packet, pts)
        behind = min((number for number in self._faults if packet < number < self._fed), default=None)
        if frame is None and wrong is None and behind is not None:
            # Where a decoder fails, it may drop a sound picture that it had not given out yet.
            self._begin(self._aim, behind)
            frame = self._until(pts)
            wrong = self._first_fault(start, packet, pts)
        return frame, wrong

    def _until(self, pts: int) -> VideoFrame | None:
        """Decode on to the frame that is shown at `pts`; None where it does not come."""
        try:
            while True:
                while self._out:
                    frame = self._out[0]
                    if frame.pts is None or frame.pts > pts:
                        return None
                    self._out.popleft()
                    self._look_at(frame)
                    if frame.pts == pts:
                        return frame
                packet = None if self._fed == self._limit or self._flushed else self.next_packet()
                if packet is not None:
                    self._feed(packet)
                elif self._flushed:
                    return None
                else:
                    self.flush()
        except _AstrayError:
            return None

    def _look_at(self, frame: VideoFrame) -> None:
        """Note what is to be known of a frame that has come out."""
        pts, sought = frame.pts, self._begun != self._run.origin
        assert pts is not None
        if sought and self._shown is None:
            begun = int(self._packets.pts[self._begun - self._packets.first])
            if pts < begun:
                return  # it needs what lies before; whoever wants it begins there
            if pts != begun or not frame.key_frame:
                raise _AstrayError
        self._shown = pts
        if frame.is_corrupt and (number := self._number(pts)) is not None:
            self._spoilt.add(number)

    def _feed(self, packet: Any) -> None:
        number, self._fed = self._fed, self._fed + 1
        at = number - self._packets.first
        if 0 <= at < len(self._packets.flags) and not self._is(packet, at):
            raise _AstrayError
        if self.decode(packet):
            self._faults.add(number)
            self._tainted = True

    def _first_fault(self, start: int, packet: int, pts: int) -> int | None:
        """The first damaged packet that a frame needs, by what decoding has met so far."""
        begun = self._pts(start)
        found = [*self._faults, *(number for number in self._spoilt if self._pts(number) <= pts)]
        # What is shown before the key packet is needed by nothing behind it.
        return min((n for n in found if start <= n <= packet and self._pts(n) >= begun), default=None)

    def _begin(self, packet: int, limit: int | None = None) -> None:
        """Have the decoder begin at a key packet; at the start where no seek leads there. It ends before `limit`."""
        self._aim, self._limit = packet, limit
        if packet > self._run.origin and self._sought(packet):
            return
        self.open()
        self._forget(self._run.origin)
        for _ in range(self._run.origin):
            self.next_packet()

    def _forget(self, begun: int) -> None:
        self._begun = self._fed = begun
        self._shown = None
        self._faults, self._spoilt = set(self._known), set()

    def _sought(self, packet: int) -> bool:
        """Whether a seek led to this very packet, which is then fed."""
        import av

        if self._video is None or self._tainted:
            # Not all that errors leave behind goes when a decoder is flushed.
            self.open()
            self._tainted = False
        assert self._video is not None
        at = int(np.searchsorted(self._packets.keys, packet))
        for back in range(min(_AIMS, at + 1)):
            try:
                self._video.container.seek(int(self._packets.key_dts[at - back]), stream=self._video.stream)
            except av.error.FFmpegError:
                return False
            self.read_on()
            while (found := self.next_packet()) is not None:
                number = self._number(found.pts)
                if number is None or not self._is(found, number - self._packets.first):
                    continue
                if number > packet:
                    break
                if number == packet:
                    self._forget(packet)
                    self._feed(found)
                    return True
        return False

    def _is(self, packet: Any, at: int) -> bool:
        """Whether a packet is the one of the index."""
        return bool(packet.pts == self._packets.pts[at] and packet.size == self._packets.size[at])

    def _number(self, pts: int | None) -> int | None:
        """The packet of the run that has this timestamp."""
        at = len(self._sorted) if pts is None else int(np.searchsorted(self._sorted, pts))
        known = at < len(self._sorted) and self._sorted[at] == pts
        return self._packets.first + int(self._by_pts[at]) if known else None

    def _pts(self, number: int) -> int:
        return int(self._packets.pts[number - self._packets.first])

    def _before(self, packet: int, back: int) -> int:
        """The key packet so many before this one; the origin where the run does not reach so far."""
        keys = self._packets.keys
        at = int(np.searchsorted(keys, packet)) - back
        return max(int(keys[at]), self._run.origin) if at >= 0 else self._run.origin
