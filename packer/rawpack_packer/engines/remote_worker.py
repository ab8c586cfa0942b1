"""What runs on a cluster's worker: one part, by the care of the local engine, with a report that travels back.

The part is packed in a process of its own, whatever the cluster's worker is, a thread of a Dask worker or a process of
Ray's. So a sample that kills its decoder costs itself there as it does here, nothing is set up in a process that is
somebody else's, and the bytes are the same. That process waits for the next part for a while.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import secrets
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cloudpickle

import rawpack
from rawpack.errors import PackError, RawpackError
from rawpack_packer.destination import files, run_token
from rawpack_packer.destination.layout import WORK
from rawpack_packer.destination.lock import shared
from rawpack_packer.engines.inline import InlineEngine
from rawpack_packer.engines.local import LocalEngine
from rawpack_packer.part.part import PartTask, Tick

TICKS = "tick-*"
_TELL_EVERY_S = 1.0
UNFIT = "workers of the cluster cannot take parts, for want of this rawpack or of what it needs:"
_IDLE_S = 10.0
"""So long a packing process waits for its worker's next part."""
_Hands = LocalEngine | InlineEngine


@dataclass(frozen=True)
class Outcome:
    """What came of a part."""

    host: str
    error: str | None = None
    """None where its shard and record are on the disk."""


def packed(task: PartTask) -> bytes:
    """A part as it travels. Raises whatever its samples raise when they are pickled."""
    return pickle.dumps((rawpack.__version__, cloudpickle.dumps(task)))


class PickledCall:
    """`function(order)` as a pickle: to load it is to call it.

    So nothing of rawpack is needed to receive a part. A worker that lacks rawpack raises what its import raises, while
    it runs the call, as any call may; a function that it cannot even receive makes a Dask worker close itself.
    """

    def __init__(self, function: Callable[[bytes], Any], order: bytes) -> None:
        self._function, self._order = function, order

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return self._function, (self._order,)


def run_remote(order: bytes) -> Outcome:
    """Do a part; `order` is `packed`. Raises nothing, so that what it raises is the cluster's own."""
    try:
        version, task = pickle.loads(order)
        if version != rawpack.__version__:
            raise PackError(f"rawpack {rawpack.__version__} is installed, and {version} where the job runs")
        _do(cloudpickle.loads(task))
    except (OSError, MemoryError) as error:
        return Outcome(platform.node(), str(files.refused(error, "the destination")))
    except RawpackError as error:
        return Outcome(platform.node(), str(error))
    except Exception as error:
        return Outcome(platform.node(), f"{error!r}\n\nIn the worker:\n{traceback.format_exc()}")
    return Outcome(platform.node())


def read_tick(destination: Path, number: int) -> Tick | None:
    """How far a worker is with a part, if it has said so."""
    try:
        words = _tick_path(destination, number).read_text("ascii", "replace").split()
        return Tick(int(words[0]), int(words[1])) if len(words) == 3 else None
    except (OSError, ValueError):
        return None


def forget_tick(destination: Path, number: int) -> None:
    _tick_path(destination, number).unlink(missing_ok=True)


def dismiss() -> None:
    """End the packing processes that wait in this process for another part."""
    with _lock:
        idle, _idle[:] = list(_idle), []
    for hands in idle:
        _end(hands)


def _do(task: PartTask) -> None:
    destination = Path(task.destination)
    run_token.await_token(destination, task.run)
    if task.root and not os.path.lexists(task.root):
        raise PackError(f"{task.root} is not here: every machine must see the source at the same path")
    attempt, telling = f".{secrets.token_hex(8)}", _Telling(task)
    with shared(destination):
        telling.began()
        hands = _take_up()
        tasks = iter([replace(task, attempt=attempt)])
        try:
            if isinstance(hands, LocalEngine):
                hands.run(tasks, telling, look=telling.look)
            else:
                hands.run(tasks, telling)
        except BaseException:
            # The process that wrote them was ended, and cannot remove them itself.
            for left in (destination / WORK).glob(f"*{attempt}*"):
                left.unlink(missing_ok=True)
            raise
    _put_down(hands)


class _Telling:
    """Tells the run how far a part is, by a file in the destination, and stops where there is no such run any more.
    See `Report`."""

    def __init__(self, task: PartTask) -> None:
        self._destination, self._run, self._number = Path(task.destination), task.run, task.number
        self._next = 0.0

    def began(self) -> None:
        """A worker has taken the part."""
        self._tell(Tick(0, 0))

    def look(self) -> None:
        """Raises PackError where the run has ended."""
        run_token.check(self._destination, self._run)

    def ticked(self, number: int, tick: Tick, /) -> None:
        if time.monotonic() >= self._next:
            self._tell(tick)

    def finished(self, number: int, /) -> None: ...
    def waits(self, why: str, /) -> None: ...

    def _tell(self, tick: Tick) -> None:
        self._next = time.monotonic() + _TELL_EVERY_S
        self.look()
        # Of no use but to be looked at. The last word tells that it is whole.
        with contextlib.suppress(OSError):
            _tick_path(self._destination, self._number).write_text(f"{tick.samples} {tick.bytes_in} .")


def _tick_path(destination: Path, number: int) -> Path:
    return destination / WORK / f"tick-{number:05d}"


# ---------------------------------------------------------------------------------------------- idle processes

_lock = threading.Lock()
_idle: list[_Hands] = []


def _take_up() -> _Hands:
    with _lock:
        if _idle:
            return _idle.pop()
    return LocalEngine(1, keep=True) if hasattr(os, "fork") else InlineEngine()


def _put_down(hands: _Hands) -> None:
    with _lock:
        _idle.append(hands)
    timer = threading.Timer(_IDLE_S, _dismiss_one, [hands])
    timer.daemon = True
    timer.start()


def _dismiss_one(hands: _Hands) -> None:
    with _lock:
        if hands not in _idle:
            return  # it works again, or has ended
        _idle.remove(hands)
    _end(hands)


def _end(hands: _Hands) -> None:
    if isinstance(hands, LocalEngine):
        hands.close()
