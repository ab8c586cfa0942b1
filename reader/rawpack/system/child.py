"""Child processes: how they start, how messages reach them, and how they end.

A child is a plain `python -P -c ...`, never a fork, because forking a process whose libraries have threads can
deadlock. The user's script needs no `__main__` guard. The child loads `rawpack` from the folder that this process
loaded it from. The user's `sys.path` comes *after* the child's own, so that a `queue.py` or `numpy.py` next to the
user's script shadows nothing.
"""

from __future__ import annotations

import array
import contextlib
import importlib.util
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rawpack.errors import WorkerError
from rawpack.system.memory import anonymous_file, map_descriptor
from rawpack.system.writing import write_all

HEARTBEAT_BYTES = 4096
GRACE_S = 2.0
"""Seconds for `Child.kill` of a child that is ending by itself."""
_SEND_TIMEOUT_S = 30.0
_REAP_TIMEOUT_S = 5.0
_BOOT = """\
import importlib.util, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
spec = importlib.util.spec_from_file_location("rawpack", sys.argv[1], submodule_search_locations=[sys.argv[2]])
sys.modules["rawpack"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from rawpack.system.child import serve_main
serve_main(*map(int, sys.argv[3:]))
"""
_PACKAGE = Path(__file__).resolve().parents[1] / "__init__.py"
"""The root of `rawpack`, found without importing it."""
_MOST_WORDS = 8000
"""Characters of `Child.last_words` that are kept, from its end."""
_NOTE = struct.Struct("<qqq")
_LENGTH = 4
_MAX_DESCRIPTORS = 4


class Child:
    """A child process, seen from its parent. It ends when the parent does, or closes the channel."""

    def __init__(
        self, main: Callable[[Channel, Heartbeat, Any, list[int]], None], work: Any, descriptors: Sequence[int] = ()
    ) -> None:
        """Start a process that runs `main(channel, heartbeat, work, descriptors)`: main and work travel by cloudpickle,
        descriptors are duplicated.

        Raises WorkerError where the system starts no process. Of one that starts and then ends, `last_words` says why.
        """
        import cloudpickle

        self._words = anonymous_file(0)
        self._close_words = weakref.finalize(self, os.close, self._words)
        self._last_words = ""
        self.channel, theirs = pair()
        shared = anonymous_file(HEARTBEAT_BYTES)
        try:
            self.heartbeat = Heartbeat(map_descriptor(shared, HEARTBEAT_BYTES, writable=True))
            self.process = _start(theirs.socket, self._words)
            self.channel.socket.settimeout(_SEND_TIMEOUT_S)
            path = _import_path()
            package = _package_of(main)
            # Two layers: unpickling the second needs the paths in the first.
            first = cloudpickle.dumps((path, package, cloudpickle.dumps((main, work))))
            # If it is gone already, whoever receives from it will see that.
            with contextlib.suppress(ConnectionError):
                self.channel.send(first, [shared, *descriptors])
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()
            os.close(shared)

    def last_words(self) -> str:
        """What the child wrote to standard error before it was ready to run `main`, or the traceback of what ended
        `main`; empty where there is neither."""
        if self._close_words.alive:
            said = os.pread(self._words, os.fstat(self._words).st_size, 0)
            self._last_words = said.decode(errors="replace").strip()[-_MOST_WORDS:]
        return self._last_words

    def kill(self, grace: float = 0.0) -> bool:
        """End the process and wait until it is gone; False where it cannot be ended (stuck in the kernel).

        grace: seconds for it to end by itself once its channel is closed, so that its exit status is its own.
        """
        self.channel.close()
        if grace:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        self.process.kill()
        try:
            self.process.wait(_REAP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.last_words()
            self._close_words()
        return True


class Heartbeat:
    """What a worker is about to do, in shared memory: its parent can read it even after the worker has died.

    One process writes, another reads, without a lock. A torn read does no harm: what is read matters only when the
    writer is dead.
    """

    def __init__(self, memory: Any) -> None:
        """memory: a writable buffer of `HEARTBEAT_BYTES`."""
        self._memory = memory
        self._beat = 0

    def note(self, task: int, position: int) -> None:
        """Note that `position` of `task` comes next; -1 where the task is done in one go."""
        self._beat += 1
        _NOTE.pack_into(self._memory, 0, task, position, self._beat)

    def read(self) -> tuple[int, int, int]:
        """(task, position, beat): the beat changes with every note."""
        return _NOTE.unpack_from(self._memory, 0)


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


def serve_main(descriptor: int, parent: int, errors: int) -> None:
    """What runs in the child. Its standard error goes to `Child.last_words` until it is ready, and then to `errors`."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    channel = Channel(socket.socket(fileno=descriptor), takes_descriptors=True)
    first = channel.receive()
    if first is None:
        return
    import cloudpickle

    path, package, packed = cloudpickle.loads(first[0])
    sys.path.extend(entry for entry in path if entry not in sys.path)
    if package is not None:
        _load(*package)
    main, work = cloudpickle.loads(packed)
    heartbeat = Heartbeat(map_descriptor(first[1][0], HEARTBEAT_BYTES, writable=True))
    os.close(first[1][0])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    words = _say_aloud(errors)
    try:
        main(channel, heartbeat, work, first[1][1:])
    except Exception:
        write_all(words, traceback.format_exc().encode())
        sys.exit(1)


def _import_path() -> list[str]:
    """`sys.path` for a process that starts anywhere, without entries relative to a current folder that was removed."""
    path = []
    for entry in sys.path:
        with contextlib.suppress(FileNotFoundError):
            path.append(str(Path(entry or ".").resolve()))
    return path


def _say_aloud(errors: int) -> int:
    """Make `errors` the standard error, and pass on what was written so far. Returns where last words go, emptied."""
    sys.stderr.flush()
    words = os.dup(2)
    said = os.pread(words, os.fstat(words).st_size, 0)
    os.dup2(errors, 2)
    os.close(errors)
    os.ftruncate(words, 0)
    os.lseek(words, 0, os.SEEK_SET)
    if said:
        write_all(2, said)
    return words


def _package_of(main: Callable[..., None]) -> tuple[str, str] | None:
    """Name and file of the package that `main` comes from: the child must run the same, whichever is installed."""
    name = main.__module__.partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    return None if name in ("rawpack", "__main__") or file is None else (name, str(Path(file).resolve()))


def _load(name: str, file: str) -> None:
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(Path(file).parent)])
    if spec is not None and spec.loader is not None and Path(file).name == "__init__.py":
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _start(sock: socket.socket, words: int) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise WorkerError("worker processes cannot start: sys.executable is not set")
    # Threads of numerical libraries would multiply with the workers.
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} | dict(os.environ)
    try:
        errors = os.dup(2)
    except OSError:  # a daemon without one
        errors = os.open(os.devnull, os.O_WRONLY)
    numbers = (sock.fileno(), os.getpid(), errors)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, str(_PACKAGE), str(_PACKAGE.parent), *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            stderr=words,
            pass_fds=[sock.fileno(), errors],
            env=environment,
            # A group of its own: Ctrl-C at a terminal reaches the parent alone, which then ends its workers.
            process_group=0,
        )
    except OSError as error:
        raise WorkerError(
            f"no worker process can be started ({sys.executable}): {error}; a limit on processes or memory?"
        ) from error
    finally:
        os.close(errors)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, even in the middle of a task that never ends."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
