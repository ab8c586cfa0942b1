"""What users give, and what they see: sizes and paths that they type, keywords, warnings, progress bars."""

from __future__ import annotations

import functools
import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rawpack.errors import UsageError

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_BYTES = re.compile(r"\s*(?P<number>\d{1,18}(\.\d{1,18})?)\s*(?P<unit>([kmgt]i?)?)b?\s*", re.IGNORECASE | re.ASCII)
_PACKAGE = __name__.partition(".")[0]
warned = set[str]()
AnyPath = TypeVar("AnyPath", bound=str | os.PathLike[str])
Call = TypeVar("Call", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type[Any])


def byte_count(value: object) -> int | None:
    """The bytes that 200_000_000_000, "200GB" or "1.5 TiB" means; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _BYTES.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    unit = match["unit"].lower()
    return int(float(match["number"]) * (1024 if unit.endswith("i") else 1000) ** _UNITS[unit[:1]])


def count(number: int, noun: str, plural: str = "") -> str:
    """ "1 image", "1,234 images"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def expanded(path: AnyPath) -> AnyPath:
    """A path that a user typed, with the home folder for a leading `~` or `~name`. URLs and all other paths stay.

    A first part such as `$HOME`, which a shell leaves in single quotes, is refused unless there is such a folder.

    For the doors only, where users' own words come in: a path in a file that somebody else wrote is no user's word. A
    file whose name begins with `~` is reached by `./~name`, given as a str: pathlib drops the `./`. Raises UsageError
    where the home folder is unknown.
    """
    name = path if isinstance(path, str) else path.__fspath__()
    if isinstance(name, str) and name.startswith("$") and not os.path.lexists(first := name.partition("/")[0]):
        raise UsageError(
            f"{name}: no shell replaced {first}, and there is no such folder: use double quotes, or none, around "
            f"{first}; in Python, os.path.expandvars(); for a folder that is to be called so, pass './{name}'"
        )
    if not isinstance(name, str) or not name.startswith("~"):
        return path
    found = os.path.expanduser(name)  # noqa: PTH111 # Path's raises for an unknown user
    user = name[1:].partition("/")[0]
    if found.startswith("~"):
        why = f"there is no user {user!r}" if user else "your home folder is not known: set HOME"
        raise UsageError(f"{name}: {why}; for a file or folder that is really called so, pass './{name}'")
    return found if isinstance(path, str) else Path(found)  # type: ignore[return-value] # as it was given


def unknown_keyword(called: str, name: str, known: Collection[str], meant: Sequence[str] = ()) -> TypeError:
    """The error of a call with a keyword that is not known; it suggests the nearest one. meant: the known ones that
    mean the same."""
    hint = f". Did you mean {meant[0]!r}?" if meant else did_you_mean(name, known)
    return TypeError(f"{called}() got an unexpected keyword argument {name!r}{hint}")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """ ". Did you mean 'label'?"; "" where no known name is near."""
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    return f". Did you mean {near[0]!r}?" if near else ""


def suggests(now: Callable[[Mapping[str, Any]], str | None] = lambda given: None) -> Callable[[Call], Call]:
    """Make a function say what to write where it is called with an unknown keyword: the nearest one.

    now: what to write for keywords of a call that are those of another loader.
    """

    def decorate(function: Call) -> Call:
        code, is_init = function.__code__, function.__name__ == "__init__"
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in known:
                    shown = type(args[0]).__name__ if is_init else function.__qualname__
                    if (line := now(given)) is not None:
                        raise TypeError(f"{shown}(): {line}")
                    raise unknown_keyword(shown, name, known)
            return function(*args, **given)

        return called  # type: ignore[return-value] # it takes and gives the same

    return decorate


def suggesting(kind: Kind) -> Kind:
    """Make a class say the nearest keyword where one of its own is made with an unknown one: as `suggests`."""
    kind.__init__ = suggests()(kind.__init__)
    return kind


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Issue a warning of rawpack at the innermost line outside the reader and the packer."""
    # Python 3.12 has `skip_file_prefixes` for this.
    level, frame = 1, sys._getframe()
    packages = (_PACKAGE, f"{_PACKAGE}_packer")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in packages:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{_PACKAGE}: {message}", category, stacklevel=level)


def warn_once(what: str, message: str) -> None:
    """Issue a warning, of what the user wrote, the first time in this process that it is about `what`."""
    if what not in warned:
        warned.add(what)
        warn(message, UserWarning)


def progress_bar(**settings: Any) -> Any:
    """A bar of tqdm: as a widget in a notebook that has ipywidgets, as text elsewhere, and not shown where standard
    error is closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns where ipywidgets is missing, and then uses text as well
        from tqdm.auto import tqdm
    return tqdm(**{"disable": sys.stderr is None} | settings)
