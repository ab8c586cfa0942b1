"""The contract between a packing job and the engine that runs its parts, and the simplest engine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Protocol

from rawpack_packer.destination import files
from rawpack_packer.part.part import PartTask, Tick, run_part


class Report(Protocol):
    """Receives the progress of a run. Called in the thread that called `run`."""

    def ticked(self, number: int, tick: Tick, /) -> None:
        """Part `number` has come this far. A part that is packed again starts from 0."""

    def finished(self, number: int, /) -> None:
        """The part's shard and record are on the disk."""

    def waits(self, why: str, /) -> None:
        """No worker has taken a part for some seconds; `why` is a line for the user."""


class Engine(Protocol):
    """Runs parts. Every engine writes the same bytes."""

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        """Run all tasks, and return when all are done. Draws a task only when it can begin, and packs the part of a
        worker that died again.

        Raises PackError where a part cannot be done, after its workers have ended.
        """


class InlineEngine:
    """See `Engine`. Packs part after part in this process, for debugging and where no worker process can be started. A
    sample that kills its decoder kills this process."""

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        for task in tasks:
            with files.refusals_named(task.destination):
                run_part(task, lambda _: None, partial(report.ticked, task.number))
            report.finished(task.number)
