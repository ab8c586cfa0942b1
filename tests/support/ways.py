"""Which way of training a test is about, and what happens there after a kill: `scripts/make_ways.py` makes the table of
docs/how-to/which-line.md from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])


def way(framework: str, how: str, after_a_kill: str) -> Callable[[Test], Test]:
    """Mark a test that shows what happens. Arguments are plain text, Markdown in it."""
    assert framework
    assert how
    assert after_a_kill
    return lambda test: test
