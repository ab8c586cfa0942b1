"""Docstrings of rawpack as reStructuredText: they are plain text, with code indented and `name: what it is` lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_PARAMETER = re.compile(r"(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): (.*)")
_DRAWN = re.compile("[├│└]")


def as_rst(lines: list[str]) -> list[str]:
    """The lines of a docstring, without its indentation."""
    made: list[str] = []
    for block in _blocks(lines):
        if any(_DRAWN.search(line) for line in block):
            made += ["::", "", *(f"    {line}" for line in block), ""]
        elif all(line.startswith("    ") or not line for line in block):
            made += [".. code-block:: python", "", *block, ""]
        else:
            made += _prose(block)
    return made


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """What blank lines divide. Code is one block, with the blank lines that are in it."""
    block: list[str] = []
    blanks = 0
    for line in lines:
        if not line.strip():
            blanks += 1
            continue
        if block and blanks:
            if block[0].startswith("    ") and line.startswith("    "):
                block += [""] * blanks
            else:
                yield block
                block = []
        blanks = 0
        block.append(line)
    if block:
        yield block


def _prose(block: list[str]) -> Iterator[str]:
    """A paragraph, followed by a list of its parameters, and another paragraph for what is raised."""
    pieces: list[str] = []
    listed: list[bool] = []
    for line in block:
        parameter = _PARAMETER.fullmatch(line)
        if parameter or line.startswith("- "):
            pieces.append(f"**{parameter[1]}**: {parameter[2]}" if parameter else line[2:])
            listed.append(True)
        elif not pieces or (line.startswith("Raises ") and listed[-1]):
            pieces.append(line.strip())
            listed.append(False)
        else:
            pieces[-1] += f" {line.strip()}"
    for piece, is_listed in zip(pieces, listed, strict=True):
        yield f"- {_escaped(piece)}" if is_listed else _escaped(piece)
        yield ""


def _escaped(text: str) -> str:
    """Bold names and code stay markup; everything else is as it is written."""
    parts = re.split(r"(^\*\*[^:]+\*\*(?=: )|`[^`]+`)", text)
    return "".join(_marked(part) for part in parts)


def _marked(part: str) -> str:
    if part.startswith("`"):
        return f"\\ ``{part[1:-1]}``\\ "  # letters may be next to it
    if re.fullmatch(r"\*\*[^:]+\*\*", part):
        return "**" + re.sub(r"([*_])", r"\\\1", part[2:-2]) + "**"
    return re.sub(r"([*|_\\`])", r"\\\1", part)
