"""Users' pages have plain words: none that only the project knows, and none that readers stumble over. No text that is
published speaks of where it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kept import of_each
from rooms import ROOT

FOR_DEVELOPERS = {
    "docs/explanation/architecture.md",
    "docs/explanation/supervision.md",
    "docs/contribute/release.md",
}
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
USERS_PAGES = [page for page in PAGES if page.relative_to(ROOT).as_posix() not in FOR_DEVELOPERS]
CODE = [path for name in ("packer/rawpack_packer", "reader/rawpack") for path in sorted((ROOT / name).rglob("*.py"))]

STRANGE = {
    r"\brooms?\b": "layer, or space",
    r"(?<!Hugging )\b[Ff]aces?\b": "framework adapter",
    r"(?<![Pp]rogress )\b[Bb]ars?\b(?! charts?\b)": "target; or progress bar, bar chart",
    r"\bin turn\b": "each round measures every row once; take turns",
    r"\bdone again\b": "repeated; packed again",
    r"\b(?:go|goes|went) on\b(?! to\b)": "continues, resumes",
    r"\bwhat becomes of\b": "what each becomes",
    r"\bbeside it\b": "next to it",
    r"\b(?:[Ff]ile|[Ff]older|[Ff]ield|store|shard|archive)s? holds?\b(?! out\b)|\| holds \|": "contains",
    r"\bthat holds?\b(?! all\b)": "contains",
}
"""A word in the prose of users' pages -> what to write instead."""
ALLOWED = {
    ("docs/glossary.md", "go on"): "the column of words not to use",
}
IN_CODE = {
    r"^[+ ]?import rawpack_packer$": "import rawpack",
    r"\brawpack_packer\.(?:pack|pack_splits|append|convert|merge|subset|relabel|export|plan|bench)\b": "rawpack.",
}
"""The same for the code on users' pages. Engines, sources and tests of plugins are in `rawpack_packer` only."""
PERCENT = re.compile(r"(?<=\d) %(?! \d)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]+`|\]\([^)\s]*\)")


def prose(text: str) -> str:
    """A page without its code and the addresses of its links, with single blanks."""
    return " ".join(CODE_SPAN.sub(" ", FENCE.sub(" ", text)).split())


def found_in(text: str, patterns: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Each match, and what to write instead."""
    for pattern, instead in patterns.items():
        for match in re.finditer(pattern, text, re.MULTILINE):
            yield match[0], instead


def test_users_pages_have_plain_words() -> None:
    """Neither words of the project's own nor phrases that make a reader stop; a page that was moved is not left out
    unseen."""
    assert len(USERS_PAGES) == len(PAGES) - len(FOR_DEVELOPERS)
    found = [
        (name, word, instead)
        for name, text in ((page.relative_to(ROOT).as_posix(), page.read_text("utf-8")) for page in USERS_PAGES)
        for word, instead in (*found_in(prose(text), STRANGE), *found_in(text, IN_CODE))
        if (name, word) not in ALLOWED
    ]
    assert found == []


def test_no_blank_before_percent() -> None:
    """5% on every page, in the help and in all messages."""
    found = {path.relative_to(ROOT).as_posix() for path in [*PAGES, *CODE] if PERCENT.search(path.read_text("utf-8"))}
    assert found == set()


LOCAL = {
    r"(?<![\w.~:/])/(?:work|home|root|Users|mnt|scratch)/\w": "a path of one machine",
    r"\b[s]hared/(?:data|hooks|peers|[A-Z]+\.md)": "a folder beside the checkout",
    r"(?i)\bI[S]SUE ?\d|\bB[R]IEF\d?\.md": "a task that readers cannot look up",
    r"(?i)\b(?:sub-?|coding )[a]gents?\b|\blanguage m[o]del|\bthis (?:work)(?:place|space)\b": "who wrote it, or where",
}
"""What a text that is published must not have -> why."""
LOCAL_ALLOWED = {(".ci/run", "a folder beside the checkout"): "continuous integration may find test data there"}
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
    assert {place for place in found if place[:2] not in LOCAL_ALLOWED} == set()


def local_in(text: str) -> list[tuple[str, str]]:
    """Why a text must not be published as it is, and the words."""
    return [(why, match[0]) for pattern, why in LOCAL.items() for match in re.finditer(pattern, text)]
