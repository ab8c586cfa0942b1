"""The navigation of the site: the sections of docs/README.md, and the pages that belong to each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME, CONTENTS = ROOT / "README.md", ROOT / "docs" / "README.md"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Section:
    """A heading of docs/README.md."""

    title: str
    text: str
    """What is under the heading."""
    pages: tuple[tuple[Path, str], ...]
    """Each page that the text links to without an anchor, and its title in the navigation."""

    @property
    def name(self) -> str:
        return self.title.lower().replace(" ", "-")

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The rows of its table: what a reader wants, and links to the pages that say it."""
        rows = re.findall(r"^\| (.*) \| (.*) \|$", self.text, re.MULTILINE)
        return rows[1:]  # the first is the head

    def about(self, page: Path) -> str:
        """What a reader who opens the page wants to do."""
        return next(want for want, links in self.rows if page in _pages(links))


def sections() -> list[Section]:
    """The sections, in order."""
    found = []
    for part in CONTENTS.read_text("utf-8").split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        found.append(Section(title, text.strip(), tuple(_pages(text).items())))
    return found


def _pages(text: str) -> dict[Path, str]:
    """The file of each page that a text links to -> its title in the navigation."""
    links = [(to, words) for words, to in LINK.findall(text) if "#" not in to and ":" not in to]
    return {(CONTENTS.parent / to).resolve(): short(words) for to, words in links}


def short(words: str) -> str:
    """The title of a page in the navigation: "Pack video" for a link "how to pack video"."""
    words = words.removeprefix("how to ")
    return words[0].upper() + words[1:]


def names() -> dict[Path, str]:
    """The file of each page -> its name on the site: "how-to/plan"."""
    found = {HOME: "index", CONTENTS: "contents"}
    for section in sections():
        for path, _ in section.pages:
            inside = path.is_relative_to(CONTENTS.parent)
            name = path.relative_to(CONTENTS.parent).with_suffix("").as_posix() if inside else path.stem.lower()
            found[path] = re.sub(r"\bREADME$", "index", name)
    return found
