"""Writes reports to look at: a self-contained HTML file, or only the plots. Needs the extra `report`."""

from __future__ import annotations

from typing import Any

from rawpack.errors import MissingExtraError
from rawpack_packer.errors import need


def need_report(option: str) -> None:
    """Raise MissingExtraError, which names `option`, if jinja2 or matplotlib is missing."""
    for module in ("jinja2", "matplotlib"):
        need(module, "report", option, f"leave out {option}: the same comes as text, or with --json as JSON")


def in_cell(done: Any) -> str | None:
    """What a cell of a notebook shows of a `Plan` or `Bench`: its page; None without jinja2 or matplotlib."""
    try:
        need_report("a page in a notebook")
    except MissingExtraError:
        return None
    from rawpack_packer.report import pages

    return pages.framed(done)
