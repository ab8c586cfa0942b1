"""Messages between two processes or threads, with file descriptors."""

from __future__ import annotations

import array
import contextlib
import select
import socket
import time
from collections.abc import Sequence

_LENGTH = 4
_MAX_DESCRIPTORS = 4


class Channel:
    """One end of a socket pair, for messages with descriptors. One thread sends and one receives."""

    def __init__(self, sock: socket.socket, *, takes_descriptors: bool = False) -> None:
        """takes_descriptors: whether descriptors come to this end, which costs more than bytes alone. Otherwise the
        system closes those that come."""
        self.socket, self._takes_descriptors = sock, takes_descriptors

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send one message. Raises OSError where the other end is gone, TimeoutError where it takes nothing."""
        data = len(message).to_bytes(_LENGTH, "little") + message
        if descriptors:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            sent = self.socket.sendmsg([data], rights)
            data = data[sent:]
        if data:
            self.socket.sendall(data)

    def receive(self) -> tuple[bytes, list[int]] | None:
        """The next message and the descriptors that came with it; None where the other end is gone."""
        descriptors: list[int] = []
        head = self._read(_LENGTH, descriptors)
        if head is None:
            return None
        body = self._read(int.from_bytes(head, "little"), descriptors)
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

    def _read(self, size: int, descriptors: list[int]) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                if self._takes_descriptors:
                    piece, received, _, _ = socket.recv_fds(self.socket, size - len(data), _MAX_DESCRIPTORS)
                    descriptors += received
                else:
                    piece = self.socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not piece:
                return None
            data += piece
        return data


def pair() -> tuple[Channel, Channel]:
    """Two connected ends, which take no descriptors. A child's own `Channel` over the socket of one may."""
    ours, theirs = socket.socketpair()
    return Channel(ours), Channel(theirs)
