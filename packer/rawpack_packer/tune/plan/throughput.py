"""How fast packing goes once all workers are busy."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rawpack_packer.engines import Engine, Report
from rawpack_packer.part.part import PartTask, Tick

_WINDOW = 0.5
"""Of all samples: a stretch with fewer of them says little of the pace."""


class PacedEngine:
    """An engine that notes when which samples were done. See `Engine`."""

    def __init__(self, engine: Engine, workers: int) -> None:
        self._engine, self._workers = engine, max(1, workers)
        self._done: dict[int, int] = {}
        self._busy: tuple[float, int] | None = None
        """When all workers had something done, and how many samples that were."""
        self._slack: tuple[float, int] | None = None
        """The same for when the first worker found nothing more to do."""
        self._all_taken = False
        self._began = self._ended = 0.0

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        self._began, self._report = time.perf_counter(), report
        self._engine.run(self._taken(tasks), self)
        self._ended = time.perf_counter()

    def ticked(self, number: int, tick: Tick, /) -> None:
        self._done[number] = tick.samples
        if self._busy is None and len(self._done) >= self._workers:
            self._busy = time.perf_counter(), sum(self._done.values())
        self._report.ticked(number, tick)

    def finished(self, number: int, /) -> None:
        if self._all_taken and self._slack is None:
            self._slack = time.perf_counter(), sum(self._done.values())
        self._report.finished(number)

    def waits(self, why: str, /) -> None:
        self._report.waits(why)

    @property
    def samples_per_s(self) -> float:
        """Between the time when all workers were at work and when the first of them ran out of it; or, where that was
        less than half of the work, to the end; or of the whole run, the start of the workers included."""
        total = sum(self._done.values())
        if self._busy is not None and self._slack is not None:
            seconds, samples = self._slack[0] - self._busy[0], self._slack[1] - self._busy[1]
            if samples >= _WINDOW * total and seconds > 0:
                return samples / seconds
        if self._busy is not None and total - self._busy[1] >= _WINDOW * total and self._ended > self._busy[0]:
            return (total - self._busy[1]) / (self._ended - self._busy[0])
        return total / max(self._ended - self._began, 1e-9)

    def _taken(self, tasks: Iterator[PartTask]) -> Iterator[PartTask]:
        # One ahead: an engine asks for what comes after the last task only when a worker has ended the one before.
        task = next(tasks, None)
        while task is not None:
            after = next(tasks, None)
            self._all_taken = after is None
            yield task
            task = after
