"""Check the links of pages that were built: each leads to a file of the site, and of HTML to an anchor of that file."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


class _Page(HTMLParser):
    """What a page links to or shows, and what can be linked to on it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors = {"", "top"}
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.add(value)


def broken(site: Path) -> list[str]:
    """A line for each link that leads nowhere within the site; links to other hosts are not followed."""
    pages = {file: _Page(file) for file in sorted(site.resolve().rglob("*.html"))}
    found = []
    for file, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if to.is_dir():
                to /= "index.html"
            inside = to.is_relative_to(site.resolve())
            if not inside or not to.exists() or (to in pages and unquote(parts.fragment) not in pages[to].anchors):
                found.append(f"{file.relative_to(site.resolve())}: {link}")
    for file in sorted([*site.rglob("*.md"), *site.rglob("llms.txt")]):
        prose = _CODE.sub("", file.read_text("utf-8"))
        for link in _LINK.findall(prose):
            path = unquote(urlsplit(link).path)
            if not urlsplit(link).scheme and path and not (file.parent / path).is_file():
                found.append(f"{file.relative_to(site)}: {link}")
    return found
