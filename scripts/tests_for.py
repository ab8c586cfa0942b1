#!/usr/bin/env python3
"""Name the test files that are nearest to folders or files of the product, for `scripts/test --for`.

They are those that mutations.toml names for them; those that are called as they are, or as a folder that they are in;
and of all others, those that import more names of their room than of any other. Where a file has none, it is those of
its folder. The tests of tests/docs and tests/trainers take minutes, and are left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

from mutate import mutations
from rooms import FOLDERS, ROOT, imports, modules, room_of

PACKAGES = {"reader": "rawpack.", "packer": "rawpack_packer."}
"""Tests of these folders are called as what one package has."""


@cache
def homes() -> dict[str, set[str]]:
    """Each test file, from the checkout's root on -> the modules that it is of."""
    tests = {str(path.relative_to(ROOT)): path for path in (ROOT / "tests").glob("*/test_*.py")}
    tests = {name: path for name, path in tests.items() if path.parent.name not in ("docs", "trainers")}
    imported: dict[str, list[str]] = {name: [] for name in tests}
    for one in imports(by=tests):
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
    asked = {path.resolve() for path in paths}
    chosen = {name for name, file in modules().items() if asked & {file, *file.parents}}
    found = {name for name, targets in homes().items() if targets & chosen}
    for one in mutations().values():
        found.update(one.tests if asked & {ROOT / one.file, *(ROOT / one.file).parents} else ())
    above = {path.parent if path.is_file() else path for path in asked}
    if chosen and not found and above != asked and not above & set(FOLDERS.values()):
        return nearest(*above)
    if not found:
        raise ValueError(f"no module of reader/ or packer/ is at {', '.join(map(str, paths))}, or nothing tests it")
    return sorted({test.partition("::")[0] for test in found})


if __name__ == "__main__":
    try:
        print("\n".join(nearest(*map(Path, sys.argv[1:]))))
    except ValueError as error:
        sys.exit(str(error))
