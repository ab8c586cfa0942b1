"""What a layout of the page "I have ..." is to the tests: how it is made, and what other code reads of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Samples = Mapping[str, Mapping[str, Any]]
"""Key -> field -> value: arrays of images and numbers, the names of classes for fields that have classes, texts."""


@dataclass(frozen=True)
class Layout:
    """One line of the page's tables."""

    have: str
    """Its first cell: the page has the command."""
    make: Callable[[Path], Mapping[str, Any] | None]
    """Lays the data in the empty folder in which the command then runs. For a line of Python, it returns the names that
    the line uses."""
    samples: Callable[[Path], Samples]
    """What is to be read, found in that folder by code that is not rawpack's."""
    needs: tuple[str, ...] = ()
    """Modules without which the layout is skipped."""
    tolerance: float = 0
    """By how much a pixel may differ, where images are stored as JPEG by their maker."""
