"""Writes reports to look at: a self-contained HTML file, or only the plots. Needs the extra `report`."""

from __future__ import annotations

import importlib.util

from rawpack.errors import MissingExtraError


def need_report(option: str) -> None:
    """Raise MissingExtraError, which names `option`, if jinja2 or matplotlib is missing."""
    missing = [name for name in ("jinja2", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{option} needs {' and '.join(missing)}: pip install 'rawpack[report]'; without {option} the same comes "
            "as text, or with --json as JSON"
        )
