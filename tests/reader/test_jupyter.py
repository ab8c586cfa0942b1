"""In a notebook, with a real kernel: workers, an interrupted cell, a kernel that is shut down."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from reading import gone, wait_until
from running import environment

nbformat = pytest.importorskip("nbformat", reason="nbclient and ipykernel are not installed: pip install them")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

# What the kernel's own libraries warn of is not ours.
pytestmark = pytest.mark.filterwarnings("default")

OPEN = """
from rawpack import Reader, Workers
reader = Reader({store!r})
"""
READ = """
batches = reader.batches(6, sampler=lambda epoch: range(75), workers=Workers(2, backend="process"))
kept = list(batches)
print(sorted(row for batch in kept for row in batch["index"].tolist()) == list(range(len(reader))))
"""
FORGET = """
import gc, psutil
del batches, kept
gc.collect()
print(psutil.Process().children())
"""
ENDLESS = """
batches = reader.batches(6, workers=Workers(2, backend="process"))
iterator = iter(batches)
next(iterator)
print("workers", *(handle.worker.process.pid for handle in iterator._source.pool.handles), flush=True)
while True:
    for batch in batches:
        pass
"""
AGAIN = """
batches.set_epoch(0)
print(sum(len(batch["index"]) for batch in batches))
"""


class Notebook:
    """A kernel that runs one cell after another, and is shut down at the end, as a notebook that is closed."""

    def __init__(self, folder: Path) -> None:
        self._notebook = nbformat.v4.new_notebook()
        place = {"metadata": {"path": folder}}
        self._client = nbclient.NotebookClient(
            self._notebook, timeout=200, kernel_name="python3", allow_errors=True, resources=place
        )
        self._kernel = self._client.setup_kernel(env=environment())

    def __enter__(self) -> Notebook:
        self._kernel.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._kernel.__exit__(None, None, None)

    def run(self, code: str) -> list[Any]:
        """What a cell puts out."""
        return self._execute(self._add(code))

    def run_until(self, word: str, code: str) -> list[Any]:
        """Run a cell, and press the stop button when it has put out `word`."""

        def stop(cell: Any) -> None:
            wait_until(lambda: word in text(cell.outputs, "stdout"), f"the cell says {word}")
            os.kill(self._client.km.provisioner.pid, signal.SIGINT)

        cell = self._add(code)
        thread = threading.Thread(target=stop, args=(cell,))
        thread.start()
        try:
            return self._execute(cell)
        finally:
            thread.join()

    def _add(self, code: str) -> Any:
        self._notebook.cells.append(nbformat.v4.new_code_cell(code))
        return self._notebook.cells[-1]

    def _execute(self, cell: Any) -> list[Any]:
        outputs: list[Any] = self._client.execute_cell(cell, len(self._notebook.cells) - 1).outputs
        return outputs


def text(outputs: list[Any], stream: str) -> str:
    """What cells printed."""
    return "".join(one["text"] for one in outputs if one["output_type"] == "stream" and one["name"] == stream)


def test_cells(store: Path, tmp_path: Path) -> None:
    """Cells read with worker processes, put out what they print and nothing else, and what is deleted is gone. The stop
    button ends a cell by one KeyboardInterrupt; the next cell reads on, and no worker outlives the kernel."""
    with Notebook(tmp_path) as notebook:
        for code, out in ((OPEN.format(store=str(store)), ""), (READ, "True\n"), (FORGET, "[]\n")):
            outputs = notebook.run(code)
            assert [one["output_type"] for one in outputs] in ([], ["stream"]), outputs
            assert text(outputs, "stdout") == out
        outputs = notebook.run_until("workers", ENDLESS)
        assert [one["ename"] for one in outputs if one["output_type"] == "error"] == ["KeyboardInterrupt"]
        assert text(outputs, "stderr") == ""
        workers = [int(pid) for pid in text(outputs, "stdout").split()[1:]]
        assert text(notebook.run(AGAIN), "stdout") == "75\n"
    wait_until(lambda: all(map(gone, workers)), "the workers have ended with their kernel")
