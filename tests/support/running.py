"""How tests run the command: in this process or as one of its own, and the formats it is asked for."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from folders import settled

import rawpack
import rawpack_packer
from rawpack import DecodeError, Reader, UsageError
from rawpack_packer.cli import main
from rawpack_packer.sources import Samples, Source

FORMATS: dict[str, tuple[str, ...]] = {
    "memmap": ("--format", "memmap"),
    "hdf5": ("--format", "hdf5"),
    "hdf5-gzip": ("--format", "hdf5", "--compression", "gzip"),
    "hdf5-chunk4": ("--format", "hdf5", "--chunk", "4"),
    "lmdb": ("--format", "lmdb"),
}
"""Every layout that a shard can have -> the options that make it."""


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


def command() -> list[str]:
    """How the `rawpack` command is started as a process of its own."""
    return [sys.executable, "-m", "rawpack"]


def environment(**extra: str) -> dict[str, str]:
    """An environment in which a new Python finds the very packages that these tests found."""
    roots = dict.fromkeys(str(Path(package.__file__ or "").parents[1]) for package in (rawpack, rawpack_packer))
    return os.environ | {"PYTHONPATH": os.pathsep.join(roots), "PYTHONUTF8": "1"} | extra


def run_command(*args: object, **extra: str) -> Ran:
    """Run the command as a process of its own; `extra` goes into its environment."""
    ran = subprocess.run(
        [*command(), *map(str, args)],
        capture_output=True, encoding="utf-8", timeout=200, env=environment(**extra), check=False,
    )  # fmt: skip
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def run_here(*args: object) -> Ran:
    """Run the command's own entry point in this process: the same exit codes and messages, in a tenth of the time."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = code_of(*args)
    return Ran(code, out.getvalue(), err.getvalue())


def code_of(*args: object) -> int:
    """The exit code of the command's entry point, in this process, with the streams that it has."""
    with mock.patch.object(sys, "argv", ["rawpack", *map(str, args)]):
        try:
            main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


@contextmanager
def terminal(columns: int = 80) -> Iterator[tuple[int, list[str]]]:
    """The descriptor of a terminal, to be written to, and a list that has all that it was sent once the block ends."""
    import pty
    import termios

    def read() -> None:
        with suppress(OSError):  # as Linux says that the other end was closed
            while more := os.read(ours, 4096):
                sent.extend(more)

    sent, shown = bytearray(), list[str]()
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, columns))
    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield its, shown
    finally:
        os.close(its)
        reader.join()
        os.close(ours)
        shown.append(sent.decode().replace("\r\n", "\n"))


def at_a_terminal(*args: object, columns: int = 80, **extra: str) -> tuple[int, str]:
    """The exit code of the command, run in this process, and what it writes to a terminal; `extra` goes into its
    environment."""
    with terminal(columns) as (its, shown), open(os.dup(its), "w", 1, encoding="utf-8") as stream:
        streams = dict.fromkeys(("stdout", "stderr", "__stdout__", "__stderr__"), stream)
        with mock.patch.multiple(sys, **streams), mock.patch.dict(os.environ, {"TERM": "xterm"} | extra):
            code = code_of(*args)
    return code, shown[0]


def pack(source: Path, destination: Path, *options: object) -> Path:
    """Pack in this process, and insist that it went well."""
    ran = run_here("pack", "--workers", 0, "--quiet", *options, source, destination)
    assert (ran.code, ran.err) == (0, ""), ran
    return destination


def reader_of(source: Any, destination: Path, **options: Any) -> Reader:
    """Pack what Python has, and read the store."""
    rawpack_packer.pack(source, destination, **options)
    return Reader(destination)


def stop_of(*args: object) -> str:
    """What the command prints on stderr as it stops with exit code 2, run in this process."""
    ran = run_here(*args)
    assert ran.code == 2, ran
    return ran.err


def reason_of(samples: Samples, i: int) -> str:
    """Why sample i of a source cannot be read; "" if it can."""
    try:
        samples[i]
    except DecodeError as error:
        return error.reason
    return ""


def outcomes_of(opening: Callable[[], Source], *refusals: type[Exception]) -> set[str]:
    """How it ends to open a source and to read its samples: refused, by a UsageError or one of these, or read, rejected
    or both. Other errors are raised."""
    try:
        source = opening()
    except (UsageError, *refusals):
        return {"refused"}
    found = set[str]()
    for i in range(len(source)):
        try:
            assert source[i].key == source.key(i)
            found.add("read")
        except DecodeError:
            found.add("rejected")
    return found


Undisturbed = Callable[[str], dict[str, bytes]]


def undisturbed_runs(source: Path, folders: pytest.TempPathFactory, *options: object) -> Undisturbed:
    """A function of the layout: the files of a run that nobody disturbs, in one process, part after part."""

    @cache
    def get(layout: str) -> dict[str, bytes]:
        return settled(pack(source, folders.mktemp("undisturbed") / "store", *FORMATS[layout], *options))

    return get


def started(*args: object, **extra: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """The command as a running process: see `process`."""
    return process([*command(), *args], env=environment(**extra))


@contextmanager
def process(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A running process, which is ended with the block."""
    running = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", **options
    )
    with running:
        try:
            yield running
        finally:
            running.kill()


Packed = Callable[..., Path]
