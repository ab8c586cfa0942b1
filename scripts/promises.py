#!/usr/bin/env python3
"""List what the tests promise: the docstring of each test, by file, with the tests that keep it.

    .venv/bin/python scripts/promises.py                      all of them, as Markdown
    .venv/bin/python scripts/promises.py --since origin/main  promises that went since a commit, and those that came

Before a change of the tests lands, look at what went: each is kept by another test, or nobody would miss it.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
Promises = dict[str, dict[str, list[str]]]
"""File, from the checkout's root on -> promise -> the tests that keep it."""


def promises(sources: Iterable[tuple[str, str]]) -> Promises:
    """What files of tests promise: their names and texts."""
    found: Promises = defaultdict(lambda: defaultdict(list))
    for name, source in sorted(sources):
        for node in ast.walk(ast.parse(source, name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found[name][" ".join((ast.get_docstring(node) or "(says nothing)").split())].append(node.name)
    return found


def here() -> Iterator[tuple[str, str]]:
    """The files of this checkout, and their texts."""
    for path in (ROOT / "tests").glob("*/test_*.py"):
        yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def at(commit: str) -> Iterator[tuple[str, str]]:
    """The files of a commit, and their texts."""
    packed = subprocess.check_output(["git", "archive", commit, "tests"], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if Path(member.name).match("tests/*/test_*.py") and (file := archive.extractfile(member)) is not None:
                yield member.name, file.read().decode()


def gone(before: Promises, after: Promises) -> Promises:
    """The promises of `before` that no file makes `after`."""
    kept = {promise for by_promise in after.values() for promise in by_promise}
    rest = {file: {one: tests for one, tests in found.items() if one not in kept} for file, found in before.items()}
    return {file: found for file, found in rest.items() if found}


def _print(title: str, found: Promises) -> None:
    print(f"# {title}: {sum(map(len, found.values()))}\n")
    for file, by_promise in found.items():
        print(f"## {file}\n")
        for promise, tests in by_promise.items():
            print(f"- {promise} ({', '.join(f'`{test}`' for test in tests)})")
        print()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", metavar="COMMIT", help="compare with this commit")
    commit = parser.parse_args().since
    now = promises(here())
    if commit is None:
        _print("Promises", now)
    else:
        before = promises(at(commit))
        _print(f"Gone since {commit}", gone(before, now))
        _print("New", gone(now, before))
