"""The notebooks of docs/examples run, and their outputs are those of this code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from running import environment
from test_docs import commands

nbformat = pytest.importorskip("nbformat", reason="nbclient and ipykernel are not installed: pip install them")
pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

import make_notebooks  # noqa: E402 # it needs both

# What the kernel's own libraries warn of is not ours.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("path", make_notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    """Each cell of a fresh kernel, without an error or a warning. The texts below the cells are those in the file;
    pictures, times and addresses may differ."""
    stored = nbformat.read(path, as_version=4)
    where = f"{commands(tmp_path / '.bin')}{os.pathsep}{os.environ['PATH']}"
    run = make_notebooks.executed(stored, tmp_path, environment(PATH=where, COLUMNS="80", TMPDIR=str(tmp_path)))
    assert make_notebooks.words_of(run) == make_notebooks.words_of(stored), "run python scripts/make_notebooks.py"
    streams = [one.get("name") for cell in run.cells for one in cell.get("outputs", [])]
    assert "stderr" not in streams


@pytest.mark.parametrize("path", make_notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_easy_to_read(path: Path) -> None:
    """A code host shows them: small, with outputs, with text before the first cell, and nothing of who ran them."""
    notebook = json.loads(path.read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert path.stat().st_size < 200_000
    assert len(notebook["cells"]) <= 25
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert sum(bool(cell["outputs"]) for cell in code) > len(code) / 2
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    assert "/tmp/" not in path.read_text("utf-8")


def test_there_are_five() -> None:
    """One for each group of users."""
    assert len(make_notebooks.NOTEBOOKS) == 5
