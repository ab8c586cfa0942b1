"""Pages of the documentation: what is between two markers is made, and replaced."""

from __future__ import annotations

from pathlib import Path


def replace(page: Path, name: str, made: str) -> None:
    """Replace the text between `<!-- NAME:begin -->` and `<!-- NAME:end -->` of a page."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = page.read_text("utf-8")
    if begin not in text or end not in text:
        raise SystemExit(f"{page} needs the markers {begin} and {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{made}\n\n{end}{after}", "utf-8")
