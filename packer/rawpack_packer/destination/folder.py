"""The folder of a store: where it is, the checks before packing into it, and what is already in it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import NAME, Manifest
from rawpack.disk.splits import NAME as SPLITS
from rawpack.disk.splits import read_splits, store_path
from rawpack.errors import RawpackError, UsageError
from rawpack.remote.url import is_url, local_path, refuse_url, shown
from rawpack.system import machine, writing
from rawpack_packer.destination import files
from rawpack_packer.destination.files import APPEND, JOB, SPOOL, TABLE, WORK
from rawpack_packer.destination.lock import LOCKS
from rawpack_packer.options import opt
from rawpack_packer.provenance import COLUMNS, PROVENANCE, REJECTS, STATES, is_of_run, of_run, packing_runs
from rawpack_packer.text import listed, near_path

_OURS = re.compile(r"shard-\d{5,}(\.[A-Za-z_][A-Za-z0-9_]{0,63})?\.(npy|h5|lmdb)")
THEN_COPY = "then copy it there, store.json last"
"""The end of a cure where a store was to be made or changed at a URL."""
_OF_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
_CLEARING = "clearing"
"""In WORK while a store is removed."""
_BEFORE_JOB = {*LOCKS, SPOOL, TABLE, f"{JOB}.tmp", f"{APPEND}.tmp"}
"""What can be in WORK before the job is noted."""


def check(destination: Path, sources: Iterable[str | Path] = ()) -> None:
    """Raise UsageError where a store may not be packed into `destination`. Writes nothing.

    A destination may be missing, an empty folder, or this very store, finished or not; it may not be, contain, or be
    inside one of the sources.
    """
    for source in sources:
        check_apart(destination, source)
    if not check_folder(destination):
        if destination.name.lower().endswith(_OF_ARCHIVES):
            raise UsageError(
                f"{destination} would be a folder, and has the name of an archive: name it without "
                f"{destination.suffix}; `rawpack export STORE FOLDER --to webdataset` writes tar files of a store"
            )
        return
    if read_splits(destination) is not None:
        raise UsageError(
            f"{destination} is a set of splits: give the same {opt.splits}, {opt.holdout} or {opt.split_by}, name one "
            "of the splits, or another folder"
        )
    names = {path.name for path in destination.iterdir()}
    has_store = manifests.NAME in names or is_begun(destination)
    check_names(destination, names, has_store and not (destination / WORK).is_symlink())


def check_names(place: object, names: set[str], has_store: bool) -> None:
    """Raise UsageError where these are names of more than a store, finished or begun."""
    if not has_store and names and all(is_ours(name) and name != WORK for name in names):
        raise UsageError(
            f"{place} contains what looks like a store without its {manifests.NAME}: put that back, or remove "
            "the folder, or name another"
        )
    if others := sorted(name for name in names if not (has_store and is_ours(name))):
        raise UsageError(
            f"{place} contains other files ({listed(others, 3)}): move them elsewhere, or name an empty or a new folder"
        )


def check_folder(path: Path) -> bool:
    """Whether there is a folder at `path`. Raises UsageError where none can be made or used."""
    if not os.path.lexists(path):
        parent = _existing(path)
        if not parent.is_dir():
            raise UsageError(f"{path} cannot be made: {parent} is a file")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise UsageError(f"{path} cannot be made: {parent} is not writable")
        return False
    if not path.is_dir():
        raise UsageError(f"{path} is a file; name a folder")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"{path} is not writable")
    return True


def make(destination: Path) -> None:
    """Make the folder of a store or an export, and the one in it that packing needs. Raises UsageError."""
    with names_synced(destination):
        try:
            writing.make_folder(destination / WORK)
        except OSError as error:
            raise UsageError(f"{destination} cannot be made: {error.strerror or error}") from None


@contextlib.contextmanager
def names_synced(path: Path) -> Iterator[None]:
    """After this block, which makes a folder, its name is on the disk, and the names of those that were made for it."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    yield
    for folder in missing:
        files.sync_folder(folder.parent)


def check_apart(destination: Path, source: str | Path) -> None:
    """Raise UsageError where `destination` is, contains, or is inside the source."""
    where, from_ = Path(os.path.realpath(destination)), Path(os.path.realpath(source))
    if where == from_:
        raise UsageError(f"{destination} is the source itself; name another folder for the store")
    if where.is_relative_to(from_):
        raise UsageError(f"{destination} is inside the source {source}; put the store elsewhere")
    if from_.is_relative_to(where):
        raise UsageError(f"{destination} contains the source {source}; put the store elsewhere")


def wrong_sizes(path: Path, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The files of a finished store that are missing, or have another size than was packed, and what is wrong with
    each. None is opened."""
    for name, record in manifest.records():
        try:
            size = os.stat(path / name).st_size  # noqa: PTH116 # there may be thousands
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            yield name, "is missing" if missing else f"cannot be looked at ({error.strerror})"
            continue
        if size != record.bytes:
            yield name, f"has {size:,} bytes; {record.bytes:,} were packed"


def is_finished(destination: Path) -> bool:
    return (destination / manifests.NAME).exists()


def is_begun(destination: Path) -> bool:
    """Whether a run has begun to make a store there: the work folder holds a job, or the mark of a store being removed,
    or only locks."""
    names = _names_of_work(destination)
    if names is None:
        return False
    if JOB in names or _CLEARING in names:
        return True
    return [path.name for path in destination.iterdir()] == [WORK] and names <= _BEFORE_JOB


def left_by(destination: Path) -> str | None:
    """Which command was stopped and left files beside a finished store, none of which belong to it; None where there
    are none. Only an append, or a pack that had finished the store, notes what it does."""
    names = _names_of_work(destination) if is_finished(destination) else None
    if names is None:
        return None
    return "append" if APPEND in names else "pack" if JOB in names else "relabel or append"


def has_only_spool(destination: Path) -> bool:
    """Whether there is a work folder, and all that it holds is the spool of a source, and its tables."""
    names = _names_of_work(destination)
    return names is not None and names <= {SPOOL, TABLE}


def remove_spool(folder: Path) -> None:
    """Remove what a source has in the spool of a destination."""
    shutil.rmtree(folder)
    with contextlib.suppress(OSError):  # not empty
        folder.parent.rmdir()
        folder.parent.parent.rmdir()


def _names_of_work(destination: Path) -> set[str] | None:
    """What is in the work folder; None where there is none, or a link."""
    work = destination / WORK
    return {path.name for path in work.iterdir()} if work.is_dir() and not work.is_symlink() else None


def own_bytes(destination: Path) -> int:
    """Bytes of a store in `destination`, complete or not, which removing it frees: without the spool of its source."""
    paths = (path for path in destination.rglob("*") if SPOOL not in path.relative_to(destination).parts)
    return sum(path.stat().st_size for path in paths if path.is_file()) if destination.is_dir() else 0


def clear(destination: Path) -> None:
    """Remove the store in `destination`, complete or not, and nothing else; locks that the caller holds stay."""
    work = destination / WORK
    # The manifest goes first, so that a kill never leaves a damaged store. From then on the mark shows that the folder
    # is ours.
    marker = work / _CLEARING
    writing.touch(marker)
    files.sync_folder(work)
    (destination / manifests.NAME).unlink(missing_ok=True)
    # Then the job, before anything that it refers to.
    _remove_ours(destination, {_CLEARING}, lambda path: path.name not in (JOB, APPEND))
    files.sync_folder(destination)
    marker.unlink()


def clear_append(destination: Path, named: Iterable[str]) -> None:
    """Remove what an append left in the finished store in `destination`; locks that the caller holds stay.

    named: the names below `destination` that belong to the store.
    """
    # The note of the append goes last: as long as it is there, a run that resumes does again what is missing.
    _remove_ours(destination, set(named), lambda path: path == destination / WORK / APPEND)


def _remove_ours(destination: Path, keep: set[str], order: Callable[[Path], bool]) -> None:
    """Remove all that packing has made in a destination but locks, the spool of the open source, and `keep`; where
    `order` is False first."""
    work, keep = destination / WORK, {*keep, WORK, SPOOL, *LOCKS}
    for path in sorted([*destination.iterdir(), *work.iterdir()], key=order):
        if path.name in keep or not (path.parent == work or is_ours(path.name)):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def names_of(manifest: Manifest) -> set[str]:
    """What is in a store's folder by its manifest, what earlier manifests named, and the provenance."""
    own = {of_run(name, run) for run in packing_runs(manifest) for name in (COLUMNS, REJECTS, PROVENANCE, STATES)}
    return {name.split("/")[0] for name, _ in manifest.records()} | own | {NAME}


def is_ours(name: str) -> bool:
    """Whether packing gives this name to something in a store's folder."""
    return bool(_OURS.fullmatch(name)) or is_of_run(name) or name in (WORK, manifests.NAME)


def free_bytes(destination: Path) -> int:
    """Free space at the destination; see `machine.free_bytes`."""
    return machine.free_bytes(_existing(destination))


def in_memory_words(destination: Path) -> str:
    """After a size that is free at a destination: that it is of memory, if so."""
    return " of memory, where its files are kept" if machine.is_in_memory(_existing(destination)) else ""


def takes_files(destination: Path) -> bool:
    """Whether the file system at the destination has any space, free or not: one of the kernel, as /proc, has none."""
    return shutil.disk_usage(_existing(destination)).total > 0


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def local_folder(path: str | os.PathLike[str], cure: str) -> Path:
    """The folder that a path or a file:// URL names. Raises UsageError, with the cure, for another URL or ""."""
    if not os.fspath(path):  # as of a variable of the shell that is not set
        raise UsageError("the destination is an empty text: name a folder, or . for the current one")
    if is_url(path):
        raise UsageError(f"{shown(str(path))} is a URL: {cure}")
    return local_path(path)


def store_folder(dst: str) -> Path:
    """The folder of one store. Raises UsageError where `dst` is not a folder."""
    refuse_url(dst)
    path = local_path(dst)
    if path.name == NAME and path.is_file():
        raise UsageError(f"{dst} is a store's manifest; name its folder: {path.parent}")
    if not path.exists():
        raise UsageError(f"{dst} does not exist{near_path(dst)}")
    if not path.is_dir():
        raise UsageError(f"{dst} is a file; a store is a folder")
    return path


def store_folders(dst: str) -> dict[str, Path]:
    """Name and folder of each split in a set of splits; for any other folder, "" and the folder itself.

    Raises as `store_folder`, and UnfinishedStoreError where a split is not packed yet.
    """
    path = store_folder(dst)
    splits = None if (path / NAME).exists() else read_splits(path)
    return {"": path} if splits is None else {name: store_path(path, name) for name in splits.splits}


def has_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a folder with a store, or with a set of splits that is not damaged."""
    folder = Path(path)
    if os.path.lexists(folder / NAME):
        return True
    with contextlib.suppress(RawpackError):
        return os.path.lexists(folder / SPLITS) and read_splits(folder) is not None
    return False


def one_store(dst: str, option: str) -> Path:
    """The folder of a store, for an option that applies to one. Raises UsageError for a set of splits."""
    stores = store_folders(dst)
    if "" not in stores:
        raise UsageError(
            f"{option} applies to one store, and {dst} has splits: name {' or '.join(map(str, stores.values()))}"
        )
    return stores[""]
