"""How wide the output is: at a terminal and in a pipe, no line has more than 80 columns but for what is copied."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pictures import picture, save
from running import Ran, at_a_terminal, run_here

from rawpack_packer import api

COPIED = re.compile(r"^ *(rawpack |read it |look |batches = |rawpack\.Reader)|ssh -N")
"""Lines that are copied."""


def kept_by_a_terminal(*args: object, columns: int = 80) -> tuple[int, str]:
    """The exit code of a command, and the lines that a terminal keeps of what it writes."""
    code, shown = at_a_terminal(*args, columns=columns, NO_COLOR="1")
    return code, "\n".join(re.sub(r".*\r", "", line) for line in shown.split("\n"))


def in_a_pipe(*args: object) -> Ran:
    """What it writes where no terminal is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        return run_here(*args)


def too_wide(shown: str, columns: int = 80) -> list[str]:
    """Lines that are wider, although they could be broken: what is left of a path or a command has no blank."""
    return [
        line
        for line in shown.splitlines()
        if len(line) > columns and not COPIED.search(line) and " " in re.sub("`[^`]*`", "", line.strip())
    ]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with long names: photos, and a store of them."""
    root = tmp_path_factory.mktemp("a-folder-with-a-name-that-is-rather-long-for-a-terminal")
    for number in range(12):
        save(root / "photos" / f"a class with many words in its name, number {number % 3}" / f"{number}.png",
             picture(40, 50, number))  # fmt: skip
    (root / "photos" / "a class with many words in its name, number 0" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    assert run_here("pack", "-q", "-j", 0, "-s", 32, "--max-rejects", 3, root / "photos", root / "one").code == 0
    return root


COMMANDS = {
    "pack": ("pack", "-j", 0, "-s", 16, "--max-rejects", 3, "photos", "OUT"),
    "inspect": ("inspect", "--verify", "one"),
    "plan": ("plan", "--budget", "1s", "-f", "lmdb", "-s", 16, "--workers", 1, "--batch", 4, "photos"),
    "an error": ("pack", "-j", 0, "--max-rejects", "0", "photos", "OUT"),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def measured_once(trials_here: None) -> Iterator[None]:
    """What `plan` finds is printed at a terminal and in a pipe, and takes seconds to measure."""
    plan, plans = api.run_plan, list[Any]()

    def run_plan(*args: Any, **options: Any) -> Any:
        if not plans:
            plans.append(plan(*args, **options))
        return plans[0]

    with mock.patch.object(api, "run_plan", run_plan):
        yield


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_than_the_terminal(work: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the output and of errors, but for commands, code and paths; in a pipe, messages to the standard error stay one
    line."""
    monkeypatch.chdir(work)
    _, shown = kept_by_a_terminal(*(one if one != "OUT" else f"at {name}" for one in COMMANDS[name]))
    assert len(shown.split()) > 5
    assert not too_wide(shown)
    ran = in_a_pipe(*(one if one != "OUT" else f"in {name}" for one in COMMANDS[name]))
    assert ran.out or ran.code
    assert not too_wide(ran.out)
    if name == "an error":
        assert (ran.out, len(ran.err.splitlines())) == ("", 2), ran


def test_an_error_is_wrapped_at_a_terminal_only(tmp_path: Path) -> None:
    """At the width of the terminal; the words are the same; a command in backticks is not broken."""
    args = ("pack", "--fromat=lmdb", tmp_path / "x", tmp_path / "y")
    piped = in_a_pipe(*args)
    assert piped == Ran(2, "", f"{piped.err.strip()}\n")
    code, shown = kept_by_a_terminal(*args, columns=40)
    assert code == 2
    assert "`rawpack pack -h`" in shown
    assert max(map(len, shown.splitlines())) <= 40 < len(piped.err)
    assert re.sub(r"\W+", " ", shown) == re.sub(r"\W+", " ", piped.err)
