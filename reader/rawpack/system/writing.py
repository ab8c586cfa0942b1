"""Makes, opens and renames files, so that nothing that others put into a folder is followed or overwritten. No other
module writes files.

A store may come from somebody else, belong to another user, or be in a folder that a group writes into: under a name
that packing will use, there can be a link to any file. So a file is made new, relative to a descriptor of its folder,
and no folder on the way is a link. The way begins at the folder that the user named, which may be reached through
links: the folder that holds the work folder, where the path is in one; else the file's own folder, or `below`.

A system without such calls (Windows) looks for links before each call.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from rawpack.errors import PackError

WORK = ".rawpack"
"""The folder in the destination that holds what packing needs until the manifest is written: the job, records of
finished parts, locks."""
_RELATIVE = hasattr(os, "O_DIRECTORY") and {os.open, os.mkdir, os.rename, os.stat, os.unlink} <= os.supports_dir_fd
# O_NONBLOCK: opening a pipe must not wait for its other end.
_PLAIN = 0
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _PLAIN |= getattr(os, _name, 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


class _Opened(NamedTuple):
    """A folder that is open: names in it are `prefix + name`, relative to `descriptor`."""

    descriptor: int | None
    prefix: str
    owner: int
    """The user to whom the folder at the beginning of the way belongs."""

    def lstat(self, name: str) -> os.stat_result:
        return os.stat(self.prefix + name, dir_fd=self.descriptor, follow_symlinks=False)


def create(
    path: Path, mode: str = "wb", buffering: int = -1, *, below: Path | None = None, private: bool = False
) -> IO[Any]:
    """Open a new, empty file. A regular file of this name is removed first. private: for this user alone.

    Raises PackError for anything else of this name, and for a link on the way to it.
    """
    with _opened(path.parent, below) as folder, _named(path):
        while True:
            try:
                descriptor = os.open(
                    folder.prefix + path.name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN, 0o600 if private else 0o666,
                    dir_fd=folder.descriptor,
                )  # fmt: skip
                break
            except FileExistsError:
                _remove_file(folder, path)
    return _as_file(path, descriptor, mode, buffering)


def reopen(path: Path, mode: str = "rb", *, below: Path | None = None, of_any_user: bool = False) -> IO[Any]:
    """Open a file that this run, or an earlier one, made: see `descriptor_of`. Only mode "ab" makes a missing one."""
    return _as_file(path, descriptor_of(path, _FLAGS[mode], below=below, of_any_user=of_any_user), mode, -1)


_FLAGS = {"rb": os.O_RDONLY, "r+b": os.O_RDWR, "ab": os.O_RDWR | os.O_APPEND | os.O_CREAT}


def descriptor_of(path: Path, flags: int, *, below: Path | None = None, of_any_user: bool = False) -> int:
    """The descriptor of a file that this run, or an earlier one, made.

    of_any_user: for folders that users share. Raises FileNotFoundError; PackError for anything but a regular file with
    one link that belongs to this user, or to the owner of the folder that the user named.
    """
    with _opened(path.parent, below) as folder, _named(path):
        try:
            descriptor = os.open(folder.prefix + path.name, flags | _PLAIN, 0o666, dir_fd=folder.descriptor)
        except FileNotFoundError:
            raise
        except OSError:
            with contextlib.suppress(OSError):
                _check_kind(folder.lstat(path.name), path)
            raise
        try:
            status = os.fstat(descriptor)
            _check_kind(status, path)
            if status.st_nlink > 1:
                raise _refused(path, "has a second name, a hard link")
            # Others can replace a file between two looks, but not what is open.
            accepted = of_any_user or status.st_uid in (_user(), folder.owner)
            if not accepted and status.st_uid != _user_on_disk(folder):
                raise _refused(path, f"belongs to another user ({status.st_uid})")
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def read(path: Path, most: int = sys.maxsize, *, below: Path | None = None, of_any_user: bool = False) -> bytes:
    """The bytes of a file that this run, or an earlier one, made: see `descriptor_of`. Raises PackError for more than
    `most`."""
    with reopen(path, below=below, of_any_user=of_any_user) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise _refused(path, f"has more than {most:,} bytes")
        return bytes(file.read())


def touch(path: Path) -> None:
    """Make an empty file, or leave one that is there as it is: see `descriptor_of`."""
    os.close(descriptor_of(path, os.O_RDWR | os.O_CREAT))


@contextmanager
def created_for(path: Path) -> Iterator[None]:
    """Make a new, empty file, which a library opens by its path in this block. Raises PackError where it opened another
    one."""
    with create(path) as file:
        yield
        check_same(path, file.fileno())


def check_same(path: Path, descriptor: int) -> None:
    """Raise PackError where an open file is not the one at this path, or a link leads to it."""
    with _opened(path.parent, None) as folder, _named(path):
        if not os.path.samestat(os.fstat(descriptor), folder.lstat(path.name)):
            raise _refused(path, "was replaced while it was opened")


def replace(temporary: Path, final: Path, *, below: Path | None = None) -> None:
    """Give a file or a folder its final name, on the same file system, in place of a file that has this name."""
    with _opened(temporary.parent, below) as old, _opened(final.parent, below) as new, _named(final):
        os.replace(
            old.prefix + temporary.name, new.prefix + final.name,
            src_dir_fd=old.descriptor, dst_dir_fd=new.descriptor,
        )  # fmt: skip


def make_folder(path: Path, *, below: Path | None = None, private: bool = False) -> None:
    """Make a folder, and those above it that are missing. private: for this user alone. Raises PackError where one is a
    link or no folder."""
    root, names = _way(path, below)
    root.mkdir(parents=True, exist_ok=True)
    for k, name in enumerate(names):
        with _opened(root.joinpath(*names[:k]), root) as folder, _named(root.joinpath(*names[: k + 1])):
            try:
                mode = 0o700 if private and k == len(names) - 1 else 0o777
                os.mkdir(folder.prefix + name, mode, dir_fd=folder.descriptor)
            except FileExistsError:
                _check_kind(folder.lstat(name), root.joinpath(*names[: k + 1]), stat.S_ISDIR)


def make_empty_folder(path: Path) -> None:
    """Make a folder, without what an earlier run left in it."""
    remove_folder(path)
    make_folder(path)


def remove(path: Path) -> None:
    """Remove a regular file, if it is there. Raises PackError for anything else."""
    with _opened(path.parent, None) as folder, _named(path):
        _remove_file(folder, path)


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, if it is there. Raises PackError for anything else."""
    import shutil  # which a reader does not need

    with contextlib.suppress(FileNotFoundError), _opened(path.parent, None) as folder, _named(path):
        _check_kind(folder.lstat(path.name), path, stat.S_ISDIR)
        shutil.rmtree(folder.prefix + path.name, dir_fd=folder.descriptor)


def check_output(path: Path) -> None:
    """Raise OSError where no file can be written at a path that the user named. Leaves what is there as it is."""
    existed = os.path.lexists(path)
    path.open("ab").close()
    if not existed:
        path.unlink()


def write_output(path: Path, data: bytes) -> None:
    """Write a file that the user named: a link there is followed, as `cp` and a shell do."""
    path.write_bytes(data)


# ---------------------------------------------------------------------------------------------- the way to a file


def _way(folder: Path, below: Path | None) -> tuple[Path, tuple[str, ...]]:
    """Where the way to a folder begins, and the names from there on, none of which may be a link."""
    parts = folder.parts
    at = len(parts) - 1 - parts[::-1].index(WORK) if WORK in parts else len(parts)
    above = Path(*parts[:at]) if at < len(parts) else folder
    if below is None or (above is not folder and below.is_relative_to(above)):
        return above, parts[at:]
    return below, folder.relative_to(below).parts


@contextmanager
def _opened(folder: Path, below: Path | None) -> Iterator[_Opened]:
    """A folder, open as long as this block. Raises PackError for a link on the way."""
    root, names = _way(folder, below)
    if not _RELATIVE:
        for k in range(len(names)):
            _check_kind(os.lstat(root.joinpath(*names[: k + 1])), root.joinpath(*names[: k + 1]), stat.S_ISDIR)
        yield _Opened(None, f"{folder}{os.sep}", root.stat().st_uid)
        return
    with _named(root):
        descriptor = os.open(root, _FOLDER)
    try:
        owner = os.fstat(descriptor).st_uid
        for k, name in enumerate(names):
            try:
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError:
                # The path is made only here: that takes longer than to open the folder.
                with _named(path := root.joinpath(*names[: k + 1])):
                    with contextlib.suppress(OSError):
                        _check_kind(os.stat(name, dir_fd=descriptor, follow_symlinks=False), path, stat.S_ISDIR)
                    raise
            descriptor, outer = inner, descriptor  # first, as Ctrl-C may come before `close` has returned
            os.close(outer)
        yield _Opened(descriptor, "", owner)
    finally:
        os.close(descriptor)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Have the system's errors in this block name the whole path."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _as_file(path: Path, descriptor: int, mode: str, buffering: int) -> IO[Any]:
    # By an opener, the file has the descriptor from the start: Ctrl-C cannot come where both close it.
    return open(path, mode, buffering, opener=lambda *_: descriptor)


def _remove_file(folder: _Opened, path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        _check_kind(folder.lstat(path.name), path)
        os.unlink(folder.prefix + path.name, dir_fd=folder.descriptor)


def _check_kind(status: os.stat_result, path: Path, wanted: Callable[[int], bool] = stat.S_ISREG) -> None:
    """Raise PackError unless there is a file, or a folder, at `path`."""
    mode = status.st_mode
    if not wanted(mode):
        kinds = {stat.S_ISLNK: "a symbolic link", stat.S_ISDIR: "a folder", stat.S_ISREG: "a file"}
        raise _refused(path, f"is {next((what for is_it, what in kinds.items() if is_it(mode)), 'a special file')}")


def _refused(path: Path, why: str) -> PackError:
    return PackError(f"{path} {why}, which rawpack did not make; nothing was written there: remove it, then try again")


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def _user_on_disk(folder: _Opened) -> int:
    """The owner that a file gets which this process makes in the folder, as a network disk may have other users; -1
    where it can make none."""
    name = f"{folder.prefix}user-{os.urandom(8).hex()}.tmp"
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN, 0o600, dir_fd=folder.descriptor)
    except OSError:
        return -1
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)
        os.unlink(name, dir_fd=folder.descriptor)
