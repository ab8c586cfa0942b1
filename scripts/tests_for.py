#!/usr/bin/env python3
"""Name the test files that are nearest to folders or files of the product, for `scripts/test --for`.

They are those that mutations.toml names for them; those that are called as they are; and of all others, those that
import more names of their room than of any other. Where a file has none, it is those of its folder. The tests of
tests/docs and tests/trainers take minutes, and are left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

from mutate import mutations
from rooms import FOLDERS, ROOT, imports, modules, room_of

FAR = ("docs", "trainers")
OF = {"reader": "rawpack", "packer": "rawpack_packer"}
"""Tests of these folders are called as what one package has."""


@cache
def homes() -> dict[str, set[str]]:
    """Each test file, from the checkout's root on -> the modules that it is of."""
    tests = {str(path.relative_to(ROOT)): path for path in (ROOT / "tests").glob("*/test_*.py")}
    tests = {name: path for name, path in tests.items() if path.parent.name not in FAR}
    found = {name: set(_called(path)) for name, path in tests.items()}
    names: dict[str, list[str]] = {name: [] for name in tests}
    for one in imports(by=tests):
        names[one.source] += [one.target] if room_of(one.target) not in ("", "errors") else []
    for name, targets in names.items():
        counts = Counter(map(_room, targets))
        found[name] = found[name] or {one for one in targets if counts[_room(one)] == max(counts.values())}
    return found


def _called(test: Path) -> list[str]:
    """The modules whose name a test file has; or else the room whose name it begins with."""
    stem, package = test.stem.removeprefix("test_"), OF.get(test.parent.name, "")
    called = {name: name.rpartition(".")[2] for name in modules() if room_of(name)}
    called = {name: last for name, last in called.items() if name.startswith(f"{package}.") or not package}
    return [name for name, last in called.items() if last == stem] or [
        name for name, last in called.items() if name == _room(name) and stem.startswith(f"{last}_")
    ]


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def nearest(*paths: Path) -> list[str]:
    """The files, from the checkout's root on. Raises ValueError where a path has no module, or nothing tests it."""
    asked = {path.resolve() for path in paths}
    chosen = {name for name, file in modules().items() if asked & {file, *file.parents}}
    if not chosen:
        raise ValueError(f"no module of reader/ or packer/ is at {', '.join(map(str, paths))}")
    found = {name for name, targets in homes().items() if targets & chosen}
    for one in mutations().values():
        found.update(one.tests if asked & {ROOT / one.file, *(ROOT / one.file).parents} else ())
    above = {path.parent if path.is_file() else path for path in asked}
    if not found and above - asked and not above & set(FOLDERS.values()):
        return nearest(*above)
    if not found:
        raise ValueError(f"no test is near {', '.join(map(str, paths))}")
    return sorted({test.partition("::")[0] for test in found})


if __name__ == "__main__":
    try:
        print("\n".join(nearest(*map(Path, sys.argv[1:]))))
    except ValueError as error:
        sys.exit(str(error))
