"""Streams: what can only be iterated, once, and does not know its length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from layout import Layout, Samples
from pictures import picture


def _samples() -> Iterator[dict[str, Any]]:
    for n in range(9):
        yield {"image": picture(24, 32, n), "label": ("cat", "dog", "eel")[n % 3], "score": n / 4}


def _generator(root: Path) -> dict[str, Any]:
    return {"stream": _samples()}


def _of_generator(root: Path) -> Samples:
    return {f"{n:08}": one for n, one in enumerate(_samples())}


LAYOUTS = (Layout("a generator, or a stream without a length", _generator, _of_generator),)
