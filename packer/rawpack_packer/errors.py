"""Errors that many rooms raise, in the same words: an extra that is not installed, a file that cannot be read."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from rawpack.errors import DecodeError, MissingExtraError, PackError, UsageError
from rawpack_packer.text import again, plain

_OF_ANY_FILE = frozenset(
    getattr(errno, name)
    for name in (
        "EMFILE", "ENFILE", "ENOMEM", "ENODEV", "ENOTCONN", "ESTALE",
        "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT",
    )
    if hasattr(errno, name)
)  # fmt: skip


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
        cure = f"fix that and run {again()} again"
        raise PackError(f"{plain(where)} cannot be read now: {reason_of(error)}; {cure}") from error


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Raise UsageError, which names what is read, where the block cannot read it; PackError where the disk is gone.
    where: printable."""
    try:
        yield
    except DecodeError as error:
        raise UsageError(f"{where} cannot be read: {error.detail}") from None
    except OSError as error:
        if error.errno is None:
            raise  # not of the system, such as gzip.BadGzipFile
        stop_if_of_any_file(error, where)
        raise UsageError(f"{where} cannot be read: {reason_of(error)}") from None


def reason_of(error: OSError) -> str:
    """The error without its path, which differs between machines."""
    return f"[Errno {error.errno}] {error.strerror}"
