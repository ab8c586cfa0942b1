"""The workers of one iterator at a time, the tasks that they have, and what happens when one of them fails.

The pool has no thread of its own: it works while its caller waits for a batch. Workers get tasks in advance, so they
keep working while the caller computes.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections import Counter
from dataclasses import dataclass, field

from msgspec.structs import replace

from rawpack.batching.backends import ProcessWorker, ThreadWorker, Worker
from rawpack.batching.fill import BatchFiller, Seeds, WorkSpec, first_row
from rawpack.batching.messages import Reply, SliceDone, Task, decode_reply, encode
from rawpack.batching.slots import Slot, SlotPool
from rawpack.errors import WorkerError
from rawpack.store.concatenated import CLIP, INDEX
from rawpack.system.child import GRACE_S
from rawpack.system.times import Times
from rawpack.system.warning import warn

_MAX_DEATHS = 3
_LOOK_EVERY_S = 0.5
_START_TIMEOUT_S = 60.0
"""How long a worker may take to start, on a busy machine with slow disks, however short `timeout` is."""
_ERROR_WAIT_S = 2.0
"""How long an error waits for the batches before its own: not forever, in case one of them hangs."""


@dataclass
class Pending:
    """A batch in the making."""

    slot: Slot
    rows: int
    seed: int
    epoch: int
    slices: int
    """How many it is cut into."""
    bucket: int = 0
    left: int = 0
    """Slices that are not done."""
    deaths: Counter[int] = field(default_factory=Counter)
    """The first row of a slice -> how many workers have died of it."""
    times: Times = field(default_factory=Times)
    """What its workers spent on it, in total."""
    failed: str = ""
    """The error of one of its slices, raised when it is this batch's turn, after the complete ones before it. A text,
    because an exception would keep alive the frames that keep it."""


@dataclass
class _Slice:
    """A task and the batch that it belongs to."""

    task: Task
    pending: Pending


@dataclass
class _WorkerHandle:
    """A worker, and the slices it holds, oldest first."""

    worker: Worker
    slices: dict[int, _Slice] = field(default_factory=dict)
    progress: int = -1
    """Its heartbeat when it was last looked at."""
    progress_at: float = 0.0
    """When that last changed."""


class WorkerPool:
    """The workers of one iterator at a time, and the slots that they fill. Used by one thread at a time."""

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
        self._handles: list[_WorkerHandle] = []
        try:
            for _ in range(workers):
                self._handles.append(_WorkerHandle(self._start_worker()))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._handles)

    def submit(self, slot: Slot, rows: int, seeds: Seeds, slices: int, bucket: int = 0) -> Pending:
        """Give out a batch in `slices` slices, to the workers that have the least to do. slot: has its `index`."""
        pending = Pending(slot, rows, *seeds, max(1, min(slices, rows)), bucket)
        self._give_out(pending)
        return pending

    def wait(self, pending: Pending) -> None:
        """Return when the batch is complete. Raises what a worker raised; replaces workers that die or hang."""
        began, poll = time.monotonic(), select.poll()
        handles = {handle.worker.channel.fileno(): handle for handle in self._handles}
        for number in handles:
            poll.register(number, select.POLLIN)

        def replace_worker(number: int, what: str, grace: float = 0.0) -> None:
            handle = handles.pop(number)
            poll.unregister(number)
            self._replace(handle, what, grace, pending.epoch)
            handles[handle.worker.channel.fileno()] = handle
            poll.register(handle.worker.channel.fileno(), select.POLLIN)

        while pending.left and not pending.failed:
            for number, _ in poll.poll(_LOOK_EVERY_S * 1000):
                if not self._receive(handles[number]):
                    replace_worker(number, "died", GRACE_S)
            if self._failed is not None and pending.left:
                since, failed = self._failed
                # An error of the next epoch does not concern this one.
                if failed.epoch == pending.epoch and time.monotonic() - max(began, since) > _ERROR_WAIT_S:
                    raise WorkerError(failed.failed)
            if pending.left and not pending.failed:
                for number in self._stuck(handles):
                    replace_worker(number, f"made no progress for {self._timeout:g} s")
        if pending.failed:
            raise WorkerError(pending.failed)

    def drain(self) -> bool:
        """Wait until no worker holds a slice, so that slots can be reused. False where a worker is gone."""
        for handle in self._handles:
            poll = select.poll()
            poll.register(handle.worker.channel.fileno(), select.POLLIN)
            while handle.slices:
                if not poll.poll(self._timeout * 1000) or not self._receive(handle):
                    return False
        # Errors in batches that nobody waits for do not matter.
        self._failed = None
        return True

    def close(self) -> None:
        """End all workers. Nothing they hold matters anymore."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.worker.channel.close()  # first, so that none begins another slice while one is waited for
        for handle in handles:
            handle.worker.kill()

    def _start_worker(self) -> Worker:
        if self._backend == "thread":
            return ThreadWorker(self._filler, self._spec.layout, self.slot_pool.slots)
        return ProcessWorker(self._spec, self._filler.descriptors, self.slot_pool.slots)

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
                careful=pending.deaths[start] > 0,
                bucket=pending.bucket,
                seed=pending.seed,
                epoch=pending.epoch,
            )
            self._give(min(self._handles, key=lambda handle: len(handle.slices)), _Slice(task, pending))

    def _give(self, handle: _WorkerHandle, piece: _Slice) -> None:
        if not handle.slices:
            handle.progress_at = time.monotonic()
        handle.slices[piece.task.number] = piece
        # A worker that is dead or stuck is replaced at the next wait.
        with contextlib.suppress(OSError):
            task, forget = piece.task, handle.worker.forget()
            descriptors = handle.worker.share(piece.pending.slot)
            handle.worker.channel.send(encode(replace(task, forget=forget) if forget else task), descriptors)

    def _receive(self, handle: _WorkerHandle) -> bool:
        """Take one reply; False where the worker is gone."""
        received = None
        with contextlib.suppress(OSError):
            received = handle.worker.channel.receive()
        if received is None:
            return False
        reply: Reply = decode_reply(received[0])
        handle.progress_at = time.monotonic()
        piece = handle.slices.pop(reply.number, None)
        if piece is None:
            return True  # its slot was given up meanwhile
        if isinstance(reply, SliceDone):
            self.tasks_since_disk_wait = 0 if reply.waited_for_disk else self.tasks_since_disk_wait + 1
            piece.pending.left -= 1
            piece.pending.times.add(reply.times)
        else:
            piece.pending.failed = piece.pending.failed or reply.what
            if self._failed is None or piece.pending.epoch < self._failed[1].epoch:
                self._failed = time.monotonic(), piece.pending
        return True

    def _stuck(self, handles: dict[int, _WorkerHandle]) -> list[int]:
        """The descriptors of workers that hold slices and have made no progress for `timeout` seconds."""
        now, stuck = time.monotonic(), []
        for number, handle in handles.items():
            beat = handle.worker.heartbeat.read()[2]
            if beat != handle.progress or not handle.slices:
                handle.progress, handle.progress_at = beat, now
            elif now - handle.progress_at > (self._timeout if beat else max(self._timeout, _START_TIMEOUT_S)):
                stuck.append(number)
        return stuck

    def _replace(self, handle: _WorkerHandle, what: str, grace: float, epoch: int) -> None:
        """Replace a worker that is gone, and give out its slices again.

        Raises WorkerError where that makes no sense, because a slice of `epoch`, in which the caller is, has killed
        several. A slice of the next epoch raises it when that epoch comes to it.
        """
        task, position, beat = handle.worker.heartbeat.read()
        ended = handle.worker.kill(grace)
        status, stderr = handle.worker.status(), handle.worker.last_words()
        said = f"\n\nIt wrote:\n{stderr}" if stderr else ""
        if not beat and status is not None and status > 0:
            raise WorkerError(
                f"worker processes cannot start here (exit status {status}); "
                f"workers=0 and backend='thread' need none{said}"
            )
        how = f"a worker {what}"
        if not ended:
            how += " and cannot be killed"
        elif status is not None:
            how += f" (exit status {status})"
        slices = list(handle.slices.values())
        handle.slices.clear()
        if slices:
            first = next((piece for piece in slices if piece.task.number == task), slices[0])
            first.pending.deaths[first.task.start] += 1
            deaths = first.pending.deaths[first.task.start]
            if deaths >= _MAX_DEATHS:
                cure = "" if ended else ": is the disk or network share of the store alive?"
                error = f"{how} {deaths} times at {self._name(first, position)}; reading stops here{cure}{said}"
                if first.pending.epoch == epoch or not ended:
                    raise WorkerError(error)
                first.pending.failed = first.pending.failed or error
                slices = [piece for piece in slices if piece.pending is not first.pending]
        if not self._warned:
            self._warned = True
            warn(f"{how}; it is replaced and its samples are read again{said}")
        handle.worker = self._start_worker()
        handle.progress, handle.progress_at = -1, time.monotonic()
        if not ended:
            for pending in {id(piece.pending): piece.pending for piece in slices}.values():
                self._move(pending)
            return
        for piece in slices:
            careful = piece.pending.deaths[piece.task.start] > 0
            self._give(handle, _Slice(replace(piece.task, careful=careful), piece.pending))

    def _move(self, pending: Pending) -> None:
        """Begin a batch again in another slot: a worker that cannot be killed may write into this one at any time."""
        for handle in self._handles:
            for number in [number for number, piece in handle.slices.items() if piece.pending is pending]:
                del handle.slices[number]
        old, layout = pending.slot, self.slot_pool.layout
        self.slot_pool.retire(old)
        pending.slot = self.slot_pool.acquire()
        # The rows were written by this process, and workers only read them.
        views, before = (layout.views(slot.memory, pending.rows, pending.bucket) for slot in (pending.slot, old))
        for name in (INDEX, CLIP):
            if name in views:
                views[name][:] = before[name]
        self._give_out(pending)

    def _name(self, piece: _Slice, position: int) -> str:
        pending = piece.pending
        views = self._spec.layout.views(pending.slot.memory, pending.rows, pending.bucket)
        if 0 <= position < pending.rows:
            return self._filler.name(first_row(views, position))
        return f"one of the samples {views[INDEX][piece.task.start : piece.task.stop].tolist()}"
