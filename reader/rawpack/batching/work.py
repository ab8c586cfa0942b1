"""What a worker does, whichever process or thread it is: fill rows of a slot."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rawpack.batching.messages import Done, Failed, Reply, Task, decode_task, encode
from rawpack.batching.slots import SlotLayout
from rawpack.child import Channel, Notes
from rawpack.errors import RawpackError, WorkerError
from rawpack.library import Library

Views = dict[str, NDArray[Any]]
INDEX = "index"
"""The array of a slot that says which samples it is to hold: rows of the reader, written before a task is given out."""


@dataclass(frozen=True)
class WorkSpec:
    """All that a worker needs to know, sent once."""

    stores: tuple[str, ...]
    layout: SlotLayout
    image_size: tuple[int, int] | None
    """(height, width) that images are resized and centre-cropped to."""


class Filler:
    """Fills slots by a spec. Any number of threads may use one."""

    def __init__(self, spec: WorkSpec, library: Library | None = None) -> None:
        self._library = library or Library([Path(store) for store in spec.stores])
        self._size = spec.image_size
        self._names = [field.name for field in spec.layout.fields if field.name != INDEX]

    def fill(self, views: Views, start: int, stop: int) -> None:
        """Fill rows start .. stop of every array of a slot, by its `index`."""
        rows = views[INDEX][start:stop]
        for name in self._names:
            out = views[name][start:stop]
            if self._size is not None and self._library.fields[name].kind == "image":
                for i, row in enumerate(rows.tolist()):
                    self._fit(name, row, out[i])
            else:
                self._library.read_into(name, rows, out)

    def _fit(self, name: str, row: int, out: NDArray[Any]) -> None:
        from rawpack.resize import fit

        assert self._size is not None
        image, _ = fit(self._library.read(name, row), self._size)
        out[...] = image


def do(task: Task, filler: Filler, views: Views, notes: Notes) -> Reply:
    """Do one task; what it raises is told, with the sample that raised it."""
    began = time.perf_counter()
    position = task.start
    try:
        if not task.careful:
            notes.note(task.number, -1)
            try:
                filler.fill(views, task.start, task.stop)
                return Done(task.number, time.perf_counter() - began, task.stop - task.start)
            except Exception:
                if task.stop - task.start == 1:
                    raise
        # One by one: to find the sample that raised, or the one that kills.
        for position in range(task.start, task.stop):
            notes.note(task.number, position)
            filler.fill(views, position, position + 1)
        return Done(task.number, time.perf_counter() - began, task.stop - task.start)
    except Exception as error:
        row = int(views[INDEX][position])
        return Failed(task.number, row, type(error).__name__, str(error), traceback.format_exc())


def blame(filler: Filler, views: Views, error: Exception) -> RawpackError:
    """The error to raise in this process for one that came up while filling a batch: it names the sample."""
    for position, row in enumerate(views[INDEX].tolist()):
        try:
            filler.fill(views, position, position + 1)
        except Exception as again:
            return WorkerError(f"reading sample {row} failed: {type(again).__name__}: {again}")
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
