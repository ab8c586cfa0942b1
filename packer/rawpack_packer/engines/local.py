"""The contract between a packing job and the engine that runs its parts; and the engines of this machine: this process,
and worker processes, each packing one part at a time."""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol

import cloudpickle
import msgspec

from rawpack.errors import PackError
from rawpack.system.channel import TAKEN, Channel, Heartbeat
from rawpack.system.child import Child
from rawpack.system.pool import SupervisedPool, WorkerHandle
from rawpack.system.template import Template
from rawpack_packer import text
from rawpack_packer.destination import files
from rawpack_packer.errors import death_of, is_killed, is_no_fault_of_data, killed
from rawpack_packer.images import init_decoder_process
from rawpack_packer.options import opt
from rawpack_packer.part import PartTask, Tick, run_part, try_samples
from rawpack_packer.part.pieces import make_piece, starts
from rawpack_packer.text import again


class Report(Protocol):
    """Receives the progress of a run. Called in the thread that called `run`."""

    def ticked(self, number: int, tick: Tick, /) -> None:
        """Part `number` has come this far. A part that is packed again starts from 0."""

    def finished(self, number: int, /) -> None:
        """The part's shard and record are on the disk."""

    def waits(self, why: str, /) -> None:
        """No worker has taken a part for some seconds; `why` is a line for the user."""


class Engine(Protocol):
    """Runs parts. Every engine writes the same bytes."""

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        """Run all tasks, and return when all are done. Draws a task only when it can begin, and packs the part of a
        worker that died again.

        Raises PackError where a part cannot be done, after its workers have ended.
        """


class InlineEngine:
    """See `Engine`. Packs part after part in this process, for debugging and where no worker process can be started. A
    sample that kills its decoder kills this process."""

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        for task in tasks:
            with files.refusals_named(task.destination):
                run_part(task, lambda _: None, partial(report.ticked, task.number))
            report.finished(task.number)


_SAMPLE_DEATHS = 2
"""A sample at which this many workers crashed is rejected; if as many were killed from outside, the run stops:
see `is_killed`."""
_PART_DEATHS = 20
"""After this many deaths while one part is packed (not tried), its samples are not the cause."""


class _WorkOrder(msgspec.Struct, frozen=True):
    """What a worker does next."""

    kind: Literal["pack", "try", "help"]
    """Pack the part; prepare its samples only to see which of them kill; or prepare one piece for the worker that packs
    it."""
    task: PartTask
    first: int = 0
    """The first sample to try, or of the piece."""


class _Ended(msgspec.Struct, frozen=True):
    """A worker's reply: its order is done, or raised `error`."""

    error: BaseException | None


_PackWorker = WorkerHandle[Child, _WorkOrder]
"""A worker, with one order or none."""


class LocalEngine:
    """See `Engine`. A worker that dies is replaced and its part packed again; a sample that crashes two is rejected.

    Before a part is packed again, its samples are tried, starting with the one that killed. So each deadly sample costs
    two workers, however many there are, and the part's own work is not repeated for each. When all parts are given out,
    free workers prepare pieces of the parts that others still pack, so that no core is idle.
    """

    def __init__(
        self, workers: int, stuck_after_s: float = 600.0, held: Sequence[int] = (), *, keep: bool = False
    ) -> None:
        """stuck_after_s: seconds without any sample begun after which a disk is taken for dead. held: descriptors,
        such as locks, that each worker keeps open for as long as it lives. keep: after a run that went well, workers
        wait for the next one until `close`."""
        self._max_workers, self._stuck_after_s, self._held, self._keep = workers, stuck_after_s, held, keep
        self._look: Callable[[], None] | None = None
        self._pool = SupervisedPool[Child, _WorkOrder](self._start, _load if workers > 1 else None)
        self._deaths: Counter[tuple[int, int, bool]] = Counter()
        """(part, position in it or -1 for none, whether by `is_killed`) -> workers that died there."""
        self._packing_deaths: Counter[int] = Counter()
        """Part -> workers that died while they packed it, not while they tried its samples."""
        self._token = os.urandom(8).hex()
        self._claimed: dict[int, int] = {}
        """Part -> first sample of the piece given out last; pieces are given out from a part's end to its start."""
        self._without_help: set[int] = set()
        """Parts whose helper died or could not write."""

    def run(self, tasks: Iterator[PartTask], report: Report, /, *, look: Callable[[], None] | None = None) -> None:
        """look: called every half second while the workers are silent; an exception from it ends the run."""
        self._look = look
        for state in (self._deaths, self._packing_deaths, self._claimed, self._without_help):
            state.clear()
        kept = False
        try:
            self._run(tasks, report)
            kept = self._keep
        finally:
            if not kept:
                self.close()

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _run(self, tasks: Iterator[PartTask], report: Report) -> None:
        while True:
            while (worker := self._free_worker()) is None:
                self._wait(report)
            task = next(tasks, None)
            if task is None:
                break
            # A single worker has no helpers, and needs no token for their pieces.
            token = self._token if self._max_workers > 1 and not task.alone else ""
            self._send(worker, _WorkOrder("pack", replace(task, token=token)))
        while any(order.kind != "help" for worker in self._pool.handles for order in worker.jobs.values()):
            while (order := self._piece()) is not None and (helper := self._free_worker()) is not None:
                self._claimed[order.task.number] = order.first
                self._send(helper, order)
            self._wait(report)

    def _free_worker(self) -> _PackWorker | None:
        for worker in self._pool.handles:
            if not worker.jobs:
                return worker
        return self._pool.add() if len(self._pool) < self._max_workers else None

    def _start(self, template: Template | None) -> Child:
        child = Child(_main, None, self._held, launcher=template)
        # An order that brings its samples is large: a worker takes it only once it has started, which may be slow.
        child.channel.socket.settimeout(self._stuck_after_s)
        return child

    def _piece(self) -> _WorkOrder | None:
        """The last unclaimed piece of the part with the most work left."""
        best, most = None, 0
        for worker in self._pool.handles:
            order = next(iter(worker.jobs.values()), None)
            if order is None or order.kind != "pack":
                continue
            task = order.task
            if task.alone or task.number in self._without_help or self._packing_deaths[task.number]:
                continue
            number, position, _ = worker.worker.heartbeat.read()
            if number == task.number and position < 0:
                continue  # its shard is being finished, or it has not begun yet
            firsts = starts(task)
            end = self._claimed.get(task.number, len(task.samples))
            first = firsts[(end - 1) // firsts.step] if end else 0
            left = first - (position if number == task.number else 0)
            # Its worker comes to the next piece too soon: that would be prepared twice.
            if left > firsts.step and left > most:
                best, most = _WorkOrder("help", task, first), left
        return best

    def _send(self, worker: _PackWorker, order: _WorkOrder) -> None:
        try:
            self._pool.give(worker, order.task.number, order, cloudpickle.dumps(order))
        except TimeoutError:
            if order.kind == "help":  # the worker that packs the part does without
                self._replace(worker)
                return
            raise PackError(
                f"a packing worker has taken no work for {self._stuck_after_s:g} s; is this machine out of memory? "
                f"{again().capitalize()} resumes"
            ) from None

    def _wait(self, report: Report) -> None:
        """Handle the workers' messages, once there is one."""
        while not (received := list(self._pool.receive())):
            if self._look is not None:
                self._look()
            busy = sum(bool(worker.jobs) for worker in self._pool.handles)
            if len(self._pool.stuck(self._stuck_after_s)) == busy:
                raise PackError(
                    f"no worker has begun a sample for {self._stuck_after_s:g} s: does the disk of the source or "
                    f"of the destination still respond? {again().capitalize()} resumes"
                )
        for worker, message in received:
            self._receive(worker, message, report)

    def _receive(self, worker: _PackWorker, received: bytearray | None, report: Report) -> None:
        """Handle one message from a worker, or its death."""
        if received is None:
            self._replace(worker)
            return
        message: Tick | _Ended = cloudpickle.loads(received)
        order = next(iter(worker.jobs.values()))
        if isinstance(message, Tick):
            report.ticked(order.task.number, message)
            return
        worker.jobs.clear()
        if order.kind == "help":
            # The worker that packs the part does without, and reports what is wrong.
            if message.error is not None:
                self._without_help.add(order.task.number)
        elif message.error is not None:
            raise message.error
        elif order.kind == "try":
            self._send(worker, _WorkOrder("pack", order.task))
        else:
            report.finished(order.task.number)

    def _replace(self, worker: _PackWorker) -> None:
        """Start a new worker in place of a dead one, and have it resume the part."""
        death = self._pool.bury(worker, died=True)
        if not death.gone:
            raise PackError("a packing worker hangs and cannot be ended: does the disk still respond?")
        order, status, position = death.job, death.status, death.position
        if order is None:
            self._pool.remove(worker)
            return
        task, number = order.task, order.task.number
        if order.kind == "help":
            self._without_help.add(number)
            self._pool.revive(worker)
            return
        if death.cannot_start:
            raise PackError(
                f"packing workers cannot start here (exit status {status}); {opt.workers(0)} needs none{death.said}"
            )
        if not death.begun:  # no sample is the cause
            self._pool.revive(worker)
            self._send(worker, order)
            return
        crashes, kills = (number, position, False), (number, position, True)
        self._deaths[kills if is_killed(status) else crashes] += 1
        if order.kind == "pack":
            self._packing_deaths[number] += 1
        at_none = position < 0 and self._deaths[crashes] + self._deaths[kills] >= _SAMPLE_DEATHS
        if at_none or self._packing_deaths[number] >= _PART_DEATHS:
            cure = f"{opt.workers(0)} packs in this process, and shows where it crashes"
            if is_killed(status):
                cure = f"this machine may be short of memory: try fewer {opt.workers}; {again()} resumes"
            raise PackError(
                f"packing workers keep dying, by {death_of(status)}, in part {number}, and of no sample: {cure}"
                f"{death.said}"
            )
        self._pool.revive(worker)
        if position < 0:
            self._send(worker, _WorkOrder("pack", task))
        elif self._deaths[kills] >= _SAMPLE_DEATHS:
            what = f"the process that decoded {text.plain(repr(task.samples.key(position)))}"
            raise killed(what, status, f"try fewer {opt.workers}")
        elif self._deaths[crashes] < _SAMPLE_DEATHS:
            self._send(worker, _WorkOrder("try", task, position))
        else:
            task = replace(task, crashed=task.crashed | {position})
            if len(task.crashed) > task.max_rejects:
                crashed, last = len(task.crashed), repr(task.samples.key(position))
                raise PackError(
                    f"{text.count(crashed, 'sample')} killed the workers that decoded them (exit status {status}), the "
                    f"last one {last}, and {opt.max_rejects} allows {task.max_rejects}; {again()} with "
                    f"{opt.max_rejects(crashed)} or more resumes"
                )
            self._send(worker, _WorkOrder("try", task, position + 1))


def _load() -> None:
    """Runs in the template of the workers: loads what most of them need besides this module."""
    import cv2  # noqa: F401
    import simplejpeg  # noqa: F401


def _main(channel: Channel, notes: Heartbeat, _: Any, descriptors: list[int]) -> None:
    """Carry out orders in a worker process until the parent is gone."""
    init_decoder_process()

    def send(message: Tick | _Ended) -> None:
        try:
            channel.send(cloudpickle.dumps(message))
        except OSError:
            os._exit(1)  # the parent is gone

    while (received := channel.receive()) is not None:
        order: _WorkOrder = cloudpickle.loads(received[0])
        task, error = order.task, None
        notes.note(task.number, TAKEN)
        note = partial(notes.note, task.number)
        try:
            if order.kind == "pack":
                run_part(task, note, send)
            elif order.kind == "try":
                try_samples(task, order.first, note)
            elif not make_piece(task, order.first):
                error = PackError("too little space for a piece")
        except PackError as raised:
            error = raised
        except (OSError, MemoryError) as raised:
            error = files.refused(raised, task.destination)
        except Exception as raised:
            if is_no_fault_of_data(raised) or not task.samples.is_foreign:
                raise
            what = f"packing part {task.number} failed: {raised!r}"
            error = PackError(f"{what}\n\nIn the worker:\n{traceback.format_exc()}")
        send(_Ended(error))
