"""The layouts of the page "I have ...", as they are opened without options, and with those that the page gives."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from cases import Case
from layout import LAYOUTS

_PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/i-have.md"
_KEYWORDS = {"path": "path_column", "field": "fields"}


def lines() -> dict[str, str]:
    """What one has -> the command or line of Python that packs it, from the tables of the page."""
    found: dict[str, str] = {}
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("| "))]
        if line.startswith("|") and len(cells) > 1 and (command := re.fullmatch(r"`(.+)`", cells[1])):
            assert cells[0] not in found, f"{cells[0]} stands twice on the page"
            found[cells[0]] = command[1].replace("\\|", "|")
    return found


def _cases() -> Iterator[Case]:
    commands = lines()
    for layout in LAYOUTS:
        have, make, needs = layout.have, layout.make, layout.needs
        if not commands[have].startswith("rawpack pack "):
            yield Case(have, None, lambda root, lay=layout.lay: next(iter(lay(root).values())), needs=needs)
            continue
        *words, path, _ = shlex.split(commands[have])[2:]
        yield Case(have, path, make, needs=needs)
        said = {name[2:].replace("-", "_"): value for name, value in zip(words[::2], words[1::2], strict=True)}
        splits, _ = said.pop("splits", ""), said.pop("fit", "")
        options = {_KEYWORDS.get(name, name): (value,) if name == "field" else value for name, value in said.items()}
        if splits:
            yield Case(f"{have}: one split", f"{path.rstrip('/')}/{splits.partition(',')[0]}", make, options, needs)
        elif options:
            yield Case(f"{have}: with its options", path, make, options, needs)


CASES = {"pages": (*_cases(),)}
