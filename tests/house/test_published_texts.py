"""No text that is published speaks of where it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kept import of_each
from rooms import ROOT

LOCAL = {
    r"(?<![\w.~:/])/(?:work|home|root|Users|mnt|scratch)/\w": "a path of one machine",
    r"\b[s]hared/(?:data|hooks|peers|[A-Z]+\.md)": "a folder beside the checkout",
    r"(?i)\bI[S]SUE ?\d|\bB[R]IEF\d?\.md": "a task that readers cannot look up",
    r"(?i)\b(?:sub-?|coding )[a]gents?\b|\blanguage m[o]del|\bthis (?:work)(?:place|space)\b": "who wrote it, or where",
}
"""What a text that is published must not have -> why."""

ALLOWED = {(".ci/run", "a folder beside the checkout"): "continuous integration may find test data there"}


TEXT = {"", ".py", ".md", ".mjs", ".sh", ".svg", ".html", ".json", ".toml", ".txt", ".yml"}


def texts() -> Iterator[Path]:
    """Every text file that is published."""
    for top in ("reader", "packer", "tests", "scripts", "docs", ".ci", ".github"):
        for path in sorted((ROOT / top).rglob("*")):
            inner = path.relative_to(ROOT / top).parts
            is_shard = re.search(r"-\d+-of-\d+$", path.name)  # of images
            is_hidden = any(part.startswith((".", "__pyc")) for part in inner)
            if path.is_file() and path.suffix in TEXT and not is_shard and not is_hidden:
                yield path
    yield from sorted(ROOT.glob("*.md"))
    yield from (ROOT / name for name in ("pyproject.toml", "CITATION.cff", ".pre-commit-config.yaml"))


def test_no_text_speaks_of_where_it_was_written() -> None:
    """All paths, names and references in what is published mean something to whoever reads it."""
    found = {
        (path.relative_to(ROOT).as_posix(), why, words)
        for path, places in of_each(local_in, texts()).items()
        for why, words in places
    }
    assert {place for place in found if place[:2] not in ALLOWED} == set()


def local_in(text: str) -> list[tuple[str, str]]:
    """Why a text must not be published as it is, and the words."""
    return [(why, match[0]) for pattern, why in LOCAL.items() for match in re.finditer(pattern, text)]
