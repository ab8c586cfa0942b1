"""The notebooks of docs/examples run, and their outputs are those of this code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import environment
from test_docs import commands

nbformat = pytest.importorskip("nbformat", reason="nbclient and ipykernel are not installed: pip install them")
pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

import make_notebooks  # noqa: E402 # it needs both
from jupyter_client.manager import AsyncKernelManager  # noqa: E402
from jupyter_core.utils import run_sync  # noqa: E402

# What the kernel's own libraries warn of is not ours.
pytestmark = pytest.mark.filterwarnings("default")


PACKS_THERE = """
from rawpack_packer.job.options import RunOptions
RunOptions.processes = property(lambda options: options.workers or 0)
"""
"""As `packs_here` of tests/conftest.py."""


@pytest.fixture(scope="module")
def execute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any], Any]]:
    """Runs a notebook in a kernel that has no names of the one before, and that packs without workers; with
    RAWPACK_SOAK, in one of its own, as users do. To start it takes longer than what most cells do."""
    folder = tmp_path_factory.mktemp("notebooks")
    where = f"{commands(folder / '.bin')}{os.pathsep}{os.environ['PATH']}"
    variables = environment(PATH=where, COLUMNS="80", TMPDIR=str(folder))
    if os.environ.get("RAWPACK_SOAK"):
        yield lambda notebook: make_notebooks.executed(notebook, folder, variables)
        return
    reset = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (PACKS_THERE, "%reset -f")])
    kernel = AsyncKernelManager(kernel_name="python3")

    def run(notebook: Any) -> Any:
        make_notebooks.executed(reset, folder, variables, kernel)
        return make_notebooks.executed(notebook, folder, variables, kernel)

    yield run
    run_sync(kernel.shutdown_kernel)()


@pytest.mark.parametrize("path", make_notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, execute: Callable[[Any], Any]) -> None:
    """Each cell, without an error or a warning. The texts below the cells are those in the file; pictures, times and
    addresses may differ."""
    stored = nbformat.read(path, as_version=4)
    run = execute(stored)
    assert make_notebooks.words_of(run) == make_notebooks.words_of(stored), "run python scripts/make_notebooks.py"
    streams = [one.get("name") for cell in run.cells for one in cell.get("outputs", [])]
    assert "stderr" not in streams
    assert path.stat().st_size < 200_000, "a code host does not show it"
