"""A crew: the workers of one iterator, the tasks they hold, and what is done when one of them fails.

The crew has no thread of its own: it works while its caller waits for a batch. A worker has its tasks in advance, so
it goes on while the caller computes.
"""

from __future__ import annotations

import contextlib
import mmap
import select
import threading
import time
import warnings
from dataclasses import dataclass, field
from typing import Protocol

from rawpack.batching import process
from rawpack.batching.messages import Done, Failed, Reply, Task, decode_reply, encode
from rawpack.batching.slots import Slot, SlotLayout, SlotRing
from rawpack.batching.work import Filler, Views, WorkSpec, serve
from rawpack.child import NOTES_BYTES, Channel, Child, Notes, pair
from rawpack.errors import WorkerError
from rawpack.stats import Times

_MAX_DEATHS = 3
_JOIN_TIMEOUT_S = 5.0
_LOOK_EVERY_S = 0.5
_START_TIMEOUT_S = 60.0
"""What a worker is given to start, on a busy machine with slow disks, however short `timeout` is."""
_CALLER = 6
"""Frames from where the warning is given up to the loop over the batches."""
_WARM_TASKS = 32


@dataclass
class Pending:
    """A batch in the making."""

    slot: Slot
    rows: int
    seed: int
    epoch: int
    left: int = 0
    """Slices that are not done."""
    times: Times = field(default_factory=Times)
    """What its workers spent on it, together."""


@dataclass
class _Slice:
    """A task and the batch that it belongs to."""

    task: Task
    pending: Pending
    deaths: int = 0


class _Worker(Protocol):
    """One worker of either backend, seen from the crew."""

    channel: Channel
    notes: Notes

    def share(self, slot: Slot) -> list[int]: ...
    def kill(self) -> bool: ...
    def status(self) -> str: ...


@dataclass
class _Seat:
    """A worker's place in the crew, with the slices it holds, oldest first."""

    worker: _Worker
    slices: dict[int, _Slice] = field(default_factory=dict)
    beat: int = -1
    beat_at: float = 0.0


class ProcessWorker(Child):
    """A worker process."""

    def __init__(self, spec: WorkSpec, descriptors: list[int]) -> None:
        super().__init__(process.main, spec, descriptors)
        self._known: set[int] = set()

    def share(self, slot: Slot) -> list[int]:
        """The descriptors to send along with a task on `slot`."""
        if not slot.fresh:
            if slot.number in self._known:
                return []
            self._known.add(slot.number)
        assert slot.descriptor is not None
        return [slot.descriptor]

    def status(self) -> str:
        return f" (exit status {self.process.returncode})"


class ThreadWorker:
    """A worker thread: the same loop over the same messages, with the slots of this process."""

    def __init__(self, filler: Filler, layout: SlotLayout, slots: dict[int, Slot]) -> None:
        self.channel, theirs = pair()
        self.notes = Notes(mmap.mmap(-1, NOTES_BYTES))

        def views_of(task: Task, _: list[int]) -> Views:
            return layout.views(slots[task.slot].memory, task.rows)

        def run() -> None:
            # A slot that is gone: nobody waits for the batch any more.
            with contextlib.suppress(KeyError):
                serve(theirs, filler, views_of, self.notes)
            theirs.close()

        self.thread = threading.Thread(target=run, daemon=True, name="rawpack")
        self.thread.start()

    def share(self, slot: Slot) -> list[int]:
        return []

    def kill(self) -> bool:
        """Tell the thread to end; False where it is in the middle of a task that does not end."""
        self.channel.close()
        if self.thread is threading.current_thread():
            return False  # a garbage collection in the worker itself let go of the crew
        self.thread.join(_JOIN_TIMEOUT_S)
        return not self.thread.is_alive()

    def status(self) -> str:
        return ""


class Crew:
    """The workers of one iterator and the slots that they fill. Used by one thread at a time."""

    def __init__(
        self, spec: WorkSpec, workers: int, backend: str, ring: SlotRing, filler: Filler, timeout: float
    ) -> None:
        """filler: of this process; the `thread` backend shares it."""
        self.ring = ring
        self._spec, self._backend, self._filler = spec, backend, filler
        self._timeout = timeout
        self._next_task = 0
        self._warm = 0
        self._warned = False
        self._seats: list[_Seat] = []
        try:
            for _ in range(workers):
                self._seats.append(_Seat(self._hire()))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def asks_ahead(self) -> bool:
        """Whether a worker has waited for the disk lately, so that it should be asked for samples ahead of time.

        Where all lies in the page cache it should not: asking costs time.
        """
        return self._warm < _WARM_TASKS

    def submit(self, pending: Pending, pieces: int) -> None:
        """Give out a batch in `pieces` slices, to the workers that have least to do."""
        pieces = max(1, min(pieces, pending.rows))
        pending.left = pieces
        for k in range(pieces):
            self._next_task += 1
            task = Task(
                number=self._next_task,
                slot=pending.slot.number,
                size=pending.slot.size,
                keep=not pending.slot.fresh,
                rows=pending.rows,
                start=pending.rows * k // pieces,
                stop=pending.rows * (k + 1) // pieces,
                careful=False,
                seed=pending.seed,
                epoch=pending.epoch,
            )
            self._give(min(self._seats, key=lambda seat: len(seat.slices)), _Slice(task, pending))

    def wait(self, pending: Pending) -> None:
        """Return when the batch is whole. Raises what a worker raised; replaces workers that die or hang."""
        poll = select.poll()
        seats = {seat.worker.channel.fileno(): seat for seat in self._seats}
        for number in seats:
            poll.register(number, select.POLLIN)

        def replace(number: int, what: str) -> None:
            seat = seats.pop(number)
            poll.unregister(number)
            self._replace(seat, what)
            seats[seat.worker.channel.fileno()] = seat
            poll.register(seat.worker.channel.fileno(), select.POLLIN)

        while pending.left:
            for number, _ in poll.poll(_LOOK_EVERY_S * 1000):
                reply = self._receive(seats[number])
                if reply is None:
                    replace(number, "died")
                elif isinstance(reply, Failed):
                    raise self._error(reply)
            if pending.left:
                for number in self._stuck(seats):
                    replace(number, f"made no progress for {self._timeout:g} s")

    def drain(self) -> bool:
        """Wait until no worker holds a slice, so that all slots are ours again. False where a worker is gone."""
        for seat in self._seats:
            poll = select.poll()
            poll.register(seat.worker.channel.fileno(), select.POLLIN)
            while seat.slices:
                if not poll.poll(self._timeout * 1000) or self._receive(seat) is None:
                    return False
        return True

    def close(self) -> None:
        """End all workers. Nothing they hold matters any more."""
        seats, self._seats = self._seats, []
        for seat in seats:
            seat.worker.kill()

    def _hire(self) -> _Worker:
        if self._backend == "thread":
            return ThreadWorker(self._filler, self._spec.layout, self.ring.slots)
        return ProcessWorker(self._spec, self._filler.descriptors)

    def _give(self, seat: _Seat, piece: _Slice) -> None:
        if not seat.slices:
            seat.beat_at = time.monotonic()
        seat.slices[piece.task.number] = piece
        # Where the worker is dead or stuck, whoever waits next sees it and replaces it.
        with contextlib.suppress(OSError):
            seat.worker.channel.send(encode(piece.task), seat.worker.share(piece.pending.slot))

    def _receive(self, seat: _Seat) -> Reply | None:
        """Take one reply; None where the worker is gone."""
        try:
            received = seat.worker.channel.receive()
        except OSError:
            received = None
        if received is None:
            return None
        reply: Reply = decode_reply(received[0])
        piece = seat.slices.pop(reply.number)
        seat.beat_at = time.monotonic()
        if isinstance(reply, Done):
            self._warm = 0 if reply.waited_for_disk else self._warm + 1
            piece.pending.left -= 1
            piece.pending.times.add(reply.times)
        return reply

    def _stuck(self, seats: dict[int, _Seat]) -> list[int]:
        """The workers that hold slices and have noted nothing for `timeout` seconds, by descriptor."""
        now, stuck = time.monotonic(), []
        for number, seat in seats.items():
            beat = seat.worker.notes.read()[2]
            if beat != seat.beat or not seat.slices:
                seat.beat, seat.beat_at = beat, now
            elif now - seat.beat_at > (self._timeout if beat else max(self._timeout, _START_TIMEOUT_S)):
                stuck.append(number)
        return stuck

    def _replace(self, seat: _Seat, what: str) -> None:
        """Put a new worker in the place of one that is gone, and give it the slices again."""
        task, position, _ = seat.worker.notes.read()
        gone = seat.worker.kill()
        how = f"a worker {what}{seat.worker.status()}"
        slices = list(seat.slices.values())
        seat.slices.clear()
        if not gone:
            raise WorkerError(f"{how}, and cannot be ended: is the disk or network share of the store alive?")
        if slices:
            first = next((piece for piece in slices if piece.task.number == task), slices[0])
            first.deaths += 1
            first.task = _careful(first.task)
            if first.deaths >= _MAX_DEATHS:
                raise WorkerError(f"{how} {first.deaths} times at {self._name(first, position)}; it ends here")
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"rawpack: {how}; it is replaced and its samples are read again", RuntimeWarning, stacklevel=_CALLER
            )
        seat.worker = self._hire()
        seat.beat, seat.beat_at = -1, time.monotonic()
        for piece in slices:
            self._give(seat, piece)

    def _error(self, reply: Failed) -> WorkerError:
        what = f"reading {self._filler.name(reply.row)} failed: {reply.kind}: {reply.message}"
        return WorkerError(f"{what}\n\nIn the worker:\n{reply.traceback}")

    def _name(self, piece: _Slice, position: int) -> str:
        views = self._spec.layout.views(piece.pending.slot.memory, piece.pending.rows)
        if 0 <= position < piece.pending.rows:
            return self._filler.name(int(views["index"][position]))
        return f"one of the samples {views['index'][piece.task.start : piece.task.stop].tolist()}"


def _careful(task: Task) -> Task:
    return Task(
        task.number, task.slot, task.size, task.keep, task.rows, task.start, task.stop, True, task.seed, task.epoch
    )
