"""An engine for whatever takes calls and runs them elsewhere: what executors, Dask and Ray have in common."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from rawpack.errors import PackError
from rawpack_packer import text
from rawpack_packer.destination import files, run_token
from rawpack_packer.destination.layout import WORK
from rawpack_packer.engines import remote_worker
from rawpack_packer.engines.contract import Report
from rawpack_packer.part.part import PartTask, Tick, read_record

_LOOK_EVERY_S = 1.0
_PART_DEATHS = 3
"""A part that has killed so many of the cluster's workers is packed where the job runs."""
_CARED_PARTS = 8
"""If there are more such parts, something else is wrong than theirs."""
_SEEN_WITHIN_S = 90.0
"""For a part that a worker has finished to be seen here: NFS may take a minute."""
ANSWER_S = 10.0
"""For a cluster to answer."""
TAKEN_S = 60.0
"""For a worker to take a part."""
_SAY_AFTER_S = 5.0
"""When no worker has, the user is told why, and the run still waits."""
_END_WITHIN_S = 10.0
"""For workers to notice that the run has ended."""


class Call(Protocol):
    """A call that a pool was given, as `concurrent.futures.Future` has it.

    One that has `add_done_callback` too is heard of at once; others are asked now and then.
    """

    def done(self) -> bool: ...
    def result(self) -> Any: ...
    def cancel(self) -> Any:
        """Take it back, if that is safe; a worker that has begun, or begins later, finds that its run has ended."""


class Pool(Protocol):
    """What runs calls elsewhere: the small part of a cluster that packing needs."""

    def slots(self) -> int:
        """How many calls run side by side now; it may change."""

    def room(self) -> str:
        """Why calls may not have begun, for a user who waits in vain: "the cluster has no workers"."""

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        """Have `function(order)` run elsewhere. Raises PackError where nothing is taken any more."""

    def deaths(self, error: BaseException, /) -> int:
        """How many workers have died, as the error says that a call's `result` raised.

        Raises PackError where it says something else.
        """


class PooledEngine:
    """See `Engine`. Gives a pool a few more parts than it runs, and does one again whose worker died.

    One that has killed three workers is packed where the job runs, in a process of its own, when all others are done.
    """

    def __init__(self, pool: Pool, *, timeout: float = TAKEN_S, patience_s: float = 3600.0) -> None:
        """timeout: seconds after which the run ends while no worker has taken a part: none is there, or all are busy.
        patience_s: after which it ends while parts were taken and none has gone on: all workers hang."""
        self._pool, self._timeout, self._patience_s = pool, timeout, patience_s

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        first = next(tasks, None)
        if first is None:
            return
        destination = Path(first.destination)
        with files.refusals_named(destination):
            run = _PooledRun(
                self._pool, self._timeout, self._patience_s, destination, run_token.begin(destination), report
            )
            try:
                run.all(chain([first], tasks))
            finally:
                run_token.end(destination)
                run.stop()
                remote_worker.dismiss()


class _PooledRun:
    """One run of the engine: which parts are out, and what has become of them."""

    def __init__(
        self, pool: Pool, timeout: float, patience_s: float, destination: Path, token: str, report: Report
    ) -> None:
        self._pool, self._timeout, self._patience_s, self._report = pool, timeout, patience_s, report
        self._destination, self._token = destination, token
        self._calls = 0
        self._out: dict[int, tuple[Call, PartTask]] = {}
        """Number of a call -> the call, and its part."""
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Numbers of calls that have ended, from whatever thread."""
        self._unseen: dict[int, tuple[PartTask, str, float]] = {}
        """Number of a part that is done, as its worker says -> the part, the worker's host, until when to look."""
        self._deaths: Counter[int] = Counter()
        self._cared: list[PartTask] = []
        self._ticks: dict[int, Tick] = {}
        """Number of a part that a worker has taken and not finished -> how far it is."""
        self._looked = self._moved = self._taken = time.monotonic()
        self._said = False
        self._slots = 1

    def all(self, tasks: Iterator[PartTask]) -> None:
        more = True
        while more or self._out or self._unseen:
            self._slots = self._pool.slots() if more else 0
            while more and len(self._out) <= self._slots + self._slots // 4:
                task = next(tasks, None)
                if task is None:
                    more = False
                else:
                    root = task.root if os.path.lexists(task.root) else ""
                    self._send(replace(task, run=self._token, root=root))
            self._wait()
        for task in self._cared:
            self._take_outcome(task, remote_worker.run_remote(remote_worker.packed(task)))
            while self._unseen:
                self._wait()

    def stop(self) -> None:
        """Take back what is out, and wait a moment for workers to end that have begun: they see that the run has."""
        begun = [call for call, task in self._out.values() if task.number in self._ticks]
        for call, _ in self._out.values():
            # A cluster that is gone takes nothing back; why the run ends is the news.
            with contextlib.suppress(Exception):
                call.cancel()
        until = time.monotonic() + _END_WITHIN_S
        while any(not call.done() for call in begun) and time.monotonic() < until:
            time.sleep(0.05)
        for number in {task.number for _, task in self._out.values()}:
            remote_worker.forget_tick(self._destination, number)

    def _send(self, task: PartTask) -> None:
        number = self._calls = self._calls + 1
        call = self._pool.submit(remote_worker.run_remote, remote_worker.packed(task))
        self._out[number] = call, task
        if hasattr(call, "add_done_callback"):
            call.add_done_callback(lambda _: self._ended.put(number))

    def _wait(self) -> None:
        """Take what has ended, or look around after a while."""
        with contextlib.suppress(queue.Empty):
            self._take(self._ended.get(timeout=_LOOK_EVERY_S))
        if time.monotonic() - self._looked >= _LOOK_EVERY_S:
            self._look()

    def _look(self) -> None:
        self._looked = time.monotonic()
        for number, (call, task) in list(self._out.items()):
            if not hasattr(call, "add_done_callback") and call.done():
                self._take(number)
            elif (tick := remote_worker.read_tick(self._destination, task.number)) not in (
                None,
                self._ticks.get(task.number),
            ):
                assert tick is not None
                self._tell(task.number, tick)
        for task, host, until in list(self._unseen.values()):
            self._see(task, host, until)
        self._check_taken()
        if time.monotonic() - self._moved > self._patience_s:
            raise PackError(
                f"no part has gone on for {self._patience_s:g} s: do the cluster's workers hang, or the disk? The same "
                "command goes on"
            )

    def _check_taken(self) -> None:
        """Tell the user soon, and give up after a while, where no worker takes a part."""
        now = time.monotonic()
        if not self._out or (self._ticks and self._pool.slots()):
            self._taken, self._said = now, False
            return
        self._moved = now  # nothing hangs that has not begun
        # On NFS, that a worker has taken a part may be seen late.
        run_token.look_again(self._destination / WORK)
        waited = now - self._taken
        if waited > min(_SAY_AFTER_S, self._timeout) and not self._said:
            self._said = True
            self._report.waits(f"{self._pool.room()}; waiting up to {self._timeout:g} s for a worker to take a part")
        if waited > self._timeout:
            raise PackError(
                f"no worker has taken a part for {self._timeout:g} s: {self._pool.room()}. Wait longer by "
                "--engine-timeout, or timeout= of the engine; the same command goes on"
            )

    def _take(self, number: int) -> None:
        """What has become of a call."""
        call, task = self._out.pop(number)
        try:
            outcome = call.result()
        except (Exception, asyncio.CancelledError) as error:
            self._died(task, self._pool.deaths(error), error)
        else:
            self._take_outcome(task, outcome)

    def _take_outcome(self, task: PartTask, outcome: remote_worker.Outcome) -> None:
        if outcome.error is not None:
            raise PackError(f"on host {outcome.host}: {outcome.error}")
        self._see(task, outcome.host, time.monotonic() + _SEEN_WITHIN_S)

    def _see(self, task: PartTask, host: str, until: float) -> None:
        """Believe that a part is done when its record is seen here."""
        record = read_record(self._destination, task.number)
        if record is None:
            if time.monotonic() > until:
                raise PackError(
                    f"host {host} has packed part {task.number} into {self._destination}, and its files are not seen "
                    "where the job runs: is it the same file system?"
                )
            self._unseen[task.number] = task, host, until
            run_token.look_again(self._destination)
            run_token.look_again(self._destination / WORK)
            return
        self._unseen.pop(task.number, None)
        remote_worker.forget_tick(self._destination, task.number)
        self._tell(task.number, Tick(len(task.samples), record.bytes_in))
        del self._ticks[task.number]
        self._report.finished(task.number)

    def _died(self, task: PartTask, workers: int, error: BaseException) -> None:
        self._deaths[task.number] += workers
        remote_worker.forget_tick(self._destination, task.number)
        self._tell(task.number, Tick(0, 0))
        del self._ticks[task.number]
        if self._deaths[task.number] < _PART_DEATHS:
            self._send(task)
            return
        self._cared.append(task)
        if len(self._cared) > _CARED_PARTS:
            raise PackError(
                f"the cluster's workers keep dying: {text.count(len(self._cared), 'part')} killed "
                f"{text.count(_PART_DEATHS, 'worker')} each, the last "
                f"one with {error!r}: out of memory? The same command goes on"
            )

    def _tell(self, number: int, tick: Tick) -> None:
        self._moved = self._taken = time.monotonic()
        self._ticks[number] = tick
        self._report.ticked(number, tick)
