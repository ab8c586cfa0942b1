"""An option is declared once: its row in the table is where the command, Python and the checks have it from."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import rawpack_packer
from rawpack_packer.options import table

PACKER = Path(rawpack_packer.__file__).parent
MADE = "job/keyword_types.py"
COMMON = {"size", "format", "color", "check", "crop", "fit", "fast", "chunk"}
"""Recipe options whose names are words that code has for other things, too."""
MOST = 8
"""Files that name an option: the table, the recipe, what takes it, and messages about it."""


@cache
def texts() -> dict[str, str]:
    """The modules of the packer that people write, and what they say."""
    paths = {str(path.relative_to(PACKER)): path for path in sorted(PACKER.rglob("*.py"))}
    return {name: path.read_text("utf-8") for name, path in paths.items() if name != MADE}


def files_that_name(option: str) -> list[str]:
    """The files of the packer that name an option: as a text, by its flag, or in a message."""
    named = re.compile(rf"""["']{option}["']|--{option.replace("_", "-")}\b|\bopt\.{option}\b""")
    return [name for name, text in texts().items() if named.search(text)]


@pytest.mark.parametrize("name", sorted({one.name for one in table.RECIPE} - COMMON))
def test_a_recipe_option_stands_in_few_files(name: str) -> None:
    """Whoever adds one writes a row of the table, an entry of the recipe, and what takes it."""
    found = files_that_name(name)
    assert {"options/table.py", "recipe/__init__.py"} & set(found)
    assert len(found) <= MOST, found


def test_an_option_that_no_other_code_asks_about_stands_in_two() -> None:
    """The table and the recipe are enough for one that only says what a sample becomes."""
    assert files_that_name("interpolation") == ["options/table.py", "recipe/__init__.py"]
