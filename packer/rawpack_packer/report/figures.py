"""Draws the plots with matplotlib: as SVG in the colors of the page, or as PNG."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.figure import FigureBase
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rawpack.system.writing import write_output
from rawpack_packer import text
from rawpack_packer.tune.measure import Figure, number, shortened

_WIDE, _NARROW = 9.0, 3.9
"""Inches, of 72 CSS pixels each."""
_FAR = 4
"""Goals of more than this many times the largest value are not drawn: they would squeeze the bars."""
_INK, _MUTED, _LINE, _MARK, _PAPER = "#1a1b1c", "#6a6b6c", "#d9dadb", "#c2410b", "#fefefd"
_COLORS = {"memmap": "#1d6fb7", "hdf5": "#0f8a5e", "lmdb": "#9a5b00"}
_NAMES = {_INK: "ink", _MUTED: "muted", _LINE: "line", _MARK: "mark", _PAPER: "paper"} | {
    color: name for name, color in _COLORS.items()
}
"""Colors of the drawing -> names of the page's CSS variables, which have one value for light and one for dark."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "font.size": 9.5, "font.family": "DejaVu Sans",
    "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _MUTED,
    "xtick.color": _MUTED, "ytick.color": _MUTED, "xtick.labelcolor": _INK, "ytick.labelcolor": _INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": _LINE, "grid.linewidth": 0.6,
    "axes.facecolor": "none", "figure.facecolor": "none", "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=[_INK]),
    "figure.constrained_layout.w_pad": 0.08, "figure.constrained_layout.h_pad": 0.08, "text.parse_math": False,
}  # fmt: skip
"""parse_math: a dollar sign in the name of a file must stay one."""


@dataclass(frozen=True)
class Row:
    """One candidate or store."""

    label: str
    format: str
    store_bytes: float
    best: Figure
    """The speed to compare it by, from memory."""
    cold: Figure | None
    """From the disk."""
    marked: bool = False


@dataclass(frozen=True)
class Plot:
    """A plot that can be drawn for a wide page and for a phone."""

    draw: Callable[[FigureBase, bool], None]
    """Into an empty figure; the second argument is True for a phone."""
    height: float
    """Inches."""
    narrow_height: float


def comparison(
    rows: Sequence[Row],
    target: float | None = None,
    disk: float | None = None,
    noun: str = "image",
    augmentation: str = "",
) -> Plot:
    """Bars of the speed and the size of each row, the fastest first. target, disk: images per second and bytes that
    the user asked for. augmentation: see `Setting`."""
    rows = sorted(rows, key=lambda row: -row.best.median)

    def draw(drawing: FigureBase, narrow: bool) -> None:
        speed, size = drawing.subplots(2, 1) if narrow else drawing.subplots(1, 2, sharey=True)
        _bars(speed, rows, [row.best.median for row in rows], [number(row.best.median) for row in rows], narrow)
        most = max(max(row.best.high, row.cold.median if row.cold else 0) for row in rows)
        for place, row in enumerate(rows):
            ends = [[row.best.median - row.best.low], [row.best.high - row.best.median]]
            if row.best.high > row.best.low:  # of one round there is no range
                speed.errorbar(row.best.median, place, xerr=ends, fmt="none", ecolor=_INK, capsize=3, lw=1)
            if row.cold is not None:
                speed.plot(row.cold.median, place, "o", color=_INK, mfc=_PAPER, ms=5)
        what = [f"{noun}s/s {augmentation}".rstrip()]
        what += ["○ from the disk"] * any(row.cold is not None for row in rows)
        speed.set_xlabel(("\n" if narrow else " · ").join(what))
        _limits(speed, most, target, lambda value: f"--target {value:,.0f}")
        _bars(size, rows, [row.store_bytes for row in rows], [text.size(row.store_bytes) for row in rows], narrow)
        size.set_xlabel("size of the store")
        size.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text.size(value)))
        _limits(size, max(row.store_bytes for row in rows), disk, lambda value: f"--disk {text.size(value)}")
        speed.set_ylim(len(rows) - 0.4, -0.6)
        size.set_ylim(len(rows) - 0.4, -0.6)

    return Plot(draw, 1.2 + 0.3 * len(rows), 2.2 + 0.6 * len(rows))


def histogram(edges: Sequence[float], numbers: Sequence[int], what: str, unit: Callable[[float], str], of: str) -> Plot:
    """Bars between edges. what: the values. unit: writes one. of: what is counted, in the plural."""

    def draw(drawing: FigureBase, narrow: bool) -> None:
        axes = drawing.subplots()
        axes.stairs(numbers, edges, fill=True, color=_COLORS["memmap"])
        axes.set_xlabel(what)
        axes.set_ylabel(of)
        axes.grid(axis="x", visible=False)
        axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(_thousands))

    return Plot(draw, 2.4, 2.2)


def svg(plot: Plot, title: str, name: str, *, narrow: bool = False) -> str:
    """The plot as an `<svg>` element whose colors are CSS variables. title: for those who cannot see it. name: unique
    in the page, because it becomes part of the ids in the element."""
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}), _no_glyph_warnings():
        drawing = Drawing(
            figsize=(_NARROW, plot.narrow_height) if narrow else (_WIDE, plot.height), layout="constrained"
        )
        plot.draw(drawing, narrow)
        out = io.StringIO()
        drawing.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    # Ids of two plots in one page must differ.
    svg = re.sub(r'(\bid="|"#|url\(#)', rf"\g<1>{name}-", svg)
    for color, variable in _NAMES.items():
        svg = svg.replace(color, f"var(--{variable})")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


def write_png(path: Path, plot: Plot) -> None:
    """The plot as a picture for slides and mails."""
    drawn = io.BytesIO()
    with mpl.rc_context(_STYLE | {"figure.facecolor": "white"}), _no_glyph_warnings():
        drawing = Drawing(figsize=(_WIDE, plot.height), layout="constrained")
        plot.draw(drawing, False)
        drawing.savefig(drawn, format="png", dpi=150)
    write_output(path, drawn.getvalue())


@contextmanager
def _no_glyph_warnings() -> Iterator[None]:
    """Without matplotlib's warnings about letters that its own font lacks: a browser has them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def _bars(axes: Axes, rows: Sequence[Row], values: Sequence[float], written: Sequence[str], narrow: bool) -> None:
    """Horizontal bars from 0, names on the left, numbers on the right of the axes."""
    axes.barh(range(len(rows)), values, color=[_COLORS.get(row.format, _INK) for row in rows], height=0.62)
    names = axes.set_yticks(range(len(rows)), [shortened(row.label, 18 if narrow else 28) for row in rows])
    for place, (row, name, value) in enumerate(zip(rows, names, written, strict=True)):
        name.label1.set_fontweight("bold" if row.marked else "normal")
        axes.annotate(
            value, (1, place), xytext=(6, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
            va="center", fontweight="bold" if row.marked else "normal",
        )  # fmt: skip
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(_thousands))


def _limits(axes: Axes, most: float, goal: float | None, label: Callable[[float], str]) -> None:
    """Make the axis as long as the largest value. goal: what the user asked for, a vertical line."""
    if goal is not None and goal <= _FAR * most:
        most = max(most, goal)
        axes.axvline(goal, color=_MARK, lw=1.4)
        axes.annotate(
            label(goal), (goal, 1), xytext=(0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", color=_MARK,
        )  # fmt: skip
    axes.set_xlim(0, 1.04 * most)


def _thousands(value: float, _: object = None) -> str:
    return f"{value:,.0f}" if value >= 1 or not value else f"{value:g}"
