"""What a worker is about to do, in memory that its parent can read even after the worker has died."""

from __future__ import annotations

import struct
from typing import Any

HEARTBEAT_BYTES = 4096
_NOTE = struct.Struct("<qqq")


class Heartbeat:
    """(task, position, beat) in shared memory: one process writes, another reads, no lock.

    A torn read is possible and harmless: what is read matters only when the writer is dead.
    """

    def __init__(self, memory: Any) -> None:
        """memory: a writable buffer of `HEARTBEAT_BYTES`, as `map_descriptor` gives."""
        self._memory = memory
        self._beat = 0

    def note(self, task: int, position: int) -> None:
        """About to do `position` of `task`; -1 where it is done at once."""
        self._beat += 1
        _NOTE.pack_into(self._memory, 0, task, position, self._beat)

    def read(self) -> tuple[int, int, int]:
        """(task, position, beat): the beat changes with every note."""
        task, position, beat = _NOTE.unpack_from(self._memory, 0)
        return task, position, beat
