"""Child processes: how they start, how messages reach them, and how they end.

A child is a plain `python -P -c ...`, or a fork of a `Template`, never a fork of this process, whose libraries may have
threads. The user's script needs no `__main__` guard. The child loads `rawpack` from the folder that this process loaded
it from. The user's `sys.path` comes *after* the child's own, so that a `queue.py` or `numpy.py` next to the user's
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rawpack.errors import WorkerError
from rawpack.system.channel import HEARTBEAT_BYTES, Channel, Heartbeat, pair
from rawpack.system.files import above_streams, write_all
from rawpack.system.limits import refused
from rawpack.system.memory import anonymous_file, map_descriptor

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
_SHARED_BYTES = 1 << 16
"""The heartbeat, and after it what the child writes to standard error until it is ready. Only written pages exist."""
_MOST_WORDS = 8000
"""Characters of `Child.last_words` that are kept, from its end."""

Main = Callable[[Channel, Heartbeat, Any, list[int]], None]
"""What a child runs: gets its channel, its heartbeat, the work, and descriptors."""


class Process(Protocol):
    """A process that has been started: what is used of `subprocess.Popen`."""

    pid: int
    returncode: int | None
    """Its exit status, negative for a signal; None until `wait` has returned."""

    def kill(self) -> None:
        """Have the system kill it."""

    def wait(self, timeout: float) -> int:
        """Wait until it is gone and reaped. Raises subprocess.TimeoutExpired."""


class Ends(NamedTuple):
    """Descriptors of this process that a child gets."""

    channel: int
    shared: int
    """`_SHARED_BYTES`, whose position is after the heartbeat: standard error until the child is ready."""
    output: int
    errors: int
    """Standard error from then on."""


class Launcher(Protocol):
    """Starts a child in another way than as a plain process."""

    def launch(self, ends: Ends, channel: Channel) -> Process | None:
        """A process that runs `serve` with these descriptors; None where that fails: then the `ends` are void.
        channel: this process's end."""


class Child:
    """A child process, seen from its parent. It ends when the parent does, or closes the channel."""

    channel: Channel
    heartbeat: Heartbeat
    process: Process

    def __init__(
        self,
        main: Main,
        work: Any,
        descriptors: Sequence[int] = (),
        *,
        launcher: Launcher | None = None,
        package_of: Callable[..., object] | None = None,
        single: bool = False,
    ) -> None:
        """Start a process that runs `main(channel, heartbeat, work, descriptors)`: main and work travel by cloudpickle,
        descriptors are duplicated.

        launcher: starts it instead, if it can. package_of: a function whose package the child loads from where it is
        here; else that of `main`. single: the child has no thread besides the one that runs `main`, which itself must
        look whether its parent is gone.

        Raises WorkerError where the system starts no process. Of one that starts and then ends, `last_words` says why.
        """
        import cloudpickle

        with refused(WorkerError, f"no worker process can be started ({sys.executable})"):
            if launcher is None or not self._launch(launcher.launch):
                self._launch(lambda ends, _: _start(ends, single))
        self.channel.socket.settimeout(_SEND_TIMEOUT_S)
        # Two layers: unpickling the second needs the paths in the first.
        first = cloudpickle.dumps((_import_path(), _package_of(package_of or main), cloudpickle.dumps((main, work))))
        try:
            # If it is gone already, whoever receives from it will see that.
            with contextlib.suppress(ConnectionError):
                self.channel.send(first, descriptors)
        except BaseException:
            self.channel.close()
            raise

    def _launch(self, launch: Callable[[Ends, Channel], Process | None]) -> bool:
        """Start the process with descriptors that it alone has; False where it has not started."""
        channel, theirs = pair()
        opened, process = list[int](), None
        try:
            opened.append(shared := anonymous_file(_SHARED_BYTES))
            memory = map_descriptor(shared, _SHARED_BYTES, writable=True)
            os.lseek(shared, HEARTBEAT_BYTES, os.SEEK_SET)
            for descriptor in (1, 2):
                opened.append(above_streams(_duplicate(descriptor)))
            process = launch(Ends(theirs.fileno(), *opened), channel)
        finally:
            theirs.close()
            for descriptor in opened:
                os.close(descriptor)
            if process is None:
                channel.close()
        if process is not None:
            self.channel, self.process = channel, process
            self.heartbeat, self._memory = Heartbeat(memory), memory
        return process is not None

    def status(self) -> int | None:
        """The exit status of a child that is gone, negative for a signal."""
        return self.process.returncode

    def last_words(self) -> str:
        """What the child wrote to standard error before it was ready to run `main`, or the traceback of what ended
        `main`; empty where there is neither."""
        said = bytes(self._memory[HEARTBEAT_BYTES:]).rstrip(b"\0").decode(errors="replace")
        return said.strip()[-_MOST_WORDS:]

    def kill(self, grace: float = 0.0) -> bool:
        """End the process and wait until it is gone; False where it cannot be ended (stuck in the kernel).

        grace: seconds for it to end by itself once its channel is closed, so that its exit status is its own.
        """
        self.channel.finish()
        try:
            if grace:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(grace)
            self.process.kill()
            self.process.wait(_REAP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.channel.close()
        return True


def serve_main(descriptor: int, errors: int, parent: int) -> None:
    """What runs in a plain child. parent: its number, if this process ends with it."""
    if parent:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with socket.socket(fileno=descriptor) as channel:
        serve(channel, errors)


def serve(sock: socket.socket, errors: int) -> None:
    """What runs in every child. Its standard error goes to `Child.last_words` until it is ready, and then to `errors`.

    An exception that ends `main` is sent to the parent, whose `receive` raises it: here alone is decided that a fault
    of our code is not the death of a process.
    """
    channel = Channel(sock)
    first = channel.receive()
    if first is None:
        return
    import cloudpickle

    path, package, packed = cloudpickle.loads(first[0])
    sys.path.extend(entry for entry in path if entry not in sys.path)
    if package is not None and package[0] not in sys.modules:
        _load(*package)
    main, work = cloudpickle.loads(packed)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    words = _say_aloud(errors)
    heartbeat, process = Heartbeat(map_descriptor(words, HEARTBEAT_BYTES, writable=True)), os.getpid()
    try:
        main(channel, heartbeat, work, first[1])
    except BaseException as error:
        if os.getpid() == process:  # not that of a template, of which a worker was forked that ends here
            write_all(words, traceback.format_exc().encode(errors="backslashreplace"))
        if not isinstance(error, Exception):
            raise
        channel.fail(error)
        sys.exit(1)


def environment() -> dict[str, str]:
    """The environment variables of a child. Threads of numerical libraries would multiply with the workers, and so
    would the warning where the native core is missing."""
    core = "0" if os.environ.get("RAWPACK_NATIVE") == "0" else "quiet"
    return {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} | dict(os.environ) | {"RAWPACK_NATIVE": core}


def _duplicate(descriptor: int) -> int:
    """A descriptor for the same file; of nothing where it is closed, as in a daemon."""
    try:
        return os.dup(descriptor)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


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
    size = os.lseek(words, 0, os.SEEK_CUR) - HEARTBEAT_BYTES
    said = os.pread(words, size, HEARTBEAT_BYTES)
    os.dup2(errors, 2)
    os.close(errors)
    os.pwrite(words, bytes(size), HEARTBEAT_BYTES)
    os.lseek(words, HEARTBEAT_BYTES, os.SEEK_SET)
    if said:
        write_all(2, said)
    return words


def _package_of(main: Callable[..., object]) -> tuple[str, str] | None:
    """Name and file of the package that `main` comes from: the child must run the same, whichever is installed."""
    name = main.__module__.partition(".")[0]
    file = getattr(sys.modules.get(name), "__file__", None)
    return None if name in ("rawpack", "__main__") or file is None else (name, str(Path(file).resolve()))


def _load(name: str, file: str) -> None:
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=[str(Path(file).parent)])
    if spec is not None and spec.loader is not None and Path(file).name == "__init__.py":
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _start(ends: Ends, single: bool) -> Process:
    if not sys.executable:
        raise WorkerError("worker processes cannot start: sys.executable is not set")
    variables = environment()
    if single:
        variables |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    numbers = (ends.channel, ends.errors, 0 if single else os.getpid())
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, str(_PACKAGE), str(_PACKAGE.parent), *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=ends.output,
        stderr=ends.shared,
        pass_fds=[ends.channel, ends.errors],
        env=variables,
        # A group of its own: Ctrl-C at a terminal reaches the parent alone, which then ends its workers.
        process_group=0,
    )


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, even in the middle of a task that never ends."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
