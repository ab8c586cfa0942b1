#!/usr/bin/env python3
"""Write what follows from the project's public address: `home` of [tool.rawpack] in pyproject.toml.

    scripts/make_addresses.py [--check] [FOLDER]

These are [project.urls], `repository-code` in CITATION.cff, the badges of README.md, and the first cells of the
notebooks, which open them in Colab. While `home` is empty, none of it is there. --check writes nothing, and exits with
1 where a file is not as it would be written.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- addresses:begin -->", "<!-- addresses:end -->"
_CELL = "colab"
"""What the ids of cells that are written here begin with."""
_COLAB = "https://colab.research.google.com"
_URLS = re.compile(r"^\[project\.urls\]\n(?:.+\n)*\n", re.MULTILINE)
_CODE = re.compile(r"^repository-code: .*\n", re.MULTILINE)
_BADGES = re.compile(rf"{BEGIN}\n.*?{END}\n\n", re.DOTALL)


def home_of(root: Path) -> str:
    """The address, without "/" at its end; "" while there is none."""
    tools: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]
    return str(tools.get("rawpack", {}).get("home", "")).rstrip("/")


def links(home: str) -> dict[str, str]:
    """The entries of [project.urls]."""
    return {
        "Source": home,
        "Documentation": f"{home}/tree/main/docs",
        "Issues": f"{home}/issues",
        "Changelog": f"{home}/blob/main/CHANGELOG.md",
    }


def written(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Each file, its text now, and as it should be."""
    home = home_of(root)
    for name, make in (("pyproject.toml", _project), ("CITATION.cff", _citation), ("README.md", _readme)):
        text = (root / name).read_text("utf-8")
        yield root / name, text, make(text, home)
    for path in sorted((root / "docs" / "examples").glob("*.ipynb")):
        text = path.read_text("utf-8")
        yield path, text, _notebook(text, home, path.relative_to(root).as_posix())


def _project(text: str, home: str) -> str:
    lines = "".join(f'{name} = "{address}"\n' for name, address in links(home).items())
    urls = f"[project.urls]\n{lines}\n" if home else ""
    return _URLS.sub("", text).replace("[project.scripts]\n", f"{urls}[project.scripts]\n", 1)


def _citation(text: str, home: str) -> str:
    return _CODE.sub("", text) + (f'repository-code: "{home}"\n' if home else "")


def _readme(text: str, home: str) -> str:
    title, rest = _BADGES.sub("", text).split("\n\n", 1)
    badges = {
        "tests": (f"{home}/actions/workflows/ci.yml/badge.svg", f"{home}/actions/workflows/ci.yml"),
        "version": ("https://img.shields.io/pypi/v/rawpack", "https://pypi.org/project/rawpack/"),
        "Python": ("https://img.shields.io/pypi/pyversions/rawpack", "https://pypi.org/project/rawpack/"),
        "license": ("https://img.shields.io/pypi/l/rawpack", f"{home}/blob/main/LICENSE"),
    }
    lines = "".join(f"[![{name}]({image})]({link})\n" for name, (image, link) in badges.items())
    return f"{title}\n\n{BEGIN}\n{lines}{END}\n\n{rest}" if home else f"{title}\n\n{rest}"


def _notebook(text: str, home: str, name: str) -> str:
    notebook = json.loads(text)
    cells = [cell for cell in notebook["cells"] if not str(cell.get("id", "")).startswith(_CELL)]
    if home.startswith("https://github.com/"):
        link = f"{_COLAB}/{home.removeprefix('https://')}/blob/main/{name}".replace("/github.com/", "/github/", 1)
        badge = f"[![Open in Colab]({_COLAB}/assets/colab-badge.svg)]({link})"
        install = ["import sys\n", "\n", 'if "google.colab" in sys.modules:\n', "    %pip install --quiet rawpack"]
        code = {"execution_count": None, "outputs": [], "source": install}
        cells = [
            {"cell_type": "markdown", "id": _CELL, "metadata": {}, "source": [badge]},
            {"cell_type": "code", "id": f"{_CELL}-install", "metadata": {}, **code},
            *cells,
        ]
    if cells == notebook["cells"]:
        return text
    return json.dumps({**notebook, "cells": cells}, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> None:
    check, folders = "--check" in sys.argv[1:], [word for word in sys.argv[1:] if word != "--check"]
    stale = [(path, new) for path, old, new in written(Path(folders[0]) if folders else ROOT) if new != old]
    for path, new in stale if not check else ():
        path.write_text(new, "utf-8")
    if check and stale:
        sys.exit(
            f"run scripts/make_addresses.py: {', '.join(path.name for path, _ in stale)} are not as it writes them"
        )


if __name__ == "__main__":
    main()
