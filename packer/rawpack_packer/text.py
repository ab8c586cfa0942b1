"""Words of messages: for whom they speak, numbers, and strange texts as a person wants to see them."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawpack.system.user import count as count

if TYPE_CHECKING:
    from rawpack.disk.manifest import Field

_in_python = ContextVar("_in_python", default=False)


@contextmanager
def speaking_python(yes: bool = True) -> Iterator[None]:
    """Messages of this thread speak of calls and keywords within this block; elsewhere, of commands and options."""
    token = _in_python.set(yes)
    try:
        yield
    finally:
        _in_python.reset(token)


def either(command: str, python: str) -> str:
    """The words for whoever reads the message."""
    return python if _in_python.get() else command


def again() -> str:
    """What a user repeats."""
    return either("the same command", "the same call")


_AS_CLOSE = 0.1
"""Names are offered together where their likeness differs by less."""


def plain(text: str | bytes, *, lines: bool = False) -> str:
    """`text` without anything that a terminal would obey: control codes, and what turns the direction of writing.

    Bytes are a path's: UTF-8 whatever the locale is, odd ones as \\xff. lines: keep line breaks. Keys and paths come
    from strangers.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else _escaped(c) for c in text)


_MOST = 10_000
"""Characters of what the code of others says."""


def storable(text: str) -> str:
    """What the code of others says, as a file can hold it: its beginning, with what UTF-8 cannot encode escaped."""
    return text[:_MOST].encode("utf-8", "backslashreplace").decode()


def in_python(text: str) -> str:
    """A text as code that a user copies: in double quotes, where it needs no escapes."""
    return f'"{text}"' if text.isprintable() and not {'"', "\\"} & {*text} else repr(text)


def composed(text: str) -> str:
    """One of the spellings that Unicode has for letters such as é: macOS may write another one (NFD)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def lines_in(text: str) -> list[str]:
    """The lines of a text. `str.splitlines` ends them at form feeds and at separators of Unicode too, which no editor
    takes for the end of a line."""
    return re.split("\r\n|[\r\n]", text) if text else []


def size(count: float) -> str:
    """Bytes, in powers of 1000 as disks are sold: "1.23 GB"."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB", "EB"):
        if abs(count) < 999.5 or unit == "EB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """ "0.8 s", "3 s", "3 min 12 s", "5 h 07 min"."""
    if seconds < 0.05:
        return "under 0.1 s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def about(length: float) -> str:
    """A duration with two digits: "1.6 s", "14 s", "3.2 min", "5 h"."""
    for unit, most in (("s", 90), ("min", 90), ("h", 72)):
        if length < most:
            return f"{float(f'{max(length, 0.1):.2g}'):g} {unit}"
        length /= 24 if unit == "h" else 60
    return f"{float(f'{length:.2g}'):g} days"


def rate(per_second: float) -> str:
    """ "1,234", and below ten "2.5"."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}".removesuffix(".0")


def shape(lengths: Iterable[int | None]) -> str:
    """ "256x256x3"; "?" where lengths differ."""
    return "x".join("?" if n is None else str(n) for n in lengths)


def image_shapes(fields: Mapping[str, Field]) -> str:
    """The shape of the images of samples, "256x256x3"; of several images, "image 32x32x3, depth 32x32x1 uint16"."""
    images = {name: field for name, field in fields.items() if field.kind == "image"}
    if len(images) == 1:
        return shape(images["image"].shape)
    return ", ".join(
        f"{name} {shape(one.shape)}" + (f" {one.dtype}" if one.dtype != "uint8" else "") for name, one in images.items()
    )


def with_noun(what: str, noun: str) -> str:
    """A phrase that speaks of images, for samples that are called something else: "frames/s" for "images/s"."""
    capital = re.sub(r"\b(Image)(s?)\b", rf"{noun.capitalize()}\2", what)
    return re.sub(r"\b(image)(s?)\b(?!=)", rf"{noun}\2", capital)  # not the field in a size, image=64


def listed(texts: Sequence[str], most: int, *, total: int | None = None, separator: str = ", ") -> str:
    """The first `most` texts, safe to show, and how many more there are: "a, b, and 3 more".

    total: how many there are, where `texts` does not hold all of them.
    """
    rest = (len(texts) if total is None else total) - min(most, len(texts))
    return separator.join([plain(one) for one in texts[:most]] + ([f"and {rest:,} more"] if rest > 0 else []))


def did_you_mean(name: str, known: Iterable[str], folder: str = "") -> str:
    """ "; did you mean lmdb?", with at most two names, the closest first; "" where none is close. folder: of `known`,
    for paths. The hyphens that options begin with make none of them alike."""
    import difflib

    words = {one.lstrip("-"): one for one in known}
    name = name.lstrip("-")
    found = difflib.get_close_matches(name, words, 2)
    ratios = [difflib.SequenceMatcher(None, one, name).ratio() for one in found]
    close = [words[one] for one, ratio in zip(found, ratios, strict=True) if ratio > ratios[0] - _AS_CLOSE]
    return f"; did you mean {' or '.join(plain(str(Path(folder, one))) for one in close)}?" if close else ""


def near_path(path: str) -> str:
    """The same for a path that does not exist."""
    folder = Path(path).parent
    try:
        return did_you_mean(Path(path).name, [one.name for one in folder.iterdir()], str(folder))
    except (OSError, ValueError):
        return ""


def share(part: float) -> str:
    """A share of a whole, such as 0.475, as "47.5%"."""
    return f"{100 * part:.1f}".removesuffix(".0") + "%" if part >= 0.001 or not part else "less than 0.1%"


def times(ratio: float) -> str:
    """A quotient: "0.023 times", "1.25 times", "102 times", "1,234 times"; of equal amounts "as much"."""
    if f"{ratio:.3g}" == "1":
        return "as much"
    digits = max(0, 2 - math.floor(math.log10(ratio))) if ratio >= 1 else 3
    text = f"{ratio:,.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} times" if ratio >= 0.001 else "under 0.001 times"


_INDENT, _BLANK = "  ", "\0"
"""A blank within a command."""


def columns() -> int | None:
    """How wide the terminal is that the command prints to, or COLUMNS; None in a pipe, where a line stays a line."""
    asked = os.environ.get("COLUMNS") or (sys.stdout is not None and sys.stdout.isatty())
    return shutil.get_terminal_size().columns if asked else None


def wrapped(lines: Iterable[str], width: int | None) -> str:
    """Lines wrapped to the width; a command, which users copy, stays on one line, alone or in backticks. Lines below
    the first are indented once more."""
    found = list[str]()
    for line in lines:
        inner = line.lstrip(" ")
        indent = " " * (len(line) - len(inner))
        if width is None or len(line) <= width or inner.startswith("rawpack "):
            found.append(line)
            continue
        found += _broken(inner, width, indent, indent + _INDENT)
    return "\n".join(found)


def _broken(line: str, width: int, first: str = "", other: str = "") -> list[str]:
    whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", _BLANK), line)
    found = textwrap.wrap(
        whole, max(20, width), initial_indent=first, subsequent_indent=other, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [one.replace(_BLANK, " ") for one in found]


def for_standard_error(message: str) -> str:
    """A message as the standard error gets it: wrapped where that is a terminal; elsewhere a line stays a line."""
    if sys.stderr is None or not sys.stderr.isatty():
        return message
    given = os.environ.get("COLUMNS", "")
    width = int(given) if given.isdecimal() else 0
    if not width:
        with suppress(OSError):  # a stream that has no descriptor, as in a notebook
            width = os.get_terminal_size(sys.stderr.fileno()).columns
    return wrapped(message.split("\n"), width or _USUAL_WIDTH)


_USUAL_WIDTH = 80
"""Of a terminal that does not say."""
Paint = Callable[[str, str], str]
"""Colors a part of a value; takes its name first."""
TO_COPY = ("read it", "each epoch", "look")
"""Rows whose values are code or commands."""


def table(
    rows: Sequence[tuple[str, str]], *, rest: int = 0, width: int | None = None,
    paint: Paint = lambda name, part: part,
) -> str:  # fmt: skip
    """Names and values, the values under one another. rest: rows that are not shown; how many, the last line says.
    width: values are wrapped to it."""
    most = math.inf if width is None else width // 2
    column = max((len(name) for name, _ in rows if len(name) <= most), default=0)
    lines = list[str]()
    for name, value in rows:
        start = f"{_INDENT}{name:<{column}}  "
        if not value:
            lines.append(wrapped([start.rstrip()], width))
        elif width is None or name in TO_COPY or len(start) + len(value) <= width:
            lines.append(start + paint(name, value))
        else:
            if len(name) > column:
                lines.append(start.rstrip())
                start = " " * (column + 2 * len(_INDENT))
            first, *others = _broken(value, width - column - 2 * len(_INDENT))
            lines += [start + paint(name, first), *(" " * len(start) + paint(name, one) for one in others)]
    return "\n".join(lines + ([f"{_INDENT}... and {rest:,} more"] if rest > 0 else []))


Rows = list[tuple[str, str]]
"""Names and values, one a line."""


@dataclass(frozen=True)
class Block:
    """A head, and the rows below it."""

    head: str
    rows: Rows = field(default_factory=list)
    rest: int = 0
    """How many rows are not shown."""

    def __str__(self) -> str:
        return self.as_text(None)

    def as_text(self, width: int | None, paint: Paint = lambda name, part: part) -> str:
        """width: no line is wider, but for code, commands and paths. paint: the head has the name ""."""
        shown = [table(self.rows, rest=self.rest, width=width, paint=paint)] if self.rows else []
        return "\n".join([paint("", wrapped(self.head.split("\n"), width)), *shown])


class Printed:
    """What a cell of a notebook shows as `print` does, not by its `repr`."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        # IPython prefers the `__repr__` of a class to what it inherits.
        setattr(cls, "_repr_pretty_", Printed._repr_pretty_)  # noqa: B010 # mypy allows no other

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


class Shown(Printed):
    """The result of a command: prints itself as the command does, and goes to programs as a dict."""

    def in_words(self) -> Block | list[Block]:
        """For people; safe to show."""
        raise NotImplementedError

    @property
    def missing(self) -> tuple[str, ...]:
        """Lines that are printed even where nothing else is, of what should be in the result."""
        return ()

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return dict(self) if isinstance(self, dict) else asdict(self)  # type: ignore[call-overload] # or a dataclass

    def __str__(self) -> str:
        return self.as_text(None)

    def as_text(self, width: int | None) -> str:
        words = self.in_words()
        return "\n\n".join(one.as_text(width) for one in ([words] if isinstance(words, Block) else words))


def grid(rows: list[tuple[str, ...]]) -> str:
    """A table of several columns, the first row its head; columns that are empty below it are left out."""
    kept = [k for k in range(len(rows[0])) if any(row[k] for row in rows[1:])]
    widths = [max(len(row[k]) for row in rows) for k in kept]
    lines = ("  ".join(row[k].ljust(width) for k, width in zip(kept, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(_INDENT + line for line in lines)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte of a path that is no UTF-8, as Python holds it
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
