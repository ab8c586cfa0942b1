"""Numbers and strange texts as a person wants to see them."""

from __future__ import annotations


def plain(text: str, *, lines: bool = False) -> str:
    """`text` without anything that a terminal would obey: control codes, and what turns the direction of writing.

    lines: let line breaks stand. Keys and paths come from strangers.
    """
    return "".join(c if c.isprintable() or (lines and c == "\n") else _escaped(c) for c in text)


def size(count: float) -> str:
    """Bytes, in powers of 1000 as disks are sold: "1.23 GB"."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """ "0.8 s", "3 min 12 s", "5 h 07 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def count(number: int, noun: str, plural: str = "") -> str:
    """ "1 image", "1,234 images"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def table(rows: list[tuple[str, str]], indent: str = "  ") -> str:
    """Names and values, the values under one another."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"{indent}{name:<{width}}  {value}" for name, value in rows)


def grid(rows: list[tuple[str, ...]], indent: str = "  ") -> str:
    """A table of several columns, the first row its head; columns that are empty below it are left out."""
    kept = [k for k in range(len(rows[0])) if any(row[k] for row in rows[1:])]
    widths = [max(len(row[k]) for row in rows) for k in kept]
    lines = ("  ".join(row[k].ljust(width) for k, width in zip(kept, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(indent + line for line in lines)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
