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

from rawpack_packer import text
from rawpack_packer.tune.measure.interval import Figure

_WIDE, _NARROW = 9.0, 3.9
"""Inches, of 72 CSS pixels each."""
_FAR = 4
"""Limits and goals of more than this many times the largest value are not drawn: they would squeeze the bars."""
_INK, _MUTED, _LINE, _MARK, _PAPER = "#1a1b1c", "#6a6b6c", "#d9dadb", "#c2410b", "#fefefd"
_COLORS = {"memmap": "#1d6fb7", "hdf5": "#0f8a5e", "lmdb": "#9a5b00"}
_SHAPES = {"memmap": "o", "hdf5": "s", "lmdb": "D"}
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
    rates: Sequence[tuple[int, Figure]]
    """Numbers of workers, ascending, with the images per second of each."""
    best: Figure
    """The speed to compare it by, from memory."""
    cold: Figure | None
    """From the disk."""
    limit: float | None
    """What this machine can do at most."""
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
    rows: Sequence[Row], target: float | None = None, disk: float | None = None, noun: str = "image"
) -> Plot:
    """Bars of the speed and the size of each row, the fastest first. target, disk: images per second and bytes that
    the user asked for."""
    rows = sorted(rows, key=lambda row: -row.best.median)

    def draw(drawing: FigureBase, narrow: bool) -> None:
        speed, size = drawing.subplots(2, 1) if narrow else drawing.subplots(1, 2, sharey=True)
        _bars(speed, rows, [row.best.median for row in rows], [f"{row.best.shown:,.0f}" for row in rows], narrow)
        most = max(max(row.best.high, row.cold.median if row.cold else 0) for row in rows)
        limits = {place: row.limit for place, row in enumerate(rows) if row.limit and row.limit <= _FAR * most}
        speed.plot(list(limits.values()), list(limits), "|", color=_MUTED, ms=13, mew=2)
        for place, row in enumerate(rows):
            ends = [[row.best.median - row.best.low], [row.best.high - row.best.median]]
            speed.errorbar(row.best.median, place, xerr=ends, fmt="none", ecolor=_INK, capsize=3, lw=1)
            if row.cold is not None:
                speed.plot(row.cold.median, place, "o", color=_INK, mfc=_PAPER, ms=5)
        what = [f"{noun}s/s"]
        what += ["○ from the disk"] * any(row.cold is not None for row in rows)
        what += ["| limit of this machine"] * bool(limits)
        speed.set_xlabel(("\n" if narrow else " · ").join(what))
        _limits(speed, max([most, *limits.values()]), target, lambda value: f"--target {value:,.0f}")
        _bars(size, rows, [row.store_bytes for row in rows], [text.size(row.store_bytes) for row in rows], narrow)
        size.set_xlabel("size of the store")
        size.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text.size(value)))
        _limits(size, max(row.store_bytes for row in rows), disk, lambda value: f"--disk {text.size(value)}")
        speed.set_ylim(len(rows) - 0.4, -0.6)
        size.set_ylim(len(rows) - 0.4, -0.6)

    return Plot(draw, 1.2 + 0.3 * len(rows), 2.2 + 0.6 * len(rows))


def scaling(rows: Sequence[Row], cpus: int, noun: str = "image") -> Plot | None:
    """Images per second by number of workers, with a band for the interval; None if there is only one number."""
    height = max(3.6, 1.0 + 0.26 * len(rows))
    rows = sorted(rows, key=lambda row: row.rates[-1][1].median)
    every = sorted({count for row in rows for count, _ in row.rates})
    if len(every) == 1:
        return None

    def draw(drawing: FigureBase, narrow: bool) -> None:
        axes = drawing.subplots()
        axes.set_xlim(-0.1, len(every) - 0.95)
        for row in rows:
            color, shape = _COLORS.get(row.format, _INK), _SHAPES.get(row.format, "o")
            places = [every.index(count) for count, _ in row.rates]
            low, middle, high = zip(*((rate.low, rate.median, rate.high) for _, rate in row.rates), strict=True)
            axes.fill_between(places, low, high, color=color, alpha=0.15, lw=0)
            axes.plot(places, middle, f"{shape}-", color=color, ms=5, lw=1.4)
        axes.set_ylim(bottom=0)
        axes.set_xticks(range(len(every)), [str(count) for count in every])
        axes.set_xlabel(f"workers (of {text.count(cpus, 'CPU')})")
        axes.set_ylabel(f"{noun}s/s")
        axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
        ends = [row.rates[-1][1].median / axes.get_ylim()[1] for row in rows]
        for row, end, place in zip(rows, ends, _apart(ends, 0.24 / height), strict=True):
            axes.annotate(
                _cut(row.label, narrow), (1, end), xytext=(1.06, place), xycoords="axes fraction", va="center",
                fontweight="bold" if row.marked else "normal",
                arrowprops={"arrowstyle": "-", "color": _MUTED, "lw": 0.6, "shrinkA": 1, "shrinkB": 0},
            )  # fmt: skip

    return Plot(draw, height, height)


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


def write_png(path: Path, plots: Sequence[Plot | None]) -> None:
    """The plots, one below the other, as a picture for slides and mails. None is left out."""
    drawn = [plot for plot in plots if plot is not None]
    heights = [plot.height for plot in drawn]
    with mpl.rc_context(_STYLE | {"figure.facecolor": "white"}), _no_glyph_warnings():
        drawing = Drawing(figsize=(_WIDE, sum(heights)), layout="constrained")
        parts = drawing.subfigures(len(drawn), squeeze=False, height_ratios=heights)[:, 0]
        for plot, part in zip(drawn, parts, strict=True):
            plot.draw(part, False)
        drawing.savefig(path, format="png", dpi=150)


@contextmanager
def _no_glyph_warnings() -> Iterator[None]:
    """Without matplotlib's warnings about letters that its own font lacks: a browser has them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def _bars(axes: Axes, rows: Sequence[Row], values: Sequence[float], written: Sequence[str], narrow: bool) -> None:
    """Horizontal bars from 0, names on the left, numbers on the right of the axes."""
    axes.barh(range(len(rows)), values, color=[_COLORS.get(row.format, _INK) for row in rows], height=0.62)
    names = axes.set_yticks(range(len(rows)), [_cut(row.label, narrow) for row in rows])
    for place, (row, name, number) in enumerate(zip(rows, names, written, strict=True)):
        name.label1.set_fontweight("bold" if row.marked else "normal")
        axes.annotate(
            number, (1, place), xytext=(6, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
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


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places between 0 and 1, moved so that they are `gap` apart."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    top = 1.0
    for k in reversed(range(len(moved))):
        moved[k] = min(moved[k], top)
        top = moved[k] - gap
    return moved


def _thousands(value: float, _: object = None) -> str:
    return f"{value:,.0f}" if value >= 1 or not value else f"{value:g}"


def _cut(name: str, narrow: bool) -> str:
    """A name short enough for a plot; without its middle, since names often differ at their end."""
    name, most = text.plain(name), 18 if narrow else 28
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most // 2 - 1) :]}"
