"""The work of a cluster's worker: packing one part through a local engine, and reporting its progress.

Each part is packed in a process of its own, whether the cluster's worker is a thread (Dask) or a process (Ray). So a
sample that kills its decoder costs only itself, nothing is set up in a process that belongs to the cluster, and the
bytes are the same as locally. The process stays for a while to pack the worker's next part.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import secrets
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import cloudpickle

import rawpack
from rawpack.errors import PackError, RawpackError
from rawpack.system import writing
from rawpack.system.channel import pack_error
from rawpack_packer.destination import files, lock
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.lock import shared
from rawpack_packer.engines.local import InlineEngine, LocalEngine
from rawpack_packer.part import PartTask, Tick

_TICK_EVERY_S = 1.0
_IDLE_S = 10.0
"""How long a packing process waits for its worker's next part."""


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    host: str
    error: str | None = None
    """None where its shard and record are on the disk."""
    failure: bytes | None = None
    """An exception that nobody expected, packed by `pack_error`."""


def packed(task: PartTask) -> bytes:
    """A task as `run_remote` takes it. Raises whatever pickling its samples raises."""
    return pickle.dumps((rawpack.__version__, cloudpickle.dumps(task)))


def run_remote(order: bytes) -> Outcome:
    """Pack a part, given as `packed`. Never raises, so that every exception of a call comes from the cluster."""
    try:
        version, task = pickle.loads(order)
        if version != rawpack.__version__:
            raise PackError(f"rawpack {rawpack.__version__} is installed, and {version} where the job runs")
        _run(cloudpickle.loads(task))
    except (OSError, MemoryError) as error:
        return Outcome(platform.node(), str(files.refused(error, "the destination")))
    except RawpackError as error:
        return Outcome(platform.node(), str(error))
    except Exception as error:
        error.add_note(f"on host {platform.node()}")
        return Outcome(platform.node(), repr(error), pack_error(error))
    return Outcome(platform.node())


def read_tick(destination: Path, number: int) -> Tick | None:
    """The last progress that a worker reported of a part; None where there is none."""
    try:
        words = writing.read(_tick_path(destination, number), of_any_user=True).decode("ascii", "replace").split()
        return Tick(int(words[0]), int(words[1])) if len(words) == 3 else None
    except (OSError, ValueError):
        return None


def forget_tick(destination: Path, number: int) -> None:
    _tick_path(destination, number).unlink(missing_ok=True)


def _run(task: PartTask) -> None:
    destination = Path(task.destination)
    lock.await_token(destination, task.run)
    if task.root and not os.path.lexists(task.root):
        raise PackError(f"{task.root} is not here: every machine must see the source at the same path")
    task = replace(task, attempt=f".{secrets.token_hex(8)}")
    with shared(destination):
        report = _TickWriter(task)
        report.write(Tick(0, 0))  # says that a worker has taken the part
        try:
            if not hasattr(os, "fork"):
                InlineEngine().run(iter([task]), report)
                return
            with _lock:
                engine = _idle.pop() if _idle else LocalEngine(1, keep=True)
            engine.run(iter([task]), report, look=report.check)
        except BaseException:
            # The process that wrote these files was ended, and cannot remove them itself.
            for left in (destination / WORK).glob(f"*{task.attempt}*"):
                left.unlink(missing_ok=True)
            raise
    _keep(engine)


class _TickWriter:
    """Reports a part's progress in a file in the destination, and stops a worker whose run has ended. See `Report`."""

    def __init__(self, task: PartTask) -> None:
        self._destination, self._run, self._number = Path(task.destination), task.run, task.number
        self._path = _tick_path(self._destination, self._number)
        self._temporary = self._path.with_name(f"{self._path.name}{task.attempt}.tmp")
        self._next = 0.0

    def check(self) -> None:
        """Raise PackError where the run has ended."""
        lock.check_token(self._destination, self._run)

    def write(self, tick: Tick) -> None:
        self._next = time.monotonic() + _TICK_EVERY_S
        self.check()
        # Progress may be lost. The last word shows that the line is complete.
        with contextlib.suppress(OSError):
            with writing.create(self._temporary) as file:
                file.write(f"{tick.samples} {tick.bytes_in} .".encode())
            writing.replace(self._temporary, self._path)

    def ticked(self, number: int, tick: Tick, /) -> None:
        if time.monotonic() >= self._next:
            self.write(tick)

    def finished(self, number: int, /) -> None: ...
    def waits(self, why: str, /) -> None: ...


def _tick_path(destination: Path, number: int) -> Path:
    return destination / WORK / f"tick-{number:05d}"


# ---------------------------------------------------------------------------------------------- idle processes

_lock = threading.Lock()
_idle: list[LocalEngine] = []


def _keep(engine: LocalEngine) -> None:
    """Let the engine's process wait for the next part, and end it where none comes."""
    with _lock:
        _idle.append(engine)
    timer = threading.Timer(_IDLE_S, end_idle, [engine])
    timer.daemon = True
    timer.start()


def end_idle(only: LocalEngine | None = None) -> None:
    """End the packing processes that wait in this process for another part; `only` ends one, if it still waits."""
    with _lock:
        ended = [engine for engine in _idle if only in (None, engine)]
        _idle[:] = [engine for engine in _idle if engine not in ended]
    for engine in ended:
        engine.close()
