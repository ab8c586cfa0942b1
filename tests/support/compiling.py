"""A C compiler, for tests of the native core, with programs that drive it and a library of next to nothing; Python on
the packages of a folder."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

STUB = """
#include <stdint.h>
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int32_t rawpack_version(void) { return VERSION; }
EXPORTED int32_t rawpack_lanes(void) { return 0; }
"""
"""Compiles at once."""
NATIVE = Path(__file__).parents[2] / "reader" / "native"
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
COMPILER = shlex.split(os.environ.get("CC") or "cc")


def compiler_works() -> bool:
    """Also the C library's headers are there."""
    command = [*COMPILER, "-fsyntax-only", "-x", "c", "-"]
    try:
        return subprocess.run(command, input=b"#include <stdlib.h>", capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def driver(folder: Path, compiler: str, *flags: str, sources: Sequence[Path]) -> Path:
    """A program of C, compiled with the headers of the native core; skips the test where this compiler or what it links
    is missing."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    made = folder / "driver"
    command = [compiler, "-std=c11", *flags, "-I", str(NATIVE), "-o", str(made), *map(str, sources)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode and "cannot find" in ran.stderr:
        pytest.skip(f"{compiler} {' '.join(flags)}: {ran.stderr.strip().splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    return made


compiles = pytest.mark.skipif(not compiler_works(), reason="needs a C compiler")


def python(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code by the packages in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "RAWPACK_NATIVE"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=kept | {"PYTHONPATH": str(folder)} | variables,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
