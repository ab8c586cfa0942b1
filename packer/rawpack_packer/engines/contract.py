"""What an engine promises: run these parts, tell as each goes on and ends, do one again whose worker died."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from rawpack_packer.part.part import PartTask, Tick


class Report(Protocol):
    """Who is told. Called in the thread that called `run`."""

    def ticked(self, number: int, tick: Tick, /) -> None:
        """So much of part `number` is done. A part that is done again begins at 0 again."""

    def finished(self, number: int, /) -> None:
        """The part's shard and record are on the disk."""

    def waits(self, why: str, /) -> None:
        """No worker has taken a part for some seconds: a line for the user, with the reason."""


class Engine(Protocol):
    """Runs parts. Whatever the engine, a part's bytes are the same."""

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        """Run all tasks; return when all are done. Takes a task only when it can be begun.

        Raises PackError where one cannot be done, once its workers have ended.
        """
