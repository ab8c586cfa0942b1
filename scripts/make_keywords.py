#!/usr/bin/env python3
"""Make the types of the keywords, for editors and type checkers, from the table of options.

    python scripts/make_keywords.py [--check]

With --check nothing is written; the exit code is 1 where the module is not what the table says.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

from made import ROOT, write

from rawpack_packer.options import RECIPE, RUN, SOURCE, Option

MODULE = ROOT / "packer" / "rawpack_packer" / "job" / "keyword_types.py"
_HEAD = '''\
"""The keywords of the functions in `rawpack_packer`, for editors and type checkers.

Made from the table of options by scripts/make_keywords.py. Change the table, not this module.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rawpack_packer.engines import Engine
    from rawpack_packer.job.options import Progress
    from rawpack_packer.sources.fields import Declared
'''
_GROUPS = {
    "RecipeKeywords": (
        "What is done to images, and how they are stored. What is left out, or None, depends on the source.",
        RECIPE,
    ),
    "SourceKeywords": ("What a source is, and what is taken of it.", SOURCE),
    "RunKeywords": ("How a job runs. None of it changes a byte of the store.", RUN),
}
"""Name of a class -> what it describes, and its options."""
_WIDTH = 120


def _lines(name: str, title: str, rows: tuple[Option, ...]) -> Iterator[str]:
    in_python = [one for one in rows if one.annotation]
    yield f"class {name}(TypedDict, total=False):"
    yield f'    """{title}'
    yield ""
    for one in in_python:
        yield from textwrap.wrap(
            f"{one.name}: {one.doc}", _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8,
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip
    yield '    """'
    yield ""
    yield from (f"    {one.name}: {one.annotation} | None" for one in in_python)


def module() -> str:
    """The whole module."""
    classes = ["\n".join(_lines(name, title, rows)) for name, (title, rows) in _GROUPS.items()]
    text = "\n\n\n".join([_HEAD.rstrip(), *classes]) + "\n"
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(MODULE), "-"]
    return subprocess.run(command, input=text, capture_output=True, encoding="utf-8", check=True).stdout


if __name__ == "__main__":
    write(MODULE, module, __doc__)
