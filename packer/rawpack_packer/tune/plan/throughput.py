"""The speed of packing once all workers are busy."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rawpack_packer.engines import Engine, Report
from rawpack_packer.part.part import PartTask, Tick

_WINDOW = 0.5
"""Share of the samples below which a stretch is too short to measure."""


class PacedEngine:
    """An engine that measures how fast another one packs. See `Engine`."""

    def __init__(self, engine: Engine, workers: int) -> None:
        self._engine, self._workers = engine, workers
        self._done: dict[int, int] = {}
        self._began = self._ended = 0.0
        self._busy: tuple[float, int] | None = None
        """When every worker had done something, and how many samples were done by then."""

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        self._began, self._report = time.perf_counter(), report
        self._engine.run(tasks, self)
        self._ended = time.perf_counter()

    def ticked(self, number: int, tick: Tick, /) -> None:
        self._done[number] = tick.samples
        if self._busy is None and len(self._done) >= self._workers:
            self._busy = time.perf_counter(), sum(self._done.values())
        self._report.ticked(number, tick)

    def finished(self, number: int, /) -> None:
        self._report.finished(number)

    def waits(self, why: str, /) -> None:
        self._report.waits(why)

    @property
    def samples_per_s(self) -> float:
        """From the time when all workers are busy to the end; of the whole run, the start of the workers included,
        where that is less than half of the samples."""
        began, before = self._busy or (self._began, 0)
        total = sum(self._done.values())
        if total - before < _WINDOW * total:
            began, before = self._began, 0
        return (total - before) / max(self._ended - began, 1e-9)
