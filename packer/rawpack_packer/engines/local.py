"""The engine of worker processes on this machine, each packing one part at a time."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import cloudpickle

from rawpack.errors import PackError
from rawpack.system.child import GRACE_S, Channel, Child, Heartbeat
from rawpack_packer import text
from rawpack_packer.destination import files
from rawpack_packer.engines.contract import Report
from rawpack_packer.images.decoder_process import init_decoder_process
from rawpack_packer.part.part import PartTask, Tick, run_part, try_samples
from rawpack_packer.part.pieces import make_piece, starts

_LOOK_EVERY_S = 0.5
_SAMPLE_DEATHS = 2
"""A sample that has killed this many workers is rejected."""
_PART_DEATHS = 20
"""After this many deaths while one part is packed (not tried), its samples are not the cause."""


@dataclass(frozen=True)
class _WorkOrder:
    """What a worker does next."""

    kind: Literal["pack", "try", "help"]
    """Pack the part; prepare its samples only to see which of them kill; or prepare one piece for the worker that packs
    it."""
    task: PartTask
    first: int = 0
    """The first sample to try, or of the piece."""


@dataclass(frozen=True)
class _Ended:
    """A worker's reply: its order is done, or raised `error`."""

    error: BaseException | None


@dataclass
class _PackWorker:
    child: Child
    order: _WorkOrder | None = None
    """None while it is free."""


class LocalEngine:
    """See `Engine`. A worker that dies is replaced and its part packed again; a sample that kills two is rejected.

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
        self._workers: list[_PackWorker] = []
        self._deaths: Counter[tuple[int, int]] = Counter()
        """(part, position in it, -1 for none) -> workers that died there."""
        self._packing_deaths: Counter[int] = Counter()
        """Part -> workers that died while they packed it, not while they tried its samples."""
        self._token = secrets.token_hex(8)
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
        for worker in self._workers:
            worker.child.kill()
        self._workers.clear()

    def _run(self, tasks: Iterator[PartTask], report: Report) -> None:
        while True:
            while (worker := self._free_worker()) is None:
                self._wait(report)
            task = next(tasks, None)
            if task is None:
                break
            # A single worker has no helpers, and needs no token for their pieces.
            token = self._token if self._max_workers > 1 else ""
            self._send(worker, _WorkOrder("pack", replace(task, token=token)))
        while any(worker.order and worker.order.kind != "help" for worker in self._workers):
            self._assign_helpers()
            self._wait(report)

    def _free_worker(self) -> _PackWorker | None:
        for worker in self._workers:
            if worker.order is None:
                return worker
        if len(self._workers) < self._max_workers:
            self._workers.append(_PackWorker(self._start()))
            return self._workers[-1]
        return None

    def _start(self) -> Child:
        return Child(_main, None, self._held)

    def _assign_helpers(self) -> None:
        while (order := self._piece()) is not None and (worker := self._free_worker()) is not None:
            self._claimed[order.task.number] = order.first
            self._send(worker, order)

    def _piece(self) -> _WorkOrder | None:
        """The last unclaimed piece of the part with the most work left."""
        best, most = None, 0
        for worker in self._workers:
            if worker.order is None or worker.order.kind != "pack":
                continue
            task = worker.order.task
            if task.number in self._without_help or self._packing_deaths[task.number]:
                continue
            number, position, _ = worker.child.heartbeat.read()
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
        worker.order = order
        try:
            worker.child.channel.send(cloudpickle.dumps(order))
        except TimeoutError:
            raise PackError("a packing worker takes no work; is this machine out of memory?") from None
        except OSError:
            pass  # it is dead, which `_wait` will see

    def _wait(self, report: Report) -> None:
        """Handle the workers' messages, once there is one."""
        began, beats = time.monotonic(), self._beats()
        while True:
            poll = select.poll()
            by_number = {worker.child.channel.fileno(): worker for worker in self._workers if worker.order}
            for number in by_number:
                poll.register(number, select.POLLIN)
            ready = poll.poll(_LOOK_EVERY_S * 1000)
            for number, _ in ready:
                self._receive(by_number[number], report)
            if ready:
                return
            if self._look is not None:
                self._look()
            now = self._beats()
            if now != beats:
                began, beats = time.monotonic(), now
            elif time.monotonic() - began > self._stuck_after_s:
                raise PackError(
                    f"no worker has begun a sample for {self._stuck_after_s:g} s: does the disk of the source or "
                    "of the destination still respond? The same command resumes"
                )

    def _beats(self) -> list[int]:
        return [worker.child.heartbeat.read()[2] for worker in self._workers]

    def _receive(self, worker: _PackWorker, report: Report) -> None:
        """Handle one message from a worker, or its death."""
        received, order = None, worker.order
        assert order is not None  # only these are listened to
        with contextlib.suppress(OSError):
            received = worker.child.channel.receive()
        message: Tick | _Ended | None = cloudpickle.loads(received[0]) if received else None
        if isinstance(message, Tick):
            report.ticked(order.task.number, message)
            return
        worker.order = None
        if order.kind == "help":
            # The worker that packs the part does without, and reports what is wrong.
            if message is None or message.error is not None:
                self._without_help.add(order.task.number)
            if message is None:
                _kill(worker)
                worker.child = self._start()
        elif message is None:
            self._replace(worker, order)
        elif message.error is not None:
            raise message.error
        elif order.kind == "try":
            self._send(worker, _WorkOrder("pack", order.task))
        else:
            report.finished(order.task.number)

    def _replace(self, worker: _PackWorker, order: _WorkOrder) -> None:
        """Start a new worker in place of a dead one, and have it resume the part."""
        task, number = order.task, order.task.number
        noted, position, beats = worker.child.heartbeat.read()
        _kill(worker)
        status, words = worker.child.process.returncode, worker.child.last_words()
        detail = f"\n\nIts last words:\n{words}" if words else ""
        if not beats and status > 0:
            raise PackError(f"packing workers cannot start here (exit status {status}); --workers 0 needs none{detail}")
        if noted != number or not beats:
            position = -1
        self._deaths[number, position] += 1
        if order.kind == "pack":
            self._packing_deaths[number] += 1
        at_none = position < 0 and self._deaths[number, -1] >= _SAMPLE_DEATHS
        if at_none or self._packing_deaths[number] >= _PART_DEATHS:
            raise PackError(
                f"packing workers keep dying (exit status {status}) in part {number}: out of memory? "
                f"Try fewer --workers; the same command resumes{detail}"
            )
        worker.child = self._start()
        if position < 0:
            self._send(worker, _WorkOrder("pack", task))
        elif self._deaths[number, position] < _SAMPLE_DEATHS:
            self._send(worker, _WorkOrder("try", task, position))
        else:
            task = replace(task, crashed=task.crashed | {position})
            if len(task.crashed) > task.max_rejects:
                raise PackError(
                    f"{text.count(len(task.crashed), 'sample')} killed the workers that decoded "
                    f"them (exit status {status}), the last one {task.samples.key(position)!r}, "
                    f"and --max-rejects allows {task.max_rejects}; the same "
                    "command with a larger --max-rejects resumes"
                )
            self._send(worker, _WorkOrder("try", task, position + 1))


def _kill(worker: _PackWorker) -> None:
    if not worker.child.kill(GRACE_S):
        raise PackError("a packing worker hangs and cannot be ended: does the disk still respond?")


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
        notes.note(task.number, -1)
        note = partial(notes.note, task.number)
        try:
            if order.kind == "pack":
                run_part(task, note, send)
            elif order.kind == "try":
                try_samples(task, order.first, note)
            elif not make_piece(task, order.first):
                error = PackError("too little space for a piece")
        except Exception as raised:
            error = _portable(raised, task)
        send(_Ended(error))


def _portable(error: Exception, task: PartTask) -> PackError:
    """The error as one that can be pickled."""
    if isinstance(error, PackError):
        return error
    if isinstance(error, OSError | MemoryError):
        return files.refused(error, task.destination)
    return PackError(f"packing part {task.number} failed: {error!r}\n\nIn the worker:\n{traceback.format_exc()}")
