"""A source that stops at one of its samples until it is told to go on, so that a test knows who is packing what.

As a program it runs the command with such a source: `python held.py AT FOLDER pack ...`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from troubled import opening

WAIT_S = 120.0


class Held:
    """At one sample: note in a folder which process reads it, and its parent; wait for `let_go`. See `Trouble`."""

    def __init__(self, at: int, folder: Path) -> None:
        self._at, self._folder = at, folder

    def __call__(self, number: int) -> None:
        if number != self._at:
            return
        note = self._folder / f"{os.getpid()}.note"
        note.with_suffix(".tmp").write_text(f"{os.getpid()} {os.getppid()}")
        note.with_suffix(".tmp").replace(note)
        until = time.monotonic() + WAIT_S
        while not (self._folder / "go").exists() and time.monotonic() < until:
            time.sleep(0.02)


def held(folder: Path, count: int = 1) -> list[tuple[int, int]]:
    """Wait until so many processes have come to the sample: (process, parent) of each."""
    until = time.monotonic() + WAIT_S
    while len(notes := sorted(folder.glob("*.note"))) < count:
        assert time.monotonic() < until, "nobody came to the sample"
        time.sleep(0.02)
    return [(int(pid), int(parent)) for pid, parent in (note.read_text().split() for note in notes)]


def let_go(folder: Path) -> None:
    (folder / "go").touch()


def main() -> None:
    from rawpack_packer.cli import main as command

    at, folder = sys.argv[1:3]
    del sys.argv[1:3]
    with opening(Held(int(at), Path(folder))):
        command()


if __name__ == "__main__":
    main()
