#!/usr/bin/env python3
"""Break the code in one place at a time, and see whether the nearest tests notice.

    .venv/bin/python scripts/mutate.py                     every mutation of mutations.toml: half an hour
    .venv/bin/python scripts/mutate.py --only resume tar   those whose names contain one of these
    .venv/bin/python scripts/mutate.py --list

Each mutation is made in a copy of the checkout, and its tests import rawpack from there, in child processes too. A test
that fails catches it, if the same test passes without it. Exit code 1 if one survives, or its tests say nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", ".demo", "build", "dist")
TEST_S, LIMIT_S = 120, 900
"""Seconds for one test, and for all tests of a mutation: some faults make a wait endless."""


class Mutation(msgspec.Struct, forbid_unknown_fields=True):
    """An edit of one place, and the test files, or tests, that should notice it."""

    file: str
    before: str
    after: str
    tests: list[str]

    def mutated(self, root: Path) -> str:
        """The text of the file with the fault. Raises ValueError unless `before` is in it exactly once."""
        text = (root / self.file).read_text("utf-8")
        if (found := text.count(self.before)) != 1:
            raise ValueError(f"{self.file} has {found} times, not once: {self.before!r}")
        return text.replace(self.before, self.after)


def mutations() -> dict[str, Mutation]:
    """All of them, by name."""
    data = tomllib.loads(Path(__file__).with_name("mutations.toml").read_text("utf-8"))
    return msgspec.convert(data, dict[str, Mutation])


def outcome(mutation: Mutation) -> tuple[bool, str]:
    """Whether its tests catch a mutation, and which does; or else why none does."""
    with tempfile.TemporaryDirectory(prefix="rawpack-mutate-") as folder:
        Path(folder).chmod(0o755)  # some tests run as another user
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=LEFT_OUT)
        file, intact = copy / mutation.file, (copy / mutation.file).read_text("utf-8")
        file.write_text(mutation.mutated(copy), "utf-8")
        code, said = pytest(copy, mutation.tests)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*| - .*)?$", said, re.MULTILINE)
        if code != 1 or failed is None:
            reasons = {0: "survives", -1: f"no answer in {LIMIT_S} s"}
            return False, reasons.get(code, f"the tests cannot run\n{said}")
        file.write_text(intact, "utf-8")
        if pytest(copy, [failed[1]])[0]:
            return False, f"{failed[1]} fails without it, too"
        return True, failed[1]


def pytest(copy: Path, tests: list[str]) -> tuple[int, str]:
    """Exit code, -1 past the time limit, and output of pytest on a copy of the checkout."""
    path = os.pathsep.join([str(copy / "reader"), str(copy / "packer")])
    own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": path, "PATH": own, "PYTHONDONTWRITEBYTECODE": ""}
    # An editable install comes later on the path: proven each time, because a test of it would pass for ever.
    where = "import rawpack, rawpack_packer; print(rawpack.__file__, rawpack_packer.__file__)"
    found = subprocess.check_output([sys.executable, "-P", "-c", where], env=environment, cwd="/", text=True)
    assert all(one.startswith(str(copy)) for one in found.split()), found
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "--timeout", str(TEST_S), "--tb", "line", *tests]
    command = [sys.executable, "-m", "pytest", *arguments]
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            process.kill()
            return -1, ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="Run it by the Python of .venv, which scripts/test makes.",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[""], help="those whose names contain one of these"
    )
    parser.add_argument("--list", action="store_true", help="list them, and run nothing")
    asked = parser.parse_args()
    chosen = {name: one for name, one in mutations().items() if any(part in name for part in asked.only)}
    survivors = []
    for number, (name, mutation) in enumerate(chosen.items(), 1):
        if asked.list:
            print(f"{name}  {mutation.file}  {' '.join(mutation.tests)}")
            continue
        print(f"{number}/{len(chosen)} {name} ...", end=" ", flush=True)
        began = time.monotonic()
        caught, what = outcome(mutation)
        print(f"{'caught by ' if caught else 'NOT CAUGHT: '}{what} ({time.monotonic() - began:.0f} s)", flush=True)
        survivors += [] if caught else [name]
    if survivors:
        sys.exit(f"not caught: {' '.join(survivors)}")


if __name__ == "__main__":
    main()
