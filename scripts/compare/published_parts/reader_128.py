"""1. A reader of images for MXNet: from a record file, and from JPEG files by one process and by 128."""

from __future__ import annotations

import http.client
import itertools
import multiprocessing
import os
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from published_parts.common import FORMATS, once, pack, photos, store
from published_parts.contract import Method, Part, Relation, Task, Values, table
from published_parts.slow_store import served
from rawpack import Workers

SIDE, SHORTER = 224, 256
PROCESSES = 128
FAR_S, NEAR_S = 0.085, 0.005
"""What one request cost in the report's slowest and fastest object store, as its times for one process imply."""
LOCAL, FAR, NEAR = "local", "object store, 85 ms", "object store, 5 ms"
LATER, FIRST = "object store, 85 ms, later epochs", "first batch, local"
_CAPACITY, _GROUP = 1024, 4
"""Files in the queue between the children and their parent, and files that a child reads at once."""
COPIES = "jpeg-files"
"""The folder of JPEG files."""
_MAGIC, _HEADER = 0xCED7230A, struct.Struct("<IfQQ")
Pixels = NDArray[np.uint8]


def prepare(task: Task) -> None:
    import data

    files = photos(task, task.count(2048, 64))
    once(task.folder / COPIES, lambda path: data.copies(task.folder, files[0].parents[1]).rename(path))
    once(_record(task), partial(_make_record, files=_files(task)))
    pack(task, "photos", _folder(task), size=SHORTER, shard_size=32 << 20)


def _folder(task: Task) -> Path:
    return task.folder / COPIES


def _files(task: Task) -> list[Path]:
    return sorted(_folder(task).rglob("*.jpg"))


def _record(task: Task) -> Path:
    return task.folder / "photos.rec"


def _make_record(path: Path, files: list[Path]) -> None:
    """MXNet's RecordIO with the bytes of the files as they are, shuffled as by im2rec."""
    order = np.random.default_rng(0).permutation(len(files)).tolist()
    with path.open("wb") as file:
        for number in order:
            body = _HEADER.pack(0, 0.0, number, 0) + files[number].read_bytes()
            file.write(struct.pack("<II", _MAGIC, len(body)) + body + bytes(-len(body) % 4))


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def records(stream: Stream) -> Iterator[bytes]:
    """The images of a record file, one after another."""
    while len(head := _exactly(stream, 8)) == 8:
        magic, length = struct.unpack("<II", head)
        if magic != _MAGIC:
            raise ValueError("not a record")
        yield _exactly(stream, length + -length % 4)[_HEADER.size : length]


def _exactly(stream: Stream, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := stream.read(size - len(found))):
        found += more
    return found


def prepared(image: bytes) -> Pixels:
    """Decode, resize, crop, transpose: (3, 224, 224)."""
    import cv2

    pixels: Any = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
    scale = SHORTER / min(pixels.shape[:2])
    width, height = (max(SHORTER, round(side * scale)) for side in (pixels.shape[1], pixels.shape[0]))
    pixels = cv2.resize(pixels, (width, height))
    top, left = (height - SIDE) // 2, (width - SIDE) // 2
    planes: Pixels = pixels[top : top + SIDE, left : left + SIDE].transpose(2, 0, 1)
    return planes


# ------------------------------------------------------------------------------------------ files, near and far


class Disk:
    """Files on the local disk."""

    def __init__(self, task: Task) -> None:
        self.names = [str(path) for path in _files(task)]

    def get(self, name: str) -> bytes:
        return Path(name).read_bytes()

    @contextmanager
    def stream(self, task: Task) -> Iterator[Stream]:
        with _record(task).open("rb") as file:
            yield file


class Remote:
    """Files on a server, with one connection for each process."""

    _connection: http.client.HTTPConnection | None = None

    def __init__(self, task: Task, port: int) -> None:
        self.names = ["/" + quote(path.relative_to(task.folder).as_posix()) for path in _files(task)]
        self._port, self._pid = port, 0

    def get(self, name: str) -> bytes:
        if self._pid != os.getpid() or self._connection is None:
            self._connection, self._pid = http.client.HTTPConnection("127.0.0.1", self._port), os.getpid()
        self._connection.request("GET", name)
        return self._connection.getresponse().read()

    @contextmanager
    def stream(self, task: Task) -> Iterator[Stream]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("GET", f"/{_record(task).name}")
        yield connection.getresponse()
        connection.close()


Files = Disk | Remote


# ------------------------------------------------------------------------------------------ the original readers


def in_this_process(images: Iterable[bytes], batch: int) -> Iterator[Pixels]:
    """Batches of images whose bytes come one after another; threads decode them, as in MXNet's engine."""
    with ThreadPool(os.cpu_count()) as engine:
        iterator = iter(images)
        while contents := list(itertools.islice(iterator, batch)):
            yield np.stack(engine.map(prepared, contents))


def by_record(task: Task, files: Files, batch: int) -> Iterator[Pixels]:
    with files.stream(task) as stream:
        yield from in_this_process(records(stream), batch)


def by_one(task: Task, files: Files, batch: int) -> Iterator[Pixels]:
    yield from in_this_process(map(files.get, files.names), batch)


def by_readers(processes: int, task: Task, files: Files, batch: int) -> Iterator[Pixels]:
    """Children read bytes, and this process decodes them."""
    with multiprocessing.get_context("fork").Pool(processes, _share, (files,)) as pool:
        yield from in_this_process(_in_order(pool, files.names), batch)


def _in_order(pool: Any, names: list[str]) -> Iterator[bytes]:
    """The bytes of files that a pool reads, at most `_CAPACITY` of them ahead."""
    groups = iter([names[start : start + _GROUP] for start in range(0, len(names), _GROUP)])
    reading = deque(pool.map_async(_get, group) for group in itertools.islice(groups, _CAPACITY // _GROUP))
    while reading:
        yield from reading.popleft().get()
        reading.extend(pool.map_async(_get, group) for group in itertools.islice(groups, 1))


def by_decoders(processes: int, task: Task, files: Files, batch: int) -> Iterator[Pixels]:
    """Children read and decode into shared memory, one batch ahead; this process copies a batch out of it."""
    context = multiprocessing.get_context("fork")
    memory = context.RawArray("B", 2 * batch * SIDE * SIDE * 3)
    blocks = np.frombuffer(memory, np.uint8).reshape(2, batch, 3, SIDE, SIDE)
    with context.Pool(processes, _share, (files, blocks)) as pool:
        size = max(1, batch // processes)
        groups = [files.names[start : start + batch] for start in range(0, len(files.names), batch)]
        waiting = [pool.map_async(_fill, _slots(groups[0], 0), size)]
        for number, names in enumerate(groups):
            if number + 1 < len(groups):
                waiting.append(pool.map_async(_fill, _slots(groups[number + 1], (number + 1) % 2), size))
            waiting.pop(0).get()
            yield blocks[number % 2, : len(names)].copy()


def _slots(names: list[str], block: int) -> list[tuple[str, int, int]]:
    return [(name, block, row) for row, name in enumerate(names)]


def _share(files: Files, blocks: Pixels | None = None) -> None:
    global _files_here, _blocks
    _files_here, _blocks = files, blocks


def _get(name: str) -> bytes:
    return _files_here.get(name)


def _fill(slot: tuple[str, int, int]) -> None:
    name, block, row = slot
    assert _blocks is not None
    _blocks[block, row] = prepared(_files_here.get(name))


_files_here: Files
_blocks: Pixels | None


# ------------------------------------------------------------------------------------------ measurements

Way = Callable[[Task, Files, int], Iterator[Pixels]]


def original(way: Way, task: Task, *, far: bool = True, slow: bool = False) -> Values:
    """slow: read only a few images from the slowest store, and scale their time up to a batch."""
    import cv2

    # With threads of its own, OpenCV deadlocks in forks of a process that has used it.
    cv2.setNumThreads(1)
    batch = _batch(task)
    first, each = _timed(way(task, Disk(task), batch))
    found = {LOCAL: each, FIRST: first}
    for column, latency_s in ((FAR, FAR_S), (NEAR, NEAR_S)) if far else ():
        with served(task.folder, latency_s) as port:
            few = min(batch, 32 if slow and latency_s > NEAR_S else batch)
            found[column] = _timed(way(task, Remote(task, port), few), most=2)[1] * batch / few
    return found


def _batch(task: Task) -> int:
    return task.count(512, 16)


def _timed(batches: Iterator[Any], most: int = 3) -> tuple[float, float]:
    """Seconds to the first batch, and per batch for the next ones."""
    began = time.perf_counter()
    next(batches)
    first = time.perf_counter() - began
    began, count = time.perf_counter(), 0
    for _ in itertools.islice(batches, most):
        count += 1
    each = (time.perf_counter() - began) / count
    if isinstance(batches, Generator):
        batches.close()
    return first, each


def ours(format: str, task: Task, *, workers: int | None = None, far: bool = True) -> Values:
    from rawpack import Reader
    from rawpack.transforms import RandomCrop, ToCHW

    batch, path, found = _batch(task), store(task, "photos", format), Values()

    def batches(where: str | Path, **options: Any) -> Any:
        backend: Any = "process" if workers else None
        return Reader(where, **options).batches(
            batch,
            shuffle="block",
            transform=[RandomCrop(SIDE), ToCHW()],
            workers=Workers(workers, backend=backend),
            drop_last=True,
        )

    here = batches(path)
    began = time.perf_counter()
    for _ in here:
        found.setdefault(FIRST, time.perf_counter() - began)
    found[LOCAL] = sum(_whole(here) for _ in range(3)) / 3 / len(here)
    for column, latency_s in ((FAR, FAR_S), (NEAR, NEAR_S)) if far else ():
        with served(task.folder, latency_s) as port, tempfile.TemporaryDirectory(dir=task.folder) as cache:
            there = batches(f"http://127.0.0.1:{port}/{path.name}", cache=cache)
            found[column] = _whole(there) / len(there)
            if latency_s == FAR_S:
                found[LATER] = _whole(there) / len(there)
            del there
    return found


def _whole(batches: Any) -> float:
    """Seconds for a whole epoch."""
    began = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - began


COLUMNS = (LOCAL, FAR, NEAR, LATER, FIRST)
RECORD, ONE = "record file", "JPEG, one process"
MANY, MANY_READ = f"JPEG, {PROCESSES} processes", f"JPEG, {PROCESSES} processes that only read"
FEW = "JPEG, a process for each CPU"
OURS_MANY = f"rawpack, lmdb, {PROCESSES} workers"

PART = Part(
    number=1,
    name="reader_128",
    title="A reader for MXNet with 128 processes",
    unit="Seconds for a batch of 512 images of 3x224x224.",
    columns=COLUMNS,
    prepare=prepare,
    methods=(
        Method(RECORD, partial(original, by_record), reads=("photos.rec",)),
        Method(ONE, partial(original, by_one, slow=True), reads=(COPIES,)),
        Method(MANY_READ, partial(original, partial(by_readers, PROCESSES)), reads=(COPIES,)),
        Method(MANY, partial(original, partial(by_decoders, PROCESSES)), reads=(COPIES,)),
        Method(FEW, partial(original, partial(by_decoders, os.cpu_count() or 1), far=False), reads=(COPIES,)),
        *(
            Method(f"rawpack, {format}", partial(ours, format), needs=("aiohttp",), reads=(f"photos.{format}",))
            for format in FORMATS
        ),
        Method(OURS_MANY, partial(ours, "lmdb", workers=PROCESSES, far=False), reads=("photos.lmdb",)),
    ),
    published=table(
        (LOCAL, FAR, NEAR),
        {RECORD: (0.0619, 0.6092, 0.0549), ONE: (0.3524, 43.84, 2.745), MANY: (0.2898, 0.3365, 0.3159)},
    ),
    relations=(
        Relation(
            "One process: an object store is far slower than a disk", (ONE, FAR), (ONE, LOCAL), theirs=43.84 / 0.3524
        ),
        Relation("128 processes: it is hardly slower", (MANY, FAR), (MANY, LOCAL), theirs=0.3365 / 0.2898),
        Relation("128 processes outrun one, object store at 85 ms", (ONE, FAR), (MANY, FAR), theirs=43.84 / 0.3365),
        Relation("128 processes outrun one, object store at 5 ms", (ONE, NEAR), (MANY, NEAR), theirs=2.745 / 0.3159),
        Relation("128 processes gain little over one, local", (ONE, LOCAL), (MANY, LOCAL), theirs=0.3524 / 0.2898),
        Relation("A record file outruns JPEG files, local", (MANY, LOCAL), (RECORD, LOCAL), theirs=0.2898 / 0.0619),
        Relation("A record file slows down in an object store", (RECORD, FAR), (RECORD, LOCAL), theirs=0.6092 / 0.0619),
        Relation(
            "Children that decode nearly double the speed of children that only read",
            (MANY_READ, LOCAL),
            (MANY, LOCAL),
            within=(1.5, 2.5),
        ),
        Relation("With few CPUs, more processes are slower", (MANY, LOCAL), (FEW, LOCAL), within=(1.05, 1e9)),
        Relation("rawpack: 128 processes against memmap, local", (MANY, LOCAL), ("rawpack, memmap", LOCAL)),
        Relation("rawpack: a record file against lmdb, local", (RECORD, LOCAL), ("rawpack, lmdb", LOCAL)),
        Relation("rawpack: 128 processes against lmdb, object store, first epoch", (MANY, FAR), ("rawpack, lmdb", FAR)),
        Relation(
            "rawpack: 128 processes against lmdb, object store, later epochs", (MANY, FAR), ("rawpack, lmdb", LATER)
        ),
        Relation(
            "rawpack: the first batch of 128 workers, in the time of its usual ones",
            (OURS_MANY, FIRST),
            ("rawpack, lmdb", FIRST),
        ),
    ),
)
