"""Files of a source, which are read only if they have not changed since packing began."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack_packer.errors import (
    errno_of,
    is_no_fault_of_data,
    is_of_system,
    reason_of,
    stand_in,
    stop_if_of_any_file,
    twice,
)
from rawpack_packer.options import opt
from rawpack_packer.provenance import UNKNOWN as UNKNOWN
from rawpack_packer.text import again, near_path, plain

LocalPath = Annotated[str, "a path on this machine"]
"""Absolute: see `table/saved.py`."""
MAX_PROBLEMS = 100
"""Of a source, that a message names."""
MAX_FILE_BYTES = 2**31 - 1
"""No decoder takes more in one buffer."""
_PIECE = 1 << 20
UNREADABLE = "unreadable"
"""The reason of a reject that a disk, a network or a permission may be to blame for, rather than the file."""
NOT_SCANNED = -2
"""Stands for the size of what could not be looked into; the number of the error stands for its mtime."""

OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""O_NONBLOCK: opening must not hang on a pipe that took a file's place."""


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file that other code opens by its path, as it was when the source was opened."""

    path: LocalPath
    state: tuple[int, int]
    """Size in bytes and mtime in ns."""

    @property
    def name(self) -> str:
        """For messages, which name no absolute path."""
        return plain(os.path.basename(self.path))  # noqa: PTH119

    def check(self) -> None:
        """Raise SourceChangedError where the file is no longer the one that was scanned."""
        check_path(self.path, self.state, self.name)


class UnreadableError(PackError):
    """Folders or files of the source could not be looked into, and `skip_unreadable` was not given."""

    def __init__(self, root: str, count: int, problems: Iterable[str]) -> None:
        """root: of the source, printable. problems: a printable line each, for all or the first."""
        what = "1 folder or file" if count == 1 else f"{count:,} folders or files"
        lines = "\n".join(f"  {line}" for line in problems)
        super().__init__(
            f"{what} of {root} could not be read, and nothing was written:\n{lines}\nMake all of it readable, or take "
            f"it out of the source, and run {again()} again; {opt.skip_unreadable} packs the rest (in Python: "
            "skip_unreadable=True)"
        )


def problems_shown(problems: Sequence[str], total: int = 0) -> tuple[str, ...]:
    """A line each, up to `MAX_PROBLEMS`. total: how many there are, if more than these."""
    more = max(total, len(problems)) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], *([f"... and {more:,} more"] if more > 0 else []))


def missing(path: str) -> UsageError:
    """The error for a source that does not exist."""
    from rawpack_packer.sources.advice import cifar_error
    from rawpack_packer.sources.folder import EXTENSIONS

    where = plain(os.fsencode(os.path.abspath(path)))  # noqa: PTH100 - keeps what pathlib would not
    folder = Path(*takewhile(lambda part: not {*part} & {*"*?["}, Path(where).parts))
    if os.path.splitext(path)[1].lower() in EXTENSIONS and str(folder) != where and folder.is_dir():  # noqa: PTH122
        return UsageError(f"{where} is a pattern of image files: name their folder instead, {folder}")
    near = near_path(path) or ": check the path of the source"
    return cifar_error(Path(where)) or UsageError(f"there is no file or folder {where}{near}")


class SourceChangedError(PackError):
    """A file of the source is no longer the one that was found when packing began.

    Packing stops and rejects nothing: a store must be what an undisturbed run makes of one source.
    """


def text_of(path: bytes) -> str:
    """A path as text: UTF-8 whatever the locale is, other bytes as \\xff."""
    return path.decode("utf-8", "backslashreplace")


def bad_name(path: bytes) -> DecodeError | None:
    """Why a file is rejected for its path alone; None where it is not."""
    try:
        path.decode("utf-8")
    except UnicodeDecodeError as error:
        return DecodeError("bad_name", f"byte {error.start} of the path is not UTF-8: rename the file")
    return None


def not_scanned(scanned: tuple[int, int]) -> DecodeError | None:
    """Why what was found in this state is rejected without being read; None where it is not."""
    if scanned[0] != NOT_SCANNED:
        return None
    return DecodeError("not_scanned", reason_of(OSError(scanned[1], os.strerror(scanned[1]))))


def read_file(path: str, key: str, scanned: tuple[int, int]) -> bytes:
    """All bytes of the file at `path`, whose size in bytes and mtime in ns were `scanned` when it was found.

    Both are compared before and after reading, so the bytes are those of the file that was found. Raises as
    `Samples.__getitem__` does; `key` names the file in messages.
    """
    if (unread := not_scanned(scanned)) is not None:
        raise unread

    def read(fd: int) -> bytes:
        if scanned[0] > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"the file has {scanned[0]} bytes: no decoder takes 2 GiB or more")
        data = os.read(fd, scanned[0] + 1)
        # A read may return less than there is, and some file systems report no sizes.
        while len(data) != scanned[0] and (more := os.read(fd, _PIECE)):
            data += more
        return data

    return read_unchanged(path, key, scanned, read)


def read_unchanged(path: str, key: str, scanned: tuple[int, int], read: Callable[[int], bytes]) -> bytes:
    """What `read` reads from a descriptor of the file at `path`; otherwise like `read_file`."""

    def attempt() -> bytes:
        with opened(path) as fd:
            check_unchanged(fd, scanned, key)
            data = read(fd)
            check_unchanged(fd, scanned, key)
        return data

    try:
        data = twice(attempt)
    except OSError as error:
        stop_if_of_any_file(error, key)
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and scanned != UNKNOWN:
            raise changed(key, "it is gone") from error
        raise DecodeError(UNREADABLE, reason_of(error)) from error
    if not data:
        raise DecodeError("empty", "the file has no bytes")
    return data


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A descriptor of the file at `path`. Never waits for the other end of a pipe."""
    fd = os.open(path, OPEN_FLAGS)
    try:
        yield fd
    finally:
        os.close(fd)


def check_path(path: str, scanned: tuple[int, int], key: str) -> None:
    """As `check_unchanged`, of a file that other code opens by its path."""
    try:
        check_unchanged(path, scanned, key)
    except OSError as error:
        stop_if_of_any_file(error, key)
        raise changed(key, "it is gone") from error


def check_unchanged(file: int | str, scanned: tuple[int, int], key: str) -> None:
    """Raise SourceChangedError where a file, open or at a path, is not the one whose size and mtime were `scanned`."""
    found = os.fstat(file) if isinstance(file, int) else os.stat(file)  # noqa: PTH116 - called for each sample
    if not stat.S_ISREG(found.st_mode):
        raise changed(key, "it is no longer a file")
    if scanned == UNKNOWN:
        raise changed(key, "it could not be read then, and now it can")
    if found.st_size != scanned[0]:
        raise changed(key, f"it had {scanned[0]} bytes and has {found.st_size}")
    if found.st_mtime_ns != scanned[1]:
        raise changed(key, "it was written to")


def is_below(path: str) -> bool:
    """Whether an untrusted path stays in its folder."""
    parts = path.replace("\\", "/").split("/")
    return bool(parts[0]) and "\0" not in path and ".." not in parts and ":" not in parts[0]


def changed(key: str, what: str) -> SourceChangedError:
    """The error for a file that is not what it was when it was found."""
    cure = f"leave the source alone and run {again()} again"
    return SourceChangedError(f"{plain(key)} changed since packing began: {what}; {cure}")


class _NotingReads:
    """A file that notes the error of a read that fails."""

    error: OSError | None = None

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._file.read(size)
        except OSError as error:
            self.error = error
            raise


@contextmanager
def noting_reads(file: BinaryIO) -> Iterator[BinaryIO]:
    """A file for `zipfile` and `tarfile`, which take a read that fails for a damaged archive: whatever the block raises
    or returns then, the error of that read is raised."""
    noted = _NotingReads(file)
    try:
        yield cast("BinaryIO", noted)
    except Exception:
        if noted.error is None:
            raise
    if noted.error is not None:
        raise noted.error


@contextmanager
def parsing(where: str, path: str, kind: str) -> Iterator[None]:
    """Raise UsageError for whatever a library raises in this block, of many types, where a file that others wrote is
    damaged. where: the file, printable. kind: of the file."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if is_no_fault_of_data(error):
            raise
        if isinstance(error, OSError):
            stop_if_of_any_file(error, where)
            if error.errno is not None and error.strerror:
                raise UsageError(f"{where} cannot be read: {reason_of(error)}") from error
        if is_of_system(error):
            number = errno_of(error) or 0
            raise UsageError(f"{where} cannot be read: {reason_of(OSError(number, os.strerror(number)))}") from error
        head = b""
        with suppress(OSError, ValueError), open(path, "rb") as file:
            head = file.read(256)
        if instead := stand_in(head):
            raise UsageError(f"{where} is {instead}") from error
        raise UsageError(f"{where} cannot be read as {kind}: {fault_of(error, path)}") from error


def fault_of(error: BaseException, path: str) -> str:
    """What a library says of broken bytes, in one printable line that does not name the folder."""
    said = str(error.args[0] if len(error.args) == 1 else error)
    lines = said.replace(path, os.path.basename(path)).splitlines()  # noqa: PTH119
    return plain(f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__)
