"""Whether messages speak to somebody at the command, or to a program that calls Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_in_python = ContextVar("_in_python", default=False)


@contextmanager
def speaking_python(yes: bool = True) -> Iterator[None]:
    """Messages of this thread speak of calls and keywords within this block; elsewhere, of commands and options."""
    token = _in_python.set(yes)
    try:
        yield
    finally:
        _in_python.reset(token)


def either(command: str, python: str) -> str:
    """The words for whoever reads the message."""
    return python if _in_python.get() else command


def again() -> str:
    """What a user repeats."""
    return either("the same command", "the same call")
