"""Writes reports to look at: a self-contained HTML file, or only the plots. Needs the extra `report`."""

from __future__ import annotations

from rawpack_packer.errors import need


def need_report(option: str) -> None:
    """Raise MissingExtraError, which names `option`, if jinja2 or matplotlib is missing."""
    for module in ("jinja2", "matplotlib"):
        need(module, "report", option, f"leave out {option}: the same comes as text, or with --json as JSON")
