"""What the scripts `make_*.py` share: this checkout's packages, and a file that is made, and may be checked instead."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "reader"), str(ROOT / "packer")]


def write(file: Path, make: Callable[[], str], about: str | None) -> None:
    """Make the file; with --check, write nothing and exit with 1 where it is not what would be made.

    about: the docstring of the script."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help=f"write nothing; exit 1 where {file.name} is stale")
    asked, made = parser.parse_args(), make()
    if not asked.check:
        file.write_text(made, "utf-8")
    elif not file.exists() or file.read_text("utf-8") != made:
        sys.exit(f"{file} is stale: run python scripts/{Path(sys.argv[0]).name}")
