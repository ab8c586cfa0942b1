#!/usr/bin/env python3
"""Draw docs/explanation/architecture.svg: both packages as columns of rooms, and who imports whom, by the real imports.

    python scripts/make_picture.py [--check]

With --check nothing is written; the exit code is 1 where the picture is stale.

All arrows to a room share one line beside its column, in a color of its own: a dot is where a room joins it. Rooms
next to each other have an arrow between them. What climbs, an exception in tests/house/test_rooms.py, is dashed.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from html import escape

from made import write
from make_tree_docs import summary
from rooms import FOLDERS, ROOT, imports, room_of, rooms_in

PICTURE = ROOT / "docs" / "explanation" / "architecture.svg"
_TITLES = {"rawpack_packer": "packer: rawpack_packer", "rawpack": "reader: rawpack"}
_BOX_W, _BOX_H, _GAP = 318, 68, 20
_LANE, _SIDE = 9, 92
_TOP, _EDGE = 58, 12
_COLUMN = _SIDE + _BOX_W + _SIDE
_COLORS = 7
_LEFT_OUT = {"", "__main__"}
"""The package itself, which only hands on names, and what starts the command."""
_EVERYWHERE = {"errors", "system"}
"""Rooms of the reader that nearly all of the packer imports: left out where its imports are listed."""
_WRAP = 52
_STYLE = """
text { font: 600 13px system-ui, sans-serif; fill: #24292f } .page { fill: #ffffff }
.title { font-size: 16px } .note { font-size: 11px; font-weight: 400; fill: #57606a }
.room { fill: #f6f8fa; stroke: #8c959f }
path { fill: none; stroke-width: 1.4 } .next { stroke: #57606a } .climbs { stroke: #cf222e; stroke-dasharray: 4 3 }
.head { stroke: none } .next.head { fill: #57606a } .climbs.head { fill: #cf222e }
.a { stroke: #0969da; fill: #0969da } .b { stroke: #bc4c00; fill: #bc4c00 } .c { stroke: #1a7f37; fill: #1a7f37 }
.d { stroke: #8250df; fill: #8250df } .e { stroke: #bf3989; fill: #bf3989 } .f { stroke: #9a6700; fill: #9a6700 }
.g { stroke: #1b7c83; fill: #1b7c83 } path.line { fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .page { fill: #0d1117 } .note { fill: #9198a1 } .room { fill: #161b22; stroke: #656c76 }
.next { stroke: #9198a1 } .next.head { fill: #9198a1 } .climbs { stroke: #f85149 } .climbs.head { fill: #f85149 }
.a { stroke: #58a6ff; fill: #58a6ff } .b { stroke: #f0883e; fill: #f0883e } .c { stroke: #3fb950; fill: #3fb950 }
.d { stroke: #bc8cff; fill: #bc8cff } .e { stroke: #f778ba; fill: #f778ba } .f { stroke: #d29922; fill: #d29922 }
.g { stroke: #39c5cf; fill: #39c5cf } path.line { fill: none } }
"""

Arrows = set[tuple[str, str]]


def arrows_of(package: str) -> Arrows:
    """(room, room that it imports) inside a package."""
    found = {
        (room_of(one.source), room_of(one.target))
        for one in imports()
        if one.source.split(".")[0] == one.target.split(".")[0] == package
    }
    return {(a, b) for a, b in found if a != b and not {a, b} & _LEFT_OUT}


def across() -> dict[str, list[str]]:
    """Each room of the packer -> the rooms of the reader that it imports, in their order; none of _EVERYWHERE."""
    found = defaultdict(set)
    for one in imports():
        if one.source.startswith("rawpack_packer") and one.target.split(".")[0] == "rawpack":
            found[room_of(one.source)].add(room_of(one.target))
    return {
        room: [name for name in rooms_in("rawpack") if name in names - _EVERYWHERE] for room, names in found.items()
    }


class Column:
    """The rooms of one package, drawn from (`left`, _TOP) down."""

    def __init__(self, package: str, left: int, uses: dict[str, list[str]]) -> None:
        self.package, self.left, self.uses = package, left, uses
        self.rooms = [room for room in rooms_in(package) if room not in _LEFT_OUT]
        self.arrows = arrows_of(package)
        self.box = left + _SIDE
        self.bottom = self.top_of(len(self.rooms)) - _GAP

    def top_of(self, number: int) -> int:
        return _TOP + number * (_BOX_H + _GAP)

    def drawn(self) -> list[str]:
        """Title, lines, boxes."""
        parts = [f'<text class="title" x="{self.box}" y="40">{escape(_TITLES[self.package])}</text>']
        return parts + self._lines() + [text for i, room in enumerate(self.rooms) for text in self._room(i, room)]

    def _room(self, number: int, room: str) -> list[str]:
        y = self.top_of(number)
        path = FOLDERS[self.package] / room
        is_folder = path.is_dir()
        what = summary(path / "__init__.py" if is_folder else path.with_suffix(".py"))
        lines = textwrap.wrap(what.replace("`", ""), _WRAP)
        if len(lines) > 2:
            lines[1:] = [textwrap.shorten(" ".join(lines[1:]), _WRAP, placeholder=" ...")]
        if uses := self.uses.get(room):
            lines.append(f"→ {', '.join(uses)}")
        return [
            f'<rect class="room" x="{self.box}" y="{y}" width="{_BOX_W}" height="{_BOX_H}" rx="6"/>',
            f'<text x="{self.box + 10}" y="{y + 17}">{escape(room)}{"/" if is_folder else ".py"}</text>',
            *(
                f'<text class="note" x="{self.box + 10}" y="{y + 32 + 14 * k}">{escape(line)}</text>'
                for k, line in enumerate(lines)
            ),
        ]

    def _lines(self) -> list[str]:
        place = {room: i for i, room in enumerate(self.rooms)}
        into: dict[int, list[int]] = defaultdict(list)
        parts = []
        for a, b in sorted((place[a], place[b]) for a, b in self.arrows):
            if b == a + 1:
                x = self.box + _BOX_W // 2
                y = self.top_of(b)
                parts.append(f'<path class="next" d="M{x} {y - _GAP}V{y - 6}"/>')
                parts.append(f'<path class="next head" d="M{x} {y}l-4 -7h8z"/>')
            else:
                into[b].append(a)
        sides: dict[int, list[int]] = {0: [], 1: []}
        for b in sorted(into):
            sides[b % 2].append(b)
        ports = self._ports(into)
        for side, targets in sides.items():
            for lane, b in enumerate(targets):
                parts += self._bus(b, into[b], side, lane, ports)
        return parts

    def _ports(self, into: dict[int, list[int]]) -> dict[tuple[int, int], float]:
        """(room, room that it imports) -> the height at which its line leaves its box."""
        ports = {}
        for a in range(len(self.rooms)):
            for side in (0, 1):
                targets = [b for b in sorted(into) if a in into[b] and b % 2 == side]
                # Below the middle, where the arrow into this room ends; the nearest target is the innermost line.
                space = _BOX_H / 2 - 8
                for k, b in enumerate(targets):
                    ports[a, b] = self.top_of(a) + _BOX_H / 2 + 6 + space * (k + 0.5) / len(targets)
        return ports

    def _bus(self, b: int, sources: list[int], side: int, lane: int, ports: dict[tuple[int, int], float]) -> list[str]:
        """The line to room `b`: down its lane, with a dot where each of `sources` joins it."""
        edge = self.box + (_BOX_W if side else 0)
        away = 1 if side else -1
        x = edge + away * (14 + lane * _LANE)
        end = self.top_of(b) + _BOX_H / 2 - 8
        parts = []
        for kind in ("line", "climbs"):
            joined = [a for a in sources if (a > b) == (kind == "climbs")]
            if not joined:
                continue
            color = "climbs" if kind == "climbs" else f"{'abcdefg'[b % _COLORS]} line"
            heights = [ports[a, b] for a in joined]
            far = max(heights) if kind == "climbs" else min(heights)
            parts.append(f'<path class="{color}" d="M{x} {far:g}V{end:g}H{edge + away * 6}"/>')
            head = color.removesuffix(" line")
            parts.append(f'<path class="{head} head" d="M{edge} {end:g}l{away * 7} -4v8z"/>')
            for height in heights:
                parts.append(f'<path class="{color}" d="M{edge} {height:g}H{x}"/>')
                parts.append(f'<circle class="{head} head" cx="{x}" cy="{height:g}" r="2.2"/>')
        return parts


def picture() -> str:
    """The whole picture as SVG."""
    columns = [Column("rawpack_packer", _EDGE, across()), Column("rawpack", _EDGE + _COLUMN, {})]
    width, height = 2 * _COLUMN + 2 * _EDGE, max(column.bottom for column in columns) + 44
    note = "Arrows are imports: a room imports only rooms below it. Rooms after → are the reader's that it imports."
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="The rooms of both packages in their order, and the imports between them">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        *(part for column in columns for part in column.drawn()),
        f'<text class="note" x="{_EDGE + _SIDE}" y="{height - 16}">{escape(note)}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    write(PICTURE, picture, __doc__)
