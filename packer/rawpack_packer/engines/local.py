"""Worker processes on this machine, each packing one part at a time."""

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
from typing import Any

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
"""After so many deaths at one sample, the sample is rejected."""
_PART_DEATHS = 20
"""After so many deaths in one part while it is packed, not tried, something else is wrong than its samples."""


@dataclass(frozen=True)
class _Ended:
    """A worker's last word on a part: done, or what it raised."""

    error: BaseException | None


@dataclass(frozen=True)
class _Tried:
    """A worker's word that it has lived through all samples of a part."""


@dataclass(frozen=True)
class _CrashTrial:
    """Samples of a part to be prepared, from `first` on, for nothing but to see which of them kill."""

    task: PartTask
    first: int


@dataclass(frozen=True)
class _Help:
    """A piece of a part to be prepared for the worker that packs it."""

    task: PartTask
    first: int


@dataclass(frozen=True)
class _Helped:
    """A worker's word that it has prepared a piece; or could not."""

    done: bool


@dataclass
class _PackWorker:
    child: Child
    task: PartTask | None = None
    trying: bool = False
    """Whether it tries the samples of `task`, and does not pack it yet."""
    helping: int | None = None
    """The part that it prepares a piece of, for another worker."""

    @property
    def free(self) -> bool:
        return self.task is None and self.helping is None


class LocalEngine:
    """See `Engine`. A worker that dies is replaced, and its part done again; a sample that kills two is rejected.

    Before a part is done again, its samples are tried from the deadly one on. So each that kills costs two workers and
    no more, however many there are, and not the part's work twice over. When all parts are given out, free workers
    prepare pieces of those that others still pack: no core is idle while there is work.
    """

    def __init__(
        self, workers: int, stuck_after_s: float = 600.0, held: Sequence[int] = (), *, keep: bool = False
    ) -> None:
        """stuck_after_s: without any sample begun for so long, a worker's disk is taken for dead. held: descriptors
        that each worker keeps open as long as it lives: locks. keep: workers of a run that went well wait for the next
        one, until `close`."""
        self._workers, self._stuck_after_s, self._held, self._keep = workers, stuck_after_s, held, keep
        self._look: Callable[[], None] | None = None
        self._seats: list[_PackWorker] = []
        self._deaths: Counter[tuple[int, int]] = Counter()
        """(part, position in it, -1 for none) -> workers that died there."""
        self._packing_deaths: Counter[int] = Counter()
        """Part -> workers that died while they packed it, not while they tried its samples."""
        self._token = secrets.token_hex(8)
        self._claimed: dict[int, int] = {}
        """Part -> the first sample of the piece that was given to a helper last; they go from its end to its start."""
        self._alone: set[int] = set()
        """Parts that get no help: a helper died of one, or could not write."""

    def run(self, tasks: Iterator[PartTask], report: Report, /, *, look: Callable[[], None] | None = None) -> None:
        """look: called each half second while no worker says anything; what it raises ends the run."""
        self._look = look
        for known in (self._deaths, self._packing_deaths, self._claimed, self._alone):
            known.clear()
        kept = False
        try:
            self._run(tasks, report)
            kept = self._keep
        finally:
            if not kept:
                self.close()

    def close(self) -> None:
        """End the workers."""
        for seat in self._seats:
            seat.child.kill()
        self._seats.clear()

    def _run(self, tasks: Iterator[PartTask], report: Report) -> None:
        while True:
            seat = self._free_seat(report)
            task = next(tasks, None)
            if task is None:
                break
            # One worker alone has nobody to prepare pieces for it.
            self._give(seat, replace(task, token=self._token if self._workers > 1 else ""))
        while any(seat.task for seat in self._seats):
            self._lend_hands()
            self._wait(self._seats, report)

    def _free_seat(self, report: Report) -> _PackWorker:
        while (seat := self._any_free()) is None:
            self._wait(self._seats, report)
        return seat

    def _any_free(self) -> _PackWorker | None:
        for seat in self._seats:
            if seat.free:
                return seat
        if len(self._seats) < self._workers:
            self._seats.append(_PackWorker(Child(_main, None, self._held)))
            return self._seats[-1]
        return None

    def _lend_hands(self) -> None:
        """Have free workers prepare pieces of the parts that others pack."""
        while (piece := self._piece()) is not None and (seat := self._any_free()) is not None:
            task, first = piece
            self._claimed[task.number] = first
            seat.helping = task.number
            self._send(seat, _Help(task, first))

    def _piece(self) -> tuple[PartTask, int] | None:
        """The last unclaimed piece of the part of which most is left to be done."""
        best, most = None, 0
        for seat in self._seats:
            task = seat.task
            if task is None or seat.trying or task.number in self._alone or self._packing_deaths[task.number]:
                continue
            number, position, _ = seat.child.heartbeat.read()
            if number == task.number and position < 0:
                continue  # its shard is being finished, or it has not begun yet
            firsts = starts(task)
            end = self._claimed.get(task.number, len(task.samples))
            first = firsts[(end - 1) // firsts.step] if end else 0
            left = first - (position if number == task.number else 0)
            # The piece that its worker comes to next would be done twice.
            if left > firsts.step and left > most:
                best, most = (task, first), left
        return best

    def _give(self, seat: _PackWorker, task: PartTask, try_from: int | None = None) -> None:
        """Have a worker pack a part, or try its samples first, from one on."""
        seat.task, seat.trying = task, try_from is not None
        self._send(seat, task if try_from is None else _CrashTrial(task, try_from))

    def _send(self, seat: _PackWorker, message: PartTask | _CrashTrial | _Help) -> None:
        try:
            seat.child.channel.send(cloudpickle.dumps(message))
        except TimeoutError:
            raise PackError("a packing worker takes no work; is this machine out of memory?") from None
        except OSError:
            pass  # it is dead, and whoever waits for it sees that

    def _wait(self, seats: list[_PackWorker], report: Report) -> None:
        """Take what the workers say, once one of them says something."""
        began = time.monotonic()
        beats = [seat.child.heartbeat.read()[2] for seat in seats]
        while True:
            poll = select.poll()
            by_number = {seat.child.channel.fileno(): seat for seat in seats if not seat.free}
            for number in by_number:
                poll.register(number, select.POLLIN)
            said = poll.poll(_LOOK_EVERY_S * 1000)
            for number, _ in said:
                self._take(by_number[number], report)
            if said:
                return
            if self._look is not None:
                self._look()
            now = [seat.child.heartbeat.read()[2] for seat in seats]
            if now != beats:
                began, beats = time.monotonic(), now
            elif time.monotonic() - began > self._stuck_after_s:
                raise PackError(
                    f"no worker has begun a sample for {self._stuck_after_s:g} s: is the disk of the source or of the "
                    "destination alive? The same command goes on"
                )

    def _take(self, seat: _PackWorker, report: Report) -> None:
        """One message from a worker."""
        received = None
        with contextlib.suppress(OSError):
            received = seat.child.channel.receive()
        message: Tick | _Tried | _Helped | _Ended | None = cloudpickle.loads(received[0]) if received else None
        task = seat.task
        if task is None:
            self._helped(seat, message)
        elif message is None:
            self._replace(seat, task)
        elif isinstance(message, Tick):
            report.ticked(task.number, message)
        elif isinstance(message, _Tried):
            self._give(seat, task)
        elif isinstance(message, _Ended):
            if message.error is not None:
                raise message.error
            seat.task = None
            report.finished(task.number)

    def _helped(self, seat: _PackWorker, message: object) -> None:
        """A helper has done its piece, or could not, or died: whoever packs the part then does without."""
        assert seat.helping is not None
        if not (isinstance(message, _Helped) and message.done):
            self._alone.add(seat.helping)
        seat.helping = None
        if message is None:
            if not seat.child.kill():
                raise PackError("a packing worker hangs and cannot be ended: is the disk alive?")
            seat.child = Child(_main, None, self._held)

    def _replace(self, seat: _PackWorker, task: PartTask) -> None:
        """Start a new worker in the place of one that died, and have it go on with its part."""
        number, position, beats = seat.child.heartbeat.read()
        if not seat.child.kill(GRACE_S):
            raise PackError("a packing worker hangs and cannot be ended: is the disk alive?")
        status, words = seat.child.process.returncode, seat.child.last_words()
        said = f"\n\nIts last words:\n{words}" if words else ""
        if not beats and status > 0:
            raise PackError(f"packing workers cannot start here (exit status {status}); --workers 0 needs none{said}")
        if number != task.number or not beats:
            position = -1
        self._deaths[number := task.number, position] += 1
        if not seat.trying:
            self._packing_deaths[number] += 1
        at_none = position < 0 and self._deaths[number, -1] >= _SAMPLE_DEATHS
        if at_none or self._packing_deaths[number] >= _PART_DEATHS:
            raise PackError(
                f"packing workers keep dying (exit status {status}) in part {number}: out of memory? "
                f"Try fewer --workers; the same command goes on{said}"
            )
        seat.child = Child(_main, None, self._held)
        if position < 0:
            self._give(seat, task)
        elif self._deaths[number, position] < _SAMPLE_DEATHS:
            self._give(seat, task, position)
        else:
            task = replace(task, crashed=task.crashed | {position})
            if len(task.crashed) > task.max_rejects:
                raise PackError(
                    f"{text.count(len(task.crashed), 'sample')} killed the workers that decoded "
                    f"them (exit status {status}), the last one {task.samples.key(position)!r}, "
                    f"and --max-rejects allows {task.max_rejects}; the same "
                    "command with a larger --max-rejects goes on"
                )
            self._give(seat, task, position + 1)


def _main(channel: Channel, notes: Heartbeat, _: Any, descriptors: list[int]) -> None:
    """What runs in a worker: parts until the parent is gone."""
    init_decoder_process()

    def say(message: Tick | _Tried | _Helped | _Ended) -> None:
        try:
            channel.send(cloudpickle.dumps(message))
        except OSError:
            # Nobody listens any more, and nobody would want to read of it.
            os._exit(1)

    while (received := channel.receive()) is not None:
        asked: PartTask | _CrashTrial | _Help = cloudpickle.loads(received[0])
        if isinstance(asked, _Help):
            say(_Helped(_help(asked, notes)))
            continue
        task = asked.task if isinstance(asked, _CrashTrial) else asked
        notes.note(task.number, -1)
        note = partial(notes.note, task.number)
        try:
            if isinstance(asked, _CrashTrial):
                try_samples(task, asked.first, note)
                say(_Tried())
            else:
                run_part(task, note, say)
                say(_Ended(None))
        except Exception as error:
            say(_Ended(_portable(error, task)))


def _help(asked: _Help, notes: Heartbeat) -> bool:
    """Prepare a piece; whatever is wrong with it, the worker that packs the part will meet and tell."""
    notes.note(asked.task.number, -1)
    try:
        return make_piece(asked.task, asked.first)
    except (PackError, OSError, MemoryError):
        return False


def _portable(error: Exception, task: PartTask) -> Exception:
    """What was raised, as something that travels."""
    if isinstance(error, PackError):
        return error
    if isinstance(error, OSError | MemoryError):
        return files.refused(error, task.destination)
    return PackError(f"packing part {task.number} failed: {error!r}\n\nIn the worker:\n{traceback.format_exc()}")
