"""Keywords that a function does not have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

Call = TypeVar("Call", bound=Callable[..., Any])


def unknown_keyword(called: str, name: str, known: Collection[str], meant: Sequence[str] = ()) -> TypeError:
    """The error of a call with a keyword that is not known; it suggests the nearest one. meant: the known ones that
    mean the same."""
    import difflib

    near = meant or difflib.get_close_matches(name, known, 1)
    hint = f". Did you mean {near[0]!r}?" if near else ""
    return TypeError(f"{called}() got an unexpected keyword argument {name!r}{hint}")


def suggests(now: Callable[[Mapping[str, Any]], str | None] = lambda given: None) -> Callable[[Call], Call]:
    """Make a function say what to write where it is called with an unknown keyword: the nearest one.

    now: what the keywords of a call are called today, where some of them are of an earlier version.
    """

    def decorate(function: Call) -> Call:
        code = function.__code__
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in known:
                    if (line := now(given)) is not None:
                        raise TypeError(f"{function.__qualname__}(): {line}")
                    raise unknown_keyword(function.__qualname__, name, known)
            return function(*args, **given)

        return called  # type: ignore[return-value] # it takes and gives the same

    return decorate
