"""Users' pages have plain words: none that only the project knows, and none that readers stumble over."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
