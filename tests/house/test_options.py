"""An option is declared once: its row in the table is where the command, Python and the checks have it from."""

from __future__ import annotations

import re
from pathlib import Path

import rawpack_packer
from rawpack_packer.options import table

PACKER = Path(rawpack_packer.__file__).parent
COMMON = {"size", "format", "color", "check", "crop", "fit", "fast", "chunk"}
"""Recipe options whose names are words that code has for other things, too."""
MOST = 8
"""Files that name an option: the table, the recipe, what takes it, and messages about it."""


def test_a_recipe_option_stands_in_few_files() -> None:
    """Whoever adds one writes a row of the table, an entry of the recipe, and what takes it; that which only says what
    a sample becomes needs no more than the first two."""
    paths = {path.relative_to(PACKER).as_posix(): path for path in sorted(PACKER.rglob("*.py"))}
    texts = {name: path.read_text("utf-8") for name, path in paths.items() if name != "job/keyword_types.py"}
    for option in {one.name for one in table.RECIPE} - COMMON:
        named = re.compile(rf"""["']{option}["']|--{option.replace("_", "-")}\b|\bopt\.{option}\b""")
        found = [name for name, text in texts.items() if named.search(text)]
        assert {"options/table.py", "recipe/__init__.py"} & set(found)
        assert len(found) <= (2 if option == "interpolation" else MOST), found
