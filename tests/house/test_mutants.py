"""`scripts/mutants.py` runs the tests that execute the place of a fault, and finds a fault again in other code.

Checkouts of one module and three tests stand for the whole: each run forks a process that has not imported ours.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import mutants
import pytest
from mutants import Mutant, Outcome, elsewhere
from rooms import ROOT

SUMS = dedent("""
    LIMIT = 3

    def total(values):
        if len(values) > LIMIT:
            raise ValueError("too many")
        return sum(values)

    def double(value):
        return total([value, value])
""")
TESTS = dedent("""
    import pytest
    from rawpack.sums import double, total

    @pytest.fixture(scope="module")
    def doubled():
        return double(2)

    def test_double(doubled):
        assert doubled == 4

    def test_again(doubled):
        assert doubled - 4 == 0

    def test_total():
        with pytest.raises(ValueError, match="too many"):
            total([1, 2, 3, 4])

    def test_that_fails():
        raise AssertionError
""")
NAMES = ("test_double", "test_again", "test_total")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "checkout"
    files = {"reader/rawpack/__init__.py": "", "reader/rawpack/sums.py": SUMS, "tests/test_sums.py": TESTS}
    files["pyproject.toml"] = '[tool.pytest.ini_options]\npythonpath = ["reader"]\n'
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def recorded(checkout: Path) -> list[Any]:
    """The tests that pass, with the lines that they execute, and those that fail, by another process."""
    words = f"""
        from pathlib import Path
        import executed
        executed._BEFORE = ("pytest.__main__",)
        checkout = Path({str(checkout)!r})
        print(executed.forked(checkout, ["tests/test_sums.py"], executed.Recorder(checkout), 60).decode())
    """
    command = [sys.executable, "-c", dedent(words)]
    answer = subprocess.run(command, cwd=ROOT / "scripts", check=True, stdout=subprocess.PIPE).stdout
    found: list[Any] = msgspec.json.decode(answer)
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork")
def test_which_tests_execute_a_line(checkout: Path) -> None:
    """A fixture that tests share is executed by each of them; tests that fail as it is are none."""
    passing, failing = recorded(checkout)
    tests = {test["name"].partition("::")[2]: test for test in passing}
    assert (set(tests), failing) == (set(NAMES), ["tests/test_sums.py::test_that_fails"])
    lines = {name: int(test["lines"]["reader/rawpack/sums.py"], 16) for name, test in tests.items()}
    texts = SUMS.splitlines()
    executed = {name: [text.split()[0] for k, text in enumerate(texts, 1) if lines[name] >> k & 1] for name in NAMES}
    assert executed == {
        "test_double": ["if", "return", "return"],
        "test_again": ["if", "return", "return"],
        "test_total": ["if", "raise"],
    }


def test_a_fault_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In code that has moved, by what is around it; not where that has changed, or stands twice."""
    path = tmp_path / "sums.py"
    monkeypatch.setattr(mutants, "modules", lambda: {"rawpack.sums": path})
    at = SUMS.index(">")
    mutant = Mutant("rawpack.sums", at, at + 1, ">=")
    outcome = Outcome(mutant, "", "sums.py:5: > -> >=", False, "", 0, around=(SUMS[:at], SUMS[at + 1 :]))

    def again(source: str) -> Mutant | None:
        path.write_text(source)
        return elsewhere([outcome]).get(mutant)

    moved = again(f"import os\n{SUMS}")
    assert moved == Mutant("rawpack.sums", at + 10, at + 11, ">=")
    assert again(SUMS.replace(" > ", " >= ")) is None
    assert again(SUMS + SUMS) is None
