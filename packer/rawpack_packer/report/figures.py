"""The plots, drawn by matplotlib: as SVG that takes the colors of the page it stands in, or as PNG."""

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
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Drawing
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import Bbox

from rawpack_packer import text
from rawpack_packer.tune.measure.interval import Figure

WIDE, NARROW = (8.4, 4.8), (4.4, 4.6)
"""Inches, of 72 CSS pixels each: for a page, and for a phone."""
_FAR = 8
"""How many times as large as the largest store a --disk may be that is drawn."""
_INK, _MUTED, _LINE, _MARK = "#1a1b1c", "#6a6b6c", "#d9dadb", "#c2410b"
_COLORS = {"memmap": "#1d6fb7", "hdf5": "#0f8a5e", "lmdb": "#9a5b00"}
_SHAPES = {"memmap": "o", "hdf5": "s", "lmdb": "D"}
_NAMES = {_INK: "ink", _MUTED: "muted", _LINE: "line", _MARK: "mark"} | {color: name for name, color in _COLORS.items()}
"""Colors of the drawing -> names of the page's CSS variables, which have one value for light and one for dark."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "font.size": 10.0, "font.family": "DejaVu Sans",
    "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _MUTED,
    "xtick.color": _MUTED, "ytick.color": _MUTED, "xtick.labelcolor": _INK, "ytick.labelcolor": _INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": _LINE, "grid.linewidth": 0.6,
    "axes.facecolor": "none", "figure.facecolor": "none", "legend.frameon": False,
    "axes.axisbelow": True, "text.parse_math": False,
}  # fmt: skip
"""parse_math: names come from strangers, and a dollar sign must stay one."""


@dataclass(frozen=True)
class Point:
    """One candidate or store."""

    label: str
    format: str
    store_bytes: float
    warm: Figure
    cold: Figure | None
    marked: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line: a limit of this machine, or a wish."""

    label: str
    images_per_s: float
    wish: bool = False


@dataclass(frozen=True)
class Curve:
    """Images per second by workers."""

    label: str
    format: str
    rates: Sequence[tuple[int, Figure]]
    marked: bool = False


Draw = Callable[[Axes], None]
Taken = tuple[Bbox, float]
"""Pixels of a plot where something is, and how bad it is to write over it."""


def frontier(
    points: Sequence[Point], levels: Sequence[Level], most_bytes: int | None = None, noun: str = "image"
) -> Draw:
    """Size against speed, both logarithmic. Filled: from memory; hollow: from the disk."""

    largest = max(point.store_bytes for point in points)
    # A line far off would squeeze everything else into a corner.
    wall = most_bytes if most_bytes is not None and most_bytes <= _FAR * largest else None

    def draw(axes: Axes) -> None:
        axes.set_xscale("log")
        axes.set_yscale("log")
        for point in points:
            color, shape = _COLORS.get(point.format, _INK), _SHAPES.get(point.format, "o")
            rate = point.warm
            bars = [[rate.median - rate.low], [rate.high - rate.median]]
            axes.errorbar(
                point.store_bytes, rate.median, bars, fmt=shape, color=color, ms=7, capsize=3, lw=1.2, zorder=3
            )
            if point.marked:
                axes.plot(point.store_bytes, rate.median, "o", ms=17, mfc="none", mec=_MARK, mew=2, zorder=2)
            if point.cold is not None and point.cold.median > 0:
                ends = [rate.median, point.cold.median]
                axes.plot([point.store_bytes] * 2, ends, ":", color=color, lw=1, zorder=1)
                axes.plot(point.store_bytes, point.cold.median, shape, mfc="none", mec=color, ms=6, zorder=3)
        sizes = [point.store_bytes for point in points]
        axes.set_xlim(min(sizes) / 1.7, max([*sizes, wall or 0]) * 2.6)
        rates = [rate for point in points for rate in (point.warm.low, point.warm.high)]
        rates += [point.cold.median for point in points if point.cold is not None and point.cold.median > 0]
        rates += [level.images_per_s for level in levels]
        axes.set_ylim(min(rates) / 1.6, max(rates) * 1.6)
        taken: list[Taken] = []
        marks = [(point.store_bytes, point.warm.median) for point in points]
        marks += [(point.store_bytes, point.cold.median) for point in points if point.cold is not None]
        taken += [(_around(axes, mark, mark, 8), 1.0) for mark in marks]
        for point in points:
            stem = [
                rate
                for rate in (point.warm.low, point.warm.high, *(point.cold.values if point.cold else ()))
                if rate > 0
            ]
            taken.append((_around(axes, (point.store_bytes, min(stem)), (point.store_bytes, max(stem)), 2), 0.4))
        for level in levels:
            color = _MARK if level.wish else _MUTED
            axes.axhline(level.images_per_s, color=color, lw=1.1, ls="-" if level.wish else "--", zorder=0)
            _place(axes, level.label, (0.0, level.images_per_s), color, taken, line=True)
        for level in levels:
            left, right = axes.get_xlim()
            taken.append((_around(axes, (left, level.images_per_s), (right, level.images_per_s), 0.5), 0.5))
        if wall is not None:
            axes.axvline(wall, color=_MARK, lw=1.1, zorder=0)
            axes.annotate(
                f"--disk {text.size(wall)}", (wall, 0), xycoords=("data", "axes fraction"),
                xytext=(-4, 4), textcoords="offset points", ha="right", color=_MARK, fontsize=8.5,
            )  # fmt: skip
        for point in points:
            _place(axes, point.label, (point.store_bytes, point.warm.median), _INK, taken, bold=point.marked)
        axes.set_xlabel("bytes of the whole store")
        axes.set_ylabel(f"{noun}s/s")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text.size(value)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))
        _ticks(axes.xaxis, 0.16 * axes.get_window_extent().width / 10)
        _ticks(axes.yaxis, 8)

    return draw


def scaling(curves: Sequence[Curve], cpus: int, noun: str = "image") -> Draw:
    """Images per second against workers, with a band for the interval."""

    def draw(axes: Axes) -> None:
        axes.set_yscale("log")
        taken: list[Taken] = []
        ends = []
        for curve in curves:
            color = _COLORS.get(curve.format, _INK)
            workers = [count for count, _ in curve.rates]
            rates = [rate for _, rate in curve.rates]
            shape = _SHAPES.get(curve.format, "o")
            axes.fill_between(
                workers, [rate.low for rate in rates], [rate.high for rate in rates], color=color, alpha=0.15, lw=0
            )
            axes.plot(workers, [rate.median for rate in rates], f"{shape}-", color=color, ms=5, lw=1.4)
            ends.append((curve, (workers[-1], rates[-1].median)))
        every = sorted({count for curve in curves for count, _ in curve.rates})
        axes.set_xlim(every[0] - 0.08 * max(1, every[-1] - every[0]), every[-1] + 0.55 * max(1, every[-1] - every[0]))
        axes.set_xticks(every)
        axes.margins(y=0.15)
        for curve, end in sorted(ends, key=lambda one: -one[1][1]):
            _place(axes, curve.label, end, _INK, taken, right=True, bold=curve.marked)
        axes.set_xlabel(f"workers (of {text.count(cpus, 'CPU')})")
        axes.set_ylabel(f"{noun}s/s")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))
        _ticks(axes.yaxis, 8)

    return draw


def counts(names: Sequence[str], numbers: Sequence[int], what: str) -> Draw:
    """Horizontal bars, the first on top."""

    def draw(axes: Axes) -> None:
        places = range(len(names))
        axes.barh(places, numbers, color=_COLORS["memmap"], height=0.72)
        axes.set_yticks(places, [_cut(name) for name in names])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))
        axes.set_xlabel(what)
        axes.set_ylabel("")

    return draw


def histogram(edges: Sequence[float], numbers: Sequence[int], what: str, unit: Callable[[float], str], of: str) -> Draw:
    """Bars between edges. what: the values. of: what is counted, in the plural."""

    def draw(axes: Axes) -> None:
        axes.stairs(numbers, edges, fill=True, color=_COLORS["memmap"])
        axes.set_xlabel(what)
        axes.set_ylabel(of)
        axes.grid(axis="x", visible=False)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: unit(value)))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))

    return draw


def svg(draw: Draw, size: tuple[float, float], title: str, name: str) -> str:
    """The plot as an `<svg>` element whose colors are CSS variables. title: for those who cannot see it. name: unique
    in the page, for the ids that the element holds."""
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}), _quietly():
        out = io.StringIO()
        _drawing([draw], size).savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    # The drawing's own size is a hint: the page says how wide it is.
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    svg = re.sub(r"(font: [^;\"]*?px) [^;\"]*", r"\1 system-ui, sans-serif", svg)
    # Ids of two plots in one page must differ.
    svg = re.sub(r'(\bid="|"#|url\(#)', rf"\g<1>{name}-", svg)
    for color, variable in _NAMES.items():
        svg = svg.replace(color, f"var(--{variable})")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)


def write_png(path: Path, draws: Sequence[Draw]) -> None:
    """The plots, one below the other, as a picture for slides and mails."""
    with mpl.rc_context(_STYLE | {"figure.facecolor": "white"}), _quietly():
        _drawing(draws, (WIDE[0], WIDE[1] * len(draws))).savefig(path, format="png", dpi=150)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what matplotlib says of letters that its own font has not: a browser has them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def _drawing(draws: Sequence[Draw], size: tuple[float, float]) -> Drawing:
    drawing = Drawing(figsize=size, layout="constrained")
    places = drawing.subplots(len(draws), squeeze=False)[:, 0]
    # Labels are placed by what lies where: sizes must be final before.
    for axes in places:
        axes.set_xlabel("x")
        axes.set_ylabel("images/s")
    drawing.draw_without_rendering()
    for axes, draw in zip(places, draws, strict=True):
        draw(axes)
    return drawing


def _ticks(axis: Axis, most: float) -> None:
    """Round numbers on a logarithmic axis, no more than there is room for."""
    low, high = axis.get_view_interval()
    for subs in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        ticks = LogLocator(10, subs=subs, numticks=99).tick_values(low, high)
        if sum(low <= tick <= high for tick in ticks) <= most:
            break
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())


def _place(
    axes: Axes,
    label: str,
    point: tuple[float, float],
    color: str,
    taken: list[Taken],
    *,
    line: bool = False,
    right: bool = False,
    bold: bool = False,
) -> None:
    """Write a label beside a point: at the first place where nothing is, or where it hides least."""
    if line:
        sides = ((1.0, -3.0, "right"), (0.0, 3.0, "left"), (0.5, 0.0, "center"))
        offsets = [
            (part, dx, up, side, "bottom" if up > 0 else "top") for part, dx, side in sides for up in (2.0, -2.0)
        ]
    elif right:
        offsets = [(0.0, 8.0, dy, "left", "center") for dy in (0.0, -11.0, 11.0, -22.0, 22.0, -33.0, 33.0, -44.0)]
    else:
        beside = ((12.0, 0.0), (0.0, 12.0), (0.0, -12.0), (-12.0, 0.0), (10.0, 13.0), (10.0, -13.0), (10.0, 26.0))
        sides_of = {-1: "right", 0: "center", 1: "left"}
        offsets = [
            (0.0, dx, dy, sides_of[(dx > 0) - (dx < 0)], "center" if dx else "bottom" if dy > 0 else "top")
            for dx, dy in (*beside, (10.0, -26.0), (10.0, -39.0))
        ]
    inside = axes.get_window_extent()
    tried: list[tuple[float, int, Annotation]] = []
    for k, (part, dx, dy, across, up) in enumerate(offsets):
        text = axes.annotate(
            _cut(label), (part, point[1]) if line else point, xycoords=("axes fraction", "data") if line else "data",
            xytext=(dx, dy), textcoords="offset points", ha=across, va=up, color=color, fontsize=8.5 if line else 9,
            fontweight="bold" if bold else "normal", in_layout=False,
        )  # fmt: skip
        box = text.get_window_extent()
        outside = 2.0 if box.x0 < inside.x0 or box.x1 > inside.x1 else 0.0
        tried.append((outside + sum(weight for other, weight in taken if box.overlaps(other)), k, text))
    best = min(tried)[1]
    for _, k, text in tried:
        if k != best:
            text.remove()
    taken.append((tried[best][2].get_window_extent(), 1.0))


def _around(axes: Axes, low: tuple[float, float], high: tuple[float, float], margin: float) -> Bbox:
    """The pixels from one point to another, and so many around them."""
    (left, bottom), (right, top) = axes.transData.transform([low, high])
    return Bbox.from_extents(left - margin, bottom - margin, right + margin, top + margin)


def _thousands(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _cut(name: str) -> str:
    name = text.plain(name)
    return name if len(name) <= 28 else name[:27] + "…"
