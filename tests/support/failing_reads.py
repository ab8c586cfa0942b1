"""Runs the command with reads that fail, as disks and network disks let them: see `failing_reads.c`.

As a program it runs one command line after another, each in a fork of its own, so that nothing is imported again: it
reads a JSON list of words and an environment per line, and answers with a line of exit code, stdout and stderr.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPEN, READ, MAP, STAT = 1, 2, 4, 8
ONCE, THIS_FILE, ALL_FILES = range(3)
_RUNS_S = 120


class Control(ctypes.Structure):
    """As in C. Zeros: nothing fails."""

    _fields_ = (
        ("at", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("failed", ctypes.c_int64),
        ("kinds", ctypes.c_int32),
        ("number", ctypes.c_int32),
        ("lasting", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("under", ctypes.c_char * 2048),
        ("first", ctypes.c_char * 2048),
    )


@dataclass(frozen=True)
class Fault:
    """What fails."""

    under: str
    """The beginning of the paths that are counted."""
    kinds: int
    at: int = 0
    """Counted from 1. 0: nothing, the reads are counted only."""
    number: int = 0
    """The number of the error; 0: half of the bytes arrive."""
    lasting: int = ONCE


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str
    count: int
    """Of reads that could have failed."""
    failed: int
    """Of reads that did."""
    path: str
    """Of the first that did."""


class Failing:
    """Runs commands in which reads fail."""

    def __init__(self, process: subprocess.Popen[str], control: Control) -> None:
        self._process, self._control = process, control

    def run(self, words: Sequence[str], fault: Fault, variables: Mapping[str, str]) -> Ran:
        control, program = self._control, self._process
        assert program.stdin is not None
        assert program.stdout is not None
        ctypes.memset(ctypes.addressof(control), 0, ctypes.sizeof(control))
        control.kinds, control.at, control.number, control.lasting = fault.kinds, fault.at, fault.number, fault.lasting
        control.under = os.fsencode(fault.under)
        program.stdin.write(json.dumps([list(words), dict(variables)]) + "\n")
        program.stdin.flush()
        code, out, err = json.loads(program.stdout.readline())
        control.under = b""
        return Ran(code, out, err, control.count, control.failed, os.fsdecode(control.first))


@contextmanager
def failing(library: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[Failing]:
    """library: `failing_reads.c`, compiled."""
    path = folder / "control"
    path.write_bytes(bytes(ctypes.sizeof(Control)))
    with path.open("r+b") as file:
        control = Control.from_buffer(mmap.mmap(file.fileno(), 0))
    variables = {**environment, "LD_PRELOAD": str(library), "FAILING_READS": str(path), "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", env=variables
    ) as process:
        try:
            yield Failing(process, control)
        finally:
            process.kill()


def _run(words: Sequence[str], variables: Mapping[str, str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        child = os.fork()
        if not child:
            signal.alarm(_RUNS_S)
            os.environ.update(variables)
            tempfile.tempdir = None
            for number, file in enumerate((out, err), 1):
                os.dup2(file.fileno(), number)
            os._exit(_main(words))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
        return code, texts[0], texts[1]


def _main(words: Sequence[str]) -> int:
    import traceback

    from rawpack_packer.cli import main

    sys.argv, code = ["rawpack", *words], 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def main() -> None:
    import rawpack_packer.cli  # noqa: F401 - before the forks

    for line in sys.stdin:
        answer: Any = _run(*json.loads(line))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
