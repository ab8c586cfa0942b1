"""Messages with descriptors between this process and one worker, over one socket pair: no lock or queue is shared."""

from __future__ import annotations

import array
import socket
from collections.abc import Sequence

_LENGTH = 4
_MAX_DESCRIPTORS = 4


class Channel:
    """One end of a socket pair. One thread sends and one receives."""

    def __init__(self, sock: socket.socket, *, takes_descriptors: bool = False) -> None:
        """takes_descriptors: whether they come to this end, which costs more than bytes alone. Otherwise those that do
        come are closed by the system."""
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
    """Two connected ends, neither of which takes descriptors; a `Channel` over the socket of one may, elsewhere."""
    ours, theirs = socket.socketpair()
    return Channel(ours), Channel(theirs)
