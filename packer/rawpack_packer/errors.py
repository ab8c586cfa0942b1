"""Errors that many rooms raise, in the same words: an extra that is not installed, a file that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from rawpack.errors import MissingExtraError, UsageError
from rawpack_packer.text import plain


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


@contextmanager
def reading(path: str | bytes | os.PathLike[str]) -> Iterator[None]:
    """Raise UsageError, which names the file, where the block cannot read it or it is not UTF-8."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{plain(os.fsencode(path))} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        where = plain(os.fsencode(path))
        raise UsageError(f"{where} cannot be read: byte {error.start} is not UTF-8") from None
