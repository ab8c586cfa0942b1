"""Plots of a result: cores in use at a sustained rate, disk against speed, and how cost grows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from drawing.figures import KINDS, Result, Row, is_own, middle, ordered

_INK = "#7a7b7c"
"""Readable on a light page and on a dark one."""
_QUIET = "#b4b7ba"
_COLORS = (
    "#1d6fb7", "#0f8a5e", "#b06a00", "#c2453c", "#7a4fb5", "#2aa1b3", "#8a8a00",
    "#d0679d", "#5b7083", "#9a5b2e", "#4f9a3c", "#a03070", "#6f6fd0", "#c07a50", "#3d7a7a", "#808080",
)  # fmt: skip


def draw_cores(result: Result, path: Path) -> None:
    """Cores in use at each sustained rate; a line ends where the system can deliver no more. Those of others are gray:
    a page with a dozen colors shows nothing, and the tables have their figures."""
    rows = [row for row in result["rows"] if row["measure"] == "pace" and "paced" in row]
    if not rows:
        return
    colors = colors_of(result)
    with style() as figure_of:
        figure = figure_of((10.5, 6.2))
        for axes, (kind, called) in zip(figure.subplots(1, 2, sharey=True), KINDS.items(), strict=True):
            shown = sorted((row for row in rows if row["kind"] == kind), key=is_own)  # ours above the others
            for k, row in enumerate(shown):
                points = sorted((point["images_per_s"], point["cores"]) for point in row["paced"])
                x, y = zip(*points, strict=True)
                if is_own(row):
                    look = {"lw": 2.4, "color": colors[row["system"]], "label": row["system"]}
                else:
                    look = {"lw": 0.9, "color": _QUIET, "label": "" if k else "other systems, see the tables"}
                axes.plot(x, y, "o-", ms=3, **look)
            axes.set(xscale="log", xlabel=f"images/s delivered to the step, {called}")
            round_numbers(axes.xaxis)
            if axes.lines:
                below: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12), "ncols": 3}
                axes.legend(fontsize=7, frameon=False, labelcolor=_INK, **below)
        figure.axes[0].set_ylabel("CPU cores in use")
        save(figure, path)


def draw_disk(result: Result, path: Path) -> None:
    """Images/s against bytes on disk, with a point for each format of each system."""
    marks = []
    for kind in KINDS:
        packed = [row for row in result["rows"] if row["measure"] == "pack" and row["kind"] == kind]
        read = [
            row for row in result["rows"]
            if row["measure"] == "read" and (row["kind"], row["crop"]) == (kind, "centre") and not row.get("limit")
        ]  # fmt: skip
        for row in ordered(read):
            sizes = [
                one["disk_bytes"] / one["images"]
                for one in packed
                if one["system"] == row["system"] and "disk_bytes" in one
            ]
            if sizes:
                marks.append((sizes[0] / 1e3, middle(read, row["system"], "images_per_s"), row["system"], kind))
    if not marks:
        return
    colors = colors_of(result)
    with style() as figure_of:
        figure = figure_of((9.0, 5.6))
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log", xlabel="kB on disk per image (smaller to the left)", ylabel="images/s")
        rates = [rate for _, rate, _, _ in marks]
        span = max(10.0, max(rates) / min(rates))
        for kind in KINDS:
            column = sorted((mark for mark in marks if mark[3] == kind), key=lambda mark: mark[1])
            shown = apart([rate for _, rate, _, _ in column], span)
            for (size, rate, name, _), height in zip(column, shown, strict=True):
                axes.plot(size, rate, "o" if kind == "raw" else "s", ms=7, color=colors[name])
                axes.annotate(
                    name, (size, rate), xytext=(max(mark[0] for mark in column) * 1.25, height), textcoords="data",
                    va="center", color=colors[name], fontsize=8,
                    arrowprops={"arrowstyle": "-", "color": colors[name], "lw": 0.5},
                )  # fmt: skip
        axes.set_xlim(min(mark[0] for mark in marks) / 1.3, max(mark[0] for mark in marks) * 4)
        round_numbers(axes.xaxis)
        round_numbers(axes.yaxis)
        save(figure, path)


GROWTH: dict[str, tuple[str, Callable[[Row], float]]] = {
    "growth-workers": ("workers", lambda settings: settings["workers"]),
    "growth-batch": ("images in a batch", lambda settings: settings["batch"]),
    "growth-size": ("pixels a side", lambda settings: settings["shape"][0]),
}
"""Table of the benchmark -> what grows, and its value from a row's settings."""


def draw_growth(bench: Result, path: Path) -> None:
    """Microseconds an image against workers, batch and image size, medians over the rounds; nothing without these."""
    tables = [table for table in bench["tables"] if table["table"] in GROWTH and table["lines"]]
    if not tables:
        return
    row = tables[0]["rows"][0]
    shape, machine = "x".join(map(str, row["settings"]["shape"])), row["machine"]
    with style() as figure_of:
        figure = figure_of((10.5, 3.9))
        for axes, table in zip(figure.subplots(1, len(tables), sharey=True, squeeze=False)[0], tables, strict=True):
            called, value = GROWTH[table["table"]]
            settings = {row["label"]: row["settings"] for row in table["rows"]}
            curves: dict[str, list[tuple[float, float]]] = {}
            for line in table["lines"]:
                form = line["label"].partition(",")[0]
                curves.setdefault(form, []).append((value(settings[line["label"]]), 1e6 / line["images_per_s"][0]))
            for (form, points), color in zip(curves.items(), _COLORS[::2], strict=False):
                axes.plot(*zip(*sorted(points), strict=True), "o-", ms=4, color=color, label=form)
            axes.set(xscale="log", yscale="log", xlabel=called)
            axes.set_xticks(sorted({x for points in curves.values() for x, _ in points}))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_locator(_no_ticks())
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        figure.axes[0].set_ylabel("microseconds an image")
        figure.axes[0].legend(frameon=False, labelcolor=_INK)
        figure.suptitle(
            f"{machine['cpu']}, {machine['cpus']} CPUs; unless said otherwise {shape}, batch "
            f"{row['settings']['batch']}, 2 workers",
            fontsize=9,
        )
        save(figure, path)


def apart(rates: list[float], span: float) -> list[float]:
    """Heights for the labels of rising rates, far enough apart on a logarithmic axis of `span` times its lower end."""
    shown: list[float] = []
    for rate in rates:
        shown.append(max(rate, shown[-1] * span ** (1 / 26)) if shown else rate)
    return shown


def round_numbers(axis: Any) -> None:
    """Ticks at 1, 2 and 5 times each power of ten, written out."""
    from matplotlib.ticker import LogLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(_no_ticks())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def colors_of(result: Result) -> dict[str, str]:
    """Name of a system -> its color, the same in all plots of a result."""
    names = dict.fromkeys(row["system"] for row in result["rows"] if not row.get("limit"))
    return {name: _COLORS[k % len(_COLORS)] for k, name in enumerate(names)}


class style:  # noqa: N801, read as a word of a `with`
    """Text and axes that are readable on light and dark pages; the same figures give the same bytes."""

    def __enter__(self) -> Callable[[tuple[float, float]], Any]:
        import matplotlib as mpl
        from matplotlib.figure import Figure

        options: dict[Any, Any] = {"svg.fonttype": "none", "font.size": 9, "svg.hashsalt": "rawpack"}
        options |= dict.fromkeys(
            ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK
        )
        self._context = mpl.rc_context(options)
        self._context.__enter__()
        return lambda size: Figure(size, layout="constrained")

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


def save(figure: Any, path: Path) -> None:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    figure.savefig(path, transparent=True, metadata={"Date": None})
