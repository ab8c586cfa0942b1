"""The indexes of many videos, made in processes of their own: a file that kills FFmpeg costs itself alone."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from rawpack.errors import DecodeError, PackError
from rawpack.system import machine
from rawpack.system.child import GRACE_S, Channel, Child, Heartbeat
from rawpack_packer.images.decoder_process import init_decoder_process
from rawpack_packer.sources.video.demux import make_index
from rawpack_packer.sources.video.index import FramePosition, VideoIndex
from rawpack_packer.text import plain

Found = VideoIndex | DecodeError
"""What a video has, or why it has nothing."""
_MOST_CHILDREN = 8
_LOOK_EVERY_S = 0.2
_STUCK_AFTER_S = 600.0


def make_indexes(
    places: Sequence[FramePosition],
    progress: Callable[[int], None] | None = None,
    *,
    stuck_after_s: float = _STUCK_AFTER_S,
) -> list[Found]:
    """What is in each of these videos, in their order.

    progress: told how many were looked through. stuck_after_s: without a packet for so long, the disk of the videos is
    taken for dead. Raises PackError for that, and SourceChangedError where a file changed since it was found.
    """
    if not hasattr(os, "fork"):
        return [_index(place, lambda _: None) for place in places]
    scan = _VideoScan(places, progress, stuck_after_s)
    try:
        return scan.run()
    finally:
        scan.close()


@dataclass
class _ScanWorker:
    child: Child
    number: int
    """The video that it looks through."""
    beat: int = -1
    since: float = 0.0
    """When its beat was last seen to change."""


class _VideoScan:
    def __init__(
        self, places: Sequence[FramePosition], progress: Callable[[int], None] | None, stuck_after_s: float
    ) -> None:
        self._places, self._progress, self._stuck_after_s = places, progress, stuck_after_s
        self._found: dict[int, Found] = {}
        self._seats: list[_ScanWorker] = []
        self._next = 0

    def run(self) -> list[Found]:
        for _ in range(min(len(self._places), machine.cpus(), _MOST_CHILDREN)):
            self._give(_ScanWorker(Child(_main, None), 0))
        while self._seats:
            self._wait()
        return [self._found[number] for number in range(len(self._places))]

    def close(self) -> None:
        for seat in self._seats:
            seat.child.kill()
        self._seats.clear()

    def _give(self, seat: _ScanWorker) -> None:
        """Have a child look through the next video; end it where there is none."""
        if seat in self._seats:
            self._seats.remove(seat)
        if self._next == len(self._places):
            seat.child.kill()
            return
        self._seats.append(seat)
        seat.number, seat.since = self._next, time.monotonic()
        self._next += 1
        try:
            seat.child.channel.send(cloudpickle.dumps(self._places[seat.number]))
        except OSError:
            return  # it is dead, and whoever waits for it sees that

    def _wait(self) -> None:
        poll = select.poll()
        seats = {seat.child.channel.fileno(): seat for seat in self._seats}
        for descriptor in seats:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(_LOOK_EVERY_S * 1000):
            self._take(seats[descriptor])
        now = time.monotonic()
        for seat in self._seats:
            _, _, beat = seat.child.heartbeat.read()
            if beat != seat.beat:
                seat.beat, seat.since = beat, now
            elif now - seat.since > self._stuck_after_s:
                raise PackError(
                    f"{plain(self._places[seat.number].key)} gave nothing for {self._stuck_after_s:g} s: is the "
                    "disk of the source alive? Otherwise the file hangs FFmpeg: take it out of the source"
                )

    def _take(self, seat: _ScanWorker) -> None:
        """A child's answer; one that died leaves its video rejected, and another takes its place."""
        received = None
        with contextlib.suppress(OSError):
            received = seat.child.channel.receive()
        if received is None:
            self._replace(seat)
            return
        answer: Found | BaseException = cloudpickle.loads(received[0])
        if not isinstance(answer, Found):
            raise answer
        self._found[seat.number] = answer
        self._tell()
        self._give(seat)

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(len(self._found))

    def _replace(self, seat: _ScanWorker) -> None:
        _, _, beats = seat.child.heartbeat.read()
        seat.child.kill(GRACE_S)
        if not beats:
            declared = seat.child.last_words()
            raise PackError(f"the process that looks through videos cannot start here: {declared}")
        self._found[seat.number] = DecodeError("crashed", "the process that looked through it died")
        self._tell()
        self._seats.remove(seat)
        if self._next < len(self._places):
            self._give(_ScanWorker(Child(_main, None), 0))


def _index(place: FramePosition, beat: Callable[[int], None]) -> Found:
    try:
        return make_index(place, beat)
    except DecodeError as error:
        return error


def _main(channel: Channel, notes: Heartbeat, _: Any, descriptors: Iterable[int]) -> None:
    """What runs in a child: videos until the parent is gone."""
    init_decoder_process()
    while (received := channel.receive()) is not None:
        place: FramePosition = cloudpickle.loads(received[0])
        notes.note(0, 0)
        answer: Found | Exception
        try:
            answer = _index(place, lambda seen: notes.note(0, seen))
        except (PackError, MemoryError) as error:
            answer = error
        channel.send(cloudpickle.dumps(answer))
