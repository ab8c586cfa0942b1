"""Makes the indexes of many videos in child processes: if a file crashes FFmpeg, only that file is rejected."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import cloudpickle

from rawpack.errors import DecodeError, PackError
from rawpack.system import machine
from rawpack.system.channel import Channel
from rawpack.system.child import Child
from rawpack.system.heartbeat import Heartbeat
from rawpack.system.pool import SupervisedPool, WorkerHandle
from rawpack.system.template import Template
from rawpack_packer.images import init_decoder_process
from rawpack_packer.sources.base import Scanning, unseen
from rawpack_packer.sources.video.container import VideoFile
from rawpack_packer.sources.video.index import VideoIndex, make_index
from rawpack_packer.text import plain

Found = VideoIndex | DecodeError
"""What is in a video, or why it cannot be read."""
_MAX_CHILDREN = 8
_STUCK_AFTER_S = 600.0
"""Without a packet read for so long, a worker is taken for stuck."""


def make_indexes(files: Sequence[VideoFile], progress: Scanning = unseen) -> list[Found]:
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


_ScanWorker = WorkerHandle[Child, int]
"""A worker, and the video that it reads through."""


class _VideoScan:
    """Workers, each of which reads through one video at a time. A video that kills its worker is rejected."""

    def __init__(self, files: Sequence[VideoFile], progress: Scanning) -> None:
        self._files, self._progress = files, progress
        self._waiting = deque(range(len(files)))
        self._workers = min(len(files), machine.cpus(), _MAX_CHILDREN)
        self._pool = SupervisedPool[Child, int](_start, _load if self._workers > 1 else None)
        self._found: dict[int, Found] = {}

    def run(self) -> list[Found]:
        for _ in range(self._workers):
            self._give(self._pool.add())
        while self._pool.handles:
            for worker, received in self._pool.receive():
                self._answered(worker, received)
            for worker in self._pool.stuck(_STUCK_AFTER_S):
                (number,) = worker.jobs
                raise PackError(
                    f"nothing could be read from {plain(self._files[number].key)} for {_STUCK_AFTER_S:g} s: "
                    "check the disk of the source; if it responds, the file hangs FFmpeg: take it out of the source"
                )
        return [self._found[number] for number in range(len(self._files))]

    def close(self) -> None:
        self._pool.close()

    def _give(self, worker: _ScanWorker) -> None:
        """Have a worker read through the next video; end it where none is left."""
        if self._waiting:
            number = self._waiting.popleft()
            self._pool.give(worker, number, number, cloudpickle.dumps((number, self._files[number])))
        else:
            self._pool.remove(worker)

    def _answered(self, worker: _ScanWorker, received: bytearray | None) -> None:
        """Take what a worker found. One that died is replaced, and its video is rejected."""
        if received is None:
            death = self._pool.bury(worker, died=True)
            if not death.began or death.job is None:
                raise PackError(f"processes that read through videos cannot start here: {death.words}")
            self._found[death.job] = DecodeError("crashed", "the process that read through it died")
            if self._waiting:
                self._pool.revive(worker)
        else:
            answer: Found | BaseException = cloudpickle.loads(received)
            if not isinstance(answer, Found):
                raise answer
            (number,) = worker.jobs
            worker.jobs.clear()
            self._found[number] = answer
        self._progress(len(self._found))
        self._give(worker)


def _start(template: Template | None) -> Child:
    return Child(_main, None, launcher=template)


def _load() -> None:
    """Runs in the template of the workers: loads what they need besides this module."""
    import av  # noqa: F401
    import cv2  # noqa: F401


def _index(file: VideoFile, beat: Callable[[], None]) -> Found:
    try:
        return make_index(file, beat)
    except DecodeError as error:
        return error


def _main(channel: Channel, notes: Heartbeat, _: Any, descriptors: Iterable[int]) -> None:
    """What runs in a child: it reads through videos until the parent is gone."""
    init_decoder_process()
    while (received := channel.receive()) is not None:
        number, file = cloudpickle.loads(received[0])
        beat = partial(notes.note, number, 0)
        beat()
        answer: Found | Exception
        try:
            answer = _index(file, beat)
        except PackError as error:
            answer = error
        channel.send(cloudpickle.dumps(answer))
