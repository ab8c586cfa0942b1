"""Whether what draws a report is installed: asked before the work that it is about."""

from __future__ import annotations

import importlib.util

from rawpack.errors import MissingExtraError

_NEEDED = ("jinja2", "matplotlib")


def need_report(option: str) -> None:
    """Raise MissingExtraError, naming the option that asked, where jinja2 or matplotlib is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{option} needs {' and '.join(missing)}: pip install 'rawpack[report]'; without {option} the same comes "
            "as text, or with --json as JSON"
        )
