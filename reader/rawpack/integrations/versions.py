"""Which versions of a framework an adapter was tested with, and what it hooks into."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from rawpack.errors import MissingExtraError
from rawpack.system.user import warn_once

TESTED = {
    "accelerate": ("1.15.0",),
    "transformers": ("5.23.0", "5.24.0"),
    "timm": ("1.0.31",),
    "ultralytics": ("8.4.190",),
}


def warn_if_untested(name: str) -> None:
    """Warn, once in a process, where another version of a framework is installed than those that were tested. Patch
    releases count as the same."""
    found = version(name)
    if any(_minor(found) == _minor(one) for one in TESTED[name]):
        return
    warn_once(
        name,
        f"{name} {found} has not been tested with rawpack, only {', '.join(TESTED[name])}: if training goes wrong, "
        f"install that: pip install {name}=={TESTED[name][-1]}",
    )


def hook(name: str, owner: Any, attribute: str, *parameters: str) -> Any:
    """What `owner` has under this name, which an adapter replaces or calls. Raises MissingExtraError where there is
    nothing, or where its first parameters besides self are not these. name: of the distribution."""
    found = getattr(owner, attribute, None)
    if found is None:
        raise MissingExtraError(_other(name, f"has no {owner.__name__}.{attribute}"))
    taken = [one for one in inspect.signature(found).parameters if one != "self"][: len(parameters)]
    if taken != list(parameters):
        takes = ", ".join(taken) or "nothing"
        raise MissingExtraError(_other(name, f"calls {owner.__name__}.{attribute} with {takes}"))
    return found


def _other(name: str, how: str) -> str:
    return f"{name} {version(name)} {how}, on which rawpack builds: pip install {name}=={TESTED[name][-1]}"


def _minor(text: str) -> Sequence[str]:
    return text.split(".")[:2]
