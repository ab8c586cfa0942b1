"""The layouts of the page "I have ...", as they are opened without options, and with those that the page gives."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cases import Case
from layout import Layout
from test_layouts import LAYOUTS, lines

_KEYWORDS = {"path": "path_column", "field": "fields", "fields": "fields"}
_OF_RECIPES = ("--size", "--fit")


def _make(layout: Layout, folder: Path) -> None:
    layout.make(folder)


def _objects(layout: Layout, folder: Path) -> Any:
    (value,) = (layout.make(folder) or {}).values()
    return value


def _cases() -> list[Case]:
    cases, commands = list[Case](), lines()
    for layout in LAYOUTS:
        words = shlex.split(commands[layout.have]) if commands[layout.have].startswith("rawpack pack ") else None
        if words is None:
            cases.append(Case(layout.have, None, partial(_objects, layout), needs=layout.needs))
            continue
        path, options = words[-2], _options(words[2:-2])
        make: Callable[[Path], None] = partial(_make, layout)
        cases.append(Case(layout.have, path, make, needs=layout.needs))
        if splits := options.pop("splits", ""):
            path = f"{path.rstrip('/')}/{splits.partition(',')[0]}"
            cases.append(Case(f"{layout.have}: one split", path, make, options, needs=layout.needs))
        elif options:
            cases.append(Case(f"{layout.have}: with its options", path, make, options, needs=layout.needs))
    return cases


def _options(words: list[str]) -> dict[str, Any]:
    pairs: Mapping[str, str] = dict(zip(words[::2], words[1::2], strict=True))
    plain = {
        name.removeprefix("--").replace("-", "_"): value for name, value in pairs.items() if name not in _OF_RECIPES
    }
    named = {_KEYWORDS.get(name, name): value for name, value in plain.items()}
    return {name: (value,) if name == "fields" else value for name, value in named.items()}


CASES = {"pages": _cases()}
