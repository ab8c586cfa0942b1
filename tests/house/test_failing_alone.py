"""A test that hangs or crashes fails alone, with the settings of pyproject.toml and the options of scripts/test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

HANGING = """
import collections, itertools, os, socket, threading
import pytest

def test_first(): pass

@pytest.mark.timeout(1)
def test_in_a_lock():
    left_open = [socket.socket()]
    left_open.append(left_open)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def test_after_a_lock():
    import gc
    gc.collect()

@pytest.mark.timeout(0.1)
def test_in_c(): collections.deque(itertools.repeat(0), maxlen=0)

def test_after_c(): pass
"""

ENDING = """
import os, threading
import pytest

@pytest.fixture
def never_ends():
    yield
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass

@pytest.mark.timeout(1)
def test_whose_fixture_hangs(never_ends): assert False

def test_after_a_fixture(): pass

def test_that_crashes(): os.abort()

def test_last(): pass
"""


def test_what_hangs_or_crashes_fails_alone(tmp_path: Path) -> None:
    """All tests but those that hang in a lock, in C, in a fixture, or crash take place, each once, and pass."""
    for name, text in {"hanging": HANGING, "ending": ENDING, "other": "def test_other(): pass"}.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["failing_alone"]')
    [together] = re.findall(r"^together=\(-n .*?( --.*)\)$", (ROOT / "scripts/test").read_text(), re.MULTILINE)
    ran = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-n", "2",
            *together.split(), "-o", "timeout_grace=1", "-p", "no:cacheprovider",
            "-p", "no:benchmark", "-p", "no:hypothesispytest", "-rA",
            "--basetemp", tmp_path / "base", tmp_path,
        ],
        capture_output=True, encoding="utf-8", timeout=200, check=False, cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )  # fmt: skip
    told = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", ran.stdout, re.MULTILINE)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert sorted(test for word, test in told if word == "PASSED") == [
        "test_after_a_fixture", "test_after_a_lock", "test_after_c", "test_first", "test_last", "test_other",
    ], ran.stdout  # fmt: skip
    assert {test for word, test in told if word != "PASSED"} == {
        "test_in_a_lock", "test_in_c", "test_whose_fixture_hangs", "test_that_crashes",
    }, ran.stdout  # fmt: skip
    assert re.search(r"Failed: Timeout \(?>1", ran.stdout), ran.stdout
