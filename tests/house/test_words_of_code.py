"""One word for one thing: what was renamed does not come back; and no text speaks of where it was written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rooms import ROOT, modules

OLD = {
    "crew": "WorkerPool",
    "teams": "PoolCache",
    "hire": "acquire",
    "dismiss": "discard",
    "seat": "WorkerHandle",
    "seats": "workers",
    "lend": "helpers, which prepare chunks",
    "loose": "RaggedFields",
    "slotring": "SlotPool",
    "complainterror": "LibjpegError",
    "wishes": "Goals",
    "rework": "derive",
    "fleeting": "evictable",
}
"""Words that name nothing in the product any more -> what to write instead (docs/glossary.md)."""

KNOWN: dict[tuple[str, str], str] = {}
"""Where one of them still stands, and why: (word, module) -> the reason."""


def words_of(name: str) -> set[str]:
    """The words of an identifier: `_lend_hands` and `LendHands` have "lend" and "hands"."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names_in(tree: ast.AST) -> Iterator[str]:
    """Every name that a module gives: to classes, functions, parameters, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def old_words() -> set[tuple[str, str]]:
    """(word, module) for each word of OLD in a module's own name or in a name that it gives."""
    found = set()
    for module, path in modules().items():
        names = {path.stem, *names_in(ast.parse(path.read_text("utf-8")))}
        found |= {(word, module) for name in names for word in words_of(name) | {name.lower()} if word in OLD}
    return found


def test_old_words_do_not_come_back() -> None:
    """Whoever knows the glossary knows the names in the code."""
    wrong = old_words() - set(KNOWN)
    assert wrong == set(), {word: OLD[word] for word, _ in wrong}


def test_no_exception_outlives_its_reason() -> None:
    """An exception that is no longer needed is deleted."""
    assert set(KNOWN) - old_words() == set(), "delete it from KNOWN"


@pytest.mark.parametrize(
    ("name", "words"),
    [("_lend_hands", {"lend", "hands"}), ("CrewState", {"crew", "state"}), ("IN_NO_SLOT", {"in", "no", "slot"})],
)
def test_words_of_a_name_are_found(name: str, words: set[str]) -> None:
    """However a name is written."""
    assert words_of(name) == words


LOCAL = {
    r"(?<![\w.~:/])/(?:work|home|root|Users|mnt|scratch)/\w": "a path of one machine",
    r"\b[s]hared/(?:data|hooks|peers|[A-Z]+\.md)": "a folder beside the checkout",
    r"(?i)\bI[S]SUE ?\d|\bB[R]IEF\d?\.md": "a task that readers cannot look up",
    r"(?i)\b(?:sub-?|coding )[a]gents?\b|\blanguage m[o]del|\bthis (?:work)(?:place|space)\b": "who wrote it, or where",
}
"""What a text that is published must not have -> why."""

ALLOWED = {(".ci/run", "a folder beside the checkout"): "continuous integration may find test data there"}


TEXT = {"", ".py", ".md", ".sh", ".svg", ".html", ".json", ".toml", ".txt"}


def texts() -> Iterator[Path]:
    """Every text file that is published."""
    for top in ("reader", "packer", "tests", "scripts", "docs", ".ci"):
        for path in sorted((ROOT / top).rglob("*")):
            inner = path.relative_to(ROOT / top).parts
            if path.is_file() and path.suffix in TEXT and not any(part.startswith((".", "__pyc")) for part in inner):
                yield path
    yield from sorted(ROOT.glob("*.md"))
    yield ROOT / "pyproject.toml"


def test_no_text_speaks_of_where_it_was_written() -> None:
    """All paths, names and references in what is published mean something to whoever reads it."""
    found = set()
    for path in texts():
        text = path.read_text("utf-8")
        for pattern, why in LOCAL.items():
            name = path.relative_to(ROOT).as_posix()
            found |= {(name, why, match[0]) for match in re.finditer(pattern, text) if (name, why) not in ALLOWED}
    assert found == set()


@pytest.mark.parametrize(
    "text", ["/home" + "/me/photos", "see /work" + "/x", "../sha" + "red/data/photos", "Issue" + " 15"]
)
def test_such_a_text_would_be_found(text: str) -> None:
    """What one writes without thinking of others."""
    assert any(re.search(pattern, text) for pattern in LOCAL)
