"""Training on samples with several images: the page about them, run as it is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from running import run_here

pytest.importorskip("torch", reason="torch is not installed")
PAGE = Path(__file__).parents[2] / "docs/how-to/pack-several-images.md"


def test_the_scripts_of_the_page_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Super-resolution from 24 to 96 pixels learns, and two views of each image train an encoder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for language, code in re.findall(r"^```(python|console).*?\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S):
        if language == "python":
            exec(code, namespace)
            continue
        for command in re.findall(r"^\$ rawpack (.*)$", code, re.MULTILINE):
            workers = ["--workers", "0"] if command.startswith("pack") else []
            typed, _, asks_code = command.partition(";")  # `echo "exit code $?"`, after one that stops
            assert run_here(*shlex.split(typed), *workers).code == (2 if asks_code else 0), command
    assert namespace["losses"][-1] < namespace["losses"][0]
