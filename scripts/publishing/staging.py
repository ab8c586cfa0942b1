"""Write the sources of the site into a folder: the pages as Sphinx reads them, and a page for each section.

The pages themselves are plain Markdown, for whoever reads them on a code host. What differs is written here: links
between pages, a dark variant of a picture, the words after the language of a code block, and comments.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from publishing import api
from publishing.navigation import CONTENTS, HOME, ROOT, Section, names, sections

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?^```)$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_PICTURE = re.compile(r"<picture>.*?</picture>", re.DOTALL)
_TARGET = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
_IMAGES = {".gif", ".jpg", ".png", ".svg", ".webp"}
_FOLLOWS_DARK = "prefers-color-scheme"


def stage(folder: Path) -> None:
    """Write everything into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    named = names()
    for page, name in named.items():
        text = _prepared(page.read_text("utf-8"), page, folder / f"{name}.md", named, folder)
        if page == HOME:
            text += _toctree([f"{section.title} <{section.name}>" for section in sections()])
        if page == CONTENTS:
            text = f"---\norphan: true\nnosearch: true\n---\n{text}"
        _write(folder / f"{name}.md", text)
    for section in sections():
        _write(folder / f"{section.name}.md", _page_of(section, named, folder))
    for name, text in api.pages().items():
        _write(folder / f"{name}.rst", text)


def _page_of(section: Section, named: dict[Path, str], folder: Path) -> str:
    """A page with what docs/README.md says in the section, and the toctree of its pages."""
    text = _prepared(section.text, CONTENTS, folder / f"{section.name}.md", named, folder)
    entries = [f"{title} </{named[path]}>" for path, title in section.pages]
    if section.title == "Reference":
        text += f"\n\n{api.INTRODUCTION}"
        entries.insert(2, f"{api.TITLE} </{api.INDEX}>")
    return f"# {section.title}\n\n{text}\n{_toctree(entries)}"


def _toctree(entries: list[str]) -> str:
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n"


def _prepared(text: str, page: Path, target: Path, named: dict[Path, str], folder: Path) -> str:
    """The Markdown of a page for Sphinx, as `target`. Raises FileNotFoundError for a link that leads nowhere."""

    def moved(found: re.Match[str]) -> str:
        words, link = found[1], found[2]
        path, hash_sign, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return found[0]
        file = (page.parent / path).resolve()
        if file in named:
            new = folder / f"{named[file]}.md"
        elif file.is_file():
            new = folder / file.relative_to(CONTENTS.parent if file.is_relative_to(CONTENTS.parent) else ROOT)
            new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, new)
        else:
            raise FileNotFoundError(f"{page}: {link} is not a file")
        plate = "{.plate}" if words.startswith("!") and _needs_light(file) else ""
        return f"{words}({os.path.relpath(new, target.parent)}{hash_sign}{anchor}){plate}"

    def prose(part: str) -> str:
        return _TARGET.sub(moved, _PICTURE.sub(_two_images, _COMMENT.sub("", part)))

    return _by_parts(text, prose)


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
    return image.suffix == ".svg" and _FOLLOWS_DARK not in image.read_text("utf-8")


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
