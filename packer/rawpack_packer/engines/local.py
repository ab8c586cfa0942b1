"""Worker processes on this machine, each packing one part at a time."""

from __future__ import annotations

import contextlib
import os
import select
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import cloudpickle

from rawpack.child import GRACE_S, Channel, Child, Notes
from rawpack.errors import PackError
from rawpack_packer import files
from rawpack_packer.engines.contract import Report
from rawpack_packer.parts import PartTask, Tick, run_part, try_samples
from rawpack_packer.worker import settle

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
class _Trial:
    """Samples of a part to be prepared, from `first` on, for nothing but to see which of them kill."""

    task: PartTask
    first: int


@dataclass
class _Seat:
    child: Child
    task: PartTask | None = None
    trying: bool = False
    """Whether it tries the samples of `task`, and does not pack it yet."""


class LocalEngine:
    """See `Engine`. A worker that dies is replaced, and its part done again; a sample that kills two is rejected.

    Before a part is done again, its samples are tried from the deadly one on. So each that kills costs two workers and
    no more, however many there are, and not the part's work twice over.
    """

    def __init__(self, workers: int, stuck_after_s: float = 600.0, held: Sequence[int] = ()) -> None:
        """stuck_after_s: without any sample begun for so long, a worker's disk is taken for dead. held: descriptors
        that each worker keeps open as long as it lives: locks."""
        self._workers, self._stuck_after_s, self._held = workers, stuck_after_s, held
        self._seats: list[_Seat] = []
        self._deaths: Counter[tuple[int, int]] = Counter()
        """(part, position in it, -1 for none) -> workers that died there."""
        self._packing_deaths: Counter[int] = Counter()
        """Part -> workers that died while they packed it, not while they tried its samples."""

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        try:
            self._run(tasks, report)
        finally:
            for seat in self._seats:
                seat.child.kill()
            self._seats.clear()

    def _run(self, tasks: Iterator[PartTask], report: Report) -> None:
        while True:
            seat = self._free_seat(report)
            task = next(tasks, None)
            if task is None:
                break
            self._give(seat, task)
        while busy := [seat for seat in self._seats if seat.task]:
            self._wait(busy, report)

    def _free_seat(self, report: Report) -> _Seat:
        while True:
            for seat in self._seats:
                if seat.task is None:
                    return seat
            if len(self._seats) < self._workers:
                self._seats.append(_Seat(Child(_main, None, self._held)))
                return self._seats[-1]
            self._wait(self._seats, report)

    def _give(self, seat: _Seat, task: PartTask, try_from: int | None = None) -> None:
        """Have a worker pack a part, or try its samples first, from one on."""
        seat.task, seat.trying = task, try_from is not None
        try:
            seat.child.channel.send(cloudpickle.dumps(task if try_from is None else _Trial(task, try_from)))
        except TimeoutError:
            raise PackError("a packing worker takes no work; is this machine out of memory?") from None
        except OSError:
            pass  # it is dead, and whoever waits for it sees that

    def _wait(self, seats: list[_Seat], report: Report) -> None:
        """Take what the workers say, until one of them is free."""
        began = time.monotonic()
        beats = [seat.child.notes.read()[2] for seat in seats]
        while True:
            poll = select.poll()
            by_number = {seat.child.channel.fileno(): seat for seat in seats if seat.task}
            for number in by_number:
                poll.register(number, select.POLLIN)
            free = False
            for number, _ in poll.poll(_LOOK_EVERY_S * 1000):
                free |= self._take(by_number[number], report)
            if free:
                return
            now = [seat.child.notes.read()[2] for seat in seats]
            if now != beats:
                began, beats = time.monotonic(), now
            elif time.monotonic() - began > self._stuck_after_s:
                raise PackError(
                    f"no worker has begun a sample for {self._stuck_after_s:g} s: is the disk of the source or of the "
                    "destination alive? The same command goes on"
                )

    def _take(self, seat: _Seat, report: Report) -> bool:
        """One message from a worker; True where the worker is free now."""
        received = None
        with contextlib.suppress(OSError):
            received = seat.child.channel.receive()
        task = seat.task
        assert task is not None
        if received is None:
            self._replace(seat, task)
            return False
        message: Tick | _Tried | _Ended = cloudpickle.loads(received[0])
        if isinstance(message, Tick):
            report.ticked(task.number, message)
            return False
        if isinstance(message, _Tried):
            self._give(seat, task)
            return False
        if message.error is not None:
            raise message.error
        seat.task = None
        report.finished(task.number)
        return True

    def _replace(self, seat: _Seat, task: PartTask) -> None:
        """Start a new worker in the place of one that died, and have it go on with its part."""
        number, position, beats = seat.child.notes.read()
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
                    f"{len(task.crashed)} images killed the workers that decoded them (exit status {status}), the last "
                    f"one {task.samples.key(position)!r}, and --max-rejects allows {task.max_rejects}; the same "
                    "command with a larger --max-rejects goes on"
                )
            self._give(seat, task, position + 1)


def _main(channel: Channel, notes: Notes, _: Any, descriptors: list[int]) -> None:
    """What runs in a worker: parts until the parent is gone."""
    settle()

    def say(message: Tick | _Tried | _Ended) -> None:
        try:
            channel.send(cloudpickle.dumps(message))
        except OSError:
            # Nobody listens any more, and nobody would want to read of it.
            os._exit(1)

    while (received := channel.receive()) is not None:
        asked: PartTask | _Trial = cloudpickle.loads(received[0])
        task = asked.task if isinstance(asked, _Trial) else asked
        notes.note(task.number, -1)
        note = partial(notes.note, task.number)
        try:
            if isinstance(asked, _Trial):
                try_samples(task, asked.first, note)
                say(_Tried())
            else:
                run_part(task, note, say)
                say(_Ended(None))
        except Exception as error:
            say(_Ended(_portable(error, task)))


def _portable(error: Exception, task: PartTask) -> Exception:
    """What was raised, as something that travels."""
    if isinstance(error, PackError):
        return error
    if isinstance(error, OSError | MemoryError):
        return files.refused(error, task.destination)
    return PackError(f"packing part {task.number} failed: {error!r}\n\nIn the worker:\n{traceback.format_exc()}")
