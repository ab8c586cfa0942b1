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
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rawpack.system.channel import Channel, EndedByError, Heartbeat
from rawpack.system.child import Child, Ends, Process, environment, serve

_LOOK_EVERY_S = 0.5
_START_TIMEOUT_S = 60.0
_REPLY_TIMEOUT_S = 30.0
_SIGNAL_TIMEOUT_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
"""Between two looks whether a worker has ended."""
_PR_SET_PDEATHSIG = 1


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
    """A template process, seen from its parent, which asks, and waits for each answer: see `_serve`."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        work = (os.getpid(), environment(), prepare)
        function = getattr(prepare, "func", prepare)
        self.child = Child(_main, work, package_of=function, single=True)
        self.gone = False
        self._failure: Exception | None = None
        """What ended it, other than a signal."""

    def lives(self) -> bool:
        """Whether nothing says that it is gone."""
        if not self.gone and self.child.channel.readable(0):
            self._receive(0)  # nothing was asked: only what has ended it can come
            self._give_up()
        return not self.gone

    def is_ready(self) -> bool:
        """Wait until it has loaded; False where it cannot fork."""
        return self._ask("ready", timeout=_START_TIMEOUT_S) is True

    def fork(self, ends: Ends, channel: Channel) -> ForkedProcess | None:
        """See `Launcher.launch`."""
        pid = self._ask("fork", descriptors=ends, timeout=_REPLY_TIMEOUT_S)
        return ForkedProcess(self, pid, channel) if pid else None

    def kill(self, pid: int) -> None:
        """Have the template kill a worker that is not reaped yet; end the template if it hangs."""
        if not self.gone:
            self._ask("kill", pid, timeout=_SIGNAL_TIMEOUT_S)

    def await_end(self, pid: int, channel: Channel, timeout: float) -> int | None:
        """Have the template reap a worker, and return its exit status; None where it still lives after `timeout`
        seconds.

        Raises what ended the template, where that was an exception: its workers did not die of what they did.
        """
        end = time.monotonic() + timeout
        status: tuple[int | None] | None = None
        if not self.gone:
            status = self._ask("wait", pid, timeout, timeout=timeout + _SIGNAL_TIMEOUT_S)
        if self._failure is not None:
            raise self._failure from self._failure.__cause__
        if status is not None:
            return status[0]
        # The system kills the worker, and closes its end of the channel when it has no memory left.
        with contextlib.suppress(OSError):
            if channel.ends(end - time.monotonic()):
                return -signal.SIGKILL
        return None

    def _ask(self, *order: Any, descriptors: tuple[int, ...] = (), timeout: float) -> Any:
        """What the template answers. One that is gone, hangs or was interrupted is ended: None."""
        answer = None
        try:
            self.child.channel.send(pickle.dumps(order), descriptors)
            answer = self._receive(timeout)
        except OSError:
            pass
        finally:
            if answer is None:
                self._give_up()
        return answer

    def _receive(self, timeout: float) -> Any:
        """The next answer; None where none comes in time."""
        received = None
        try:
            if self.child.channel.readable(timeout):
                received = self.child.channel.receive()
        except OSError:
            pass
        except EndedByError as ended:
            self._failure = ended.error
        return None if received is None else pickle.loads(received[0])

    def _give_up(self) -> None:
        """End a template that hangs or has closed its channel, and with it its workers."""
        self.child.process.kill()
        self.gone = True


class ForkedProcess:
    """A worker that a template has forked, seen from the template's parent. See `Process`."""

    def __init__(self, running: _Running, pid: int, channel: Channel) -> None:
        """channel: this process's end."""
        self._running, self.pid, self._channel = running, pid, channel
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            self._running.kill(self.pid)

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            self.returncode = self._running.await_end(self.pid, self._channel, timeout)
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
    prctl = ctypes.CDLL(None).prctl
    template = os.getpid()
    # The parent may ignore it: then the system would reap the workers, and nobody would know how they ended.
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ends = _serve(channel, parent, _threads() == 1 and prctl(_PR_SET_PDEATHSIG, 0) == 0)
    if ends is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != template:
            os._exit(1)
        signal.signal(signal.SIGCHLD, before)
        _become_worker(ends, variables)


def _serve(channel: Channel, parent: int, able: bool) -> Ends | None:
    """Answer what the parent asks, until it is gone. Returns in each child too: what it gets.

    ("ready",): `able`: whether a fork is safe, and its end is sure when this process ends. ("fork",), with its `Ends`:
    the number of the new process, 0 where there is none. ("kill", pid): True. ("wait", pid, timeout): its exit status,
    or None where it still lives, in a tuple; only then may the system use the number again.
    """
    while os.getppid() == parent:
        if not channel.readable(_LOOK_EVERY_S):
            continue
        received = channel.receive()
        if received is None:
            return None
        match pickle.loads(received[0]):
            case ("ready",):
                _answer(channel, able)
            case ("fork",):
                ends = Ends(*received[1])
                pid = _fork()
                if pid == 0:
                    channel.close()
                    return ends
                for descriptor in ends:
                    os.close(descriptor)
                _answer(channel, pid or 0)
            case ("kill", pid):
                os.kill(pid, signal.SIGKILL)
                _answer(channel, True)
            case ("wait", pid, timeout):
                _answer(channel, (_reap(pid, timeout),))
    return None


def _answer(channel: Channel, answer: Any) -> None:
    try:
        channel.send(pickle.dumps(answer))
    except OSError:
        os._exit(1)  # the parent is gone; the system ends the workers


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _fork() -> int | None:
    """As `os.fork`; None where that fails, or would not be safe."""
    sys.stdout.flush()
    sys.stderr.flush()
    if _threads() == 1:
        with contextlib.suppress(OSError):
            return os.fork()
    return None


def _reap(pid: int, timeout: float) -> int | None:
    """The exit status of a child; None where it still lives after `timeout` seconds."""
    end, pause = time.monotonic() + timeout, _FIRST_PAUSE_S
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if (left := end - time.monotonic()) <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _become_worker(ends: Ends, variables: dict[str, str]) -> None:
    """Be a process like a plain child, but for what is loaded."""
    os.setpgid(0, 0)
    os.dup2(ends.output, 1)
    os.dup2(ends.shared, 2)
    os.close(ends.output)
    os.close(ends.shared)
    os.environ.clear()
    os.environ.update(variables)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # the module `random` does that by itself
    try:
        with socket.socket(fileno=ends.channel) as channel:
            serve(channel, ends.errors)
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    sys.exit()
