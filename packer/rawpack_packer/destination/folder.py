"""The folder that a store is packed into: whether it may be used, and what is in it already."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from rawpack.disk import manifest as manifests
from rawpack.disk.provenance import is_of_run
from rawpack.disk.splits import NAME as SPLITS
from rawpack.errors import UsageError
from rawpack_packer.destination import files
from rawpack_packer.destination.layout import APPEND, JOB, WORK
from rawpack_packer.destination.lock import LOCKS
from rawpack_packer.text import listed

_OURS = re.compile(r"shard-\d{5,}(\.[A-Za-z_][A-Za-z0-9_]{0,63})?\.(npy|h5|lmdb)")
_CLEARING = "clearing"
_BEFORE_JOB = {*LOCKS, f"{JOB}.tmp", f"{APPEND}.tmp"}


def check(destination: Path, sources: Iterable[str | Path] = ()) -> None:
    """Raise UsageError where a store may not be packed into `destination`. Nothing is written.

    A destination may be missing, an empty folder, or this very store, finished or not; it may not be, contain, or lie
    inside one of the sources.
    """
    for source in sources:
        check_apart(destination, source)
    if not os.path.lexists(destination):
        check_parent(destination)
        return
    if not destination.is_dir():
        raise UsageError(f"{destination} is a file; a store is a folder")
    if not os.access(destination, os.W_OK | os.X_OK):
        raise UsageError(f"{destination} is not writable")
    names = sorted(path.name for path in destination.iterdir())
    if SPLITS in names:
        raise UsageError(
            f"{destination} is a set of splits: give the same --splits or --holdout, name one of the splits, or "
            "another folder"
        )
    if manifests.NAME in names or is_begun(destination):
        names = [name for name in names if not is_ours(name)]
    elif names and WORK not in names and all(map(is_ours, names)):
        raise UsageError(
            f"{destination} holds what looks like a store without its {manifests.NAME}: put that back, or remove the "
            "folder, or name another"
        )
    if (destination / WORK).is_symlink():
        names.append(WORK)
    if names:
        shown = listed(names, 3)
        raise UsageError(f"{destination} holds other files ({shown}); name an empty or a new folder")


def check_apart(destination: Path, source: str | Path) -> None:
    """Raise UsageError where `destination` is, contains, or is inside the source."""
    where, from_ = Path(os.path.realpath(destination)), Path(os.path.realpath(source))
    if where == from_:
        raise UsageError(f"{destination} is the source itself; name another folder for the store")
    if where.is_relative_to(from_):
        raise UsageError(f"{destination} is inside the source {source}; put the store elsewhere")
    if from_.is_relative_to(where):
        raise UsageError(f"{destination} contains the source {source}; put the store elsewhere")


def is_finished(destination: Path) -> bool:
    return (destination / manifests.NAME).exists()


def is_begun(destination: Path) -> bool:
    """Whether a run that makes a store has worked there: its folder holds a job, or what is left of a store that was
    being cleared, or nothing at all but locks; and is no link."""
    work = destination / WORK
    if work.is_symlink() or not work.is_dir():
        return False
    if (work / JOB).exists() or (work / _CLEARING).exists():
        return True
    alone = [path.name for path in destination.iterdir()] == [WORK]
    return alone and {path.name for path in work.iterdir()} <= _BEFORE_JOB


def is_appending(destination: Path) -> bool:
    """Whether an append to the finished store was begun there, and not ended."""
    work = destination / WORK
    if not is_finished(destination) or work.is_symlink() or not work.is_dir():
        return False
    return (work / APPEND).exists() or {path.name for path in work.iterdir()} <= _BEFORE_JOB


def is_untidy(destination: Path) -> bool:
    """Whether a finished store still holds what packing needed: its run was killed between the manifest and its end."""
    work = destination / WORK
    return is_finished(destination) and work.is_dir() and not work.is_symlink() and not (work / APPEND).exists()


def own_bytes(destination: Path) -> int:
    """What a store in `destination`, whole or begun, takes: free again once it is cleared."""
    return sum(path.stat().st_size for path in destination.rglob("*") if path.is_file()) if destination.is_dir() else 0


def clear(destination: Path) -> None:
    """Remove the store in `destination`, whole or begun, and nothing else; the locks that the caller holds stay."""
    work = destination / WORK
    # Tells, until all is gone, that the folder is ours: a manifest does so no longer once it is removed, and it goes
    # first, for what is left is no store, at whatever point this ends.
    marker = work / _CLEARING
    marker.touch()
    files.sync_folder(work)
    (destination / manifests.NAME).unlink(missing_ok=True)
    # Then the job, while all that it speaks of is there.
    for path in sorted([*destination.iterdir(), *work.iterdir()], key=lambda path: path.name not in (JOB, APPEND)):
        if (path.parent == work or is_ours(path.name)) and path.name not in (WORK, *LOCKS, _CLEARING):
            _remove(path)
    files.sync_folder(destination)
    marker.unlink()


def clear_append(destination: Path, named: Iterable[str]) -> None:
    """Remove what an append left in the finished store in `destination`: all of ours that does not belong to it.

    named: the names below `destination` that do. The locks that the caller holds stay.
    """
    work, keep = destination / WORK, {*named, WORK, *LOCKS}
    # Last what says that there is an append: until then, a run that resumes sees what is missing, and does it again.
    for path in sorted([*destination.iterdir(), *work.iterdir()], key=lambda path: path == work / APPEND):
        if (path.parent == work or is_ours(path.name)) and path.name not in keep:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def is_ours(name: str) -> bool:
    """Whether packing gives this name to something in a store's folder."""
    return bool(_OURS.fullmatch(name)) or is_of_run(name) or name in (WORK, manifests.NAME)


def free_bytes(destination: Path) -> int:
    """Free space at the destination."""
    return shutil.disk_usage(_existing(destination)).free


def check_parent(destination: Path) -> None:
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
