"""A C compiler, for tests of the native core, and a library of next to nothing; Python on the packages of a folder."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

STUB = """
#include <stdint.h>
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int32_t rawpack_version(void) { return VERSION; }
EXPORTED int32_t rawpack_lanes(void) { return 0; }
"""
"""Compiles at once."""
COMPILER = shlex.split(os.environ.get("CC") or "cc")


def compiler_works() -> bool:
    """Also the C library's headers are there."""
    command = [*COMPILER, "-fsyntax-only", "-x", "c", "-"]
    try:
        return subprocess.run(command, input=b"#include <stdlib.h>", capture_output=True, check=False).returncode == 0
    except OSError:
        return False


compiles = pytest.mark.skipif(not compiler_works(), reason="needs a C compiler")


def python(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code by the packages in a folder."""
    kept = {name: value for name, value in os.environ.items() if name != "RAWPACK_NATIVE"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=kept | {"PYTHONPATH": str(folder)} | variables,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
