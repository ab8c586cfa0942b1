"""Workers under supervision: who has which job, who has died or hangs, and what takes the place of whom.

Here is all that is the same for every kind of work. Its users decide what a death means: do a slice again, try samples
one by one, reject a video. An exception is no death: it is raised here. There is no thread: the pool works while its
user waits for a message.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from rawpack.system.channel import TAKEN, Channel, EndedByError, Heartbeat
from rawpack.system.child import GRACE_S
from rawpack.system.template import Template

_LOOK_EVERY_S = 0.5
"""How long to wait for messages before heartbeats are looked at."""
_START_TIMEOUT_S = 60.0
"""How long a worker may take to start, on a busy machine with slow disks, however short the timeout is."""
_IN_VAIN, _IN_VAIN_S = 3, 120.0
"""After this many workers in a row that ended before they began, no more are started; where something killed them, as
on a busy machine, only once that has gone on for this many seconds."""

_BY_OTHERS = tuple(-getattr(signal, name) for name in ("SIGKILL", "SIGTERM") if hasattr(signal, name))
"""The status of processes that others kill, such as a system that is out of memory."""


class Supervised(Protocol):
    """A worker: a `Child`, or a thread."""

    channel: Channel
    heartbeat: Heartbeat

    def kill(self, grace: float = 0.0) -> bool:
        """End it, after `grace` seconds to end by itself, and wait until it is gone; False where that fails."""

    def status(self) -> int | None:
        """The exit status of a process that is gone."""

    def last_words(self) -> str:
        """What it wrote before it ended, if anything."""


W = TypeVar("W", bound=Supervised)
J = TypeVar("J")
"""A worker and a job of some kind."""


@dataclass
class WorkerHandle(Generic[W, J]):
    """A worker, and the jobs it has, oldest first."""

    worker: W
    jobs: dict[int, J] = field(default_factory=dict)
    """By the number that the worker notes in its heartbeat."""
    latest: int = 0
    """The number of the job that it was given last."""
    progress: int = -1
    """Its heartbeat when it was last looked at."""
    progress_at: float = 0.0
    """When that last changed, or a message came."""


@dataclass(frozen=True)
class Death(Generic[J]):
    gone: bool
    """Whether it has ended and was reaped; else it may still write to the memory that it shares."""
    status: int | None
    """Its exit status, negative for a signal; None for a thread."""
    words: str
    """What it wrote before it ended, if anything."""
    began: bool
    """Whether it had begun anything."""
    jobs: list[J]
    """What it had, oldest first."""
    job: J | None
    """The job that it was at: what it noted last, else the oldest."""
    position: int
    """Where in that job; -1 where it noted none."""
    begun: bool
    """Whether it had begun that job: only then may the job be the cause."""
    in_vain: bool
    """Whether workers end before they begin for so long that others would do the same."""

    @property
    def said(self) -> str:
        """Its last words as the end of an error."""
        return f"\n\nIt wrote:\n{self.words}" if self.words else ""

    @property
    def cannot_start(self) -> bool:
        """Whether it ended by itself before it began, or was killed as many before it: others would do the same."""
        return self.in_vain or (not self.began and self.status is not None and self.status > 0)


class SupervisedPool(Generic[W, J]):
    """Workers of one kind. Used by one thread at a time."""

    dies_of: tuple[type[Exception], ...] = ()
    """The exceptions that end a worker's work, and are not raised here: it has died."""

    def __init__(self, start: Callable[[Template | None], W], prepare: Callable[[], None] | None = None) -> None:
        """start: starts a worker, from the template if there is one. prepare: see `Template`; None for workers that
        start without one."""
        self._start, self._template = start, Template(prepare) if prepare is not None else None
        self.handles: list[WorkerHandle[W, J]] = []
        self._poll = select.poll()
        self._by_number: dict[int, WorkerHandle[W, J]] = {}
        self._vain, self._vain_since = 0, 0.0
        """Workers that have ended before they began what they were given, without a message of any in between, and
        when the first of them did."""

    def __len__(self) -> int:
        return len(self.handles)

    def add(self) -> WorkerHandle[W, J]:
        handle: WorkerHandle[W, J] = WorkerHandle(self._start(self._template))
        self.handles.append(handle)
        self._watch(handle)
        return handle

    def give(
        self, handle: WorkerHandle[W, J], number: int, job: J, message: bytes, descriptors: Sequence[int] = ()
    ) -> None:
        """Send a job. A worker that is dead is noticed when messages are received.

        Raises TimeoutError where it takes nothing.
        """
        if not handle.jobs:
            handle.progress_at = time.monotonic()
        handle.jobs[number], handle.latest = job, number
        try:
            handle.worker.channel.send(message, descriptors)
        except TimeoutError:
            raise
        except OSError:
            pass

    def receive(self) -> Iterator[tuple[WorkerHandle[W, J], bytearray | None]]:
        """One message of each worker that has sent one, None for one that is gone; nothing where none comes for a
        while.

        Raises as `receive_from`. Each message is taken when its turn comes, so that none is lost then.
        """
        for handle in [self._by_number[number] for number, _ in self._poll.poll(_LOOK_EVERY_S * 1000)]:
            yield handle, self.receive_from(handle)

    def receive_from(self, handle: WorkerHandle[W, J]) -> bytearray | None:
        """The next message of a worker; None where it is gone. Raises the exception that ended its work."""
        received = None
        try:
            received = handle.worker.channel.receive()
        except OSError:
            pass
        except EndedByError as ended:
            if not isinstance(ended.error, self.dies_of):
                raise ended.error from ended.error.__cause__
        handle.progress_at = time.monotonic()
        if received is None:
            return None
        self._vain = 0
        return received[0]

    def stuck(self, timeout: float) -> list[WorkerHandle[W, J]]:
        """The workers that have jobs and have made no progress for `timeout` seconds."""
        now, found = time.monotonic(), []
        for handle in self.handles:
            beat = handle.worker.heartbeat.read()[2]
            if beat != handle.progress or not handle.jobs:
                handle.progress, handle.progress_at = beat, now
            elif now - handle.progress_at > (timeout if beat else max(timeout, _START_TIMEOUT_S)):
                found.append(handle)
        return found

    def bury(self, handle: WorkerHandle[W, J], *, died: bool) -> Death[J]:
        """Take the jobs from a worker that has died, or has to be killed, and say how it ended.

        `revive` or `remove` its handle then.
        """
        number, position, beat = handle.worker.heartbeat.read()
        self._forget(handle)
        gone = handle.worker.kill(GRACE_S if died else 0.0)
        jobs = list(handle.jobs.values())
        noted = handle.jobs.get(number) if beat else None
        begun = noted is not None and position != TAKEN
        handle.jobs.clear()
        status = handle.worker.status() if gone else None
        if begun:
            self._vain = 0
        elif jobs:
            self._vain_since = self._vain_since if self._vain else time.monotonic()
            self._vain += 1
        return Death(
            gone=gone,
            status=status,
            words=handle.worker.last_words(),
            began=beat > 0,
            jobs=jobs,
            job=jobs[0] if noted is None and jobs else noted,
            position=position if begun else -1,
            begun=begun,
            in_vain=self._vain >= _IN_VAIN
            and (status not in _BY_OTHERS or time.monotonic() - self._vain_since > _IN_VAIN_S),
        )

    def revive(self, handle: WorkerHandle[W, J]) -> None:
        """Start a worker in place of one that was buried."""
        handle.worker = self._start(self._template)
        handle.progress, handle.progress_at = -1, time.monotonic()
        self._watch(handle)

    def remove(self, handle: WorkerHandle[W, J]) -> None:
        """End a worker, if it was not buried; it gets no successor."""
        self._forget(handle)
        self.handles.remove(handle)
        handle.worker.kill()

    def close(self) -> None:
        """End all workers. Nothing they have matters anymore."""
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.worker.channel.finish()  # first, so that none begins another job while one is waited for
        for handle in handles:
            self._forget(handle)
            handle.worker.kill()
        if self._template is not None:
            self._template.close()

    def _watch(self, handle: WorkerHandle[W, J]) -> None:
        number = handle.worker.channel.fileno()
        self._by_number[number] = handle
        self._poll.register(number, select.POLLIN)

    def _forget(self, handle: WorkerHandle[W, J]) -> None:
        number = handle.worker.channel.fileno()
        if self._by_number.pop(number, None) is not None:
            self._poll.unregister(number)
