"""Calls of functions in a child process, for what may crash its process or never return."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import ParamSpec, Self, TypeVar

from rawpack.errors import WorkerError
from rawpack.system.channel import Channel, EndedByError, Heartbeat
from rawpack.system.child import GRACE_S, Child
from rawpack_packer.errors import is_killed, killed

P = ParamSpec("P")
T = TypeVar("T")


class ChildDiedError(Exception):
    """A call killed its process, or did not return in time. The message says which, as in "exit status -11"."""

    status: int | None = None
    """The exit status, negative for a signal; None where it did not return in time."""


class IsolatedCalls:
    """Calls functions in one child process, one after another. It starts with the first call, and again with the first
    one after it has ended."""

    def __init__(self, timeout: float, what: str) -> None:
        """timeout: seconds that one call may take. what: the calls read, printable."""
        self._timeout, self._what = timeout, what
        self._child: Child | None = None
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True  # a call of another thread ends now, and is not repeated
        self.close()

    @property
    def is_running(self) -> bool:
        """Whether the next call is made in the process of the last one."""
        return self._child is not None

    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function returns. All of it travels by cloudpickle. A call whose process is killed from outside is
        made once more, in a new one.

        Raises ChildDiedError; PackError where the second process is killed too; and what the function raises, which
        ends the process.
        """
        try:
            return self._call(function, *args, **kwargs)
        except ChildDiedError as died:
            if self._ended or not is_killed(died.status):
                raise
        try:
            return self._call(function, *args, **kwargs)
        except ChildDiedError as died:
            if not is_killed(died.status):
                raise
            raise killed(f"the process that reads {self._what}", died.status) from None

    def _call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        import cloudpickle

        if self._child is None:
            self._child = Child(_main, None)
        try:
            with contextlib.suppress(OSError):  # it is dead, which `_received` will see
                self._child.channel.send(cloudpickle.dumps((function, args, kwargs)))
            received = self._received(self._child)
        except BaseException:
            self.close()
            raise
        answer: T = cloudpickle.loads(received)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _received(self, child: Child) -> bytearray:
        child.channel.socket.settimeout(self._timeout)
        try:
            received = child.channel.receive()
        except EndedByError as ended:
            raise ended.error from ended.error.__cause__
        except TimeoutError:
            raise ChildDiedError(f"no answer within {self._timeout:g} s") from None
        if received is not None:
            return received[0]
        child.kill(GRACE_S)
        status, words = child.status(), child.last_words()
        if words and status is not None and status > 0:
            raise WorkerError(f"a child process cannot start here (exit status {status}); it wrote:\n{words}")
        died = ChildDiedError(f"exit status {status}")
        died.status = status
        raise died


def _main(channel: Channel, notes: Heartbeat, work: None, descriptors: list[int]) -> None:
    """Runs in the child process."""
    import cloudpickle

    while (received := channel.receive()) is not None:
        function, args, kwargs = cloudpickle.loads(received[0])
        channel.send(cloudpickle.dumps(function(*args, **kwargs)))
