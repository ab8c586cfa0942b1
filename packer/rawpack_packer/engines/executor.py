"""The engine for whatever runs calls elsewhere: process pools, MPI by `mpi4py.futures`, Slurm by submitit, clusters."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, Self

from rawpack.errors import PackError
from rawpack.system import machine
from rawpack.system.channel import unpack_error
from rawpack_packer import text
from rawpack_packer.destination import files, lock
from rawpack_packer.destination.files import WORK
from rawpack_packer.engines import remote_worker
from rawpack_packer.engines.local import Report
from rawpack_packer.options import opt
from rawpack_packer.part import PartTask, Tick, read_record
from rawpack_packer.text import again

_LOOK_EVERY_S = 1.0
_PART_DEATHS = 3
"""A part with this many deaths is sent again while nothing else runs: a worker that dies also fails the other parts
that it has and, in Dask, those that only wait for it. A part that kills a worker by itself is sent to no other."""
_DEADLY_PARTS = 8
"""With more such parts, the parts are not the cause."""
_SEEN_WITHIN_S = 90.0
"""How long a part that a worker has finished may stay invisible here: NFS may take a minute."""
_SAY_AFTER_S = 5.0
"""Seconds after which a message says that no worker has started a part yet."""
_END_WITHIN_S = 10.0
"""How long workers may take to notice that the run has ended."""
_DEATHS = {
    "WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError", "ObjectLostError",  # Ray
    "UncompletedJobError",  # submitit, of a job that was ended from outside
}  # fmt: skip
"""Errors of a call whose worker died, by name: what defines them may not be installed."""


class Call(Protocol):
    """A call that an executor has taken, like `concurrent.futures.Future`.

    `add_done_callback` is optional: with it the end of a call is noticed at once, without it within a second.
    """

    def done(self) -> bool: ...
    def result(self) -> Any: ...
    def cancel(self) -> Any:
        """Take it back if that is safe. A worker that begins it all the same finds that its run has ended."""


class ExecutorEngine:
    """See `Engine`. Gives the executor a few more parts than it runs at once, and repeats the part of a worker that
    died. A part with three deaths is repeated alone: where that kills a worker too, the part is left out, and the run
    names it once all others are packed.

    The caller shuts the executor down.
    """

    def __init__(
        self,
        executor: Any,
        *,
        slots: int | None = None,
        timeout: float = 3600.0,
        patience_s: float = 3600.0,
        name: str = "the executor",
    ) -> None:
        """executor: has `submit(function, argument)`, which returns a `Call`.

        slots: how many parts it runs side by side. None asks the executor, again and again, and falls back to the CPUs
        of this machine; then the first part goes alone until a worker has taken it, so that an executor that cannot
        pack says so at once. A batch system, whose queue would be waited for twice, is better told.
        timeout: seconds without any worker taking a part after which the run ends; long, because jobs may wait in a
        queue. patience_s: seconds without progress in any part that was taken after which it ends: all workers hang.
        name: how messages call the executor.
        """
        self._executor, self._slots, self._name = executor, slots, name
        self.timeout, self.patience_s = timeout, patience_s

    def close(self) -> None:
        """Leave the cluster, if this engine connected to it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        first = next(tasks, None)
        if first is None:
            return
        destination = Path(first.destination)
        with files.refusals_named(destination):
            token = lock.begin_token(destination)
            run = _Run(self, report, destination, token, begun=self._slots is not None)
            try:
                run.run_all(chain([first], tasks))
            finally:
                lock.end_token(destination)
                run.stop()
                remote_worker.end_idle()

    def slots(self) -> int:
        """How many parts the executor runs side by side now."""
        if self._slots is not None:
            return self._slots
        try:
            # mpi4py's executor has `num_workers`, as ours for clusters; those of the standard library only a private
            # attribute.
            counts = [getattr(self._executor, name, None) for name in ("num_workers", "_max_workers")]
        except Exception as error:
            raise PackError(f"{self._name} is gone ({error!r}); {again()} resumes with another") from error
        return next((count for count in counts if isinstance(count, int)), machine.cpus())

    def room(self) -> str:
        """Why parts may not have begun, for a user who waits in vain."""
        slots = self.slots()
        if not slots:
            return f"{self._name} has no workers"
        return f"{self._name}, which runs {text.count(slots, 'part')} at a time, is busy with other work, or stuck"

    def submit(self, task: PartTask) -> Call:
        """Have a part packed elsewhere. Raises PackError if the executor takes no more."""
        try:
            call: Call = self._executor.submit(remote_worker.run_remote, remote_worker.packed(task))
        except RuntimeError as error:  # it was shut down, or is a BrokenExecutor
            raise self._gone(error) from error
        return call

    def deaths(self, error: BaseException) -> int:
        """How many workers died, according to an error that a call's `result` raised. Raises PackError for errors of
        any other kind."""
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if "KilledWorker" in kinds:
            # Dask gives the task of a dead worker to others, and raises this after so many deaths.
            return int(getattr(error, "allowed_failures", 0)) + 1
        if kinds & _DEATHS:
            return 1
        if "BrokenExecutor" in kinds:
            raise self._gone(error) from error
        if isinstance(error, CancelledError | asyncio.CancelledError):
            raise PackError(f"{self._name} is gone, or has dropped a part ({error!r}); {again()} resumes") from error
        if isinstance(error, ImportError):
            raise PackError(
                f"{self._name} has a worker that cannot pack, because it lacks this rawpack or a library that it "
                f"needs: {getattr(error, 'cause', error)}"
            ) from error
        raise PackError(f"{self._name} could not run a part: {error!r}; {again()} resumes") from error

    def _gone(self, error: BaseException) -> PackError:
        return PackError(
            f"{self._name} takes no more parts ({type(error).__name__}: {error}): one of its workers may have died, "
            f"perhaps out of memory. {again().capitalize()} with a new executor resumes"
        )


@dataclass
class _SentPart:
    """A part that was given to the executor."""

    task: PartTask
    call: Call
    deaths: int = 0
    """Workers that died with it."""
    alone: bool = False
    """Whether no other part was out at any time."""
    tick: Tick | None = None
    """Its progress; None until a worker has taken it."""
    host: str = ""
    """Where it was packed."""
    until: float = 0.0
    """How long to look for its files, once it was packed."""


@dataclass
class _Run:
    """One run of the engine: the parts that are out, and what became of them."""

    engine: ExecutorEngine
    report: Report
    destination: Path
    token: str
    begun: bool
    """Whether a worker has taken a part; until then, only one is out."""
    out: dict[int, _SentPart] = field(default_factory=dict)
    """By their numbers, the parts whose calls have not ended."""
    unseen: dict[int, _SentPart] = field(default_factory=dict)
    """Those whose calls have ended, and whose files are not seen here yet."""
    suspects: list[_SentPart] = field(default_factory=list)
    """Those that are yet to be repeated alone."""
    deadly: list[str] = field(default_factory=list)
    """The parts that were left out, for a message."""
    wake: threading.Event = field(default_factory=threading.Event)
    """Set by any thread when a call has ended."""
    looked: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)
    """When a part last made progress."""
    taken: float = field(default_factory=time.monotonic)
    """When a worker last had a part."""
    reported: bool = False
    """Whether the user knows that no worker has one."""

    def run_all(self, tasks: Iterator[PartTask]) -> None:
        more = True
        while more or self.out or self.unseen or self.suspects:
            if self.suspects and not self.out:
                suspect = self.suspects.pop()
                self._send(suspect.task, suspect.deaths, alone=True)
            slots = self.engine.slots() if more and self.begun else 0
            alone = bool(self.suspects) or any(part.alone for part in self.out.values())
            while more and not alone and len(self.out) <= slots + slots // 4:
                task = next(tasks, None)
                if task is None:
                    more = False
                else:
                    self._send(replace(task, run=self.token, root=task.root if os.path.lexists(task.root) else ""))
            self._wait()
        if self.deadly:
            raise self._deadly("All other parts are packed; ")

    def stop(self) -> None:
        """Take back what is out, and give workers that have begun a moment to see that the run has ended."""
        for part in self.out.values():
            # A cluster that is gone takes nothing back; the error that ended the run matters more.
            with contextlib.suppress(Exception):
                part.call.cancel()
        until = time.monotonic() + _END_WITHIN_S
        while any(part.tick and not part.call.done() for part in self.out.values()) and time.monotonic() < until:
            time.sleep(0.05)
        for number in self.out:
            remote_worker.forget_tick(self.destination, number)

    def _send(self, task: PartTask, deaths: int = 0, *, alone: bool = False) -> None:
        call = self.engine.submit(task)
        self.out[task.number] = _SentPart(task, call, deaths, alone)
        if hasattr(call, "add_done_callback"):
            call.add_done_callback(lambda _: self.wake.set())

    def _wait(self) -> None:
        """Handle the calls that have ended, once there is one, and check on all others now and then."""
        self.wake.wait(_LOOK_EVERY_S)
        self.wake.clear()
        for part in [part for part in self.out.values() if part.call.done()]:
            self._take(part)
        if time.monotonic() - self.looked >= _LOOK_EVERY_S:
            self._look()

    def _look(self) -> None:
        self.looked = time.monotonic()
        for number, part in self.out.items():
            tick = remote_worker.read_tick(self.destination, number)
            if tick is not None and tick != part.tick:
                self._tick(part, tick)
        for part in list(self.unseen.values()):
            self._see(part)
        self._check_taken()
        if time.monotonic() - self.moved > self.engine.patience_s:
            raise PackError(
                f"no part has made progress for {self.engine.patience_s:g} s: do the cluster's workers hang, or the "
                f"disk? {again().capitalize()} resumes"
            )

    def _check_taken(self) -> None:
        """Tell the user where no worker takes a part, and give up after a while."""
        now = time.monotonic()
        if not self.out or (any(part.tick for part in self.out.values()) and self.engine.slots()):
            self.taken, self.reported = now, False
            return
        self.moved = now  # what has not begun does not hang
        # NFS may show late that a worker has taken a part.
        lock.look_again(self.destination / WORK)
        waited, timeout = now - self.taken, self.engine.timeout
        if waited > min(_SAY_AFTER_S, timeout) and not self.reported:
            self.reported = True
            self.report.waits(f"{self.engine.room()}; waiting up to {timeout:g} s for a worker to take a part")
        if waited > timeout:
            raise PackError(
                f"no worker has taken a part for {timeout:g} s: {self.engine.room()}. Wait longer by "
                f"{opt.engine_timeout}, or timeout= of the engine; {again()} resumes"
            )

    def _take(self, part: _SentPart) -> None:
        """Handle a call that has ended."""
        del self.out[part.task.number]
        try:
            outcome: remote_worker.Outcome = part.call.result()
        except (Exception, asyncio.CancelledError) as error:
            part.deaths += self.engine.deaths(error)
            self._died(part, error)
            return
        if outcome.failure is not None:
            raise unpack_error(outcome.failure)
        if outcome.error is not None:
            raise PackError(f"on host {outcome.host}: {outcome.error}")
        part.host, part.until = outcome.host, time.monotonic() + _SEEN_WITHIN_S
        self._see(part)

    def _see(self, part: _SentPart) -> None:
        """Finish a part once its record is visible here."""
        number = part.task.number
        record = read_record(self.destination, number)
        if record is not None:
            self.unseen.pop(number, None)
            self._end_ticks(part, Tick(len(part.task.samples), record.bytes_in))
            self.report.finished(number)
            return
        if time.monotonic() > part.until:
            raise PackError(
                f"host {part.host} has packed part {number} into {self.destination}, and its files are not seen "
                "where the job runs: is it the same file system?"
            )
        self.unseen[number] = part
        lock.look_again(self.destination)
        lock.look_again(self.destination / WORK)

    def _died(self, part: _SentPart, error: BaseException) -> None:
        task = part.task
        self._end_ticks(part, Tick(0, 0))
        if part.deaths < _PART_DEATHS:
            self._send(task, part.deaths)
            return
        if not part.alone:
            self.suspects.append(part)
            return
        # Samples are decoded in a process apart: the death of a worker says nothing about them.
        count = len(task.samples)
        first, last = (repr(task.samples.key(i)) for i in (0, count - 1))
        self.deadly.append(
            f"part {task.number} ({text.count(count, 'sample')}, {first} to {last}) has killed {part.deaths}, the last "
            f"one alone, with {error!r}"
        )
        if len(self.deadly) > _DEADLY_PARTS:
            raise self._deadly("")

    def _deadly(self, rest: str) -> PackError:
        return PackError(
            f"workers keep dying, perhaps out of memory: {text.listed(self.deadly, 3, separator='; ')}. {rest}"
            f"{again()} tries again, without {opt.engine} on this machine"
        )

    def _tick(self, part: _SentPart, tick: Tick) -> None:
        self.moved = self.taken = time.monotonic()
        self.begun = True
        part.tick = tick
        self.report.ticked(part.task.number, tick)

    def _end_ticks(self, part: _SentPart, last: Tick) -> None:
        remote_worker.forget_tick(self.destination, part.task.number)
        self._tick(part, last)
