#!/usr/bin/env python3
"""Write the tree of modules into docs/explanation/architecture.md, a line each: the first of its docstring.

Rooms are listed in the order of the data's way, modules in a room by the alphabet.

    python scripts/make_tree_docs.py [--check]

With --check nothing is written; the exit code is 1 where the tree is stale.
"""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

from kept import of_each
from made import write
from rooms import FOLDERS, ROOT, modules, parsed, rooms_in

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- tree:begin: made by scripts/make_tree_docs.py -->", "<!-- tree:end -->"
_COLUMN = 26
_MAX = 150
_SHORT = 72


def summary(module: Path) -> str:
    """The first sentence of a module's docstring."""
    text = _docstrings()[module]
    first = " ".join(text.split("\n\n")[0].split())
    first = re.split(r"(?<=[a-z0-9`)])\. ", first)[0].rstrip(".")
    return first if len(first) <= _MAX else first[: _MAX - 3].rstrip() + "..."


@cache
def _docstrings() -> dict[Path, str]:
    return of_each(_docstring, modules().values())


def _docstring(source: str) -> str:
    return ast.get_docstring(parsed(source)) or ""


def package_lines(package: str) -> list[str]:
    """A package's rooms in their order, each with what is in it."""
    folder = FOLDERS[package]
    lines = [_line(f"{package}/", summary(folder / "__init__.py"))]
    for room in rooms_in(package):
        if (folder / room).is_dir():
            lines += lines_of(folder / room, 1)
        elif room:
            lines.append(_line(f"  {room}.py", summary(folder / f"{room}.py")))
    return lines


def lines_of(folder: Path, depth: int = 0) -> list[str]:
    """A package's modules, then its sub-packages, each with its own below it."""
    indent = "  " * depth
    lines = [_line(f"{indent}{folder.name}/", summary(folder / "__init__.py"))]
    for module in sorted(folder.glob("*.py")):
        if module.name != "__init__.py":
            lines.append(_line(f"{indent}  {module.name}", summary(module)))
    for inner in sorted(folder.iterdir()):
        if (inner / "__init__.py").exists():
            lines += lines_of(inner, depth + 1)
    return lines


def _line(name: str, what: str) -> str:
    return f"{name:<{_COLUMN}} {_shortened(what)}".rstrip()


def _shortened(what: str) -> str:
    """A summary that fits on a line: without what follows its last colon, semicolon or else comma, if it is longer."""
    if len(what) > _SHORT:
        for marks in (": ", "; "), (", ",):
            if (end := max(what.rfind(mark, 0, _SHORT) for mark in marks)) >= 20:
                return what[:end]
    return what


def tree() -> str:
    """Both packages as a block of Markdown."""
    return "\n".join(
        f"### `{folder.relative_to(ROOT).as_posix()}/`\n\n```text\n" + "\n".join(package_lines(package)) + "\n```\n"
        for package, folder in FOLDERS.items()
    )


def renewed(page: str) -> str:
    """The page with the tree as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{PAGE} has no place for the tree: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{tree()}\n{END}{after}"


if __name__ == "__main__":
    write(PAGE, lambda: renewed(PAGE.read_text("utf-8")), __doc__)
