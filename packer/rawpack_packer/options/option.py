"""One option: a row of the table, from which the command, the keywords of Python and the checks are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Group = Literal["recipe", "source", "run"]


def _as_given(name: Callable[[Any], str], value: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class Option:
    """What a user may say about a recipe, a source or a run.

    The first four lines are enough for an option that only passes its value on.
    """

    name: str
    """Its keyword in Python."""
    group: Group
    heading: str
    """Of `--help`."""
    help: str
    """One or two sentences, for the command."""
    about: str
    """What the docstring says, for Python; "" where the row before speaks of this one too."""
    annotation: str
    """The type of the keyword, as code; "" for an option that only the command has."""
    meant_by: tuple[str, ...] = ()
    """Names of other tools for the same, which nothing here has: suggestions for who types them."""
    flags: tuple[str, ...] = ()
    """As the command has it; () for `--` and the name. The long one comes last."""
    metavar: str = ""
    """What stands for its value in `--help`; "" for a choice, a number or a flag."""
    choices: tuple[str, ...] = ()
    least: int | None = None
    """The smallest number; None for what is no whole number."""
    most_seconds: float | None = None
    """The largest number of seconds; None for what is no time."""
    is_flag: bool = False
    multiple: bool = False
    """Whether the command takes it several times."""
    is_path: bool = False
    default: str = ""
    """In words, for a new store or a run."""

    # Of recipes:
    parse: Callable[[Callable[[Any], str], Any], Any] = _as_given
    """Takes what names the option in messages, and what was given, as text or as a Python value."""
    initial: Any = None
    """What is parsed where nothing is given; None for what follows from other options."""
    of_some_formats: bool = False
    """Whether only some formats have it: see `OutputFormat.options`."""
    follows: bool = False
    """Whether it is None in a recipe whose other options leave it no meaning."""
    stored: type | None = None
    """The type of its value in a manifest that a derived store takes over; None for what it does not."""
    kept: str | None = "as in the store"
    """The default of a store made of stores, in words; None where that has no such option."""
    tried: tuple[str, str] | None = None
    """Where `rawpack plan` tries several values: what one is, and the default, in words."""

    @property
    def flag(self) -> str:
        """The long name: "--shard-size"."""
        return self.names[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """All names that the command has."""
        return self.flags or (f"--{self.name.replace('_', '-')}",)
