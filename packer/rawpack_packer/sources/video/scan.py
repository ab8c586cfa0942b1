"""Makes the indexes of many videos in child processes: if a file crashes FFmpeg, only that file is rejected; if a
process is killed, its file is read again."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import cloudpickle

from rawpack.errors import DecodeError, PackError
from rawpack.system import machine
from rawpack.system.channel import Channel, Heartbeat
from rawpack.system.child import Child
from rawpack.system.pool import SupervisedPool, WorkerHandle
from rawpack_packer.errors import hopeless, is_killed, killed
from rawpack_packer.images import init_decoder_process
from rawpack_packer.sources.base import Scanning, unseen
from rawpack_packer.sources.video.container import VideoFile
from rawpack_packer.sources.video.index import READ_AGAIN, VideoIndex, make_index
from rawpack_packer.text import again, plain

Found = VideoIndex | DecodeError
"""What is in a video, or why it cannot be read."""
_MAX_CHILDREN = 8
_STUCK_AFTER_S = 600.0
"""Without a packet read for so long, a worker is taken for stuck."""


def make_indexes(files: Sequence[VideoFile], progress: Scanning = unseen) -> list[Found]:
    """What is in each of these videos, in their order. progress: called with the number of videos that are done.

    Each worker reads through one video at a time. A video whose worker died is read again in a process of its own, and
    noted as `READ_AGAIN`. Raises PackError where a worker is stuck, or the second one is killed from outside;
    SourceChangedError where a file changed since it was found.
    """
    if not hasattr(os, "fork"):
        return [_index(file, lambda: None) for file in files]
    numbers = range(len(files))
    found, died = _read_through(files, numbers, min(len(files), machine.cpus(), _MAX_CHILDREN), progress)
    # After all others: whichever of them took the memory has ended.
    for number in sorted(died):
        second, deaths = _read_through(files, [number], 1)
        if not second and is_killed(deaths[number]):
            raise killed(f"the process that read through {plain(files[number].key)}", deaths[number])
        index = second.get(number) or DecodeError("crashed", "it crashes the processes that read through it")
        found[number] = index if isinstance(index, DecodeError) else replace(index, notes=(*index.notes, READ_AGAIN))
        progress(len(found))
    return [found[number] for number in numbers]


def _read_through(
    files: Sequence[VideoFile], numbers: Sequence[int], workers: int, progress: Scanning = unseen
) -> tuple[dict[int, Found], dict[int, int | None]]:
    """What is in the videos of these numbers; and the exit statuses of the workers that died, by the video that each
    was at. Raises as `make_indexes`."""
    waiting, found, died = deque(numbers), dict[int, Found](), dict[int, int | None]()
    pool = SupervisedPool[Child, int](
        lambda template: Child(_main, None, launcher=template), _load if workers > 1 else None
    )

    def give(worker: WorkerHandle[Child, int]) -> None:
        if waiting:
            number = waiting.popleft()
            pool.give(worker, number, number, cloudpickle.dumps((number, files[number])))
        else:
            pool.remove(worker)

    with closing(pool):
        for _ in range(workers):
            give(pool.add())
        while pool.handles:
            for worker, received in pool.receive():
                if received is None:
                    death = pool.bury(worker, died=True)
                    if death.job is None or not (death.began or is_killed(death.status)):
                        raise PackError(f"processes that read through videos cannot start here: {death.words}")
                    died[death.job] = death.status
                    if waiting:
                        pool.revive(worker)
                else:
                    answer: Found | BaseException = cloudpickle.loads(received)
                    if not isinstance(answer, Found):
                        raise answer
                    found[worker.jobs.popitem()[0]] = answer
                progress(len(found))
                give(worker)
            for worker in pool.stuck(_STUCK_AFTER_S):
                (number,) = worker.jobs
                raise PackError(
                    f"nothing could be read from {plain(files[number].key)} for {_STUCK_AFTER_S:g} s: "
                    "check the disk of the source; if it responds, the file hangs FFmpeg: take it out of the source"
                )
    return found, died


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
        except MemoryError as error:
            what = f"{plain(file.key)} could not be read through"
            answer = PackError(f"{what}: {hopeless(error) or f'out of memory; free some, and run {again()} again'}")
        channel.send(cloudpickle.dumps(answer))
