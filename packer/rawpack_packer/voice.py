"""Whether messages speak to somebody at the command, or to a program in Python: light, as it is loaded first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_at_command = False


@contextmanager
def at_the_command() -> Iterator[None]:
    """The messages of this process speak of commands and their options within this block."""
    global _at_command
    before, _at_command = _at_command, True
    try:
        yield
    finally:
        _at_command = before


def either(command: str, python: str) -> str:
    """The words for whoever reads the message."""
    return command if _at_command else python


def again() -> str:
    """What a user repeats."""
    return either("the same command", "the same call")
