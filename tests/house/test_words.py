"""Users' pages have plain words: none that only the project knows, and none that readers stumble over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from kept import of_each
from rooms import ROOT, nodes_of, parsed

FOR_DEVELOPERS = {
    "CONTRIBUTING.md",
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


@pytest.mark.parametrize("page", USERS_PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_users_page_has_plain_words(page: Path) -> None:
    """Neither words of the project's own nor phrases that make a reader stop."""
    name, text = page.relative_to(ROOT).as_posix(), page.read_text("utf-8")
    found = [*found_in(prose(text), STRANGE), *found_in(text, IN_CODE)]
    assert [(word, instead) for word, instead in found if (name, word) not in ALLOWED] == []


def test_the_pages_of_developers_exist() -> None:
    """A page that was moved is not left out unseen."""
    assert [name for name in sorted(FOR_DEVELOPERS) if not (ROOT / name).is_file()] == []


def test_no_blank_before_percent() -> None:
    """5% on every page, in the help and in all messages."""
    found = {path.relative_to(ROOT).as_posix() for path in [*PAGES, *CODE] if PERCENT.search(path.read_text("utf-8"))}
    assert found == set()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Each\nroom imports.", "room"),
        ("All faces but one.", "faces"),
        ("The bar is missed.", "bar"),
        ("They are read in\nturn.", "in turn"),
        ("Parts are done again.", "done again"),
        ("Training goes on.", "goes on"),
        ("A folder that holds images.", "that holds"),
    ],
)
def test_such_a_word_would_be_found(text: str, word: str) -> None:
    """Also where a line breaks within it."""
    assert [match for match, _ in found_in(prose(text), STRANGE)] == [word]


@pytest.mark.parametrize(
    "text",
    ["Hugging\nFace", "a progress\nbar", "a bar chart", "`rawpack.samples`", "[x](faces/a.md)", "goes on to B"],
)
def test_a_usual_word_is_not(text: str) -> None:
    """Names, code, addresses and usual words."""
    assert [*found_in(prose(text), STRANGE)] == []


@pytest.mark.parametrize("text", ["import rawpack_packer", "+import rawpack_packer", "rawpack_packer.pack(x, y)"])
def test_such_code_would_be_found(text: str) -> None:
    """In scripts and in what a diff adds."""
    assert [*found_in(text, IN_CODE)] != []


NOUNS = (
    "samples|images|files|rows|frames|shards|batches|splits|classes|videos|episodes|records|keys|entries|boxes|labels|"
    "stores|fields|parts|workers|epochs|steps|lines|tables|values|arrays|rounds"
)
NUMBERS = {"len", "int", "sum"}
MAY_BE_PLURAL = {
    ("rawpack/integrations/keras.py", "len(self)"): "of two epochs that differ",
    ("rawpack/integrations/keras.py", "len(data)"): "of two data sets that differ; and what does not divide it",
    ("rawpack/native/calls.py", "len(images)"): "an error of our own code",
    ("rawpack/order/from_column.py", "len(self._counts)"): "part of the state of an order, which stays",
    ("rawpack/transforms/values.py", "len(values)"): "never one, which is right for any image",
    ("rawpack_packer/cli/inspect.py", "drawn"): "more than one",
    ("rawpack_packer/cli/pack.py", "len(jobs.jobs)"): "more than one",
    ("rawpack_packer/job/opening.py", "len(dataset)"): "the name of a source, which a job remembers",
    ("rawpack_packer/recipe/__init__.py", "_MAX_CHUNK // raw"): "millions",
    ("rawpack_packer/tune/recommend.py", "goals.target"): "images/s",
}
"""(module, number) -> why its noun is in the plural."""


def uncounted(source: str) -> list[str]:
    """The expression of each number in a message that is followed by a noun in the plural: what surely is a number, as
    it is computed or printed so."""
    return [*_uncounted(parsed(source))]


def _uncounted(tree: ast.Module) -> Iterator[str]:
    for node in nodes_of(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for number, text in pairwise(parts):
            noun = re.match(rf" ([a-z]+ )?({NOUNS})\b", str(getattr(text, "value", "")))
            if isinstance(number, ast.FormattedValue) and noun:
                value, called = number.value, ast.unparse(getattr(number.value, "func", ast.Name("")))
                if number.format_spec is not None or isinstance(value, ast.BinOp) or called in NUMBERS:
                    yield ast.unparse(value)


def test_a_number_agrees_with_its_noun() -> None:
    """No message says "1 images": those that may do so use `count`. The rooms of sources are not yet looked at."""
    folders = [ROOT / "reader", ROOT / "packer"]
    uncounted_in = of_each(uncounted, CODE)
    numbers = {
        (path.relative_to(folder).as_posix(), number)
        for folder in folders
        for path in CODE
        if path.is_relative_to(folder) and "sources" not in path.parts and "testing" not in path.parts
        for number in uncounted_in[path]
    }
    assert numbers - set(MAY_BE_PLURAL) == set(), "use count(number, noun)"
    assert set(MAY_BE_PLURAL) - numbers == set(), "delete it from MAY_BE_PLURAL"


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ('f"{len(x)} images"', 1), ('f"{n:,} other images are here"', 1),
        ('f"{a + 1} rows"', 1), ('f"{name} has rows"', 0),
        ("f\"{count(n, 'image')} in 1 file\"", 0), ('f"{n:,} bytes"', 0),
    ],
)  # fmt: skip
def test_such_a_number_would_be_found(line: str, count: int) -> None:
    assert len(uncounted(line)) == count
