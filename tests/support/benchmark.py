"""The quick benchmark, as tests run it: no figure is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
_RUN = BENCH / "run.py"


def quickly(folder: Path, tables: str, lines: Iterable[str] = ()) -> dict[str, Any]:
    """What the quick benchmark writes of some tables, or of some of their lines."""
    command: list[str | Path] = [sys.executable, _RUN, "--quick", "--tables", tables]
    command += [word for line in lines for word in ("--line", line)]
    command += ["--work", folder / "work", "--json", folder / "out.json"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return loaded | {"printed": done.stdout}


def table_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    (table,) = (table for table in result["tables"] if table["table"] == name)
    found: dict[str, Any] = table
    return found


def lines_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    return {line["label"]: line for line in table_of(result, name)["lines"]}
