"""Locks of a destination: one run at a time packs into it, after the workers of the last run have ended.

A token tells workers on other machines which run a destination belongs to. These workers can outlive their run: no
system ends them with it, and not every cluster can be asked to. So a run leaves a file with its token in its name, and
renames it when it ends; after a kill, the next run does. A worker looks for the file now and then, and before it gives
a file of its own its name, and stops where it is gone. The new name is a mark, so that a worker that begins too late
stops at once, instead of waiting for a file that a slow network may hide.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rawpack.errors import PackError, UsageError
from rawpack.system import writing
from rawpack.system.files import is_at
from rawpack_packer.destination.files import WORK

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
    and end because the next run takes back their token.
    """

    def __init__(self, destination: Path) -> None:
        self._folder = destination / WORK
        self._run = self.workers = -1
        """workers: the descriptor that each worker keeps open for as long as it lives."""

    def __enter__(self) -> Lock:
        try:
            self._run = lock_file(self._folder / _LOCK, wait_s=0)
            end_token(self._folder.parent)
            self.workers = lock_file(self._folder / _WORKERS_LOCK, wait_s=_WORKERS_END_S)
            _flock(self.workers, alone=False)
        except BaseException as error:  # also of a full disk, or Ctrl-C: this process may try again
            self._close()
            if isinstance(error, BlockingIOError):
                raise UsageError(f"another run is packing into {self._folder.parent} right now") from None
            raise
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
        with contextlib.suppress(OSError):
            self._folder.rmdir()


@contextmanager
def shared(destination: Path) -> Iterator[None]:
    """Keep the next run from beginning while a worker, on any machine, is in this block.

    Raises PackError where another run has begun.
    """
    descriptor = writing.descriptor_of(destination / WORK / _WORKERS_LOCK, os.O_RDWR)
    try:
        until = time.monotonic() + _WORKERS_END_S
        while not _flock(descriptor, alone=False):
            if time.monotonic() >= until:
                raise PackError(f"another run is packing into {destination} right now")
            time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def alone(path: Path, doing: str, *, below: Path | None = None) -> Iterator[None]:
    """Keep other runs on this machine from doing something in this block. path: of the file that is locked. doing: what
    they would do, for the UsageError. below: see `writing`."""
    try:
        descriptor = lock_file(path, wait_s=0, below=below)
    except BlockingIOError:
        raise UsageError(f"another run on this machine is {doing} right now") from None
    try:
        yield
    finally:
        os.close(descriptor)


def lock_file(path: Path, wait_s: float, *, below: Path | None = None) -> int:
    """The descriptor of the file at `path`, locked. Raises BlockingIOError where another process still holds it after
    `wait_s`; and as `writing.descriptor_of`."""
    until = time.monotonic() + wait_s
    while True:
        writing.make_folder(path.parent, below=below)
        descriptor = writing.descriptor_of(path, os.O_RDWR | os.O_CREAT, below=below)
        try:
            locked = _flock(descriptor, alone=True)
            # A run that has just ended may have removed the file: a lock on that would keep nobody out.
            if locked and is_at(descriptor, path):
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


_RUN, _ENDED = "run-", "ended-"
_SEEN_WITHIN_S = 20.0
"""NFS may hide a new file for a while, although it lists a folder again when that is opened."""


def begin_token(destination: Path) -> str:
    """Make the destination the caller's, who holds its lock. Returns the token of the run."""
    token = os.urandom(8).hex()
    writing.create(destination / WORK / f"{_RUN}{token}").close()
    return token


def end_token(destination: Path) -> None:
    """Stop the workers of whatever run the destination belongs to, and those that have not begun yet."""
    for run in (destination / WORK).glob(f"{_RUN}*"):
        # Renaming works on a full disk, and the mark appears as the token goes.
        with contextlib.suppress(OSError):
            writing.replace(run, run.with_name(f"{_ENDED}{run.name.removeprefix(_RUN)}"))
        run.unlink(missing_ok=True)


def check_token(destination: Path, token: str) -> None:
    """Raise PackError where the destination no longer belongs to this run."""
    if not _is_running(destination, token):
        raise PackError(f"the run that asked for this part of {destination} has ended")


def await_token(destination: Path, token: str) -> None:
    """As `check_token`, on a machine that may see the destination late. Raises PackError too where it is missing, or is
    another folder."""
    if not destination.is_dir():
        raise PackError(f"{destination} is not here: every machine must see the destination at the same path")
    until = time.monotonic() + _SEEN_WITHIN_S
    while not _is_running(destination, token):
        if (destination / WORK / f"{_ENDED}{token}").exists():
            check_token(destination, token)
        if time.monotonic() >= until:
            raise PackError(
                f"{destination} is another folder here than where the job runs, or its run has ended: every machine "
                "must see the destination at the same path"
            )
        look_again(destination / WORK)
        time.sleep(0.2)


def look_again(folder: Path) -> None:
    """Have a network file system ask its server for a folder's contents, as it does when the folder is opened."""
    with contextlib.suppress(OSError):  # whoever looks for a file in it reports what is wrong
        os.close(os.open(folder, os.O_RDONLY))


def _is_running(destination: Path, token: str) -> bool:
    try:
        # Opened, because a network file system asks its server then.
        os.close(os.open(destination / WORK / f"{_RUN}{token}", os.O_RDONLY))
    except FileNotFoundError:
        return False
    return True
