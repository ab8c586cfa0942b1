"""Figures and tables as text: for a terminal of some width, and for pages."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rawpack_packer import text
from rawpack_packer.tune.measure import Figure

_INDENT = "  "


def number(value: float) -> str:
    """Three digits: "52,100", "0.312"."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def spread(figure: Figure | None) -> str:
    """ "52,100 ±6%"; "" for no figure."""
    if figure is None:
        return ""
    return number(figure.median) + (f" ±{figure.error / figure.median:.0%}" if figure.error and figure.median else "")


def seconds(figure: Figure | None) -> str:
    """ "0.25 s"; "" for no figure."""
    return f"{figure.median:.2g} s" if figure else ""


def table(rows: Sequence[tuple[str, ...]], width: int | None, noun: str) -> tuple[str, list[str]]:
    """A table, the first row its head, and the columns that do not fit into the width: the last ones are left out
    first. noun: what the samples are called."""
    head = rows[0]
    kept = [k for k in range(len(head)) if any(row[k] for row in rows[1:])]
    left_out: list[str] = []
    while True:
        cells = [tuple(row[k] for k in kept) for row in [tuple(text.with_noun(name, noun) for name in head), *rows[1:]]]
        shown = text.grid(cells, _INDENT)
        if width is None or len(kept) < 3 or max(map(len, shown.splitlines())) <= width:
            return shown, left_out[::-1]
        left_out.append(text.with_noun(head[kept.pop()], noun))


def wrapped(lines: Iterable[str], width: int | None) -> str:
    """Lines wrapped to the width; a command, which users copy, stays on one line."""
    found = list[str]()
    for line in lines:
        inner = line.removeprefix(_INDENT)
        indent = _INDENT if inner != line else ""
        if width is None or inner.startswith("rawpack "):
            found.append(line)
            continue
        found += textwrap.wrap(
            inner, max(20, width), initial_indent=indent, subsequent_indent=indent + _INDENT,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(found)


def shortened(name: str, most: int) -> str:
    """A path in at most so many characters, without its middle, since names often differ at their end."""
    name = text.plain(name)
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[len(name) - most + most // 2 :]}"


def busy(load: float | None, limit: float) -> list[str]:
    """A warning where the machine had other work."""
    if load is None or load <= limit:
        return []
    return [f"The machine was busy before the start (load {load:.1f} per CPU): an idle machine is faster."]


def about(length: float) -> str:
    """A duration with two digits: "1.6 s", "14 s", "3.2 min", "5 h"."""
    for unit, most in (("s", 90), ("min", 90), ("h", 72)):
        if length < most:
            return f"{float(f'{max(length, 0.1):.2g}'):g} {unit}"
        length /= 24 if unit == "h" else 60
    return f"{float(f'{length:.2g}'):g} days"
