#!/usr/bin/env python3
"""Record scripts/demo in a terminal of 80 columns, as the animated drawing docs/demo.svg.

    python scripts/make_recording.py

Needs pyte, which interprets what a terminal gets. There must be no .demo/ yet, so that all of it is shown. Waiting and
progress bars are shortened; the loop takes 20 seconds.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.sax.saxutils import escape

from rooms import ROOT

try:
    import pyte
except ImportError:
    sys.exit("make_recording.py needs pyte: pip install pyte")

DRAWING = ROOT / "docs" / "demo.svg"
SHOWN_ROOT = "~/rawpack"
COLUMNS, ROWS = 80, 30
_PROMPT = "$ scripts/demo"
_LOOP_S, _LAST_S = 20.0, 4.5
"""A loop; how long its last picture stays."""
_LONGEST_S = 2.0
"""A line that changes, or waits, for longer is shown for so long, before all is scaled."""
_NEW_LINE_S = 0.15
"""New lines stay at least so long each, before the next ones come."""
_STATES = 6
"""Of a line that changes, such as a progress bar."""
_EVERY_S = 0.05
"""What is printed within this time is one picture."""
_OF_THIS_MACHINE = re.compile(r"(?:^|[\s'(:/])/\w")
"""A path from the root; pictures with one are left out."""
_FONT, _CELL, _LINE, _EDGE = 14, 8.43, 19, 14
_PAPER, _INK = "#16181d", "#d7dae0"
_COLORS = {
    "red": "#ff7b72", "green": "#6fd08c", "brown": "#e3b341", "blue": "#79b8ff", "magenta": "#d2a8ff",
    "cyan": "#5ccfe6", "white": "#ffffff",
}  # fmt: skip

Run = tuple[int, str, str, bool]
"""The column where it begins, text of one look, its color and whether it is bold."""
Line = tuple[Run, ...]


@dataclass(frozen=True)
class Frame:
    """A picture of the terminal."""

    time: float
    top: int
    """The number of its first line: how many have left the terminal."""
    bottom: int
    """The number of the line with the cursor."""
    lines: Sequence[Line]


def record() -> Iterator[tuple[float, bytes]]:
    """What scripts/demo prints, and when. Raises SystemExit where it fails."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    hidden = {"COLUMNS", "LINES", "NO_COLOR", "VIRTUAL_ENV"}
    told = {name: value for name, value in os.environ.items() if name not in hidden} | {"TERM": "xterm-256color"}
    began = time.monotonic()
    with subprocess.Popen([ROOT / "scripts/demo"], stdin=its, stdout=its, stderr=its, cwd=ROOT, env=told) as process:
        os.close(its)
        while data := _read(ours):
            yield time.monotonic() - began, data
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"scripts/demo ended with exit code {process.returncode}")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # as Linux says that the other end was closed
        return b""


def frames() -> list[Frame]:
    """The pictures of a whole run."""
    screen = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000)
    terminal = pyte.ByteStream(screen)
    terminal.feed(f"{_PROMPT}\r\n".encode())
    found = [_frame(screen, 0.0)]
    for now, data in record():
        terminal.feed(data.replace(os.fsencode(ROOT), SHOWN_ROOT.encode()))
        frame = _frame(screen, now)
        if any(_OF_THIS_MACHINE.search(text) for line in frame.lines for _, text, _, _ in line):
            continue  # what pip prints now and then
        if now - found[-1].time < _EVERY_S and frame.top == found[-1].top:
            found.pop()
        found.append(frame)
    if now > found[-1].time:
        raise SystemExit("the last picture has a path of this machine in it")
    return found


def _frame(screen: pyte.HistoryScreen, now: float) -> Frame:
    top = len(screen.history.top)
    return Frame(now, top, top + screen.cursor.y, [_line(screen.buffer[y]) for y in range(ROWS)])


def _line(cells: dict[int, pyte.screens.Char]) -> Line:
    looks = [(column, cells[column]) for column in range(COLUMNS)]
    runs = list[Run]()
    for (color, bold), group in groupby(looks, key=lambda one: (one[1].fg, one[1].bold)):
        part = list(group)
        text = "".join(cell.data for _, cell in part)
        # SVG shows several blanks as one: what they separate has its own column.
        runs += [(part[0][0] + run.start(), run[0], color, bold) for run in re.finditer(r"\S+(?: \S+)*", text)]
    return tuple(runs)


def paced(found: list[Frame]) -> list[tuple[float, Frame]]:
    """The pictures, and when each is shown, from 0 to 1: a line that changes has few states, and no line takes long."""
    told, clock, above = list[tuple[float, Frame]](), 0.0, 0
    groups = [list(group) for _, group in groupby(found, key=lambda frame: frame.bottom)]
    for group, then in zip(groups, [*groups[1:], groups[-1][-1:]], strict=True):
        length = then[0].time - group[0].time
        shown = max(min(length, _LONGEST_S), _NEW_LINE_S * (group[0].bottom - above))
        above = group[0].bottom
        few = [group[k * len(group) // min(_STATES, len(group))] for k in range(min(_STATES, len(group)))]
        for frame in few[:-1] + group[-1:]:
            told.append((clock + (frame.time - group[0].time) * (shown / length if length else 0), frame))
        clock += shown
    share = (1 - _LAST_S / _LOOP_S) / clock
    return [(when * share, frame) for when, frame in told]


def drawn(told: list[tuple[float, Frame]]) -> str:
    """The drawing. Where nothing moves, it shows the last picture."""
    width, height = COLUMNS * _CELL + 2 * _EDGE, ROWS * _LINE + 2 * _EDGE
    tops = [(when, frame.top) for when, frame in told]
    tops = [one for k, one in enumerate(tops) if not k or one[1] != tops[k - 1][1]]
    moves = ";".join(f"0 {-top * _LINE}" for _, top in tops)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" aria-label="{_TITLE}">',
        f"<title>{_TITLE}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{_PAPER}"/>',
        f'<svg x="{_EDGE}" y="{_EDGE}" width="{width - _EDGE:.0f}" height="{ROWS * _LINE}">',
        f'<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="{_FONT}" '
        f'fill="{_INK}" transform="translate(0 {-tops[-1][1] * _LINE})">',
        f'<animateTransform attributeName="transform" type="translate" calcMode="discrete" values="{moves}" '
        f'keyTimes="{_times(when for when, _ in tops)}" {_LOOP}/>',
    ]
    for number in range(told[-1][1].top + ROWS):
        parts += _states(number, told)
    return "\n".join([*parts, "</g></svg></svg>\n"])


_TITLE = "scripts/demo packs made photos into three stores and compares how fast each is read"
_LOOP = f'dur="{_LOOP_S:g}s" repeatCount="indefinite"'


def _states(number: int, told: list[tuple[float, Frame]]) -> Iterator[str]:
    """The states of a line, each shown for its time."""
    seen = [(when, frame.lines[number - frame.top]) for when, frame in told if 0 <= number - frame.top < ROWS]
    changes = [one for k, one in enumerate(seen) if not k or one[1] != seen[k - 1][1]]
    for (begin, line), end in zip(changes, [*(when for when, _ in changes[1:]), 1.0], strict=True):
        if not line:
            continue
        runs = "".join(_run(*run) for run in line)
        values = [("none", 0.0)] * (begin > 0) + [("inline", begin)] + [("none", end)] * (end < 1)
        hidden = ' display="none"' if end < 1 else ""
        moves = (
            f'<animate attributeName="display" calcMode="discrete" values="{";".join(value for value, _ in values)}" '
            f'keyTimes="{_times(when for _, when in values)}" {_LOOP}/>'
        )
        yield f'<text y="{number * _LINE + _FONT}"{hidden}>{runs}{moves if len(values) > 1 else ""}</text>'


def _run(column: int, text: str, color: str, bold: bool) -> str:
    look = f' fill="{_COLORS[color]}"' if color in _COLORS else ""
    look += ' font-weight="bold"' if bold else ""
    length = f'textLength="{len(text) * _CELL:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<tspan x="{column * _CELL:.1f}" {length}{look}>{escape(text)}</tspan>'


def _times(times: Iterator[float]) -> str:
    return ";".join(f"{when:.4f}".rstrip("0").rstrip(".") for when in times)


def main() -> None:
    if (ROOT / ".demo").exists():
        sys.exit("there is a .demo/ of an earlier run: remove it, so that all of the demo is shown")
    DRAWING.write_text(drawn(paced(frames())), "utf-8")
    print(f"wrote {DRAWING.relative_to(ROOT)} ({DRAWING.stat().st_size / 1e3:.0f} kB)")


if __name__ == "__main__":
    main()
