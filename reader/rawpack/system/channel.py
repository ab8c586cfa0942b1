"""Messages between two processes or threads, with file descriptors; what ended the work at the other end; heartbeats.

An exception that ends it is raised here as what it is, with the other end's traceback as its cause. A fault of our own
code must look like one wherever it happens: never like a damaged file, a lack of memory, or a process that died.
"""

from __future__ import annotations

import array
import contextlib
import select
import socket
import struct
import time
import traceback
from collections.abc import Sequence
from typing import Any

from rawpack.errors import WorkerError
from rawpack.system.files import above_streams

_LENGTH = 8
_FAILURE = 1 << 63
"""In the length of a message: it is what ended the work at the other end."""
_RIGHTS_BYTES = socket.CMSG_LEN(4 * array.array("i").itemsize)
"""Room for four descriptors."""
HEARTBEAT_BYTES = 4096
_NOTE = struct.Struct("<qqq")


class ChildTraceback(Exception):  # noqa: N818 - it is no error of its own
    """The traceback of an exception in the child that raised it: the cause of the exception here."""

    def __str__(self) -> str:
        return f"\n\nIn the child process or thread:\n{self.args[0].rstrip()}"


class EndedByError(Exception):
    """An exception has ended the work at the other end: `error`, with its traceback there as its cause."""

    def __init__(self, error: Exception) -> None:
        super().__init__(repr(error))
        self.error = error


class Channel:
    """One end of a socket pair, for messages with descriptors. One thread sends and one receives."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: bytes, descriptors: Sequence[int] = (), *, kind: int = 0) -> None:
        """Send one message. Raises OSError where the other end is gone, TimeoutError where it takes nothing for as long
        as the socket's timeout. kind: a bit that is set in its length."""
        head = (kind | len(message)).to_bytes(_LENGTH, "little")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        sent = self.socket.sendmsg([head, message], rights)
        left = memoryview(message)[max(0, sent - _LENGTH) :]
        if sent < _LENGTH:
            self.socket.sendall(head[sent:])
        # Not `sendall`, whose timeout is for all of it: a slow machine takes its time over a message of a gigabyte.
        while left:
            left = left[self.socket.send(left) :]

    def fail(self, error: Exception) -> None:
        """Send what has ended the work at this end, as the last message: `receive` raises it at the other one. Does
        nothing where that is gone."""
        with contextlib.suppress(OSError):
            self.send(pack_error(error), kind=_FAILURE)

    def receive(self) -> tuple[bytearray, list[int]] | None:
        """The next message and the descriptors that came with it; None where the other end is gone.

        Raises EndedByError where an exception has ended the work there.
        """
        descriptors: list[int] = []
        head = self._read(_LENGTH, descriptors)
        if head is None:
            return None
        length = int.from_bytes(head, "little")
        body = self._read(length & ~_FAILURE, descriptors)
        if body is not None and length & _FAILURE:
            raise EndedByError(unpack_error(body))
        return None if body is None else (body, descriptors)

    def readable(self, timeout: float) -> bool:
        """Whether, within `timeout` seconds, a message comes or the other end goes."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout) * 1000))

    def finish(self) -> None:
        """Send nothing more: the other end receives None, even if a fork of this process has this end too."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def ends(self, timeout: float) -> bool:
        """Whether every process that has the other end is gone within `timeout` seconds. Messages are discarded."""
        end = time.monotonic() + timeout
        if self.fileno() < 0:
            return False
        with contextlib.suppress(ConnectionError):
            while self.readable(end - time.monotonic()):
                if not self.socket.recv(1 << 16):
                    return True
            return False
        return True

    def close(self) -> None:
        self.socket.close()

    def _read(self, size: int, descriptors: list[int]) -> bytearray | None:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            try:
                count, rights, _, _ = self.socket.recvmsg_into([left], _RIGHTS_BYTES)
            except ConnectionError:
                return None
            for _, _, numbers in rights:
                descriptors += array.array("i", numbers)
            if not count:
                return None
            left = left[count:]
        return data


TAKEN = -2
"""In place of a position: a worker has the task, and prepares for it."""


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
        """Note that `position` of `task` comes next; -1 where the task is done in one go, `TAKEN` before it begins."""
        self._beat += 1
        _NOTE.pack_into(self._memory, 0, task, position, self._beat)

    def read(self) -> tuple[int, int, int]:
        """(task, position, beat): the beat changes with every note, and is 0 before the first."""
        return _NOTE.unpack_from(self._memory, 0)


def pair() -> tuple[Channel, Channel]:
    ours, theirs = (socket.socket(fileno=above_streams(end.detach())) for end in socket.socketpair())
    return Channel(ours), Channel(theirs)


def pack_error(error: Exception) -> bytes:
    """An exception and its traceback, as `unpack_error` takes them; as a WorkerError if it cannot be pickled."""
    import cloudpickle

    text = "".join(traceback.format_exception(error))
    try:
        packed: bytes = cloudpickle.dumps((error, text))
        cloudpickle.loads(packed)  # some exceptions can be pickled and not loaded
    except Exception:
        plain = WorkerError(f"{type(error).__name__}: {error}\n\nIn the worker:\n{text}")
        packed = cloudpickle.dumps((plain, text))
    return packed


def unpack_error(data: bytes | bytearray) -> Exception:
    import cloudpickle

    error: Exception
    error, text = cloudpickle.loads(data)
    error.__cause__ = ChildTraceback(text)
    return error
