"""The index of a video: its packets in file order, and its frames in display order.

It is made from the packets, which say when each frame is shown; only the first frames are decoded. If timestamps are
missing, or the first frames are not those that the packets announce, all frames are decoded and counted, which is slow
but correct.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.video.container import (
    DamageError,
    OpenVideo,
    Turn,
    VideoFile,
    is_last,
    messages_of,
    notes_of,
    turn_of,
)

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

KEY, SHOWN, DAMAGED = 1, 2, 4
"""Flags of a packet: decoding can begin at it; it becomes a frame that is shown; it is known to be damaged."""
NO_PTS = -(2**63)
"""Stands for a missing timestamp."""
LOST = -1
"""Stands for the packet of a frame that the file should contain and does not."""
READ_AGAIN = "read_again"
"""Among the notes of a video: the first process that read through it died. What it holds does not depend on that, so no
store or job records it."""
_KEYS_BEFORE = 3
"""Additional key packets before those that some frames need, for decoding that must begin further back."""
_LOOKED_AT = 64
"""One of the first 64 frames needs the earliest packet: frames are shown close to where they are decoded."""
_FIRST_FRAMES, _FIRST_PACKETS = 8, 200
"""How many are decoded at first: frames, or packets where no frame comes."""
_MAX_LOST = 1 << 24
"""A header may promise any number of frames."""
_VP8_SHOWN = 0x10
"""In the first byte of a VP8 frame."""
_RATE = Fraction(25)
"""FFmpeg's assumption for raw streams that record none."""
_JITTER = 0.05
"""Of a frame's duration: rounded timestamps do not make a variable rate."""


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
        pts, size, flags = self.pts[low:high].copy(), self.size[low:high].copy(), self.flags[low:high].copy()
        return Packets(start, pts, size, flags, keys.copy())

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
    cut: float = 0
    """Where the last frame is LOST and stands for all that is missing behind it, an unknown number of frames: their
    share of `length`, above 0."""
    begun_open: bool = False
    """Whether frames that can only be counted are decoded so, see `OpenVideo.decode`."""
    length: int = 0
    """Bytes of the file, or those that its container says it has, where it was cut."""

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


@dataclass
class _Demuxed:
    """All packets of a stream, and what the container says about it."""

    packets: Packets
    stream: int
    time_base: Fraction
    """Seconds."""
    rate: Fraction | None
    notes: list[str]
    duration: int
    """How long the last frame is shown; 0 where that is not recorded."""
    seconds: Fraction
    """How long the container says that it lasts; 0 where it does not."""
    intact_dts: int
    """When the last packet before any damage is decoded."""
    intact_bytes: int
    """Where the last packet before any damage ends."""
    broken: str
    """What is wrong with the container, from some packet on."""
    length: int
    """See `OpenVideo.length`."""
    early: bool
    """The container says that it is longer than the file."""
    missing: int | None
    """Packets that the container lists and does not have; None where it lists none."""

    @property
    def origin(self) -> int:
        """The packet at which decoding can begin."""
        return int(self.packets.keys[0]) if len(self.packets.keys) else 0


def make_index(file: VideoFile, beat: Callable[[], None]) -> VideoIndex:
    """Read through a video. beat: called for every packet.

    Raises DecodeError where nothing in the video can be decoded, SourceChangedError where the file changed.
    """
    with closing(OpenVideo(file)) as video:
        read = _demux(file, video, beat)
        video.check()
    frames, damaged, complete = _first_frames(file, read)
    if damaged and not (again := _first_frames(file, read, begun_open=True))[1]:
        frames, damaged, complete = again
    packets = _trusted(read, frames, damaged=damaged, complete=complete)
    if packets is None:
        index = _counted(file, read, beat)
    else:
        shown = np.flatnonzero(packets.flags & SHOWN)
        order = shown[np.argsort(packets.pts[shown])].astype(np.int32)
        times, unit = packets.pts[order], read.time_base
        gaps = np.diff(times)
        if len(gaps) > 1 and int(gaps.max() - gaps.min()) > 1 + int(_JITTER * np.median(gaps)):
            read.notes.append("variable_rate")
        end = int(times[-1]) + (read.duration or _gap(times, unit))
        index = VideoIndex(read.stream, read.origin, packets, order, times, unit, end)
    if frames:
        read.notes += notes_of(frames[0])
        index = replace(index, turn=turn_of(frames[0]))
    index = _with_lost(replace(index, notes=tuple(read.notes), length=read.length), read)
    if not len(index):
        raise DecodeError("corrupt", "none of its frames can be decoded")
    return index


def _demux(file: VideoFile, video: OpenVideo, beat: Callable[[], None]) -> _Demuxed:
    """Read every packet of the stream, up to where the container breaks off."""
    import av

    stream = video.stream
    rate, aspect = _fraction(stream.average_rate) or _fraction(stream.guessed_rate), stream.sample_aspect_ratio
    notes = ["several_streams"] * (len(video.streams) > 1) + ["not_square"] * (_fraction(aspect) not in (None, 1))
    vp8 = stream.codec_context.name in ("vp8", "libvpx")
    pts, size, flags, key_dts = array("q"), array("i"), bytearray(), array("q")
    last, duration, intact_dts, intact_bytes, broken = NO_PTS, 0, NO_PTS, 0, ""
    try:
        with messages_of(av.logging.ERROR) as messages:  # only these say that a container is damaged
            for packet in video.packets():
                beat()
                broken = broken or next((text.strip() for _, name, text in messages if name == video.format), "")
                messages.clear()
                if is_last(packet):
                    continue
                shown, damaged = packet.size > 0 and not packet.is_discard, packet.is_corrupt or bool(broken)
                shown &= not vp8 or not shown or memoryview(packet)[0] & _VP8_SHOWN > 0
                pts.append(NO_PTS if packet.pts is None else packet.pts)
                size.append(packet.size)
                flags.append(KEY * packet.is_keyframe | SHOWN * shown | DAMAGED * damaged)
                if packet.is_keyframe:
                    key_dts.append(pts[-1] if packet.dts is None else min(pts[-1], packet.dts))
                if not damaged:
                    intact_dts = intact_dts if packet.dts is None else packet.dts
                    intact_bytes = (packet.pos or 0) + packet.size
                if shown and pts[-1] >= last:
                    last, duration = pts[-1], packet.duration or 0
    except DamageError as error:
        broken = broken or str(error)
    frames = len(stream.index_entries) if video.format.startswith("mov") else stream.frames
    listed = video.format.startswith("mov") or frames == len(flags)
    length = video.length()
    arrays = np.array(pts, np.int64), np.array(size, np.int32), np.array(flags, np.uint8), np.array(key_dts, np.int64)
    return _Demuxed(
        packets=Packets(0, *arrays),
        stream=stream.index,
        time_base=_fraction(stream.time_base) or Fraction(1, 1000),
        rate=rate,
        notes=notes,
        duration=duration,
        seconds=Fraction(video.container.duration or 0, 1_000_000),
        intact_dts=intact_dts,
        intact_bytes=intact_bytes,
        broken=broken,
        length=length,
        early=length > file.state[0],
        missing=max(0, frames - len(flags)) if listed else None,
    )


def _fraction(value: Any) -> Fraction | None:
    """What FFmpeg records as a fraction; None where it is not recorded. From 19 on, PyAV has a type of its own for it,
    which is 0/1 or 0/0 then."""
    return Fraction(value.numerator, value.denominator) if value else None


def _first_frames(file: VideoFile, read: _Demuxed, *, begun_open: bool = False) -> tuple[list[VideoFrame], bool, bool]:
    """The first frames from the origin on, whether damage was met, and whether these are all frames. begun_open: see
    `OpenVideo.decode`."""
    frames: list[VideoFrame] = []
    damaged = complete = False
    with closing(OpenVideo(file, read.stream, begun_open=begun_open)) as video:
        try:
            for number, packet in enumerate(video.packets()):
                if len(frames) >= _FIRST_FRAMES or number >= read.origin + _FIRST_PACKETS:
                    break
                complete = is_last(packet)
                try:
                    frames += video.decode(packet) if number >= read.origin else []
                except DamageError:
                    damaged = True
        except DamageError:
            damaged = True
    return frames, damaged or any(frame.is_corrupt for frame in frames), complete


def _trusted(read: _Demuxed, frames: list[VideoFrame], *, damaged: bool, complete: bool) -> Packets | None:
    """The packets, with SHOWN only where a frame comes; None where they do not say which frames there are, and when.

    Frames that need what is before the first key packet cannot be decoded: they are left out.
    """
    packets, flags = read.packets, read.packets.flags.copy()
    flags[: read.origin] &= ~np.uint8(SHOWN)
    times = np.sort(packets.pts[np.flatnonzero(flags & SHOWN)])
    if not len(packets.keys) or not len(times) or times[0] == NO_PTS or np.any(np.diff(times) == 0):
        return None
    seen = [NO_PTS if frame.pts is None else frame.pts for frame in frames]
    if seen and not damaged:
        if seen[0] == packets.pts[read.origin]:
            # Leading frames of the first group need one that is not there: decoders skip them.
            flags[packets.pts < seen[0]] &= ~np.uint8(SHOWN)
            times = times[times >= seen[0]]
        if seen != times[: len(seen)].tolist() or (complete and len(seen) != len(times)):
            return None
    if np.count_nonzero(flags & SHOWN) < np.count_nonzero(packets.flags & SHOWN):
        read.notes.append("began_without_key")
    return replace(packets, flags=flags)


def _counted(file: VideoFile, read: _Demuxed, beat: Callable[[], None]) -> VideoIndex:
    """The index of a video whose packets say too little, by decoding all of it, up to the first damage."""
    read.notes.append("counted")
    found, broken, begun_open = _decoded(file, read, beat, False)
    if broken:
        tries = (found, broken, begun_open), _decoded(file, read, beat, True)
        found, read.broken, begun_open = max(tries, key=lambda tried: len(tried[0]))
    if read.missing or read.broken:
        read.missing = None
        read.intact_bytes = read.intact_bytes * len(found) // max(1, len(read.packets.pts))
    times, unit = np.array(found, np.int64), read.time_base
    if not len(times) or times[0] == NO_PTS or np.any(np.diff(times) <= 0):
        unit, times = 1 / (read.rate or _RATE), np.arange(len(times), dtype=np.int64)
    end = int(times[-1]) + _gap(times, unit) if len(times) else 0
    numbers = np.arange(len(times), dtype=np.int32)
    return VideoIndex(read.stream, 0, None, numbers, times, unit, end, begun_open=begun_open)


def _decoded(
    file: VideoFile, read: _Demuxed, beat: Callable[[], None], begun_open: bool
) -> tuple[Sequence[int], str, bool]:
    """When each frame is shown, up to the first damage; what that is; and `begun_open`, see `OpenVideo.decode`."""
    found = array("q")
    with closing(OpenVideo(file, read.stream, begun_open=begun_open)) as video:
        try:
            for frame in video.frames():
                if frame.is_corrupt:
                    return found, "the picture is damaged", begun_open
                found.append(NO_PTS if frame.pts is None else frame.pts)
                beat()
        except DamageError as error:
            return found, str(error), begun_open
    return found, "", begun_open


def _with_lost(index: VideoIndex, read: _Demuxed) -> VideoIndex:
    """The index, with LOST frames where the file should have more than it has: at least one where their number is
    unknown. Frames that are shown after missing ones have no number, and so are LOST too."""
    packets, gap = index.packets, _gap(index.times, index.time_base)
    if not (read.early or read.broken) or read.missing == 0:
        return index
    # If the pictures last as long as the container says, what a file lacks that ends early is something else, such as
    # the index behind them.
    lasts = (index.end - int(index.times[0]) + gap / 2) * index.time_base if len(index) else 0
    if len(index) and read.seconds and lasts >= read.seconds and not np.any(read.packets.flags & DAMAGED):
        return index
    followed = not read.early and packets is not None and bool(packets.flags[-1] & DAMAGED)
    count = int(not followed) if read.missing is None else read.missing
    cut = count > _MAX_LOST or (count == 1 and read.missing is None)
    count = 1 if cut else count
    packet = index.packet.copy()
    if packets is not None and read.intact_dts > NO_PTS:
        # What is missing is decoded later than this, and is shown no earlier than it is decoded.
        packet[(index.times > read.intact_dts + gap) & ((packets.flags[packet] & DAMAGED) == 0)] = LOST
    after = index.end + gap * np.arange(count, dtype=np.int64)
    return replace(
        index,
        packet=np.concatenate([packet, np.full(count, LOST, np.int32)]),
        times=np.concatenate([index.times, after]),
        end=int(after[-1]) + gap if count else index.end,
        cut=max(1e-9, 1 - read.intact_bytes / max(1, read.length)) if cut else 0,
        lost=("truncated", "the file has ended") if read.early else ("damaged", f"reading stopped: {read.broken}"),
    )


def _gap(times: NDArray[np.int64], unit: Fraction) -> int:
    """How long most frames are shown."""
    return max(1, int(np.median(np.diff(times))) if len(times) > 1 else int(1 / (_RATE * unit)))
