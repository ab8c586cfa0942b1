"""Runs the command with reads that fail, as disks and network disks let them: see `failing_reads.c`."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forked import Forks, forks

OPEN, READ, MAP, STAT = 1, 2, 4, 8
ONCE, THIS_FILE, ALL_FILES = range(3)


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

    def __init__(self, forks: Forks, control: Control) -> None:
        self._forks, self._control = forks, control

    def run(self, words: Sequence[str], fault: Fault, variables: Mapping[str, str]) -> Ran:
        control = self._control
        ctypes.memset(ctypes.addressof(control), 0, ctypes.sizeof(control))
        control.kinds, control.at, control.number, control.lasting = fault.kinds, fault.at, fault.number, fault.lasting
        control.under = os.fsencode(fault.under)
        ran = self._forks.command(*words, **variables)
        control.under = b""
        return Ran(ran.code, ran.out, ran.err, control.count, control.failed, os.fsdecode(control.first))


@contextmanager
def failing(library: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[Failing]:
    """library: `failing_reads.c`, compiled."""
    path = folder / "control"
    path.write_bytes(bytes(ctypes.sizeof(Control)))
    with path.open("r+b") as file:
        control = Control.from_buffer(mmap.mmap(file.fileno(), 0))
    with forks({**environment, "LD_PRELOAD": str(library), "FAILING_READS": str(path)}) as forked:
        yield Failing(forked, control)
