"""Locks of a destination: one run at a time packs into it, after the workers of the last run have ended."""

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
"""Errors of file systems without locks."""


class Lock:
    """Held while a run packs into a destination; a second run is refused. Released when the process ends in any way.

    A killed run's workers live a moment longer, and would write together with those of the next run. So they share a
    second lock, `workers`, which the next run waits to have alone. Workers on other machines share it through `shared`,
    and end because the next run takes back their token: see `run_token`.
    """

    def __init__(self, destination: Path) -> None:
        self._folder = destination / WORK
        self._run = self.workers = -1
        """workers: the descriptor that each worker keeps open for as long as it lives."""

    def __enter__(self) -> Lock:
        try:
            self._run = lock_file(self._folder / _LOCK, wait_s=0)
            run_token.end(self._folder.parent)
            self.workers = lock_file(self._folder / _WORKERS_LOCK, wait_s=_WORKERS_END_S)
            _flock(self.workers, alone=False)
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
        # NFS removes a file only when it is closed, so the folder may still be here; one with a job in it stays.
        with suppress(OSError):
            self._folder.rmdir()


@contextmanager
def shared(destination: Path) -> Iterator[None]:
    """Keep the next run from beginning while a worker, on any machine, is in this block.

    Raises PackError where another run has begun.
    """
    descriptor = os.open(destination / WORK / _WORKERS_LOCK, os.O_RDWR)
    try:
        until = time.monotonic() + _WORKERS_END_S
        while not _flock(descriptor, alone=False):
            if time.monotonic() >= until:
                raise PackError(f"another run is packing into {destination} right now")
            time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def lock_file(path: Path, wait_s: float) -> int:
    """The descriptor of the file at `path`, locked. Raises BlockingIOError where another process still holds it after
    `wait_s`."""
    until = time.monotonic() + wait_s
    while True:
        path.parent.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            locked = _flock(descriptor, alone=True)
            # A run that has just ended may have removed the file: a lock on that would keep nobody out.
            if locked and path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
            if not locked and time.monotonic() >= until:
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), str(path))
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(0.02)


def _flock(descriptor: int, *, alone: bool) -> bool:
    """Lock a file, alone or shared, without waiting; False where another process keeps it from that. True without a
    lock on Windows and on file systems that have none: there, a second run is not noticed."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True
