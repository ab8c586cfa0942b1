"""Makes the indexes of many videos in child processes: if a file crashes FFmpeg, only that file is rejected."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

import cloudpickle

from rawpack.errors import DecodeError, PackError
from rawpack.system import machine
from rawpack.system.child import GRACE_S, Channel, Child, Heartbeat
from rawpack_packer.images.decoder_process import init_decoder_process
from rawpack_packer.sources.video.demux import make_index
from rawpack_packer.sources.video.index import VideoFile, VideoIndex
from rawpack_packer.text import plain

Found = VideoIndex | DecodeError
"""What is in a video, or why it cannot be read."""
_MAX_CHILDREN = 8
_POLL_S = 0.2
_STUCK_AFTER_S = 600.0
"""Without a packet read for so long, a worker is taken for stuck."""


def make_indexes(files: Sequence[VideoFile], progress: Callable[[int], None] | None = None) -> list[Found]:
    """What is in each of these videos, in their order. progress: called with the number of videos that are done.

    Raises PackError where a worker is stuck, SourceChangedError where a file changed since it was found.
    """
    if not hasattr(os, "fork"):
        return [_index(file, lambda: None) for file in files]
    scan = _VideoScan(files, progress)
    try:
        return scan.run()
    finally:
        scan.close()


@dataclass
class _ScanWorker:
    child: Child
    number: int = -1
    """The video that it reads through."""
    beat: int = -1
    since: float = 0.0
    """When its heartbeat was last seen to change."""


class _VideoScan:
    """Workers, each of which reads through one video at a time. A video that kills its worker is rejected."""

    def __init__(self, files: Sequence[VideoFile], progress: Callable[[int], None] | None) -> None:
        self._files, self._progress = files, progress
        self._waiting = deque(range(len(files)))
        self._workers: list[_ScanWorker] = []
        self._found: dict[int, Found] = {}

    def run(self) -> list[Found]:
        for _ in range(min(len(self._files), machine.cpus(), _MAX_CHILDREN)):
            self._start()
        while self._workers:
            for worker in self._ready():
                number = worker.number
                self._found[number] = self._answer(worker)
                if self._progress is not None:
                    self._progress(len(self._found))
            self._check_heartbeats()
        return [self._found[number] for number in range(len(self._files))]

    def close(self) -> None:
        for worker in self._workers:
            worker.child.kill()

    def _start(self) -> None:
        """Start a worker, where a video is left for it."""
        if self._waiting:
            self._workers.append(_ScanWorker(Child(_main, None)))
            self._give(self._workers[-1])

    def _give(self, worker: _ScanWorker) -> None:
        """Have a worker read through the next video; end it where none is left."""
        if not self._waiting:
            worker.child.kill()
            self._workers.remove(worker)
            return
        worker.number, worker.since = self._waiting.popleft(), time.monotonic()
        with contextlib.suppress(OSError):  # it is dead, which is noticed when its answer is received
            worker.child.channel.send(cloudpickle.dumps(self._files[worker.number]))

    def _ready(self) -> list[_ScanWorker]:
        """Workers that have answered or died; empty after a short wait."""
        workers: dict[Any, _ScanWorker] = {worker.child.channel.socket: worker for worker in self._workers}
        return [workers[ready] for ready in wait(list(workers), _POLL_S)]

    def _answer(self, worker: _ScanWorker) -> Found:
        """What a worker found. One that died is replaced, and its video is rejected."""
        received = None
        with contextlib.suppress(OSError):
            received = worker.child.channel.receive()
        if received is not None:
            answer: Found | BaseException = cloudpickle.loads(received[0])
            if not isinstance(answer, Found):
                raise answer
            self._give(worker)
            return answer
        _, _, beat = worker.child.heartbeat.read()
        worker.child.kill(GRACE_S)
        self._workers.remove(worker)
        if not beat:
            raise PackError(f"processes that read through videos cannot start here: {worker.child.last_words()}")
        self._start()
        return DecodeError("crashed", "the process that read through it died")

    def _check_heartbeats(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            _, _, beat = worker.child.heartbeat.read()
            if beat != worker.beat:
                worker.beat, worker.since = beat, now
            elif now - worker.since > _STUCK_AFTER_S:
                raise PackError(
                    f"nothing could be read from {plain(self._files[worker.number].key)} for {_STUCK_AFTER_S:g} s: "
                    "check the disk of the source; if it responds, the file hangs FFmpeg: take it out of the source"
                )


def _index(file: VideoFile, beat: Callable[[], None]) -> Found:
    try:
        return make_index(file, beat)
    except DecodeError as error:
        return error


def _main(channel: Channel, notes: Heartbeat, _: Any, descriptors: Iterable[int]) -> None:
    """What runs in a child: it reads through videos until the parent is gone."""
    init_decoder_process()
    while (received := channel.receive()) is not None:
        file: VideoFile = cloudpickle.loads(received[0])
        notes.note(0, 0)
        answer: Found | Exception
        try:
            answer = _index(file, lambda: notes.note(0, 0))
        except (PackError, MemoryError) as error:
            answer = error
        channel.send(cloudpickle.dumps(answer))
