#!/usr/bin/env python3
"""Run the notebooks in docs/examples and store their outputs; a notebook whose outputs say the same stays as it is.

Each runs in a temporary folder, by nbclient. Figures of time, sizes of JPEG files and pictures are not compared: they
differ from run to run, or between versions of libraries.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

_NBFORMAT: Any = nbformat  # which has no types

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "examples").glob("*.ipynb"))
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\?token=[\w-]+")
_VARIES = (
    (re.compile(r"^( *(?:time|bytes) +).*$", re.MULTILINE), r"\1..."),
    (re.compile(r"(frames with the same pixels as another: )\d+"), r"\1..."),
    (re.compile(r"base64,[\w+/=]+"), "base64,..."),
)
"""What is not compared, and what stands for it."""
_TEXTS = ("text/plain", "text/html")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where outputs are stale")
    check, stale = parser.parse_args().check, []
    for path in NOTEBOOKS:
        before = _NBFORMAT.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            after = executed(before, Path(folder), _environment(folder))
        if words_of(after) != words_of(before):
            stale.append(path.name)
            if not check:
                path.write_text(_NBFORMAT.writes(after).rstrip("\n") + "\n", "utf-8")
    print(f"stale: {', '.join(stale) or 'none'}")
    if check and stale:
        sys.exit("run python scripts/make_notebooks.py")


def executed(notebook: Any, folder: Path, environment: Mapping[str, str], kernel: Any = None) -> Any:
    """A copy with new outputs, run in a folder. kernel: a manager, which starts it the first time, and keeps it. Raises
    nbclient's CellExecutionError for a cell that fails."""
    copy = _NBFORMAT.from_dict(notebook)
    where = {"metadata": {"path": str(folder)}}
    # A kernel that was slow puts out a text in pieces.
    client = NotebookClient(copy, kernel, timeout=200, kernel_name="python3", coalesce_streams=True, resources=where)
    client.execute(env=dict(environment))
    if kernel is not None and client.kc is not None:
        client.kc.stop_channels()
    paths = re.compile(rf"{re.escape(os.path.realpath(folder))}/tmp\w+/")
    # The rest is of the machine that ran it.
    copy.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for cell in copy.cells:
        cell.metadata = {}
        for data in (output["data"] for output in cell.get("outputs", []) if "data" in output):
            if "image/jpeg" in data:
                data.pop("image/png", None)  # Pillow gives both, and this is ten times as large
            for kind in set(_TEXTS) & set(data):
                data[kind] = _ADDRESS.sub("http://127.0.0.1:8000/", paths.sub("", data[kind]))
    return copy


def _environment(folder: str) -> dict[str, str]:
    """The packages of this checkout, and the `rawpack` of this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    packages = os.pathsep.join([str(ROOT / "reader"), str(ROOT / "packer")])
    return os.environ | {"PATH": path, "PYTHONPATH": packages, "TMPDIR": folder, "COLUMNS": "80"}


def words_of(notebook: Any) -> list[tuple[str, list[str]]]:
    """The source of each cell, and the texts that it puts out, without what differs from run to run."""
    return [
        (cell.source, [_plain(text) for one in cell.get("outputs", []) for text in _texts(one)])
        for cell in notebook.cells
    ]


def _texts(output: Any) -> list[str]:
    return [output["text"]] if "text" in output else [output["data"][kind] for kind in _TEXTS if kind in output["data"]]


def _plain(text: str) -> str:
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    return text


if __name__ == "__main__":
    main()
