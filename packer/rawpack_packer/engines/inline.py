"""The engine that packs part after part in this process, for debugging and where no worker process can be started."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rawpack_packer.destination import files
from rawpack_packer.engines.contract import Report
from rawpack_packer.part.part import PartTask, run_part


class InlineEngine:
    """See `Engine`. A sample that kills its decoder kills this process."""

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        for task in tasks:
            with files.refusals_named(task.destination):
                run_part(task, lambda _: None, partial(report.ticked, task.number))
            report.finished(task.number)
