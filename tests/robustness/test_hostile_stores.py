"""Damaged, foreign, newer and hostile stores: an error of rawpack's or correct data, and nothing worse.

Each case is read in a child process: sample by sample, in batches, and some by the full check. It must end without a
signal, within a time, with memory that the store's own size allows, and without touching a file outside the store.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hostile
import pytest

import rawpack
import rawpack_packer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory and opened files are watched by means of Linux")

SOAK = bool(os.environ.get("RAWPACK_SOAK"))
TIMEOUT_S = 60.0
_IN_OPEN, _IN_ACCESS, _IN_MODIFY, _IN_CREATE, _IN_DELETE = 0x20, 0x01, 0x02, 0x100, 0x200
_CHANGED = _IN_MODIFY | _IN_CREATE | _IN_DELETE


class Reading:
    """A child that reads stores, started again when it dies."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read(self, store: Path, sound: Path, check: bool) -> list[str]:
        """What went wrong with one store, as the child says; its death or silence is a problem like others."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"path": str(store), "sound": str(sound), "check": check}) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
        line = process.stdout.readline() if ready else ""
        if line:
            problems: list[str] = json.loads(line)
            return problems
        if ready:
            status = process.wait()
            died = signal.Signals(-status).name if status < 0 else f"status {status}"
            problem = f"the process that read it ended: {died}"
        else:
            problem = f"no answer in {TIMEOUT_S:g} s"
        self.close()
        return [problem]

    def close(self) -> None:
        if self._process is not None:
            # With it go the processes that it started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        folders = [str(Path(module.__file__ or "").parent.parent) for module in (rawpack, rawpack_packer)]
        program = Path(hostile.__file__).with_name("child.py")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-B", str(program), *folders],  # compiled modules would be files that it writes
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip
        return self._process


class Guard:
    """Sees every opening of a file in a folder, also by C libraries and other processes (inotify)."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        events = _IN_OPEN | _IN_ACCESS | _CHANGED
        for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
            if self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), events) < 0:
                pytest.skip(f"this system gives no more inotify watches ({os.strerror(ctypes.get_errno())})")
        self.touched()

    def touched(self) -> int:
        """What was done since the last call: the masks of all events together."""
        touched = 0
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, 1 << 16):
                at = 0
                while at < len(data):
                    _, mask, _, name = struct.unpack_from("iIII", data, at)
                    touched, at = touched | mask, at + 16 + name
        return touched

    def close(self) -> None:
        os.close(self._descriptor)


Sound = Callable[[str], Path]


@pytest.fixture(scope="module")
def reading() -> Iterator[Reading]:
    child = Reading()
    yield child
    child.close()


def run_cases(sound: Path, cases: list[hostile.Mutation], folder: Path, reading: Reading) -> list[str]:
    """What went wrong, case by case."""
    outside = folder / hostile.OUTSIDE
    shutil.copytree(sound, outside)
    guard, failures = Guard(outside), []
    for number, case in enumerate(cases):
        path = folder / str(number)
        shutil.copytree(sound, path, copy_function=os.link)
        case.apply(hostile.Copy(path))
        guard.touched()
        problems = reading.read(path, sound, case.check)
        linked = any(one.is_symlink() for one in path.rglob("*"))  # which are followed to be read
        if guard.touched() & (_CHANGED if linked else ~0):
            problems.append("a file outside the store was touched")
        failures += [f"{case.name}: {problem}" for problem in problems]
        shutil.rmtree(path)
    guard.close()
    return failures


@pytest.mark.timeout(3600 if SOAK else 300)
@pytest.mark.parametrize("variant", hostile.VARIANTS)
def test_a_hostile_store_ends_in_an_error_or_in_correct_data(
    variant: str, sound: Sound, reading: Reading, tmp_path: Path
) -> None:
    """Whatever is in a store, reading it raises a RawpackError or gives what was packed. With --soak, every value of
    every field, some 50,000 cases."""
    store = sound(variant)
    cases = list(hostile.mutations(store, variant))
    failures = run_cases(store, cases if SOAK else hostile.daily(cases, variant), tmp_path, reading)
    assert not failures, f"{len(failures)} failures\n" + "\n\n".join(failures[:100])


def test_an_enormous_manifest_is_not_read(sound: Sound, tmp_path: Path) -> None:
    """A manifest above 256 MiB, more than any store has, is refused by its size: no memory is taken for it."""
    shutil.copytree(sound("memmap"), tmp_path / "store")
    os.truncate(tmp_path / "store" / "store.json", 8 << 40)  # it has holes: the disk has no such space
    with pytest.raises(rawpack.RawpackError, match=r"store\.json"):
        rawpack.Reader(tmp_path / "store")
