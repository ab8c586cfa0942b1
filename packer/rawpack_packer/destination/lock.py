"""The locks of a destination: one run at a time packs into it, and workers of the last one have ended."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from rawpack.errors import PackError, UsageError
from rawpack_packer.destination import run_token
from rawpack_packer.destination.layout import WORK

_LOCK, _WORKERS_LOCK = "lock", "workers.lock"
LOCKS = (_LOCK, _WORKERS_LOCK)
"""In WORK."""
_WORKERS_END_S = 30.0
"""A killed run's workers notice within a second; one that waits for a slow disk may take longer."""
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
"""What file systems say that know no locks: there, as on Windows, a second run is not noticed."""


class Lock:
    """Held while a run packs into a destination; a second run is refused. Ends with the processes, whatever ends them.

    A killed run's workers live a moment longer and would write beside those of the next run. So they share a lock of
    their own, `workers`, which the next run waits to have alone. Those on other machines share it by `shared`, and end
    because the next run takes back `RUN`: see `run_token`.
    """

    def __init__(self, destination: Path) -> None:
        self._folder = destination / WORK
        self._run = self.workers = -1
        """workers: the descriptor that each worker is to keep open as long as it lives."""

    def __enter__(self) -> Lock:
        try:
            self._run = lock_file(self._folder / _LOCK, wait_s=0)
            run_token.end(self._folder.parent)
            self.workers = lock_file(self._folder / _WORKERS_LOCK, wait_s=_WORKERS_END_S)
            _share(self.workers)
        except BlockingIOError:
            self._close()
            raise UsageError(f"another run is packing into {self._folder.parent} right now") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for descriptor in (self._run, self.workers):
            if descriptor >= 0:
                os.close(descriptor)
        self._run = self.workers = -1
        # On NFS, files that were removed while they were open have gone only now; a folder with a job in it stays.
        with suppress(OSError):
            self._folder.rmdir()


@contextmanager
def shared(destination: Path) -> Iterator[None]:
    """For a worker on whatever machine: keep the next run from beginning until this one has ended.

    Raises PackError where another run has begun.
    """
    descriptor = os.open(destination / WORK / _WORKERS_LOCK, os.O_RDWR)
    try:
        until = time.monotonic() + _WORKERS_END_S
        while not _share(descriptor):
            if time.monotonic() >= until:
                raise PackError(f"another run is packing into {destination} right now")
            time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def _share(descriptor: int) -> bool:
    """Hold a file's lock together with others, where there are locks; False where another process has it alone."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def lock_file(path: Path, wait_s: float) -> int:
    """The descriptor of the file at `path`, locked. Raises BlockingIOError where another process holds it so long."""
    try:
        import fcntl
    except ImportError:  # Windows: a second run is not noticed
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    until = time.monotonic() + wait_s
    while True:
        path.parent.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A run that ended meanwhile has removed the file: a lock on it would keep nobody out.
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(descriptor)
                raise
            time.sleep(0.02)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return descriptor
            os.close(descriptor)
            raise
        os.close(descriptor)
