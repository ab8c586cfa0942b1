"""Whether a report can be drawn and written: asked before the work that it is about."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from rawpack.errors import MissingExtraError, UsageError

_NEEDED = ("jinja2", "matplotlib")


def need_report(option: str) -> None:
    """Raise MissingExtraError, naming the option that asked, where jinja2 or matplotlib is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"{option} needs {' and '.join(missing)}: pip install 'rawpack[report]'; without {option} the same comes "
            "as text, or with --json as JSON"
        )


def check_file(option: str, path: Path) -> None:
    """Raise UsageError where no file can be written to `path`."""
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder: name a file")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.absolute().parent}")
