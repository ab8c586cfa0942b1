"""What a worker is about to do, in memory that outlives it."""

from __future__ import annotations

import struct
from typing import Any

HEARTBEAT_BYTES = 4096
_NOTE = struct.Struct("<qqq")


class Heartbeat:
    """What a worker is about to do, in shared memory: its parent can read it even after the worker has died.

    One process writes, another reads, without a lock. A torn read does no harm: what is read matters only when the
    writer is dead.
    """

    def __init__(self, memory: Any) -> None:
        """memory: a writable buffer of `HEARTBEAT_BYTES` or more."""
        self._memory = memory
        self._beat = 0

    def note(self, task: int, position: int) -> None:
        """Note that `position` of `task` comes next; -1 where the task is done in one go."""
        self._beat += 1
        _NOTE.pack_into(self._memory, 0, task, position, self._beat)

    def read(self) -> tuple[int, int, int]:
        """(task, position, beat): the beat changes with every note, and is 0 before the first."""
        return _NOTE.unpack_from(self._memory, 0)
