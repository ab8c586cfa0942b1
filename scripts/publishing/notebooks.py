"""Notebooks as pages: their cells as Markdown, with the outputs that the file has. Nothing is run."""

from __future__ import annotations

import json
import re
from typing import Any

_MAGIC = re.compile(r"^[!%]", re.MULTILINE)
"""A line for a shell, or for IPython: such a cell is not Python, and Sphinx warns of what it cannot highlight."""


def as_markdown(notebook: str) -> str:
    """The Markdown of a notebook, given as the text of its file."""
    parts: list[str] = []
    for cell in json.loads(notebook)["cells"]:
        if cell["cell_type"] == "code":
            code = _text(cell["source"])
            parts += [_fenced("text" if _MAGIC.search(code) else "python", code), *map(_shown, cell["outputs"])]
        else:
            parts.append(_text(cell["source"]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _shown(output: dict[str, Any]) -> str:
    """What a cell printed, returned or drew."""
    data = output.get("data", {})
    for kind in ("image/png", "image/jpeg"):
        if kind in data:
            return f"![output](data:{kind};base64,{''.join(_text(data[kind]).split())})"
    text = _text(output.get("text", data.get("text/plain", ""))).strip("\n")
    return _fenced("text", text) if text else ""


def _fenced(language: str, code: str) -> str:
    return f"```{language}\n{code}\n```"


def _text(lines: str | list[str]) -> str:
    return "".join(lines)
