"""Starting and ending a child process.

It is a plain `python -P -c ...` child, never a fork: a fork of a process whose libraries have threads deadlocks. It
needs no `__main__` guard in the user's script. `rawpack` is loaded from the very folder that this process loaded it
from, and the user's `sys.path` comes *after* the child's own, so that a `queue.py` or `numpy.py` beside the user's
script shadows nothing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
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
from rawpack.system.child.channel import Channel, pair
from rawpack.system.child.heartbeat import HEARTBEAT_BYTES, Heartbeat
from rawpack.system.memory import anonymous_file, map_descriptor
from rawpack.system.writing import write_all

GRACE_S = 2.0
"""For `Child.kill` of a child that is dying by itself."""
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
_PACKAGE = Path(__file__).resolve().parents[2] / "__init__.py"
"""The root of `rawpack`, found without importing it."""
_MOST_WORDS = 8000
"""Characters of `Child.last_words`: the end is what matters."""


class Child:
    """A child process, seen from its parent. It ends when the parent does, or closes the channel."""

    def __init__(
        self, main: Callable[[Channel, Heartbeat, Any, list[int]], None], work: Any, descriptors: Sequence[int] = ()
    ) -> None:
        """Start one that runs `main(channel, heartbeat, work, descriptors)`: main and work travel by cloudpickle, the
        descriptors as the child's own.

        Raises WorkerError where the system starts no process. One that starts and then ends says why: `last_words`.
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
            # Two layers: what the second needs to be read must be in place before.
            first = cloudpickle.dumps((path, package, cloudpickle.dumps((main, work))))
            # Where it is gone already, whoever receives from it sees that.
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
        `main`; empty where there is nothing of these."""
        if self._close_words.alive:
            said = os.pread(self._words, os.fstat(self._words).st_size, 0)
            self._last_words = said.decode(errors="replace").strip()[-_MOST_WORDS:]
        return self._last_words

    def kill(self, grace: float = 0.0) -> bool:
        """End the process and wait until it is gone; False where it cannot be ended (stuck in the kernel).

        grace: seconds that one whose channel is closed is given to go by itself, so that its exit status is its own.
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


def serve_main(descriptor: int, parent: int, errors: int) -> None:
    """What runs in the child. Its standard error is `Child.last_words` until it is ready, and then `errors`."""
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
    """`sys.path` for a process that starts anywhere. What is relative to a current folder that was removed holds no
    module any more, and is left out."""
    path = []
    for entry in sys.path:
        with contextlib.suppress(FileNotFoundError):
            path.append(str(Path(entry or ".").resolve()))
    return path


def _say_aloud(errors: int) -> int:
    """Make `errors` the standard error, with what was said so far; where last words go, emptied."""
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
    """End this process when its parent is gone, also in the middle of a task that never ends."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
