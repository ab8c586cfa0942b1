"""Errors that many rooms raise, in the same words: an extra that is not installed, a file that cannot be read."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from rawpack.errors import MissingExtraError


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
