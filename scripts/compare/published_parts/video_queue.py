"""2. Serial and parallel loading of video: a FIFO queue of batches of clips."""

from __future__ import annotations

import itertools
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from published_parts.common import once, pack, size_of, store
from published_parts.contract import Method, Part, Relation, Task, Values
from rawpack import Workers

HEIGHT, WIDTH, LENGTH = 240, 320, 64
"""The size of a clip in its AVI file."""
FRAMES, STRIDE, SIDE = 16, 4, 112
"""The part of a clip that training uses."""
CONSUMER_S, PRODUCER_S = 0.2, 1.0
PRODUCERS = (1, 10, 30)
IN_A_BATCH = 2
"""Clips in a batch of the queue: decoding them keeps a CPU busy for about 5% of the producer's second, as reported."""
BATCH_S, SIZE = "s for 128 clips", "times the AVI files' bytes"
Pixels = NDArray[np.uint8]


def prepare(task: Task) -> None:
    import videos

    made = videos.Made(task.count(6, 1), 6.0, (256, 340))
    found = videos.videos(task.folder, Path(task.videos) if task.videos else None, made)
    folder = once(task.folder / "avi", partial(_make_clips, source=found, count=task.count(128, 6)))
    once(task.folder / "frames", partial(_make_frames, clips=folder))
    pack(task, "clips", folder, size=SIDE)


def _make_clips(folder: Path, source: Path, count: int) -> None:
    """MPEG-4 in AVI files of `LENGTH` frames, cut out of the videos in turn, each from a different frame on."""
    import av

    films = [frames for path in sorted(source.iterdir()) if len(frames := _film(path)) > 1]
    for number in range(count):
        film, start = films[number % len(films)], 7 * number
        path = folder / f"class{number % 5}" / f"{number:04d}.avi"
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w") as file:
            stream: Any = file.add_stream("mpeg4", rate=30)
            stream.width, stream.height, stream.pix_fmt, stream.bit_rate = WIDTH, HEIGHT, "yuv420p", 2_000_000
            for k in range(start, start + LENGTH):
                file.mux(stream.encode(av.VideoFrame.from_ndarray(film[k % len(film)], format="rgb24")))
            file.mux(stream.encode(None))


def _film(path: Path) -> list[Pixels]:
    """The first frames of a video, at the size of the clips."""
    import av

    try:
        with av.open(str(path)) as file:
            frames = itertools.islice(file.decode(video=0), 400)
            return [frame.to_ndarray(width=WIDTH, height=HEIGHT, format="rgb24") for frame in frames]
    except av.error.FFmpegError:
        return []


def _make_frames(folder: Path, clips: Path) -> None:
    """Every frame as a JPEG file, as the report decoded its clips beforehand."""
    import av
    import cv2

    for clip in _clips(clips):
        part = folder / clip.stem
        part.mkdir(parents=True)
        with av.open(str(clip)) as file:
            for number, frame in enumerate(file.decode(video=0)):
                path = str(part / f"{number:03d}.jpg")
                cv2.imwrite(path, frame.to_ndarray(format="bgr24"), [cv2.IMWRITE_JPEG_QUALITY, 95])


def _clips(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.avi"))


def by_decoding(clip: Path) -> Pixels:
    """A clip (16, 112, 112, 3) from an AVI file: decodes all frames up to the last one that it needs."""
    import av

    with av.open(str(clip)) as file:
        frames = itertools.islice(file.decode(video=0), 0, FRAMES * STRIDE, STRIDE)
        return np.stack([frame.to_ndarray(width=SIDE, height=SIDE, format="rgb24") for frame in frames])


def by_frames(clip: Path) -> Pixels:
    """The same clip from the JPEG files of its frames."""
    import cv2

    folder = clip.parents[2] / "frames" / clip.stem
    images: list[Any] = [cv2.imread(str(folder / f"{number:03d}.jpg")) for number in range(0, FRAMES * STRIDE, STRIDE)]
    return np.stack([cv2.resize(image, (SIDE, SIDE)) for image in images])


Read = Callable[[Path], Pixels]


def original(read: Read, folder: str, task: Task, *, threads: int = 1, queues: bool = False) -> Values:
    clips = _clips(task.folder / "avi")
    with ThreadPool(threads) as pool:
        began = time.perf_counter()
        pool.map(read, clips, chunksize=1)
        found = {BATCH_S: (time.perf_counter() - began) * 128 / len(clips)}
    found[SIZE] = size_of(task.folder / folder) / size_of(task.folder / "avi")
    for count in PRODUCERS if queues else ():
        found |= _with_producers(task, count, partial(_fifo, read, clips, count))
    return found


def _fifo(read: Read, clips: list[Path], count: int) -> tuple[Callable[[], Any], Callable[[], None]]:
    """The report's queue: producers add batches without end, faster or slower than the consumer takes them."""
    fifo: queue.Queue[Any] = queue.Queue()
    ended = threading.Event()

    def produce(seed: int) -> None:
        chosen = random.Random(seed)
        while not ended.is_set():
            until = time.monotonic() + PRODUCER_S
            batch = np.stack([read(clip) for clip in chosen.sample(clips, IN_A_BATCH)])
            ended.wait(max(0.0, until - time.monotonic()))
            fifo.put(batch)

    for seed in range(count):
        threading.Thread(target=produce, args=(seed,), daemon=True).start()
    return fifo.get, ended.set


def ours(format: str, task: Task) -> Values:
    from rawpack import Reader
    from rawpack.transforms import BatchLambda

    path = store(task, "clips", format)
    clips = Reader(path).clips(FRAMES, stride=STRIDE)
    batches = clips.batches(min(32, len(clips)), shuffle=True)
    for _ in batches:
        pass
    began, epochs = time.perf_counter(), task.count(5, 1)
    for _ in range(epochs):
        for _ in batches:
            pass
    found = {BATCH_S: (time.perf_counter() - began) / epochs * 128 / len(clips)}
    found[SIZE] = size_of(path) / size_of(task.folder / "avi")

    def queued(count: int) -> tuple[Callable[[], Any], Callable[[], None]]:
        waiting = BatchLambda(lambda batch: time.sleep(PRODUCER_S))
        made = clips.batches(IN_A_BATCH, shuffle=True, workers=Workers(count, backend="thread"), transform=[waiting])
        batch_queue = made.queue(depth=8)
        return batch_queue.dequeue, batch_queue.close

    for count in PRODUCERS:
        found |= _with_producers(task, count, partial(queued, count))
    return found


def _with_producers(
    task: Task, count: int, start: Callable[[], tuple[Callable[[], Any], Callable[[], None]]]
) -> Values:
    """The rate at which a loop with a step of 0.2 s gets batches, and the CPU time of all in percent of one CPU."""
    take, close = start()
    for _ in range(task.count(3, 1)):
        take()
    began, cpu, taken = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < task.count(4, 1):
        take()
        taken += 1
        time.sleep(CONSUMER_S)
    took = time.perf_counter() - began
    found = {_rate(count): taken / took, _cpu(count): 100 * (time.process_time() - cpu) / took}
    close()
    return found


def _rate(count: int) -> str:
    return f"batches/s, {count} producer{'s' * (count > 1)}"


def _cpu(count: int) -> str:
    return f"CPU %, {count} producer{'s' * (count > 1)}"


ONE, EACH, JPEG = "AVI files, FIFO queue", "AVI files, a thread for each CPU", "JPEG files of the frames"
MEMMAP = "rawpack, memmap"

PART = Part(
    number=2,
    name="video_queue",
    title="A queue of video clips",
    unit=(
        "Clips of 16 frames of 112x112 from AVI files of 64 frames of 320x240. A producer takes 1 s for a batch, "
        "the consumer 0.2 s."
    ),
    columns=(BATCH_S, SIZE, *(name(count) for name in (_cpu, _rate) for count in PRODUCERS)),
    prepare=prepare,
    methods=(
        Method(ONE, partial(original, by_decoding, "avi", queues=True), needs=("av",), reads=("avi",)),
        Method(EACH, partial(original, by_decoding, "avi", threads=os.cpu_count() or 1), needs=("av",), reads=("avi",)),
        Method(JPEG, partial(original, by_frames, "frames"), needs=("cv2",), reads=("frames",)),
        *(
            Method(f"rawpack, {format}", partial(ours, format), reads=(f"clips.{format}",))
            for format in ("memmap", "hdf5", "lmdb")
        ),
    ),
    published={
        (ONE, BATCH_S): 3.0,
        (JPEG, SIZE): 10.0,
        (ONE, _cpu(1)): 5.3,
        (ONE, _cpu(10)): 29.8,
        (ONE, _cpu(30)): 119.0,
    },
    relations=(
        Relation("Ten producers use 6 times the CPU of one", (ONE, _cpu(10)), (ONE, _cpu(1)), theirs=29.8 / 5.3),
        Relation("Thirty producers use 20 times the CPU of one", (ONE, _cpu(30)), (ONE, _cpu(1)), theirs=119 / 5.3),
        Relation("Not given then: batches per second, ten producers against one", (ONE, _rate(10)), (ONE, _rate(1))),
        Relation("Not given then: batches per second, thirty against ten", (ONE, _rate(30)), (ONE, _rate(10))),
        Relation("Decoding to images beforehand grows the data", (JPEG, SIZE), (ONE, SIZE), theirs=10.0),
        Relation("rawpack: decoding 128 clips against memmap", (ONE, BATCH_S), (MEMMAP, BATCH_S)),
        Relation("rawpack: decoding 128 clips on all CPUs against memmap", (EACH, BATCH_S), (MEMMAP, BATCH_S)),
        Relation("rawpack: decoding 128 clips on all CPUs against lmdb", (EACH, BATCH_S), ("rawpack, lmdb", BATCH_S)),
        Relation("rawpack: JPEG files of frames against lmdb, bytes", (JPEG, SIZE), ("rawpack, lmdb", SIZE)),
        Relation("rawpack: CPU of thirty producers against memmap's", (ONE, _cpu(30)), (MEMMAP, _cpu(30))),
    ),
)
