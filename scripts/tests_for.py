#!/usr/bin/env python3
"""Name the test files that are nearest to folders or files of the product, for `scripts/test --for`.

They are those that mutations.toml names for them; those that are called as they are, or as a folder that they are in;
and of all others, those that import more names of their room than of any other. Where a file has none of its own, it is
those of its folder, too. The tests of tests/docs and tests/trainers take minutes, and are left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

from mutate import mutations
from rooms import FOLDERS, ROOT, imports_of, modules, room_of

PACKAGES = {"reader": "rawpack.", "packer": "rawpack_packer."}
"""Tests of these folders are called as what one package has."""


@cache
def homes() -> dict[str, set[str]]:
    """Each test file, from the checkout's root on -> the modules that it is of."""
    tests = {str(path.relative_to(ROOT)): path for path in (ROOT / "tests").glob("*/test_*.py")}
    tests = {name: path for name, path in tests.items() if path.parent.name not in ("docs", "trainers")}
    imported: dict[str, list[str]] = {name: [] for name in tests}
    for one in imports_of(tests, modules()):
        imported[one.source] += [one.target] if room_of(one.target) not in ("", "errors") else []
    found = dict[str, set[str]]()
    for name, path in tests.items():
        stem, package = path.stem.removeprefix("test_"), PACKAGES.get(path.parent.name, "")
        called = {one for one in modules() if one.startswith(package) and f".{stem}." in f"{one}."}
        called |= {one for one in modules() if one.startswith(package) and stem.startswith(f"{room_of(one) or '/'}_")}
        counts = Counter(map(_room, imported[name]))
        found[name] = called or {one for one in imported[name] if counts[_room(one)] == max(counts.values())}
    return found


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def nearest(*paths: Path) -> list[str]:
    """The files, from the checkout's root on. Raises ValueError where a path has no module, or nothing tests it."""
    return sorted(set[str]().union(*map(_nearest, (path.resolve() for path in paths))))


def _nearest(path: Path) -> set[str]:
    chosen = {name for name, file in modules().items() if path in (file, *file.parents)}
    of_room = {name for name in modules() if _room(name) in map(_room, chosen)}
    tests = {name: targets for name, targets in homes().items() if targets & chosen}
    for one in mutations().values():
        file = ROOT / one.file
        if path in (file, *file.parents):
            tests |= {test.partition("::")[0]: set[str]() for test in one.tests}
    above = path.parent if path.is_file() else path
    # A new file, which only the tests of its whole room are near to yet: its neighbors' tests often ask about it, too.
    is_new = above.parent not in FOLDERS.values() and all(targets == of_room for targets in tests.values())
    if chosen and (is_new or not tests) and above != path and above not in FOLDERS.values():
        return {*tests, *_nearest(above)}
    if not tests:
        raise ValueError(f"no module of reader/ or packer/ is at {path}, or nothing tests it")
    return {*tests}


if __name__ == "__main__":
    try:
        print("\n".join(nearest(*map(Path, sys.argv[1:]))))
    except ValueError as error:
        sys.exit(str(error))
