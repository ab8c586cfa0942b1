"""A template: a child process that has loaded what workers need, and forks them.

A fork of a process with threads has copies of their locks, which nobody will ever release. This fork is safe because
the template has one thread: it starts none, and it forks only while the system shows no other. It never runs code of
the user. The system ends its children when it ends, and it ends when its parent does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rawpack.system.channel import Channel, EndedByError
from rawpack.system.child import Child, Ends, Process, environment, serve
from rawpack.system.heartbeat import Heartbeat

_LOOK_EVERY_S = 0.5
_START_TIMEOUT_S = 60.0
_REPLY_TIMEOUT_S = 30.0
_SIGNAL_TIMEOUT_S = 5.0
_PR_SET_PDEATHSIG = 1

Message = tuple[Any, ...]
"""To the template: ("fork", worker) or ("kill", worker), with a number that no other one of its workers has: the system
uses process numbers again. From it: ("ready", whether it can fork) first, ("forked", pid), with 0 where it could not,
("killed", worker), and whenever a worker is reaped ("ended", worker, status)."""


class Template:
    """The template of one pool's workers. It starts with the first of them. See `Launcher`.

    Where it cannot help, `launch` says so and the worker is started as a plain process: on other systems than Linux, if
    a library has threads, or if the template does not start. Environment, folder, limits and the like of all its
    workers, however late they start, are those that this process had when the template started.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        """prepare: runs in the template and loads what the workers will need. A function of a package, or a partial of
        one."""
        self._prepare = prepare
        self._running: _Running | None = None
        self._useless = sys.platform != "linux"

    def launch(self, ends: Ends, channel: Channel) -> Process | None:
        """See `Launcher`."""
        if self._useless:
            return None
        if self._running is None or not self._running.lives():
            self.close()
            self._running = _Running(self._prepare)
            if not self._running.is_ready():
                self._useless = True
                self.close()
                return None
        return self._running.fork(ends, channel)

    def close(self) -> None:
        """End the template, and with it all workers that still live."""
        running, self._running = self._running, None
        if running is not None:
            running.child.kill()


class _Running:
    """A template process, seen from its parent."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        work = (os.getpid(), environment(), prepare)
        function = getattr(prepare, "func", prepare)
        self.child = Child(_main, work, package_of=function, single=True)
        self.gone = False
        self._last = 0
        """The number of the latest worker."""
        self._ended: dict[int, int] = {}
        """Worker -> its exit status."""
        self._failure: Exception | None = None
        """What ended it, other than a signal."""

    def lives(self) -> bool:
        """Whether nothing says that it is gone."""
        while not self.gone and self.child.channel.readable(0):
            self._take()
        return not self.gone

    def is_ready(self) -> bool:
        """Wait until it has loaded; False where it cannot fork."""
        return self._next(_START_TIMEOUT_S) == ("ready", True)

    def fork(self, ends: Ends, channel: Channel) -> ForkedProcess | None:
        """See `Launcher.launch`."""
        self._last += 1
        reply: Message = ()
        try:
            if self._send(("fork", self._last), ends):
                reply = self._next(_REPLY_TIMEOUT_S)
        finally:
            if reply[:1] != ("forked",):
                self._give_up()
        if self.gone or not reply[1]:
            return None
        return ForkedProcess(self, self._last, reply[1], channel)

    def kill(self, worker: int) -> None:
        """Have the template kill a worker, unless it is reaped already; end the template if it hangs."""
        if worker in self._ended or self.gone:
            return
        self._send(("kill", worker))
        if not self._next(_SIGNAL_TIMEOUT_S):
            self._give_up()

    def await_end(self, worker: int, channel: Channel, timeout: float) -> int | None:
        """The exit status of a worker, once it is reaped; None where it still lives after `timeout` seconds.

        Raises what ended the template, where that was an exception: its workers did not die of what they did.
        """
        end = time.monotonic() + timeout
        while worker not in self._ended:
            left = end - time.monotonic()
            if self._failure is not None:
                raise self._failure from self._failure.__cause__
            if self.gone:
                # Nobody reports it. The system kills it, and closes its end of the channel when it has no memory left.
                with contextlib.suppress(OSError):
                    if channel.ends(left):
                        return -signal.SIGKILL
                return None
            if not self.child.channel.readable(left):
                return None
            self._take()
        return self._ended.pop(worker)

    def _give_up(self) -> None:
        """End a template that hangs or has closed its channel, and with it its workers."""
        self.child.process.kill()
        self.gone = True

    def _send(self, order: Message, descriptors: tuple[int, ...] = ()) -> bool:
        try:
            self.child.channel.send(pickle.dumps(order), descriptors)
        except OSError:
            self._give_up()
        return not self.gone

    def _next(self, timeout: float) -> Message:
        """The next message other than "ended"; empty where none comes in time, or the template is gone."""
        end = time.monotonic() + timeout
        while not self.gone and self.child.channel.readable(end - time.monotonic()):
            if message := self._take():
                return message
        return ()

    def _take(self) -> Message:
        """Receive a message; empty where it is not for the caller."""
        received = None
        try:
            received = self.child.channel.receive()
        except OSError:
            pass
        except EndedByError as ended:
            self._failure = ended.error
        if received is None:
            self._give_up()
            return ()
        message: Message = pickle.loads(received[0])
        if message[0] == "ended":
            self._ended[message[1]] = message[2]
            return ()
        return message


class ForkedProcess:
    """A worker that a template has forked, seen from the template's parent. See `Process`."""

    def __init__(self, running: _Running, worker: int, pid: int, channel: Channel) -> None:
        """worker: its number in the template's messages. channel: this process's end."""
        self._running, self._worker, self.pid, self._channel = running, worker, pid, channel
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            self._running.kill(self._worker)

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            self.returncode = self._running.await_end(self._worker, self._channel, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a worker", timeout)
        return self.returncode


# ---------------------------------------------------------------------------------------------- in the template


def _main(
    channel: Channel, _: Heartbeat, work: tuple[int, dict[str, str], Callable[[], None]], descriptors: list[int]
) -> None:
    """Runs in the template: forks until the parent is gone. In a worker, runs what `serve` does."""
    parent, variables, prepare = work
    prepare()
    gc.collect()
    gc.freeze()  # a collection in a worker must not write to, and so copy, the pages that it shares
    forks = _Forks(channel, parent, variables)
    _report(channel, ("ready", forks.able))
    worker = forks.serve()
    if worker is not None:
        worker()


def _report(channel: Channel, message: Message) -> None:
    try:
        channel.send(pickle.dumps(message))
    except OSError:
        os._exit(1)  # the parent is gone; the system ends the workers


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


class _Forks:
    """The children of this process."""

    def __init__(self, channel: Channel, parent: int, variables: dict[str, str]) -> None:
        self._channel, self._parent, self._variables = channel, parent, variables
        self._children: dict[int, int] = {}
        """Process number of each that is not reaped -> its number in messages."""
        self._prctl = ctypes.CDLL(None).prctl
        self.able = _threads() == 1 and self._prctl(_PR_SET_PDEATHSIG, 0) == 0
        """Whether a fork is safe, and its end is sure when this process ends."""
        # A death interrupts the wait for a message.
        self._before = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._woken, self._wakes = socket.socketpair()
        self._wakes.setblocking(False)
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)

    def serve(self) -> Callable[[], None] | None:
        """Fork, kill and reap until the parent is gone. Returns in each child too: what it is to run."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        poll.register(self._channel.socket, select.POLLIN)
        while os.getppid() == self._parent:
            ready = [number for number, _ in poll.poll(_LOOK_EVERY_S * 1000)]
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            self._reap()
            if self._channel.fileno() not in ready:
                continue
            received = self._channel.receive()
            if received is None:
                return None
            order, worker = pickle.loads(received[0])
            if order == "kill":
                for pid in [pid for pid, number in self._children.items() if number == worker]:
                    os.kill(pid, signal.SIGKILL)
                _report(self._channel, ("killed", worker))
            elif (run := self._fork(worker, Ends(*received[1]))) is not None:
                return run
        return None

    def _fork(self, worker: int, ends: Ends) -> Callable[[], None] | None:
        """Fork a worker. In the parent None; in the child what it is to run."""
        pid, template = 0, os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        if _threads() == 1:
            with contextlib.suppress(OSError):
                pid = os.fork()
                if not pid:
                    return lambda: self._begin(ends, template)
        for descriptor in ends:
            os.close(descriptor)
        if pid:
            self._children[pid] = worker
        _report(self._channel, ("forked", pid))
        return None

    def _reap(self) -> None:
        """Report every child that is gone."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                worker = self._children.pop(ended[0])
                _report(self._channel, ("ended", worker, os.waitstatus_to_exitcode(ended[1])))

    def _begin(self, ends: Ends, template: int) -> None:
        """Be a worker: a process like a plain child, but for what is loaded."""
        self._prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != template:
            os._exit(1)
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._before)
        for end in (self._channel.socket, self._woken, self._wakes):
            end.close()
        os.dup2(ends.output, 1)
        os.dup2(ends.shared, 2)
        os.close(ends.output)
        os.close(ends.shared)
        os.environ.clear()
        os.environ.update(self._variables)
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()  # the module `random` does that by itself
        try:
            serve(socket.socket(fileno=ends.channel), ends.errors)
        except Exception:
            traceback.print_exc()
            sys.exit(1)
        sys.exit()
