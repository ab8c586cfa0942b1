"""What a worker does, whichever process or thread it is: fill rows of a slot."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.batching.messages import Done, Failed, Reply, Task, decode_task, encode
from rawpack.batching.slots import SlotLayout
from rawpack.child import Channel, Notes
from rawpack.errors import RawpackError, WorkerError
from rawpack.library import Library
from rawpack.manifest import Field
from rawpack.stats import Times

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Views = dict[str, NDArray[Any]]
INDEX = "index"
"""The array of a slot that says which samples it is to hold: rows of the reader, written before a task is given out."""


@dataclass(frozen=True)
class WorkSpec:
    """All that a worker needs to know, sent once."""

    stores: tuple[str, ...]
    manifests: tuple[bytes, ...]
    """As the reader found them, sealed: a worker that starts later must not read what was packed there since."""
    layout: SlotLayout
    image_size: tuple[int, int] | None
    """(height, width) that images are resized and centre-cropped to."""
    verify: bool = False
    """Check each image against its checksum before it is used."""
    memory: tuple[dict[str, tuple[int, int]], int] | None = None
    """`Memory.layout` of preloaded shards; the descriptor travels beside the spec."""


class Filler:
    """Fills slots by a spec. Any number of threads may use one."""

    def __init__(self, spec: WorkSpec, library: Library) -> None:
        self._library, self._size, self._verify = library, spec.image_size, spec.verify
        names = [field.name for field in spec.layout.fields if field.name != INDEX]
        self._fields = [(name, library.fields[name]) for name in names]
        self._images = [
            name
            for name, field in self._fields
            if field.kind == "image" and any(store.is_scattered(name) for store in library.stores)
        ]
        """Those that the disk is asked for ahead of time."""

    def fill(self, views: Views, start: int, stop: int, times: Times) -> None:
        """Fill rows start .. stop of every array of a slot, by its `index`; add to `times` what that took."""
        rows = views[INDEX][start:stop]
        for name, field in self._fields:
            out = views[name][start:stop]
            if self._size is not None and field.kind == "image":
                self._fit(name, rows, out, times)
                continue
            began = time.perf_counter()
            # What was inflated to be checked is read while it is at hand: one sample at a time.
            step = 1 if self._verify and field.encoding == "deflate" else max(1, len(rows))
            for i in range(0, len(rows), step):
                if self._verify:
                    self._check(name, field, rows[i : i + step])
                self._library.read_into(name, rows[i : i + step], out[i : i + step])
            _add(times, field, time.perf_counter() - began)

    def will_need(self, rows: NDArray[np.int64]) -> None:
        """Ask the disk for the images of these samples."""
        for name in self._images:
            self._library.will_need(name, rows)

    def looks_cold(self, rows: NDArray[np.int64]) -> bool:
        """Whether the first of these samples is not in the page cache: then it is worth asking for all.

        One is enough, in random order: what it misses, a worker meets, and says so. Touches nothing: of a file that was
        cut short, that would end this process.
        """
        return not all(self._library.is_cached(name, row) for name in self._images for row in rows[:1].tolist())

    @property
    def descriptors(self) -> list[int]:
        """What a worker process needs beside the spec."""
        return [] if self._library.memory is None else [self._library.memory.descriptor]

    def name(self, row: int) -> str:
        """How a sample is called in an error: its row and its key."""
        try:
            return f"sample {row} ({self._library.text('key', np.array([row]))[0]!r})"
        except (RawpackError, KeyError):
            return f"sample {row}"

    def _check(self, name: str, field: Field, rows: NDArray[np.int64]) -> None:
        if field.kind == "image":
            for row in rows.tolist():
                self._library.check(name, row)

    def _fit(self, name: str, rows: NDArray[np.int64], out: NDArray[Any], times: Times) -> None:
        """Read images and bring each to the size of `out`."""
        from rawpack.resize import fit

        assert self._size is not None
        for i, row in enumerate(rows.tolist()):
            began = time.perf_counter()
            if self._verify:
                self._check(name, self._library.fields[name], rows[i : i + 1])
            image = self._library.read(name, row)
            read = time.perf_counter()
            out[i] = fit(image, self._size)[0]
            _add(times, self._library.fields[name], read - began)
            times.transforming += time.perf_counter() - read


def _add(times: Times, field: Field, seconds: float) -> None:
    if field.encoding == "raw":
        times.reading += seconds
    else:
        times.decoding += seconds


def do(task: Task, filler: Filler, views: Views, notes: Notes) -> Reply:
    """Do one task; what it raises is told, with the sample that raised it."""
    times, position, faults = Times(), task.start, major_faults()
    try:
        if not task.careful:
            notes.note(task.number, -1)
            try:
                filler.fill(views, task.start, task.stop, times)
                return Done(task.number, times, major_faults() > faults)
            except Exception:
                if task.stop - task.start == 1:
                    raise
        # One by one: to find the sample that raised, or the one that kills.
        for position in range(task.start, task.stop):
            notes.note(task.number, position)
            filler.fill(views, position, position + 1, times)
        return Done(task.number, times, major_faults() > faults)
    except Exception as error:
        row = int(views[INDEX][position])
        return Failed(task.number, row, type(error).__name__, str(error), traceback.format_exc())


def major_faults() -> int:
    """How often this thread has waited for a page to come from the disk; 0 where the system does not tell."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt if hasattr(resource, "RUSAGE_THREAD") else 0


def blame(filler: Filler, views: Views, error: Exception) -> RawpackError:
    """The error to raise in this process for one that came up while filling a batch: it names the sample."""
    for position, row in enumerate(views[INDEX].tolist()):
        try:
            filler.fill(views, position, position + 1, Times())
        except Exception as again:
            return WorkerError(f"reading {filler.name(row)} failed: {type(again).__name__}: {again}")
    return WorkerError(f"reading a batch failed, and did not when done again: {type(error).__name__}: {error}")


def serve(channel: Channel, filler: Filler, views_of: Callable[[Task, list[int]], Views], notes: Notes) -> None:
    """Do tasks until the other end is gone. One loop for both backends."""
    while True:
        received = channel.receive()
        if received is None:
            return
        task = decode_task(received[0])
        reply = do(task, filler, views_of(task, received[1]), notes)
        try:
            channel.send(encode(reply))
        except OSError:
            return
