"""The workers of one iterator at a time, the tasks that they have, and what happens when one of them fails.

The pool has no thread of its own: it works while its caller waits for a batch. Workers get tasks in advance, so they
keep working while the caller computes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from msgspec.structs import replace

from rawpack.errors import WorkerError
from rawpack.system.pool import SupervisedPool, WorkerHandle
from rawpack.system.template import Template
from rawpack.system.times import Times
from rawpack.system.user import warn
from rawpack.words import CLIP, INDEX, ROWS
from rawpack.workers import worker
from rawpack.workers.backends import ProcessWorker, ThreadWorker, Worker
from rawpack.workers.fill import (
    BatchFiller,
    Reply,
    Seeds,
    SliceDone,
    Task,
    WorkSpec,
    decode_reply,
    encode,
    first_row,
)
from rawpack.workers.slots import Slot, SlotPool

_MAX_DEATHS = 3
"""How many workers may die of a sample."""
_MAX_SLICE_DEATHS = 10
"""How many may die in a slice: at a different sample each time, the machine is the cause."""
_ERROR_WAIT_S = 2.0
"""How long an error waits for the batches before its own: not forever, in case one of them hangs."""


@dataclass
class Pending:
    slot: Slot
    rows: int
    seed: int
    epoch: int
    first: int
    slices: int
    bucket: int = 0
    left: int = 0
    """Slices that are not done."""
    deaths: dict[int, list[int]] = field(default_factory=dict)
    """The first row of a slice -> where in it workers have died: at which row, or -1 for any of them."""
    times: Times = field(default_factory=Times)
    """What its workers spent on it, in total."""
    failed: str = ""
    """The error of one of its slices, raised when it is this batch's turn, after the complete ones before it. A text,
    because an exception would keep alive the frames that keep it."""


@dataclass
class _Slice:
    task: Task
    pending: Pending


_Handle = WorkerHandle[Worker, _Slice]


class WorkerPool(SupervisedPool[Worker, _Slice]):
    """The workers of one iterator at a time, and the slots that they fill. Used by one thread at a time."""

    dies_of = (MemoryError, OSError)  # another worker may do its slices

    def __init__(
        self, spec: WorkSpec, workers: int, backend: str, slot_pool: SlotPool, filler: BatchFiller, timeout: float
    ) -> None:
        """filler: of this process; the `thread` backend shares it."""
        self.slot_pool = slot_pool
        self._spec, self._backend, self._filler = spec, backend, filler
        self._timeout = timeout
        self._next_task = 0
        self.tasks_since_disk_wait = 0
        """Tasks that were done since a worker waited for the disk."""
        self._warned = False
        self._failed: tuple[float, Pending] | None = None
        """The first batch that a worker reported an error in, and when."""
        # A single worker starts as early as its template would.
        prepare = worker.preparation(spec, filler) if backend == "process" and workers > 1 else None
        super().__init__(self._start_worker, prepare)
        try:
            for _ in range(workers):
                self.add()
        except BaseException:
            self.close()
            raise

    def submit(self, slot: Slot, rows: int, seeds: Seeds, slices: int, bucket: int = 0) -> Pending:
        """Give out a batch in at most `slices` slices, to the workers that have the least to do. slot: has its
        `index` and `ROWS`."""
        pending = Pending(slot, rows, *seeds, max(1, min(slices, rows, len(self.handles))), bucket)
        self._give_out(pending)
        return pending

    def wait(self, pending: Pending) -> None:
        """Return when the batch is complete. Raises what a worker raised; replaces workers that die or hang."""
        began = time.monotonic()
        while pending.left and not pending.failed:
            for handle, reply in self.receive():
                if reply is None:
                    self._replace(handle, "died", died=True)
                else:
                    self._take(handle, reply)
            if self._failed is not None and pending.left:
                since, failed = self._failed
                # An error of the next epoch does not concern this one.
                if failed.epoch == pending.epoch and time.monotonic() - max(began, since) > _ERROR_WAIT_S:
                    raise WorkerError(failed.failed)
            if pending.left and not pending.failed:
                for handle in self.stuck(self._timeout):
                    self._replace(handle, f"made no progress for {self._timeout:g} s", died=False)
        if pending.failed:
            raise WorkerError(pending.failed)

    def drain(self) -> bool:
        """Wait until no worker has a slice, so that slots can be reused. False where a worker is gone."""
        for handle in self.handles:
            while handle.jobs:
                readable = handle.worker.channel.readable(self._timeout)
                try:
                    reply = self.receive_from(handle) if readable else None
                except Exception:
                    reply = None
                if reply is None:
                    return False
                self._take(handle, reply)
        # Errors in batches that nobody waits for do not matter.
        self._failed = None
        return True

    def _start_worker(self, template: Template | None) -> Worker:
        if self._backend == "thread":
            return ThreadWorker(self._filler, self._spec.layout, self.slot_pool.slots)
        return ProcessWorker(self._spec, self._filler.descriptors, self.slot_pool.slots, template)

    def _give_out(self, pending: Pending) -> None:
        pending.left = pending.slices
        for k in range(pending.slices):
            self._next_task += 1
            start = pending.rows * k // pending.slices
            task = Task(
                number=self._next_task,
                slot=pending.slot.number,
                size=pending.slot.size,
                keep=not pending.slot.fresh,
                rows=pending.rows,
                start=start,
                stop=pending.rows * (k + 1) // pending.slices,
                careful=start in pending.deaths,
                bucket=pending.bucket,
                seed=pending.seed,
                epoch=pending.epoch,
                first=pending.first,
            )
            # Of several, the one that has waited longest: what it had may be done, and not be received yet.
            idlest = self.handles[0]
            for handle in self.handles:
                if (len(handle.jobs), handle.latest) < (len(idlest.jobs), idlest.latest):
                    idlest = handle
            self._give(idlest, _Slice(task, pending))

    def _give(self, handle: _Handle, piece: _Slice) -> None:
        task, forget = piece.task, handle.worker.forget()
        descriptors = handle.worker.share(piece.pending.slot)
        message = encode(replace(task, forget=forget) if forget else task)
        try:  # noqa: SIM105 - `suppress` would be three calls more for each task
            self.give(handle, task.number, piece, message, descriptors)
        except TimeoutError:
            pass  # a worker that takes nothing is stuck, and replaced at the next wait

    def _take(self, handle: _Handle, message: bytearray) -> None:
        reply: Reply = decode_reply(message)
        piece = handle.jobs.pop(reply.number, None)
        if piece is None:
            return  # its slot was given up meanwhile
        if isinstance(reply, SliceDone):
            self.tasks_since_disk_wait = 0 if reply.waited_for_disk else self.tasks_since_disk_wait + 1
            piece.pending.left -= 1
            piece.pending.times.add(reply.times)
        else:
            piece.pending.failed = piece.pending.failed or reply.what
            if self._failed is None or piece.pending.epoch < self._failed[1].epoch:
                self._failed = time.monotonic(), piece.pending

    def _replace(self, handle: _Handle, what: str, *, died: bool) -> None:
        """Replace a worker that is gone, and give out its slices again, but not one that has killed several: its batch
        has failed. Raises WorkerError where replacing makes no sense."""
        death = self.bury(handle, died=died)
        how = f"a worker {what}"
        if not death.gone:
            how += " and cannot be killed"
        elif death.status is not None:
            how += f" (exit status {death.status})"
        if death.cannot_start:
            raise WorkerError(
                f"worker processes cannot start here: {how} before it began; "
                f"workers=0 and Workers(backend='thread') need none{death.said}"
            )
        slices = death.jobs
        if (first := death.job) is not None and death.begun:
            start = first.task.start
            places = first.pending.deaths.setdefault(start, [])
            places.append(death.position)
            deaths, named = sum(place in (-1, death.position) for place in places), self._name(first, death.position)
            if deaths < _MAX_DEATHS and len(places) >= _MAX_SLICE_DEATHS:
                deaths, named = len(places), f"different samples of a slice, the last time at {named}"
            if deaths >= _MAX_DEATHS:
                cure = "" if death.gone else ": is the disk or network share of the store alive?"
                error = f"{how} {deaths} times at {named}; reading stops here{cure}{death.said}"
                if not death.gone:
                    raise WorkerError(error)
                first.pending.failed = first.pending.failed or error
                slices = [piece for piece in slices if piece.pending is not first.pending]
        if not self._warned:
            self._warned = True
            warn(f"{how}; it is replaced and its samples are read again{death.said}")
        self.revive(handle)
        if not death.gone:
            for pending in {id(piece.pending): piece.pending for piece in slices}.values():
                self._move(pending)
            return
        for piece in slices:
            careful = piece.task.start in piece.pending.deaths
            self._give(handle, _Slice(replace(piece.task, careful=careful), piece.pending))

    def _move(self, pending: Pending) -> None:
        """Begin a batch again in another slot: a worker that cannot be killed may write into this one at any time."""
        for handle in self.handles:
            for number in [number for number, piece in handle.jobs.items() if piece.pending is pending]:
                del handle.jobs[number]
        old, layout = pending.slot, self.slot_pool.layout
        self.slot_pool.retire(old)
        pending.slot = self.slot_pool.acquire()
        # The rows were written by this process, and workers only read them.
        views, before = (layout.views(slot.memory, pending.rows, pending.bucket) for slot in (pending.slot, old))
        for name in (INDEX, ROWS, CLIP):
            if name in views:
                views[name][:] = before[name]
        self._give_out(pending)

    def _name(self, piece: _Slice, position: int) -> str:
        pending = piece.pending
        views = self._spec.layout.views(pending.slot.memory, pending.rows, pending.bucket)
        if 0 <= position < pending.rows:
            return self._filler.name(first_row(views, position))
        return f"one of the samples {views[ROWS][piece.task.start : piece.task.stop].tolist()}"
