"""The two kinds of workers, processes and threads, with the same interface to their pool."""

from __future__ import annotations

import mmap
import threading
import traceback

from rawpack.errors import WorkerError
from rawpack.system.channel import HEARTBEAT_BYTES, Heartbeat, pair
from rawpack.system.child import Child
from rawpack.system.limits import refused
from rawpack.system.pool import Supervised
from rawpack.system.template import Template
from rawpack.workers import worker
from rawpack.workers.fill import BatchFiller, Task, Views, WorkSpec, serve
from rawpack.workers.slots import Slot, SlotLayout

_JOIN_TIMEOUT_S = 5.0


class _SlotGoneError(Exception):
    """A task's slot is gone: nobody waits for the batch anymore."""


class Worker(Supervised):
    def share(self, slot: Slot) -> list[int]:
        """The descriptors to send along with a task on `slot`."""
        return []

    def forget(self) -> tuple[int, ...]:
        """Slots that it has mapped and that will not be filled again, reported once."""
        return ()


class ProcessWorker(Child, Worker):
    def __init__(
        self, spec: WorkSpec, descriptors: list[int], slots: dict[int, Slot], template: Template | None
    ) -> None:
        super().__init__(worker.main, spec, descriptors, launcher=template)
        self._slots = slots
        self._known: set[int] = set()

    def share(self, slot: Slot) -> list[int]:
        if slot.number in self._known and not slot.fresh:
            return []
        if not slot.fresh:
            self._known.add(slot.number)
        assert slot.descriptor is not None
        return [slot.descriptor]

    def forget(self) -> tuple[int, ...]:
        stale = tuple(number for number in self._known if number not in self._slots or self._slots[number].fresh)
        self._known.difference_update(stale)
        return stale


class ThreadWorker(Worker):
    """A worker thread: the same loop over the same messages, with the slots of this process."""

    def __init__(self, filler: BatchFiller, layout: SlotLayout, slots: dict[int, Slot]) -> None:
        with refused(WorkerError, "no worker thread can be started"):
            self.channel, theirs = pair()
        self.heartbeat = Heartbeat(mmap.mmap(-1, HEARTBEAT_BYTES))
        self._words = ""

        def views_of(task: Task, _: list[int]) -> Views:
            slot = slots.get(task.slot)
            if slot is None:
                raise _SlotGoneError
            return layout.views(slot.memory, task.rows, task.bucket)

        def run() -> None:
            try:
                serve(theirs, filler, views_of, self.heartbeat)
            except _SlotGoneError:
                pass
            except BaseException as error:  # also SystemExit of a user's function
                self._words = traceback.format_exc()
                if isinstance(error, Exception):
                    theirs.fail(error)
            finally:
                theirs.close()

        self.thread = threading.Thread(target=run, daemon=True, name="rawpack")
        try:
            self.thread.start()
        except BaseException:  # such as Ctrl-C: the thread may run, and would wait for ever
            self.channel.close()
            raise

    def kill(self, grace: float = 0.0) -> bool:
        """Have the thread end; False where it is in the middle of a task that does not end."""
        self.channel.close()
        if self.thread is threading.current_thread():
            return False  # a garbage collection in the worker itself released the pool
        self.thread.join(_JOIN_TIMEOUT_S)
        return not self.thread.is_alive()

    def status(self) -> int | None:
        return None

    def last_words(self) -> str:
        return self._words
