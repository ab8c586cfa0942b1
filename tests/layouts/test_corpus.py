"""How a path is recognized: each layout of the corpus, made anew, has the answer that `answers.toml` records.

`python tests/layouts/corpus.py --write` records today's; what a change of the rules changes is then seen in that file.
"""

from __future__ import annotations

import shlex
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest import mock

import cases
import corpus
import pytest
from running import run_here

from rawpack.errors import UsageError
from rawpack_packer.sources import open_source, registry

ANSWERS = cases.recorded()
_WRITE = "; python tests/layouts/corpus.py --write records it"


@pytest.mark.parametrize("name", corpus.CASES)
def test_a_layout_is_recognized_as_recorded(name: str, tmp_path: Path) -> None:
    case = corpus.CASES[name]
    if module := cases.missing(case):
        pytest.skip(f"needs {module}")
    answer = corpus.recognized(case, tmp_path)
    assert _comparable(answer) == _comparable(ANSWERS[name]), f"{name}{_WRITE}"


def _comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """Values as texts: nan is not equal to itself."""
    return {key: str(value) if key in ("labels", "boxes", "values") else value for key, value in answer.items()}


_ASK = ("AnnotatedError", "SplitColumnError")
_PRINTED = [name for name, answer in ANSWERS.items() if answer.get("refused") in _ASK and "type" in answer]


@pytest.mark.parametrize("name", _PRINTED)
def test_a_command_that_a_refusal_prints_packs(name: str, tmp_path: Path) -> None:
    """Each refusal of a folder with what describes its images, or of a column of splits, prints a command, or none, or
    one for each of two meanings: typed as it is printed, it packs that layout."""
    case = corpus.CASES[name]
    if module := cases.missing(case):
        pytest.skip(f"needs {module}")
    with chdir(tmp_path):
        cases.prepare(case, tmp_path)
        for number, command in enumerate(ANSWERS[name]["type"]):
            words = shlex.split(command)[1:-1]
            ran = run_here(*words, f"store{number}", "--workers", 0, "--size", 8)
            assert ran.code == 0, ran.err


def test_each_answer_is_of_a_layout() -> None:
    """None is left over from a layout that was taken out."""
    assert list(ANSWERS) == list(corpus.CASES)


def test_each_kind_is_opened() -> None:
    """A new kind needs a case."""
    kinds = {answer["kind"] for answer in ANSWERS.values() if "kind" in answer}
    cure = "add a `Case` to tests/layouts/cases_*.py, and run tests/layouts/corpus.py --write"
    assert kinds == {*registry.KINDS, "dataset"}, cure


_OF_SEVERAL = (
    "pages: COCO's instances",
    "listings: a folder of Parquet of paths",
    "tables: LeRobot, v3",
    "tables: the index of MDS",
)
"""Layouts that show signs of several kinds."""


@pytest.mark.parametrize("name", _OF_SEVERAL)
def test_the_order_of_kinds_has_no_meaning(name: str, tmp_path: Path) -> None:
    case, rows = corpus.CASES[name], dict(reversed(registry.KINDS.items()))
    if module := cases.missing(case):
        pytest.skip(f"needs {module}")
    with mock.patch.object(registry, "KINDS", rows):
        assert corpus.recognized(case, tmp_path) == ANSWERS[name]


def test_signs_of_the_same_strength_are_asked_about(tmp_path: Path) -> None:
    """As of a folder of arrays in two formats, either of which may have the images."""
    (tmp_path / "x.npy").touch()
    (tmp_path / "x.h5").touch()
    with pytest.raises(UsageError, match=r"may be of kind arrays or hdf5: --source arrays or --source hdf5 says which"):
        open_source(tmp_path)
