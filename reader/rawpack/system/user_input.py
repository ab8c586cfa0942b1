"""What users type: numbers of bytes, and paths, in which a leading `~` is the home folder, as in a shell."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeVar

from rawpack.errors import UsageError

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_BYTES = re.compile(r"\s*(?P<number>\d{1,18}(\.\d{1,18})?)\s*(?P<unit>([kmgt]i?)?)b?\s*", re.IGNORECASE | re.ASCII)
AnyPath = TypeVar("AnyPath", bound=str | os.PathLike[str])


def byte_count(value: object) -> int | None:
    """The bytes that 200_000_000_000, "200GB" or "1.5 TiB" means; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _BYTES.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    unit = match["unit"].lower()
    return int(float(match["number"]) * (1024 if unit.endswith("i") else 1000) ** _UNITS[unit[:1]])


def expanded(path: AnyPath) -> AnyPath:
    """A path that a user typed, with the home folder for a leading `~` or `~name`. URLs and all other paths stay.

    For the doors only, where users' own words come in: a path in a file that somebody else wrote is no user's word. A
    file whose name begins with `~` is reached by `./~name`, given as a str: pathlib drops the `./`. Raises UsageError
    where the home folder is unknown.
    """
    name = path if isinstance(path, str) else path.__fspath__()
    if not isinstance(name, str) or not name.startswith("~"):
        return path
    found = os.path.expanduser(name)  # noqa: PTH111 # Path's raises for an unknown user
    user = name[1:].partition("/")[0]
    if found.startswith("~"):
        why = f"there is no user {user!r}" if user else "your home folder is not known: set HOME"
        raise UsageError(f"{name}: {why}; for a file or folder that is really called so, pass './{name}'")
    return found if isinstance(path, str) else Path(found)  # type: ignore[return-value] # as it was given
