"""The engine for any pool that runs calls elsewhere: the common part of executors, Dask and Ray."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rawpack.errors import PackError
from rawpack.system import failure
from rawpack_packer import text
from rawpack_packer.destination import files, run_token
from rawpack_packer.destination.layout import WORK
from rawpack_packer.engines import remote_worker
from rawpack_packer.engines.contract import Report
from rawpack_packer.options.naming import opt
from rawpack_packer.part.part import PartTask, Tick, read_record
from rawpack_packer.voice import again

_LOOK_EVERY_S = 1.0
_PART_DEATHS = 3
"""A part that has killed this many of the cluster's workers is packed where the job runs."""
_DEADLY_PARTS = 8
"""With more such parts, the parts are not the cause."""
_SEEN_WITHIN_S = 90.0
"""How long a part that a worker has finished may stay invisible here: NFS may take a minute."""
ANSWER_S = 10.0
"""How long a cluster may take to answer."""
_TAKEN_S = 60.0
"""How long a worker may take to begin a part."""
_SAY_AFTER_S = 5.0
"""Seconds after which a message says that no worker has started a part yet."""
_END_WITHIN_S = 10.0
"""How long workers may take to notice that the run has ended."""


class Call(Protocol):
    """A call that a pool has taken, like `concurrent.futures.Future`.

    `add_done_callback` is optional: with it the end of a call is noticed at once, without it by polling.
    """

    def done(self) -> bool: ...
    def result(self) -> Any: ...
    def cancel(self) -> Any:
        """Take it back if that is safe. A worker that begins it all the same finds that its run has ended."""


class Pool(Protocol):
    """Runs calls elsewhere: the small part of a cluster that packing needs."""

    def slots(self) -> int:
        """How many calls run side by side now; may change."""

    def room(self) -> str:
        """Why calls may not have begun, for a user who waits in vain: "the cluster has no workers"."""

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        """Have `function(order)` run elsewhere. Raises PackError if the pool takes no more calls."""

    def deaths(self, error: BaseException, /) -> int:
        """How many workers died, according to an error that a call's `result` raised.

        Raises PackError for errors of any other kind.
        """


class PooledEngine:
    """See `Engine`. Gives the pool a few more parts than it runs at once, and repeats the part of a worker that died.

    A part that has killed three workers is packed where the job runs, in its own process, after all other parts.
    """

    def __init__(self, pool: Pool, *, timeout: float | None = None, patience_s: float = 3600.0) -> None:
        """timeout: seconds without any worker taking a part after which the run ends; None for 60.
        patience_s: seconds without progress in any part that was taken after which it ends: all workers hang."""
        self._pool, self._timeout, self._patience_s = pool, _TAKEN_S if timeout is None else timeout, patience_s

    def close(self) -> None:
        """Leave the cluster, if this engine connected to it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        first = next(tasks, None)
        if first is None:
            return
        destination = Path(first.destination)
        with files.refusals_named(destination):
            token = run_token.begin(destination)
            run = _PooledRun(self._pool, self._timeout, self._patience_s, report, destination, token)
            try:
                run.run_all(chain([first], tasks))
            finally:
                run_token.end(destination)
                run.stop()
                remote_worker.end_idle()


@dataclass
class _PooledRun:
    """One run of the engine: the parts that are out, and what became of them."""

    pool: Pool
    timeout: float
    patience_s: float
    report: Report
    destination: Path
    token: str
    calls: int = 0
    out: dict[int, tuple[Call, PartTask]] = field(default_factory=dict)
    """Number of a call -> the call and its part."""
    ended: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    """Numbers of calls that have ended, put there by any thread."""
    unseen: dict[int, tuple[PartTask, str, float]] = field(default_factory=dict)
    """Number of a part that its worker has finished -> the part, the worker's host, and until when to look for it."""
    deaths: Counter[int] = field(default_factory=Counter)
    """Number of a part -> workers that died of it."""
    deadly: list[PartTask] = field(default_factory=list)
    """Parts to be packed here."""
    ticks: dict[int, Tick] = field(default_factory=dict)
    """Number of a part that a worker has taken and not finished -> its progress."""
    looked: float = field(default_factory=time.monotonic)
    moved: float = field(default_factory=time.monotonic)
    """When a part last made progress."""
    taken: float = field(default_factory=time.monotonic)
    """When a worker last had a part."""
    told: bool = False
    """Whether the user knows that no worker has one."""

    def run_all(self, tasks: Iterator[PartTask]) -> None:
        more = True
        while more or self.out or self.unseen:
            slots = self.pool.slots() if more else 0
            while more and len(self.out) <= slots + slots // 4:
                task = next(tasks, None)
                if task is None:
                    more = False
                else:
                    self._send(replace(task, run=self.token, root=task.root if os.path.lexists(task.root) else ""))
            self._wait()
        for task in self.deadly:
            self._take_outcome(task, remote_worker.run_remote(remote_worker.packed(task)))
            while self.unseen:
                self._wait()

    def stop(self) -> None:
        """Take back what is out, and give workers that have begun a moment to see that the run has ended."""
        begun = [call for call, task in self.out.values() if task.number in self.ticks]
        for call, _ in self.out.values():
            # A cluster that is gone takes nothing back; the error that ended the run matters more.
            with contextlib.suppress(Exception):
                call.cancel()
        until = time.monotonic() + _END_WITHIN_S
        while any(not call.done() for call in begun) and time.monotonic() < until:
            time.sleep(0.05)
        for _, task in self.out.values():
            remote_worker.forget_tick(self.destination, task.number)

    def _send(self, task: PartTask) -> None:
        number = self.calls = self.calls + 1
        call = self.pool.submit(remote_worker.run_remote, remote_worker.packed(task))
        self.out[number] = call, task
        if hasattr(call, "add_done_callback"):
            call.add_done_callback(lambda _: self.ended.put(number))

    def _wait(self) -> None:
        """Handle the next call that ends, and check on all others now and then."""
        with contextlib.suppress(queue.Empty):
            self._take(self.ended.get(timeout=_LOOK_EVERY_S))
        if time.monotonic() - self.looked >= _LOOK_EVERY_S:
            self._look()

    def _look(self) -> None:
        self.looked = time.monotonic()
        for number, (call, task) in list(self.out.items()):
            if not hasattr(call, "add_done_callback") and call.done():
                self._take(number)
                continue
            tick = remote_worker.read_tick(self.destination, task.number)
            if tick is not None and tick != self.ticks.get(task.number):
                self._tick(task.number, tick)
        for task, host, until in list(self.unseen.values()):
            self._see(task, host, until)
        self._check_taken()
        if time.monotonic() - self.moved > self.patience_s:
            raise PackError(
                f"no part has made progress for {self.patience_s:g} s: do the cluster's workers hang, or the disk? "
                f"{again().capitalize()} resumes"
            )

    def _check_taken(self) -> None:
        """Tell the user where no worker takes a part, and give up after a while."""
        now = time.monotonic()
        if not self.out or (self.ticks and self.pool.slots()):
            self.taken, self.told = now, False
            return
        self.moved = now  # what has not begun does not hang
        # NFS may show late that a worker has taken a part.
        run_token.look_again(self.destination / WORK)
        waited = now - self.taken
        if waited > min(_SAY_AFTER_S, self.timeout) and not self.told:
            self.told = True
            self.report.waits(f"{self.pool.room()}; waiting up to {self.timeout:g} s for a worker to take a part")
        if waited > self.timeout:
            raise PackError(
                f"no worker has taken a part for {self.timeout:g} s: {self.pool.room()}. Wait longer by "
                f"{opt.engine_timeout}, or timeout= of the engine; {again()} resumes"
            )

    def _take(self, number: int) -> None:
        """Handle a call that has ended."""
        call, task = self.out.pop(number)
        try:
            outcome = call.result()
        except (Exception, asyncio.CancelledError) as error:
            self._died(task, self.pool.deaths(error), error)
        else:
            self._take_outcome(task, outcome)

    def _take_outcome(self, task: PartTask, outcome: remote_worker.Outcome) -> None:
        if outcome.failure is not None:
            raise failure.unpack(outcome.failure)
        if outcome.error is not None:
            raise PackError(f"on host {outcome.host}: {outcome.error}")
        self._see(task, outcome.host, time.monotonic() + _SEEN_WITHIN_S)

    def _see(self, task: PartTask, host: str, until: float) -> None:
        """Finish a part once its record is visible here."""
        record = read_record(self.destination, task.number)
        if record is None:
            if time.monotonic() > until:
                raise PackError(
                    f"host {host} has packed part {task.number} into {self.destination}, and its files are not seen "
                    "where the job runs: is it the same file system?"
                )
            self.unseen[task.number] = task, host, until
            run_token.look_again(self.destination)
            run_token.look_again(self.destination / WORK)
            return
        self.unseen.pop(task.number, None)
        self._end_ticks(task, Tick(len(task.samples), record.bytes_in))
        self.report.finished(task.number)

    def _died(self, task: PartTask, workers: int, error: BaseException) -> None:
        self.deaths[task.number] += workers
        self._end_ticks(task, Tick(0, 0))
        if self.deaths[task.number] < _PART_DEATHS:
            self._send(task)
            return
        self.deadly.append(task)
        if len(self.deadly) > _DEADLY_PARTS:
            raise PackError(
                f"the cluster's workers keep dying: {text.count(len(self.deadly), 'part')} killed "
                f"{text.count(_PART_DEATHS, 'worker')} each, the last one with {error!r}: out of memory? The same "
                "command resumes"
            )

    def _tick(self, number: int, tick: Tick) -> None:
        self.moved = self.taken = time.monotonic()
        self.ticks[number] = tick
        self.report.ticked(number, tick)

    def _end_ticks(self, task: PartTask, last: Tick) -> None:
        remote_worker.forget_tick(self.destination, task.number)
        self._tick(task.number, last)
        del self.ticks[task.number]
