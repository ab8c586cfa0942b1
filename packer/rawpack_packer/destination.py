"""The folder that a store is packed into: whether it may be used, and what is in it already."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from types import TracebackType

from rawpack import manifest as manifests
from rawpack.errors import UsageError
from rawpack_packer import commit
from rawpack_packer.parts import WORK
from rawpack_packer.sources.base import printable

_OURS = re.compile(r"shard-\d{5,}\.(npy|h5|lmdb)")
_LOCK = "lock"
_OURS_TOO = {WORK, commit.COLUMNS, commit.REJECTS, commit.PROVENANCE, commit.STATES}


def check(destination: Path, source: str) -> None:
    """Raise UsageError where a store may not be packed into `destination`. Nothing is written.

    A destination may be missing, an empty folder, or this very store, finished or not; it may not be, contain, or lie
    inside the source.
    """
    where, from_ = Path(os.path.realpath(destination)), Path(os.path.realpath(source))
    if where == from_:
        raise UsageError(f"{destination} is the source itself; name another folder for the store")
    if where.is_relative_to(from_):
        raise UsageError(f"{destination} lies inside the source {source}; put the store elsewhere")
    if from_.is_relative_to(where):
        raise UsageError(f"{destination} contains the source {source}; put the store elsewhere")
    if not os.path.lexists(destination):
        _check_parent(destination)
        return
    if not destination.is_dir():
        raise UsageError(f"{destination} is a file; a store is a folder")
    if not os.access(destination, os.W_OK | os.X_OK):
        raise UsageError(f"{destination} is not writable")
    names = sorted(path.name for path in destination.iterdir())
    if manifests.NAME in names or WORK in names:
        names = [name for name in names if name != manifests.NAME and name not in _OURS_TOO]
        names = [name for name in names if not _OURS.fullmatch(name)]
    if names:
        shown = ", ".join(printable(os.fsencode(name)) for name in names[:3]) + (", ..." if len(names) > 3 else "")
        raise UsageError(f"{destination} holds other files ({shown}); name an empty or a new folder")


def is_finished(destination: Path) -> bool:
    return (destination / manifests.NAME).exists()


def is_begun(destination: Path) -> bool:
    return (destination / WORK).is_dir()


def clear(destination: Path) -> None:
    """Remove the store in `destination`, whole or begun, and nothing else; the lock that the caller holds stays."""
    # First the manifest: what is left is then no store, at whatever point this ends.
    (destination / manifests.NAME).unlink(missing_ok=True)
    for path in [*destination.iterdir(), *(destination / WORK).iterdir()]:
        ours = path.parent.name == WORK or _OURS.fullmatch(path.name) or path.name in _OURS_TOO
        if not ours or path.name in (WORK, _LOCK):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def free_bytes(destination: Path) -> int:
    """Free space where the store will lie."""
    return shutil.disk_usage(_existing(destination)).free


class Lock:
    """Held while a run packs into a destination; a second run is refused. Ends with the process, whatever ends it."""

    def __init__(self, destination: Path) -> None:
        self._path = destination / WORK / _LOCK
        self._descriptor = -1

    def __enter__(self) -> Lock:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            import fcntl

            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass  # Windows: a second run is not noticed
        except OSError:
            os.close(self._descriptor)
            raise UsageError(f"another run is packing into {self._path.parent.parent} right now") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def _check_parent(destination: Path) -> None:
    parent = _existing(destination)
    if not parent.is_dir():
        raise UsageError(f"{destination} cannot be made: {parent} is a file")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"{destination} cannot be made: {parent} is not writable")


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
