"""Numbers and strange texts as a person wants to see them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

_NOUNS = {
    "images": "image", "frames": "frame", "files": "file", "classes": "class", "videos": "video", "links": "link",
    "names": "name", "boxes": "box", "outlines": "outline", "members": "member", "pickles": "pickle",
    "records": "record", "samples": "sample", "columns": "column", "lines": "line",
}  # fmt: skip
_VERBS = {"are": "is", "were": "was", "have": "has", "lie": "lies", "begin": "begins", "do": "does", "they": "it"}
_SINGULAR = {
    "files and folders": "file or folder", "pipes, sockets and devices": "pipe, socket or device",
    "folders or files": "folder or file", "not images": "not an image",
}  # fmt: skip
_AS_CLOSE = 0.1
"""Names are offered together where their likeness differs by less."""
_OTHERS_DO = r"(?<!pixels )(?<!bytes )(?<!colors )(?<!timestamps )(?<!there )(?<!decode, which )"
"""Before a verb: it speaks of what one file may have several of."""


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


def size(count: float) -> str:
    """Bytes, in powers of 1000 as disks are sold: "1.23 GB"."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 999.5 or unit == "TB":
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


def rate(per_second: float) -> str:
    """ "1,234", and below ten "2.5"."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}".removesuffix(".0")


def count(number: int, noun: str, plural: str = "") -> str:
    """ "1 image", "1,234 images"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def counted(number: int, what: str, noun: str = "image") -> str:
    """What a phrase in the plural counts, without the number, as it reads for that number: "files that are not images"
    are, for 1, a "file that is not an image". noun: what samples are called that the phrase calls images."""
    what = with_noun(what, noun)
    if number != 1:
        return what
    for several, one in _SINGULAR.items():
        what = what.replace(several, one)
    # Only the first noun is what is counted.
    what = re.sub(rf"(?<!-)\b({'|'.join(_NOUNS)})\b", lambda found: _NOUNS[found[0]], what, count=1)
    return re.sub(rf"{_OTHERS_DO}\b({'|'.join(_VERBS)})\b", lambda found: _VERBS[found[0]], what)


def with_noun(what: str, noun: str) -> str:
    """A phrase that speaks of images, for samples that are called something else: "frames/s" for "images/s"."""
    return re.sub(r"\b(image)(s?)\b", rf"{noun}\2", re.sub(r"\b(Image)(s?)\b", rf"{noun.capitalize()}\2", what))


def listed(texts: Sequence[str], most: int, *, total: int | None = None, separator: str = ", ") -> str:
    """The first `most` texts, safe to show, and how many more there are: "a, b, and 3 more".

    total: how many there are, where `texts` does not hold all of them.
    """
    rest = (len(texts) if total is None else total) - min(most, len(texts))
    return separator.join([plain(one) for one in texts[:most]] + ([f"and {rest:,} more"] if rest > 0 else []))


def did_you_mean(name: str, known: Iterable[str], folder: str = "") -> str:
    """ "; did you mean lmdb?", with at most two names, the closest first; "" where none is close. folder: of `known`,
    for paths."""
    import difflib

    close = difflib.get_close_matches(name, known, 2)
    ratios = [difflib.SequenceMatcher(None, one, name).ratio() for one in close]
    close = [one for one, ratio in zip(close, ratios, strict=True) if ratio > ratios[0] - _AS_CLOSE]
    return f"; did you mean {' or '.join(plain(str(Path(folder, one))) for one in close)}?" if close else ""


def near_path(path: str) -> str:
    """The same for a path that does not exist."""
    folder = Path(path).parent
    try:
        return did_you_mean(Path(path).name, [one.name for one in folder.iterdir()], str(folder))
    except (OSError, ValueError):
        return ""


def times(ratio: float) -> str:
    """A quotient: "0.023 times", "1.25 times", "102 times", "1,234 times"; of equal amounts "as much"."""
    if f"{ratio:.3g}" == "1":
        return "as much"
    digits = max(0, 2 - math.floor(math.log10(ratio))) if ratio >= 1 else 3
    text = f"{ratio:,.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} times" if ratio >= 0.001 else "under 0.001 times"


def table(rows: Sequence[tuple[str, str]], indent: str = "  ", *, rest: int = 0) -> str:
    """Names and values, the values under one another. rest: rows that are not shown; how many, the last line says."""
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"{indent}{name:<{width}}  {value}" for name, value in rows]
    return "\n".join(lines + ([f"{indent}... and {rest:,} more"] if rest > 0 else []))


def grid(rows: list[tuple[str, ...]], indent: str = "  ") -> str:
    """A table of several columns, the first row its head; columns that are empty below it are left out."""
    kept = [k for k in range(len(rows[0])) if any(row[k] for row in rows[1:])]
    widths = [max(len(row[k]) for row in rows) for k in kept]
    lines = ("  ".join(row[k].ljust(width) for k, width in zip(kept, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(indent + line for line in lines)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte of a path that is no UTF-8, as Python holds it
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
