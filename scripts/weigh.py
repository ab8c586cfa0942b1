#!/usr/bin/env python3
"""Weigh the code: lines, and words at which native readers stop, for each room and each kind of source.

    python scripts/weigh.py                             a table
    python scripts/weigh.py --json                      the same for programs
    python scripts/weigh.py --write [--reason TEXT]     the figures into tests/house/weight.toml, also over the marks of
                                                        a merge; the reason stands beside those that rose

`tests/house/test_weight.py` compares the code with that file.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kept import of_each
from rooms import FOLDERS, ROOT, nodes_of, parse

FILE = ROOT / "tests" / "house" / "weight.toml"
_SOURCES = FOLDERS["rawpack_packer"] / "sources"
_SEVERAL_KINDS = (_SOURCES / "archives", _SOURCES / "detection")
_EMPTY_NAMES = {"one", "found", "said", "given", "there", "told", "known"}
_OF = re.compile(r"\s*Of\b")
_SEE = re.compile(r"\s*See `[^`]+`\.?\s*")
_NO = re.compile(r"(?<!there )(?<!There )\b(?:is|are)\s+no\b(?!\s+(?:longer|more|less|such)\b)")

HEAD = """\
# What each room and each kind of source weighs: lines of code, without docstrings, comments and blanks, and the words
# at which native readers stop, where there are any:
#   names   variables, parameters and functions called one, found, said, given, there, told or known
#   of      docstrings that begin with "Of"
#   see     docstrings that are only "See `X`"
#   no      "is no X" and "are no X" in strings and docstrings; "there is no X" is English
# `python scripts/weigh.py --write` writes what fell. Beside a figure that rose, a reason names the use that a user
# would miss. A folder of `sources` is a kind or a stage; in archives and detection, each module is.

"""

_WORDS = {
    "names": f"choose better ones than {', '.join(sorted(_EMPTY_NAMES))}",
    "of": 'begin no docstring with "Of"',
    "see": 'let no docstring be only "See `X`"',
    "no": 'write "is not a"',
}
"""What makes the figures of words lighter."""


class Weight(NamedTuple):
    """What some code weighs: the columns of weight.toml."""

    lines: int = 0
    names: int = 0
    of: int = 0
    see: int = 0
    no: int = 0

    def plus(self, other: Weight) -> Weight:
        return Weight(*map(sum, zip(self, other, strict=True)))

    def rose(self, before: Weight) -> list[str]:
        """The columns that are higher than they were."""
        return [name for name, now, then in zip(self._fields, self, before, strict=True) if now > then]


class Entry(NamedTuple):
    """A line of weight.toml. reason: why a figure of it rose; None where none did, "" where nobody said so yet."""

    weight: Weight
    reason: str | None = None


def weigh(source: str) -> Weight:
    """What a module weighs."""
    lines = source.split("\n")
    code = {number for number, line in enumerate(lines, 1) if (text := line.strip()) and not text.startswith("#")}
    inside, documents, names, of, see, no = set[int](), set[int](), 0, 0, 0, 0
    for node in nodes_of(parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documents.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            of += bool(_OF.match(node.value.value))
            see += bool(_SEE.fullmatch(node.value.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            no += len(_NO.findall(node.value))
            if node.end_lineno != node.lineno:  # a line in it that begins with "#" is code
                inside.update(n for n in range(node.lineno, node.end_lineno or 0) if lines[n].strip())
        else:
            names += _name_made(node) in _EMPTY_NAMES
    return Weight(len((code | inside) - documents), names, of, see, no)


def _name_made(node: ast.AST) -> str:
    """The variable, parameter or function that a node makes, without leading underscores."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id.lstrip("_")
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr.lstrip("_")
    if isinstance(node, ast.arg):
        return node.arg.lstrip("_")
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ExceptHandler):
        return (node.name or "").lstrip("_")
    return ""


def place_of(path: Path) -> str:
    """Where a module is weighed: its room, or its kind of source, from the checkout's root on."""
    below = path.relative_to(ROOT).with_suffix("").parts
    if below[0] in ("tests", "scripts"):
        return below[0]
    depth = 3
    if path.is_relative_to(_SOURCES):
        depth = 5 if any(path.is_relative_to(folder) for folder in _SEVERAL_KINDS) else 4
    return "/".join(part for part in below[:depth] if part != "__init__")


def _modules() -> Iterator[Path]:
    for folder in ("packer", "reader", "tests", "scripts"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def weights() -> dict[str, Weight]:
    """What each place weighs."""
    places = dict[str, Weight]()
    for path, figures in of_each(_figures, _modules()).items():
        place = place_of(path)
        places[place] = places.get(place, Weight()).plus(Weight(*figures))
    return places


def _figures(source: str) -> tuple[int, ...]:
    return tuple(weigh(source))


def written(text: str) -> dict[str, Entry]:
    """What weight.toml says: a line a place, of which a merge may have left two, and the lighter one counts."""
    entries = dict[str, Entry]()
    for line in text.splitlines():
        if line.startswith('"'):
            ((place, figures),) = tomllib.loads(line).items()
            reason = figures.pop("reason", None)
            entry = Entry(Weight(**figures), reason)
            entries[place] = min(entries.get(place, entry), entry, key=lambda each: each.weight)
    return entries


def differences(now: Mapping[str, Weight], entries: Mapping[str, Entry]) -> list[str]:
    """What is wrong with the file, a line a place: what rose without a reason, and what fell and is not written."""
    wrong = []
    for place in sorted({*now, *entries}):
        weight, entry = now.get(place, Weight()), entries.get(place, Entry(Weight()))
        rose, fell = weight.rose(entry.weight), entry.weight.rose(weight)
        figures = ", ".join(f"{name} {getattr(entry.weight, name)} -> {getattr(weight, name)}" for name in rose + fell)
        if rose:
            words = ", ".join(f"{name}: {_WORDS[name]}" for name in rose if name in _WORDS)
            wrong.append(
                f"{place}: {figures}: make it lighter, or run scripts/weigh.py --write --reason 'what for'"
                + f" ({words})" * bool(words)
            )
        elif fell:
            wrong.append(f"{place}: {figures}: run scripts/weigh.py --write")
        elif entry.reason is not None and not entry.reason.strip():
            wrong.append(f"{place}: the reason is empty: name the use that a user would miss")
    return wrong


def renewed(now: Mapping[str, Weight], entries: Mapping[str, Entry], reason: str = "") -> str:
    """The file with the figures as they are now. reason: of those that rose."""
    lines = []
    for place, weight in sorted(now.items()):
        entry = entries.get(place, Entry(Weight()))
        why = reason if weight.rose(entry.weight) else entry.reason if weight == entry.weight else None
        figures = [f"{name} = {figure}" for name, figure in zip(weight._fields, weight, strict=True) if figure]
        figures += [] if why is None else [f"reason = {json.dumps(why, ensure_ascii=False)}"]
        lines.append(f'"{place}" = {{ {", ".join(figures)} }}\n')
    return HEAD + "".join(lines)


def table(now: Mapping[str, Weight]) -> str:
    """For people: each place, and sums of the packages and of `sources`."""
    rows = dict(now)
    for above in ("packer", str(_SOURCES.relative_to(ROOT).as_posix()), "reader"):
        whole = Weight()
        for place, weight in now.items():
            whole = whole.plus(weight) if place == above or place.startswith(f"{above}/") else whole
        rows[above] = whole
    wide = max(map(len, rows))
    heads = " ".join(f"{name:>6}" for name in Weight._fields)
    body = (f"{place:<{wide}} {' '.join(f'{figure:>6}' for figure in rows[place])}" for place in sorted(rows))
    return "\n".join([f"{'':<{wide}} {heads}", *body])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print the figures for programs")
    parser.add_argument("--write", action="store_true", help=f"write them into {FILE.relative_to(ROOT)}")
    parser.add_argument("--reason", default="", help="the use that a user would miss, for what rose")
    options, now = parser.parse_args(), weights()
    if options.write:
        text = renewed(now, written(FILE.read_text("utf-8")), options.reason)
        FILE.write_text(text, "utf-8")
        print("\n".join(differences(now, written(text)) or [f"{FILE.relative_to(ROOT)} is up to date"]))
    elif options.json:
        print(json.dumps({place: weight._asdict() for place, weight in now.items()}, indent=1))
    else:
        print(table(now))


if __name__ == "__main__":
    main()
