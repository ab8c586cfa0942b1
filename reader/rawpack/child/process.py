"""Starting and ending a child process.

It is a plain `python -P -c ...` child, never a fork: a fork of a process whose libraries have threads deadlocks. It
needs no `__main__` guard in the user's script. `rawpack` is loaded from the very folder that this process loaded it
from, and the user's `sys.path` comes *after* the child's own, so that a `queue.py` or `numpy.py` beside the user's
script shadows nothing.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rawpack.child.channel import Channel, pair
from rawpack.child.notes import NOTES_BYTES, Notes
from rawpack.memory import anonymous_file

_SEND_TIMEOUT_S = 30.0
_REAP_TIMEOUT_S = 5.0
_BOOT = """\
import importlib.util, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
spec = importlib.util.spec_from_file_location("rawpack", sys.argv[1], submodule_search_locations=[sys.argv[2]])
sys.modules["rawpack"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from rawpack.child import serve_main
serve_main(int(sys.argv[3]), int(sys.argv[4]))
"""


class Child:
    """A child process, seen from its parent. It ends when the parent does, or closes the channel."""

    def __init__(
        self, main: Callable[[Channel, Notes, Any, list[int]], None], work: Any, descriptors: Sequence[int] = ()
    ) -> None:
        """Start one that runs `main(channel, notes, work, descriptors)`: main and work travel by cloudpickle, the
        descriptors as the child's own."""
        import cloudpickle

        self.channel, theirs = pair()
        shared = anonymous_file(NOTES_BYTES)
        try:
            self.notes = Notes(mmap.mmap(shared, NOTES_BYTES))
            self.process = _start(theirs.socket)
            self.channel.socket.settimeout(_SEND_TIMEOUT_S)
            path = [str(Path(entry or ".").resolve()) for entry in sys.path]
            package = _package_of(main)
            # Two layers: what the second needs to be read must be in place before.
            self.channel.send(
                cloudpickle.dumps((path, package, cloudpickle.dumps((main, work)))), [shared, *descriptors]
            )
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()
            os.close(shared)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> bool:
        """End the process and wait until it is gone; False where it cannot be ended (stuck in the kernel)."""
        self.channel.close()
        self.process.kill()
        try:
            self.process.wait(_REAP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        return True


def serve_main(descriptor: int, parent: int) -> None:
    """What runs in the child."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    channel = Channel(socket.socket(fileno=descriptor))
    first = channel.receive()
    if first is None:
        return
    import cloudpickle

    path, package, packed = cloudpickle.loads(first[0])
    sys.path.extend(entry for entry in path if entry not in sys.path)
    if package is not None:
        _load(*package)
    main, work = cloudpickle.loads(packed)
    notes = Notes(mmap.mmap(first[1][0], NOTES_BYTES))
    os.close(first[1][0])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main(channel, notes, work, first[1][1:])


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


def _start(sock: socket.socket) -> subprocess.Popen[bytes]:
    import rawpack

    if not sys.executable:
        raise RuntimeError("this Python does not know its own executable, so it cannot start worker processes")
    package = Path(rawpack.__file__ or "").resolve()
    # Threads of numerical libraries would multiply with the workers.
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} | dict(os.environ)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, str(package), str(package.parent), str(sock.fileno()), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        pass_fds=[sock.fileno()],
        env=environment,
        # A group of its own: Ctrl-C at a terminal reaches the parent alone, which then ends its workers.
        process_group=0,
    )


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, also in the middle of a task that never ends."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
