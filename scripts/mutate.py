#!/usr/bin/env python3
"""Make one fault after another in a copy of the checkout, and see whether the nearest tests notice.

    .venv/bin/python scripts/mutate.py                     every fault of mutations.toml: an hour
    .venv/bin/python scripts/mutate.py --only resume tar   those whose names contain one of these

A test that fails catches a fault, if it passes without it. Exit code 1 if a fault survives, or its tests do not run.
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
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", ".demo", "build", "dist")
TEST_S, LIMIT_S = 120, 900
"""Seconds for one test, and for all tests of a fault: some faults make a wait endless."""
WHERE = "import rawpack, rawpack_packer; print(rawpack.__file__, rawpack_packer.__file__)"


class Mutation(msgspec.Struct, forbid_unknown_fields=True):
    """A fault in one place, and the test files, or tests, that should notice it."""

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

    def outcome(self) -> tuple[bool, str]:
        """Whether its tests catch it, and which does; or else why none does."""
        with tempfile.TemporaryDirectory(prefix="rawpack-mutate-") as folder:
            Path(folder).chmod(0o755)  # some tests run as another user
            copy = shutil.copytree(ROOT, Path(folder) / "checkout", symlinks=True, ignore=LEFT_OUT)
            intact = (copy / self.file).read_text("utf-8")
            (copy / self.file).write_text(self.mutated(copy), "utf-8")
            code, said = pytest(copy, self.tests)
            failed = re.search(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*| - .*)?$", said, re.MULTILINE)
            if code != 1 or failed is None:
                return False, {0: "survives", -1: f"no answer in {LIMIT_S} s"}.get(code, f"they do not run\n{said}")
            (copy / self.file).write_text(intact, "utf-8")
            passes = pytest(copy, [failed[1]])[0] == 0
            return passes, failed[1] if passes else f"{failed[1]} fails without it, too"


@cache
def mutations() -> dict[str, Mutation]:
    """All of them, by name."""
    return msgspec.toml.decode(Path(__file__).with_name("mutations.toml").read_bytes(), type=dict[str, Mutation])


def pytest(copy: Path, tests: list[str]) -> tuple[int, str]:
    """Exit code, -1 past the time limit, and output of pytest on a copy of the checkout, as in its child processes."""
    own = {"PYTHONPATH": f"{copy / 'reader'}{os.pathsep}{copy / 'packer'}", "PYTHONDONTWRITEBYTECODE": ""}
    own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # An editable install comes later on the path: it would be tested without the fault.
    found = subprocess.check_output([sys.executable, "-P", "-c", WHERE], env=os.environ | own, cwd="/", text=True)
    assert all(one.startswith(str(copy)) for one in found.split()), found
    words = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", str(TEST_S), "--tb", "line"]
    words += ["-m", "not soak", *tests]
    how: Any = {"cwd": copy, "env": os.environ | own, "timeout": LIMIT_S, "stdout": subprocess.PIPE, "text": True}
    try:
        ran = subprocess.run([sys.executable, *words], stderr=subprocess.STDOUT, check=False, **how)
        return ran.returncode, ran.stdout
    except subprocess.TimeoutExpired:
        return -1, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[""], help="whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="list them, and run nothing")
    asked, survivors = parser.parse_args(), []
    chosen = {name: one for name, one in mutations().items() if any(part in name for part in asked.only)}
    for number, (name, mutation) in enumerate(chosen.items(), 1):
        if asked.list:
            print(f"{name}  {mutation.file}  {' '.join(mutation.tests)}")
            continue
        print(f"{number}/{len(chosen)} {name} ...", end=" ", flush=True)
        began, (caught, what) = time.monotonic(), mutation.outcome()
        print(f"{'caught by ' if caught else 'NOT CAUGHT: '}{what} ({time.monotonic() - began:.0f} s)", flush=True)
        survivors += [] if caught else [name]
    sys.exit(f"not caught: {' '.join(survivors)}" if survivors else 0)


if __name__ == "__main__":
    main()
