"""Runs the command and sends it a signal while it scans its source, or while it writes the table of what it scanned.

    python killed_at.py scan AT SIGNAL SOURCES WORDS pack ...     before it opens or lists a path in SOURCES, time AT
    python killed_at.py table AT SIGNAL SOURCES WORDS pack ...    before change AT in the folder of the table

What it had written since its last fsync loses its second half after SIGKILL, as in a power cut. WORDS is a file that
says where the signal was sent; it is not made where the command ended before.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from killed_child import Killer

LISTING = ("os.scandir", "os.listdir")


class KilledAt(Killer):
    """Counts the steps of one stage of this process alone."""

    def __init__(self, stage: str, at: int, number: signal.Signals, sources: Path, words: Path) -> None:
        super().__init__(Path("/"), at, torn=number == signal.SIGKILL, words=words)
        self._stage, self._number, self._sources, self._process = stage, number, sources, os.getpid()
        self._ended = False

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self._ended or os.getpid() != self._process:
            return
        path = args[0] if args and isinstance(args[0], str | bytes | os.PathLike) else ""
        if event in (*LISTING, "open") and Path(os.fsdecode(path)).is_relative_to(self._sources):
            self._count(self._stage == "scan", f"{event} {os.fsdecode(path)}")
        super()._hear(event, args)

    def _step(self, what: str) -> None:
        if "/.rawpack/table" in what:
            self._ended |= self._stage == "scan"  # what is opened from now on is packed
            self._count(self._stage == "table", what)

    def _count(self, counts: bool, what: str) -> None:
        if counts and not self._ended and os.getpid() == self._process:
            super()._step(what)

    def _send(self) -> None:
        self._ended = True
        os.kill(self._process, self._number)


def main() -> None:
    stage, at, number, sources, words = sys.argv[1:6]
    killer = KilledAt(stage, int(at), signal.Signals[number], Path(sources), Path(words))
    sys.argv[1:] = sys.argv[6:]
    from rawpack_packer.cli import main as command

    killer.install()
    sys.exit(command())


if __name__ == "__main__":
    main()
