"""Decodes the frames of an open video by number to upright RGB: by seeks, or where frames can only be counted, from the
start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.video.container import DamageError, OpenVideo, ToRgb, VideoFile, is_last
from rawpack_packer.sources.video.index import DAMAGED, LOST, VideoIndex

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_FORWARD = 64
"""A key packet no further ahead is reached by decoding, not by a seek."""
_AIMS = 3
"""Key packets to aim at, each one before the last: a seek may land after its aim."""
_SURE = 2
"""Key packets that decoding goes back before damage is believed."""
_BACK = (0, 1, _SURE, *(_SURE << doubled for doubled in range(1, 8)))
"""How many key packets before its own decoding may begin for a frame, the best first; then comes the start.

After a seek, a decoder may report as damage what the seek left out: two groups before, it does not. A frame that does
not come at all may need more.
"""


class Decoding(ABC):
    """A decoder that stays open where it is. For one thread; close it."""

    def __init__(self, file: VideoFile, index: VideoIndex) -> None:
        self._file, self._index, self._to_rgb = file, index, ToRgb(index.turn)
        self._begun_open = index.begun_open
        self._video: OpenVideo | None = None
        self._read: Iterator[Any] = iter(())
        """What is read from the open video: a generator that holds what the container owns."""

    def image(self, k: int) -> NDArray[np.uint8]:
        """Pixels (H, W, 3) of frame k of the index, a new array; fastest in ascending order.

        Raises DecodeError where there is no such picture, SourceChangedError where the file was written to.
        """
        if self._index.packet[k] == LOST:
            reason, detail = self._index.lost
            raise self._error(k, detail, reason)
        try:
            return self._to_rgb(self._frame(k))
        finally:
            if self._video is not None:
                self._video.check()

    @abstractmethod
    def _frame(self, k: int) -> VideoFrame:
        """Frame k of the index. Raises DecodeError where there is none, or what it needs is damaged."""

    def close(self) -> None:
        self._read = iter(())
        video, self._video = self._video, None
        if video is not None:
            video.close()

    def _open(self) -> OpenVideo:
        """The video, opened again at its start."""
        self.close()
        self._video = OpenVideo(self._file, self._index.stream, begun_open=self._begun_open)
        return self._video

    def _error(self, k: int, detail: str, reason: str = "damaged") -> DecodeError:
        """Why frame k is rejected."""
        return DecodeError(reason, f"at {self._index.seconds(k):.3f} s {detail}")


class Counting(Decoding):
    """Frames that are known by their number alone: always decoded from the start."""

    _next = 0

    def _frame(self, k: int) -> VideoFrame:
        wanted = int(self._index.packet[k])
        if self._video is None or wanted < self._next:
            self._read, self._next = self._open().frames(), 0
        frame: VideoFrame
        try:
            for frame in self._read:
                self._next += 1
                if self._next > wanted:
                    return frame
        except DamageError as error:
            raise self._error(k, f"the data cannot be decoded: {error}") from error
        raise self._error(k, "the decoder gave no picture")


class _AstrayError(Exception):
    """Decoding from here does not give what it should."""


class Seeking(Decoding):
    """Frames by their display time: seeks to the key frame before a frame that is far away.

    Every seek is verified. The packets after it must be those of the index, in the same order, and the first frame must
    be the key frame itself, marked as such by the decoder. If this fails, or a frame is missing, decoding begins
    further back and, if necessary, at the start. So each frame is the same as when decoding from the start or, after
    damage, from its own key frame, whatever was read before.
    """

    def __init__(self, file: VideoFile, index: VideoIndex) -> None:
        super().__init__(file, index)
        assert index.packets is not None
        self._packets = index.packets
        self._by_pts = np.argsort(self._packets.pts, kind="stable")
        self._sorted = self._packets.pts[self._by_pts]
        self._known = set((np.flatnonzero(self._packets.flags & DAMAGED) + self._packets.first).tolist())
        """Packets known to be damaged before anything is decoded."""
        self._faults: set[int] = set()
        """The same, with those that the decoder reported since it began."""
        self._spoiled: set[int] = set()
        """Packets whose pictures came out damaged, which does not matter to what is shown before."""
        self._failed: dict[tuple[int, int], int] = {}
        """Key packet of frames, and where decoding begins -> the first damaged packet; all after it fail as well."""
        self._tainted = False
        """The decoder has met damage since it was opened."""
        self._in_vain = False
        """Decoding from the start did not give some frame: that is tried for no other."""
        self._out: deque[VideoFrame] = deque()
        """Decoded, not yet asked for."""
        self._flushed = False
        self._aim = self._begun = self._fed = 0
        """The packet at which decoding was to begin, the one at which it began, and the next one to feed."""
        self._shown: int | None = None
        """When the frame is shown that came out last."""
        self._limit: int | None = None
        """The packet before which decoding ends."""
        self._from_cut: Seeking | None = None
        """For frames of the first group, which may have been cut open, see `OpenVideo.decode`."""

    def close(self) -> None:
        if self._from_cut is not None:
            self._from_cut.close()
        super().close()

    def _frame(self, k: int) -> VideoFrame:
        """See `Decoding`. The outcome depends on the file alone: earlier calls decide only how fast it is known."""
        origin, keys = self._index.origin, self._packets.keys
        packet, pts = int(self._index.packet[k]), int(self._index.times[k])
        start = max(origin, self._packets.start_of(packet))
        if self._is_ahead(start, pts) and not self._met_damage():
            frame, _ = self._attempt(start, packet, pts)
            if frame is not None and not self._met_damage():
                return frame
        at = int(np.searchsorted(keys, start))
        missing, tried = False, set[int]()
        for begin in (*(int(keys[at - back]) for back in _BACK if back <= at), origin):
            far = len(tried) > _SURE
            if begin in tried or (far and (self._in_vain or not missing)):
                continue
            tried.add(begin)
            known = self._failed.get((start, begin), packet + 1)
            if known <= packet:
                continue
            if self._aim != begin or not self._is_ahead(start, pts):
                self._begin(begin)
            frame, fault = self._attempt(start, packet, pts)
            if fault is not None:
                self._failed[start, begin] = min(fault, known)
            elif frame is not None:
                return frame
            else:
                missing = True
        self._in_vain |= missing
        if start == origin and not self._begun_open:
            if self._from_cut is None:
                self._from_cut = Seeking(self._file, self._index)
                self._from_cut._begun_open = True
            return self._from_cut._frame(k)
        raise self._error(k, "the decoder gave no picture: its data, or data that it builds on, are damaged")

    def _is_ahead(self, start: int, pts: int) -> bool:
        """Whether decoding further leads to a frame."""
        begun = self._video is not None and self._limit is None and self._begun <= start <= self._fed + _FORWARD
        return begun and (self._shown is None or self._shown < pts)

    def _met_damage(self) -> bool:
        """Whether any damage was met since decoding began, except to what is shown before its key packet."""
        faults = {number for number in self._faults if number < self._fed}
        if self._begun != self._index.origin:
            # Nothing is known of packets outside the index: a decoder is fed some, to give out what it holds back.
            known = range(self._packets.first, self._packets.first + len(self._packets.pts))
            faults = {number for number in faults if number not in known or self._pts(number) >= self._pts(self._begun)}
        return bool(faults or self._spoiled)

    def _attempt(self, start: int, packet: int, pts: int) -> tuple[VideoFrame | None, int | None]:
        """A frame, None where it did not come; and the first damaged packet that it needs."""
        frame = self._decode_to(pts)
        fault = self._first_fault(start, packet, pts)
        after = min((number for number in self._faults if packet < number < self._fed), default=None)
        if frame is None and fault is None and after is not None:
            # A decoder that fails may drop an intact picture that it had not given out yet.
            self._begin(self._aim, after)
            frame = self._decode_to(pts)
            fault = self._first_fault(start, packet, pts)
        return frame, fault

    def _first_fault(self, start: int, packet: int, pts: int) -> int | None:
        """The first damaged packet that a frame needs, as far as decoding has met it."""
        begun = self._pts(start)
        found = [*self._faults, *(number for number in self._spoiled if self._pts(number) <= pts)]
        # Nothing after the key packet needs what is shown before it.
        return min((n for n in found if start <= n <= packet and self._pts(n) >= begun), default=None)

    def _decode_to(self, pts: int) -> VideoFrame | None:
        """Decode up to the frame that is shown at `pts`; None where it does not come."""
        try:
            while True:
                while self._out:
                    frame = self._out[0]
                    if frame.pts is None or frame.pts > pts:
                        return None
                    self._out.popleft()
                    self._note(frame, frame.pts)
                    if frame.pts == pts:
                        return frame
                if self._flushed:
                    return None
                packet = None if self._fed == self._limit else self._next_packet()
                if packet is not None:
                    self._feed(packet)
                else:
                    # What the decoder still holds. A frame that does not come now is missed when it is asked for.
                    self._flushed = True
                    self._decode(None)
        except _AstrayError:
            return None

    def _note(self, frame: VideoFrame, pts: int) -> None:
        """Note what matters of a frame that has come out."""
        if self._shown is None and self._begun != self._index.origin:
            begun = self._pts(self._begun)
            if pts < begun:
                return  # it needs what is before; a call that wants it begins there
            if pts != begun or not frame.key_frame:
                raise _AstrayError
        self._shown = pts
        if frame.is_corrupt and (number := self._number(pts)) is not None:
            self._spoiled.add(number)

    def _feed(self, packet: Any) -> None:
        number, self._fed = self._fed, self._fed + 1
        at = number - self._packets.first
        if 0 <= at < len(self._packets.flags) and not self._is(packet, at):
            raise _AstrayError
        if not self._decode(packet):
            self._faults.add(number)
            self._tainted = True

    def _decode(self, packet: Any) -> bool:
        """Whether the decoder took a packet, or None for the end, without an error."""
        assert self._video is not None
        try:
            self._out.extend(self._video.decode(packet))
        except DamageError:
            return False
        return True

    def _next_packet(self) -> Any:
        """The next packet; None at the end, or where the container breaks off."""
        try:
            packet = next(self._read, None)
        except DamageError:
            return None
        return None if packet is None or is_last(packet) else packet

    def _begin(self, packet: int, limit: int | None = None) -> None:
        """Begin to decode at a key packet, or at the start where no seek leads there; end before `limit`."""
        self._aim, self._limit = packet, limit
        if packet > self._index.origin and self._seek(packet):
            return
        self._restart()
        self._forget(self._index.origin)
        for _ in range(self._index.origin):
            self._next_packet()

    def _seek(self, packet: int) -> bool:
        """Whether a seek led to this very packet, which is then fed."""
        if self._video is None or self._tainted:
            # A flush does not remove all that errors leave behind in a decoder.
            self._restart()
        assert self._video is not None
        at = int(np.searchsorted(self._packets.keys, packet))
        for back in range(min(_AIMS, at + 1)):
            try:
                self._video.seek(int(self._packets.key_dts[at - back]))
            except DamageError:
                return False
            self._read_on()
            while (found := self._next_packet()) is not None:
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

    def _restart(self) -> None:
        self._open()
        self._tainted = False
        self._read_on()

    def _read_on(self) -> None:
        """Read from where the container is now."""
        assert self._video is not None
        self._read, self._flushed = self._video.packets(), False
        self._out.clear()

    def _forget(self, begun: int) -> None:
        self._begun = self._fed = begun
        self._shown = None
        self._faults, self._spoiled = set(self._known), set()

    def _is(self, packet: Any, at: int) -> bool:
        """Whether a packet is the one at `at` of the index."""
        return bool(packet.pts == self._packets.pts[at] and packet.size == self._packets.size[at])

    def _number(self, pts: int | None) -> int | None:
        """The packet of the index that has this timestamp."""
        at = len(self._sorted) if pts is None else int(np.searchsorted(self._sorted, pts))
        known = at < len(self._sorted) and self._sorted[at] == pts
        return self._packets.first + int(self._by_pts[at]) if known else None

    def _pts(self, number: int) -> int:
        return int(self._packets.pts[number - self._packets.first])
