"""Errors that many rooms raise, in the same words: an extra that is not installed, a file that cannot be read; and
which errors are no fault of what was read."""

from __future__ import annotations

import errno
import math
import mmap
import re
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TypeVar

from rawpack.errors import DecodeError, MissingExtraError, PackError, UsageError
from rawpack_packer.text import again, plain, size

T = TypeVar("T")
_OF_ANY_FILE = frozenset(
    getattr(errno, name)
    for name in (
        "EMFILE", "ENFILE", "ENOMEM", "ENODEV", "ENOTCONN", "ESTALE",
        "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT",
    )
    if hasattr(errno, name)
)  # fmt: skip
_WANTED = re.compile(r"of size (\d+)")
"""In the words of pyarrow: "malloc of size 1099511627776 failed"."""
_LITTLE_MEMORY = 256 << 20
_KILLED = frozenset(-getattr(signal, name) for name in ("SIGKILL", "SIGTERM") if hasattr(signal, name))
_OF_BROKEN_FILES = (errno.EINVAL, errno.EOVERFLOW, errno.EFBIG)
"""What the system says of offsets that no file has."""
_ERRNO_OF_HDF5 = re.compile(r"\berrno = (\d+)")
_OF_CODE = (TypeError, AttributeError, NameError, AssertionError, LookupError, ZeroDivisionError)
_CALLED_WRONGLY = re.compile(r"keyword argument|positional argument|takes .*\barguments?\b")
_OURS = ("rawpack", "rawpack_packer")


def need(module: str, extra: str, what: str, instead: str = "") -> ModuleType:
    """Import a package that comes with an extra of rawpack. what: needs it, printable. instead: what else helps.

    Raises MissingExtraError where it cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        why = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        cure = f"pip install 'rawpack[{extra}]'" + (f", or {instead}" if instead else "")
        raise MissingExtraError(f"{what} needs {module}{why}: {cure}") from None


def stop_if_of_any_file(error: OSError, where: str | bytes) -> None:
    """Raise PackError for an error that every other file would meet: a dead mount, no descriptors left."""
    if error.errno in _OF_ANY_FILE:
        raise unreadable_now(error, where) from error


def unreadable_now(error: OSError, where: str | bytes) -> PackError:
    """The error for what the machine does not let us read, whatever is in it."""
    return PackError(f"{plain(where)} cannot be read now: {reason_of(error)}; fix that and run {again()} again")


def is_of_system(error: BaseException) -> bool:
    """Whether a library could not read a file because the system did not let it, rather than for what is in it."""
    return errno_of(error) not in (None, *_OF_BROKEN_FILES)


def errno_of(error: BaseException) -> int | None:
    """The number of the system's error that a library met, as far as the library reports it."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    words = _ERRNO_OF_HDF5.search(str(error))
    return int(words[1]) if words else None


def twice(read: Callable[[], T]) -> T:
    """What `read` returns, which is called again where the system refuses it: a fault of a disk or a network that
    passes must not cost a sample. Raises OSError."""
    try:
        return read()
    except OSError:
        return read()


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Raise UsageError, which names what is read, where the block cannot read it; PackError where the disk is gone.
    where: printable."""
    try:
        yield
    except DecodeError as error:
        raise UsageError(f"{where} cannot be read: {error.detail}") from error
    except OSError as error:
        if error.errno is None:
            raise  # not of the system, such as gzip.BadGzipFile
        stop_if_of_any_file(error, where)
        raise UsageError(f"{where} cannot be read: {reason_of(error)}") from error


def stand_in(head: bytes) -> str:
    """What a file is that only stands for the one that was meant, and the cure; "" for any other. head: its first
    bytes."""
    start = head[:256].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS, not the file itself: `git lfs pull` in its repository fetches that"
    if start.startswith((b"<!doctype html", b"<html")):
        return "a page of HTML, not the file itself: download that again"
    return ""


def reason_of(error: OSError) -> str:
    """The error without its path, which differs between machines."""
    return f"[Errno {error.errno}] {error.strerror}"


def is_killed(status: int | None) -> bool:
    """Whether a process that ended with this exit status was killed from outside: by the system, which was short of
    memory, by a user or by a batch system. That says nothing about what the process read."""
    return status in _KILLED


def death_of(status: int | None) -> str:
    """How a process ended: "SIGSEGV", "exit code 1"."""
    if status is None or status >= 0:
        return f"exit code {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def killed(what: str, status: int | None, cure: str = "") -> PackError:
    """The error of a run whose process was killed from outside, see `is_killed`, the second time at the same place.
    what: the process, printable. cure: what needs less memory."""
    return PackError(
        f"{what} died twice, now by {death_of(status)}: this machine may be short of memory, or somebody ended it. "
        f"Free some memory{f', or {cure}' if cure else ''}, and run {again()} again"
    )


def check_memory(purpose: str) -> None:
    """Raise MemoryError where this process can get hardly any more memory: libraries take that for a damaged file, and
    some damaged files for that. purpose: "to open a file"."""
    try:
        mmap.mmap(-1, _LITTLE_MEMORY).close()
    except (OSError, ValueError):
        raise MemoryError(f"no memory {purpose}") from None


def hopeless(error: MemoryError) -> str:
    """Why more free memory cannot help, in words: more was requested at once than this machine has, as damaged files
    cause. Empty where it may help."""
    from rawpack.system.machine import memory_limit_bytes

    words, shape, dtype = _WANTED.search(str(error)), getattr(error, "shape", None), getattr(error, "dtype", None)
    wanted = int(words[1]) if words else 0
    if shape is not None and dtype is not None:  # numpy's
        wanted = math.prod(shape) * dtype.itemsize
    most = memory_limit_bytes()
    if most is None or wanted <= most:
        return ""
    return (
        f"{size(wanted)} of memory were requested at once, and this machine has {size(most)}: is a file of the source "
        "damaged?"
    )


def is_no_fault_of_data(error: BaseException) -> bool:
    """Whether an exception that came up while untrusted bytes, or samples of a user's, were read is not due to them.

    Libraries raise nearly every kind of exception for broken files. What is left: what stops a job, such as a file that
    cannot be fetched or was changed; a missing library, too little memory, a function that was called as this version
    of its library does not allow, and what our own code is wrong about.
    """
    if isinstance(error, PackError | ImportError):
        return True
    if isinstance(error, MemoryError):
        return not hopeless(error)
    if not isinstance(error, _OF_CODE):
        return False
    if isinstance(error, TypeError) and _CALLED_WRONGLY.search(str(error)):
        return True
    # The last frame is that of the library, if it raised.
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(names) and names[-1].partition(".")[0] in _OURS
