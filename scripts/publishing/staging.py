"""Write the sources of the site into a folder: the pages as Sphinx reads them, and a page for each section.

The pages themselves are plain Markdown, for whoever reads them on a code host. What differs is written here: links
between pages, a dark variant of a picture, the words after the language of a code block, comments, and notebooks.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from publishing import api
from publishing.navigation import CONTENTS, HOME, ROOT, Section, names, sections, short
from publishing.notebooks import as_markdown

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?^```)$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_PICTURE = re.compile(r"<picture>.*?</picture>", re.DOTALL)
_TARGET = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")


def stage(folder: Path) -> None:
    """Write everything into a folder."""
    sources = Sources(folder, names())
    for page in sources.named:
        sources.write(page)
    for section in sections():
        sources.write_section(section)
    for name, text in api.pages().items():
        _write(folder / f"{name}.rst", text)


@dataclass(frozen=True)
class Sources:
    """The folder that Sphinx reads."""

    folder: Path
    named: Mapping[Path, str]
    """The file of each page -> its name on the site."""

    def write(self, page: Path) -> None:
        """Write a page, with a list of all on the first. Raises FileNotFoundError for a link that leads nowhere."""
        target = self.folder / f"{self.named[page]}.md"
        text = page.read_text("utf-8")
        if page.suffix == ".ipynb":
            _write(target.with_suffix(".ipynb"), text)
            text = f"{as_markdown(text)}\nThis page is a notebook: {{download}}`{page.name} <{page.name}>`.\n"
        text = self.prepared(text, page, target)
        if page == HOME:
            entries = [f"{section.title} <{section.name}>" for section in sections()]
            text += "\n## All pages\n" + _toctree(entries, ":includehidden:\n:titlesonly:\n:maxdepth: 2")
        if page == CONTENTS:
            text = f"---\norphan: true\nnosearch: true\n---\n{text}"
        _write(target, text)

    def write_section(self, section: Section) -> None:
        """Write a page that lists the pages of a section of docs/README.md, a line each, and has their toctree."""
        target = self.folder / f"{section.name}.md"
        text = self.prepared(as_list(section), CONTENTS, target)
        entries = [f"{title} </{self.named[path]}>" for path, title in section.pages]
        if section.title == "Reference":
            text += f"\n\n{api.INTRODUCTION}"
            entries.insert(2, f"{api.TITLE} </{api.INDEX}>")
        _write(target, f"# {section.title}\n\n{text}\n{_toctree(entries)}")

    def prepared(self, text: str, page: Path, target: Path) -> str:
        """Markdown of a page as Sphinx reads it in `target`."""

        def moved(found: re.Match[str]) -> str:
            words, link = found[1], found[2]
            path, hash_sign, anchor = link.partition("#")
            if not path or re.match(r"[a-z]+:", link):
                return found[0]
            file = (page.parent / path).resolve()
            place = os.path.relpath(self._place_of(file, page), target.parent)
            has_class = found.string.startswith("{", found.end())
            plate = "{.plate}" if words.startswith("!") and not has_class and _needs_light(file) else ""
            return f"{words}({place}{hash_sign}{anchor}){plate}"

        return _by_parts(text, lambda part: _TARGET.sub(moved, _PICTURE.sub(_two_images, _COMMENT.sub("", part))))

    def _place_of(self, file: Path, page: Path) -> Path:
        """Where Sphinx finds what a page links to: another page, or a file, which is copied."""
        if file in self.named:
            return self.folder / f"{self.named[file]}.md"
        if not file.is_file():
            raise FileNotFoundError(f"{page}: a link to {file}, which is not a file")
        place = self.folder / file.relative_to(CONTENTS.parent if file.is_relative_to(CONTENTS.parent) else ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
        return place


def as_list(section: Section) -> str:
    """The text of a section with a list for its table: links, and what they are for."""
    about = section.text.partition("\n\n| ")[0]
    lines = [f"- {links[0]}{short(links[1:])}: {want}" for want, links in section.rows]
    return f"{about}\n\n" + "\n".join(lines)


def _toctree(entries: Iterable[str], options: str = ":hidden:") -> str:
    return f"\n```{{toctree}}\n{options}\n\n" + "\n".join(entries) + "\n```\n"


def _by_parts(text: str, prose: Callable[[str], str]) -> str:
    """The text with all that is outside of code blocks changed, and with blocks that have only their language."""
    done, end = "", 0
    for block in _FENCE.finditer(text):
        language = (block[1].split() or ["text"])[0]
        done += prose(text[end : block.start()]) + f"```{language}\n{block[2]}"
        end = block.end()
    return done + prose(text[end:])


def _two_images(picture: re.Match[str]) -> str:
    """Two images for a `<picture>`, of which the site shows the one for its own colors, light or dark."""
    dark = re.search(r'srcset="([^"]+)"', picture[0])
    light = re.search(r'<img[^>]* src="([^"]+)"', picture[0])
    words = re.search(r'alt="([^"]*)"', picture[0])
    if not dark or not light or not words:
        raise ValueError(f"a <picture> needs a source for dark, and an img with src and alt: {picture[0]}")
    return f"![{words[1]}]({light[1]}){{.only-light}}\n![{words[1]}]({dark[1]}){{.only-dark}}"


def _needs_light(image: Path) -> bool:
    """Whether a drawing has no background of its own, and is not made for a dark page."""
    return image.suffix == ".svg" and "prefers-color-scheme" not in image.read_text("utf-8")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
