"""One option: a row of the table, from which the command, the keywords of Python and the checks are made; and how a
text of the command, or a value in Python, becomes what a recipe holds."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from rawpack.errors import UsageError
from rawpack.system.user import byte_count
from rawpack_packer.text import either

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
    doc: str
    """What the docstring says, for Python; "" where the row before speaks of this one too."""
    short: str = ""
    """What `-h` says, in at most 48 characters; "" where the first sentence of `help` is as short."""
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
    by_field: bool = False
    """Whether it may have a value for each image field of a sample: NAME=VALUE, which may be repeated."""
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
    also: Mapping[str, str] = field(default_factory=dict)
    """Other words for some of its choices, which manifests have, and commands take."""
    off: str = ""
    """The value that a recipe has as None."""
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


Fit = Literal["cover", "stretch", "whole"]
Interpolation = Literal["area", "linear", "cubic", "lanczos", "nearest"]
"""As manifests have it."""
Color = Literal["rgb", "gray", "ycgco420"]
Check = Literal["structure", "decode"]
Subsampling = Literal["420", "422", "440", "444"]
JpegTables = Literal["jpegli", "standard"]
Depth = Literal["8", "16"]
FITS, COLORS, CHECKS, SUBSAMPLINGS, JPEG_TABLES, DEPTHS = map(
    get_args, (Fit, Color, Check, Subsampling, JpegTables, Depth)
)
INTERPOLATIONS = ("area", "bilinear", "bicubic", "lanczos", "nearest")
"""As users write them, here and in transforms."""
Names = Callable[[Any], str]
"""Names an option with a value, in a message: see `options.Named`."""
_MAX_SIDE = 65_500
"""libjpeg's limit, and enough for any raw store."""


def one_of(*allowed: str) -> Callable[[Names, Any], str]:
    def parse(name: Names, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise UsageError(f"{name(repr(value))}: must be one of {', '.join(allowed)}")
        return value

    return parse


def stored_as(words: Mapping[str, str], allowed: tuple[str, ...]) -> Callable[[Names, Any], str]:
    """As `one_of`, where manifests have other words, word -> choice, for some choices."""
    stored, parse = {choice: word for word, choice in words.items()}, one_of(*allowed)
    return lambda name, value: stored.get(choice := parse(name, words.get(str(value), value)), choice)


def at_least_1(name: Names, value: Any) -> Any:
    with suppress(TypeError):
        if not isinstance(value, bool) and (number := operator.index(value)) >= 1:
            return number
    raise UsageError(f"{name(repr(value))}: must be a whole number, 1 or more")


def as_text(value: Any, separator: str = "") -> str:
    """An option as the command gets it: "224x160" for (224, 160), "image=64,target=256" for a dict by field."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={as_text(one, separator)}" for name, one in value.items())
    return separator.join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def parse_size(name: Names, text: str, *, keep: bool = True) -> tuple[int, int] | int | Literal["keep"]:
    """A size: "256", "224x160" (height by width) or "keep"."""
    if text == "keep":
        return "keep"
    match = re.fullmatch(r"(\d{1,6})(?:[xX](\d{1,6}))?", text.strip())
    if not match:
        raise UsageError(
            f"{name(repr(text))}: must be a side in pixels (256){',' if keep else ' or'} "
            + either("HEIGHTxWIDTH (224x160)", "(height, width)")
            + (either(", or keep", ", or 'keep'") if keep else "")
        )
    sides = tuple(int(side) for side in match.groups() if side is not None)
    if any(not 1 <= side <= _MAX_SIDE for side in sides):
        raise UsageError(f"{name(text)}: sides must be between 1 and {_MAX_SIDE} pixels")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def parse_sizes(name: Names, text: str) -> Any:
    """A size, see `parse_size`; or one for each image field, "image=64,target=256", as a dict."""
    if "=" not in text:
        return parse_size(name, text)
    sizes: dict[str, Any] = {}
    for one in text.split(","):
        field, equals, size = (part.strip() for part in one.partition("="))
        if not equals:
            raise UsageError(f"{name(text)}: give one size for all images of a sample, or NAME=SIZE for each, not both")
        if field in sizes:
            raise UsageError(f"{name(text)}: {field!r} has two sizes")
        sizes[field] = parse_size(name, size)
    if "image" not in sizes:
        raise UsageError(f"{name(text)}: give a size to each image of a sample, 'image' too")
    return sizes


def parse_crop(name: Names, text: str) -> tuple[int, int, int, int]:
    """A crop: "X,Y,W,H" in pixels of the upright image."""
    match = re.fullmatch(r"\s*(\d{1,7})\s*,\s*(\d{1,7})\s*,\s*(\d{1,7})\s*,\s*(\d{1,7})\s*", text)
    if not match:
        raise UsageError(f"{name(repr(text))}: must be X,Y,WIDTH,HEIGHT in pixels, such as 186,0,114,30")
    x, y, width, height = (int(group) for group in match.groups())
    if not width or not height:
        raise UsageError(f"{name(text)}: width and height must be 1 or more")
    return x, y, width, height


def parse_quality(name: Names, text: str) -> int | Literal["keep"]:
    """A quality: 1 to 100, or "keep"."""
    if text == "keep":
        return "keep"
    if not re.fullmatch(r"\d{1,3}", text) or not 1 <= int(text) <= 100:
        raise UsageError(f"{name(repr(text))}: must be 1 to 100, or keep (JPEG files are stored as they are)")
    return int(text)


def parse_bytes(name: Names, text: str) -> int:
    """A number of bytes: "256MiB", "1GB", "65536"."""
    value = byte_count(text)
    if value is None:
        raise UsageError(f"{name(repr(text))}: must be a number of bytes such as 256MiB, 1GB or 65536")
    if not 1 <= value <= 1 << 44:
        raise UsageError(f"{name(text)}: must be between 1 byte and 16 TiB")
    return value
