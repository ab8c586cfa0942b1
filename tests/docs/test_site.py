"""The site of the documentation: every page has one place in it, all links lead somewhere, no public name is left out
of the API, and machines get the same as plain text. `scripts/site` builds it, and fails for a warning of Sphinx;
.ci/run does that too."""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter
from pathlib import Path

from publishing import api, searching
from publishing.checking import broken
from publishing.navigation import HOME, names
from publishing.plain import write_plain

import rawpack
import rawpack.transforms

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {path for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")) if path != DOCS / "README.md"}
PAGES |= {ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"}


def test_every_page_has_one_place() -> None:
    """docs/README.md, which the navigation is made from, links to each page without an anchor exactly once."""
    text = (DOCS / "README.md").read_text("utf-8")
    links = Counter((DOCS / path).resolve() for path in re.findall(r"\]\(([^)#]+)\)", text))
    assert links == Counter(PAGES)


def test_public_names_are_in_the_api() -> None:
    """Everything that `rawpack` and `rawpack.transforms` export, and every name that a page for users imports: each has
    one place there, and exists."""
    every = [one for page in api.PAGES.values() for one in page.described()]
    described = {*every}
    assert len(described) == len(every)
    assert [one for one in described if not hasattr(importlib.import_module(one[0]), one[1])] == []
    for module in (rawpack, rawpack.transforms):
        assert {(module.__name__, name) for name in module.__all__} <= described
    imported = set()
    for page in (PAGES | {HOME}) - {ROOT / "CONTRIBUTING.md"}:
        for module, listed in re.findall(
            r"^from (rawpack[\w.]*) import ([\w, ]+)$", page.read_text("utf-8"), re.MULTILINE
        ):
            imported |= {(module, name) for name in listed.split(", ")}
    modules = {path.stem for top in ("reader", "packer") for path in (ROOT / top).rglob("*")}
    assert {one for one in imported if one[1] not in modules} <= described


def test_broken_links_of_a_site_are_found(tmp_path: Path) -> None:
    """A missing page, a missing anchor, a missing image; not what exists, and not other hosts."""
    (tmp_path / "how-to").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top-of">x</h1><a href="how-to/a%20b.html#here">1</a><a href="#top-of">2</a><a href="how-to/">3</a>'
        '<a href="https://example.com/none">4</a><a href="#nowhere">5</a><a href="none.html">6</a><img src="none.svg">'
        '<a href="how-to/a%20b.html#there">7</a>'
    )
    (tmp_path / "how-to" / "index.html").write_text("")
    (tmp_path / "how-to" / "a b.html").write_text('<p id="here"><a href="../../outside.html">8</a>')
    assert broken(tmp_path) == [
        "how-to/a b.html: ../../outside.html",
        "index.html: #nowhere",
        "index.html: how-to/a%20b.html#there",
        "index.html: none.html",
        "index.html: none.svg",
    ]


def test_machines_get_every_page(tmp_path: Path) -> None:
    """As Markdown, once in llms.txt, with a line about it; no link of any of them leads nowhere."""
    write_plain(tmp_path)
    text = (tmp_path / "llms.txt").read_text("utf-8")
    assert re.match(r"# rawpack\n\n> [^\n]+\n\n- \[", text)
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    entries = [re.fullmatch(r"- \[[^\]]+\]\(([^)]+)\): .+", line) for line in lines]
    listed = Counter(entry[1] if entry else "no link with a line about it" for entry in entries)
    pages = {page.relative_to(tmp_path).as_posix() for page in tmp_path.rglob("*.md")}
    assert len(pages) == len(PAGES) + 3
    assert listed == Counter(pages - {"contents.md"})
    assert broken(tmp_path) == []
    assert [title for title in re.findall("^## (.*)$", text, re.MULTILINE) if title == "Optional"] == ["Optional"]


def test_the_search_knows_every_page() -> None:
    """Each has a place in the ranking, pages for contributors come last, and what people call a page names one page or
    two that exist."""
    ranked = json.loads(searching.ranking())
    assert set(names().values()) - {"contents"} <= set(ranked)
    assert [ranked[name]["late"] for name in ("contributing", "explanation/architecture", "how-to/plan")] == [1, 1, 0]
    assert set(searching.ALSO) <= set(ranked)
    phrases = Counter(phrase for listed in searching.ALSO.values() for phrase in listed.split(", "))
    assert max(phrases.values()) <= 2
