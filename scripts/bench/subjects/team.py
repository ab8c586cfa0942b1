"""A team of bare processes: each does its share of the work with nothing between them but a start and an end."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from contract import Epoch

Share = Callable[..., Iterator[int]]
"""share(number, of, *arguments): gets ready, then yields 0, then for ever how many images it has done since."""


class WorkerSet:
    """Processes that are ready and wait. They end with this object's process."""

    def __init__(self, processes: int, share: Share, *arguments: Any) -> None:
        # spawn: what a fork copies of this process would make it less bare.
        context = multiprocessing.get_context("spawn")
        self._ends: list[Connection] = []
        for number in range(processes):
            ours, theirs = context.Pipe()
            work = (theirs, share, number, processes, *arguments)
            context.Process(target=_serve, args=work, daemon=True).start()
            self._ends.append(ours)
        for end in self._ends:
            end.recv()

    def run(self, seconds: float) -> Epoch:
        """All work for so long. The speed is the sum of theirs, each over its own time."""
        for end in self._ends:
            end.send(seconds)
        done = [end.recv() for end in self._ends]
        rate = sum(images / took for images, took in done)
        images = sum(images for images, _ in done)
        return Epoch(images, images / rate)


def _serve(end: Connection, share: Share, *arguments: Any) -> None:
    work = share(*arguments)
    next(work)
    end.send(None)
    while True:
        try:
            seconds = end.recv()
        except EOFError:
            return
        images, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            images += next(work)
        end.send((images, took))
