#!/usr/bin/env python3
"""Name the test files that are nearest to folders or files of the product, for `scripts/test --for`.

They are the tests that mutations.toml names for them; those with the same name; and those that import some of them, and
more of their room than of any other. Those of tests/docs and tests/trainers take minutes, and are left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

from mutate import mutations
from rooms import ROOT, imports, modules, room_of

FAR = ("docs", "trainers")


@cache
def imported_by_tests() -> dict[str, list[str]]:
    """Each test file, from the checkout's root on -> the modules that it imports, one for each name."""
    tests = {str(path.relative_to(ROOT)): path for path in (ROOT / "tests").glob("*/test_*.py")}
    tests = {name: path for name, path in tests.items() if path.parent.name not in FAR}
    found: dict[str, list[str]] = {name: [] for name in tests}
    for one in imports(by=tests):
        found[one.source] += [one.target] if room_of(one.target) not in ("", "errors") else []
    return found


def tests_for(*paths: Path) -> list[str]:
    """The files, from the checkout's root on. Raises ValueError where a path has no module, or nothing tests it."""
    found, asked = set[str](), {path.resolve() for path in paths}
    chosen = {name for name, file in modules().items() if asked & {file, *file.parents}}
    for mutation in mutations().values():
        if asked & {ROOT / mutation.file, *(ROOT / mutation.file).parents}:
            found.update(test.partition("::")[0] for test in mutation.tests)
    for test, targets in imported_by_tests().items():
        counts, here = Counter(map(_room, targets)), {_room(target) for target in targets if target in chosen}
        mostly = any(counts[room] == max(counts.values()) for room in here)
        if mostly or Path(test).stem.removeprefix("test_") in {name.rpartition(".")[2] for name in chosen}:
            found.add(test)
    if not chosen or not found:
        what = "no test is near" if chosen else "no module of reader/ or packer/ is at"
        raise ValueError(f"{what} {', '.join(map(str, paths))}")
    return sorted(found)


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


if __name__ == "__main__":
    try:
        print("\n".join(tests_for(*map(Path, sys.argv[1:]))))
    except ValueError as error:
        sys.exit(str(error))
