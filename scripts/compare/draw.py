"""Tables and plots of what `python scripts/compare --json` wrote, and of `scripts/bench/run.py --json`.

    python scripts/compare/draw.py results.json                               print the tables
    python scripts/compare/draw.py results.json --out docs/explanation        put them into compared.md, draw the plots
    python scripts/compare/draw.py --bench bench.json --out docs/explanation  put its rows into performance.md
    python scripts/compare/draw.py results.json --readme README.md            put the main lines there

In a page, what is between `<!-- NAME:begin -->` and `<!-- NAME:end -->` is replaced.
"""

from __future__ import annotations

import argparse
import json
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Result = dict[str, Any]
_INK = "#7a7b7c"
"""Readable on a light page and on a dark one."""
_COLORS = (
    "#1d6fb7", "#0f8a5e", "#b06a00", "#c2453c", "#7a4fb5", "#2aa1b3", "#8a8a00",
    "#d0679d", "#5b7083", "#9a5b2e", "#4f9a3c", "#a03070", "#6f6fd0", "#c07a50", "#3d7a7a", "#808080",
)  # fmt: skip
_WAYS = {
    ("raw", "centre"): "raw, 224 px",
    ("jpeg", "centre"): "JPEG, 256 px, center crop 224",
    ("jpeg", "random"): "JPEG, 256 px, random-resized-crop 224 and flip",
}
_KINDS = {"raw": "raw", "jpeg": "JPEG"}
STORES = {"torch DataLoader, whole batches": "torch DataLoader"}
"""Systems that read the store of another."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="?", help="JSON that `python scripts/compare` wrote")
    parser.add_argument("--bench", type=Path, help="JSON that scripts/bench/run.py wrote")
    parser.add_argument("--out", type=Path, help="the folder with compared.md and performance.md; plots go there")
    parser.add_argument("--readme", type=Path, help="a page with the markers `compared`")
    asked = parser.parse_args()
    for path in (asked.results, asked.bench):
        if path is not None and not path.is_file():
            parser.error(f"{path} is not there: name the file that --json wrote")
    result: Result | None = json.loads(asked.results.read_text()) if asked.results else None
    bench: Result | None = json.loads(asked.bench.read_text()) if asked.bench else None
    if result is None and bench is None:
        parser.error("name a result, or one of the benchmark by --bench")
    if result is not None:
        for title, text in [*everything(result), ("machine", about(result))]:
            print(f"{title}\n\n{text}\n")
        if asked.out:
            page = asked.out / "compared.md"
            for name in ("read", "pack", "pace", "behavior", "install"):
                replace(page, name, "\n\n".join(f"**{title}**\n\n{text}" for title, text in tables(result, name)))
            replace(page, "about", about(result))
            draw_cores(result, asked.out / "compared-cores.svg")
            draw_disk(result, asked.out / "compared-disk.svg")
        if asked.readme:
            replace(asked.readme, "compared", lines(result))
    if bench is not None:
        text = benchmark(bench)
        print(text)
        if asked.out:
            replace(asked.out / "performance.md", "bench", text)


def everything(result: Result) -> list[tuple[str, str]]:
    return [table for name in ("install", "pack", "read", "pace", "behavior") for table in tables(result, name)]


def tables(result: Result, name: str) -> list[tuple[str, str]]:
    """The tables of one part of the result: title and Markdown. Parts without rows have none."""
    if name == "install":
        return installation(result)
    rows = [row for row in result["rows"] if PARTS[row["measure"]] == name]
    return [table for table in MAKERS[name](rows) if table[1]]


def packing(rows: list[Row]) -> Iterator[tuple[str, str]]:
    for kind, called in _KINDS.items():
        mine = [row for row in rows if row["kind"] == kind]
        cells = [
            (
                system_name(row),
                spread(mine, row, "images_per_s"),
                ratio(mine, row, limit=True),
                ratio(mine, row, limit=False),
                median(mine, row, "cpu_s_per_1000", "{:.2f}"),
                per_thousand(mine, row),
            )
            for row in ordered(mine)
        ]
        head = ("packing", "images/s", "of the bare loop", "of rawpack", "CPU s per 1,000", "MB per 1,000")
        yield f"Packing, {called}", markdown(head, cells) + failures(mine)


def reading(rows: list[Row]) -> Iterator[tuple[str, str]]:
    for (kind, crop), called in _WAYS.items():
        mine = [row for row in rows if (row["kind"], row["crop"]) == (kind, crop)]
        cells = [
            (
                system_name(row),
                spread(mine, row, "images_per_s"),
                ratio(mine, row, limit=True),
                ratio(mine, row, limit=False),
                median(mine, row, "cpu_s_per_1000", "{:.3f}"),
                median(mine, row, "first_batch_s", "{:.2f}"),
                median(mine, row, "memory_bytes", "{:,.0f}", 1e-6),
            )
            for row in ordered(mine)
        ]
        head = (
            "reading", "images/s", "of the bare limit", "of rawpack", "CPU s per 1,000", "first batch s", "memory MB",
        )  # fmt: skip
        yield f"Reading, {called}", markdown(head, cells) + failures(mine)


def pacing(rows: list[Row]) -> Iterator[tuple[str, str]]:
    for kind, called in _KINDS.items():
        every = [row for row in rows if row["kind"] == kind]
        mine = [row for row in every if "paced" in row]
        if mine:
            wanted = [point["wanted"] for point in mine[0]["paced"]]
            cells = [
                (row["system"], *(f"{point['images_per_s']:,.0f} ({point['cores']:.1f})" for point in row["paced"]))
                for row in sorted(mine, key=lambda row: -row["paced"][-1]["images_per_s"])
            ]
            head = ("sustained images/s (cores in use)", *(f"step of {rate:,}" for rate in wanted))
            yield (
                f"A step that takes its time, {called}",
                markdown(head, cells) + failures(every),
            )


def behaving(rows: list[Row]) -> Iterator[tuple[str, str]]:
    names = list(dict.fromkeys(row["system"] for row in rows))
    by = {(row["system"], row["measure"]): row for row in rows if row["measure"] != "check"}
    checks = {name: [row for row in rows if row["system"] == name and row["measure"] == "check"] for name in names}
    head = ("", "each sample once, right pixels", "16 kept batches", "a killed worker", "/dev/shm of 1 MB",
            "resume in mid-epoch")  # fmt: skip
    cells = [
        (
            name,
            "; ".join(dict.fromkeys(checked(row) for row in checks[name])),
            said(by.get((name, "kept")), kept),
            said(by.get((name, "kill_worker")), killed_worker),
            said(by.get((name, "small_shm")), checked),
            said(by.get((name, "resume")), resumed),
        )
        for name in names
    ]
    yield "When things go wrong", markdown(head, cells)
    killed = [by[name, "killed_packer"] for name in names if (name, "killed_packer") in by]
    head = ("packing killed at half", "what is left", "the same call again", "then")
    yield "A killed packer", markdown(head, [(row["system"], *killed_packer(row)) for row in killed])


def installation(result: Result) -> list[tuple[str, str]]:
    used = {row["system"]: row["version"] for row in result["rows"] if "version" in row}
    cells = [
        (name, str(len(one["distributions"])), f"{one['bytes'] / 1e6:,.0f}", f"{one['seconds']:.0f}")
        for name, one in sorted(result["environments"].items(), key=lambda item: item[1]["bytes"])
    ]
    text = markdown(("environment", "distributions", "MB", "seconds to make or find"), cells)
    if used:
        text += "\n\nVersions: " + ", ".join(f"{name} {version}" for name, version in used.items()) + "."
    for name, reason in result["left_out"].items():
        text += f"\n\nLeft out: {name}, which could not be installed: {reason.splitlines()[-1]}"
    return [("Installation, with NumPy, OpenCV and simplejpeg", text)]


PARTS = {
    "pack": "pack", "read": "read", "pace": "pace",
    **dict.fromkeys(("check", "kept", "kill_worker", "resume", "killed_packer", "small_shm"), "behavior"),
}  # fmt: skip
MAKERS: dict[str, Callable[[list[Row]], Iterable[tuple[str, str]]]] = {
    "pack": packing, "read": reading, "pace": pacing, "behavior": behaving,
}  # fmt: skip


def said(row: Row | None, words: Callable[[Row], str]) -> str:
    return "" if row is None else words(row)


def failed(row: Row) -> str:
    """An error, in words: what hangs says so itself."""
    return plain(row["error"]) if row["error"].startswith("hangs") else f"fails: {plain(row['error'])}"


def checked(row: Row) -> str:
    """One epoch, in words."""
    if "error" in row:
        return failed(row)
    if "left_out" in row:
        return f"not tried: {row['left_out']}"
    faults = [
        f"{row[key]:,} {words}"
        for key, words in (("missing", "missing"), ("repeated", "repeated"), ("wrong", "with wrong pixels"))
        if row.get(key)
    ]
    if faults:
        return f"{', '.join(faults)} of {row['samples']:,}"
    return "yes" if "difference" in row else f"all {row['samples']:,} once"


def kept(row: Row) -> str:
    if "error" in row:
        return failed(row)
    return "unchanged" if not row["changed"] else f"{row['changed']} of {row['kept']} changed"


def killed_worker(row: Row) -> str:
    if "error" in row:
        return failed(row)
    if not row["workers"]:
        return "has threads"
    return f"raises {plain(row['raised'])}" if "raised" in row else f"continues: {checked(row)}"


def resumed(row: Row) -> str:
    if "error" in row:
        return failed(row)
    if not row["offered"]:
        return "not offered"
    return "exactly" if not (row["missing"] or row["repeated"]) else checked(row)


def killed_packer(row: Row) -> tuple[str, str, str]:
    """What is left, what the same call does, what is there then."""
    if "error" in row:
        return f"packing fails: {plain(row['error'])}", "", ""
    left, again = row["left"], row["again"]
    if "error" in left:
        found = f"refused: {plain(left['error'])}"
    elif left["missing"] or left["wrong"]:
        found = f"opens without a word; {checked(left)}"
    else:
        found = "complete"
    if row["finished"]:
        found = f"had finished; {found}"
    if "error" in again:
        return found, f"refuses: {plain(again['error'])}", ""
    share = row["again_s"] / row["whole_s"]
    return found, f"succeeds in {row['again_s']:.1f} s ({share:.0%} of a whole run)", checked(row["after"])


def plain(text: str) -> str:
    """An error's message as a cell."""
    return textwrap.shorten(text.replace("|", "/").replace("<", "‹").replace(">", "›"), 90, placeholder=" ...")


def system_name(row: Row) -> str:
    return f"*{row['system']}*" if row.get("limit") else str(row["system"])


def ordered(rows: list[Row]) -> list[Row]:
    """One row for each system, the fastest first."""
    good = [row for row in rows if "images_per_s" in row]
    one = {row["system"]: row for row in good}
    return sorted(one.values(), key=lambda row: -middle(good, row["system"], "images_per_s"))


def values(rows: list[Row], system: str, quantity: str) -> list[float]:
    return [row[quantity] for row in rows if row["system"] == system and quantity in row]


def middle(rows: list[Row], system: str, quantity: str) -> float:
    return statistics.median(values(rows, system, quantity))


def median(rows: list[Row], row: Row, quantity: str, shape: str, times: float = 1.0) -> str:
    found = values(rows, row["system"], quantity)
    return shape.format(statistics.median(found) * times) if found else ""


def spread(rows: list[Row], row: Row, quantity: str) -> str:
    """The median, and the range where there is one."""
    found = values(rows, row["system"], quantity)
    text = f"{statistics.median(found):,.0f}"
    return text if len(found) == 1 else f"{text} ({min(found):,.0f} to {max(found):,.0f})"


def ratio(rows: list[Row], row: Row, *, limit: bool) -> str:
    """The median of the rounds' ratios to the bare limit, or to rawpack's fastest format."""
    others: dict[Any, float] = {}
    for other in rows:
        if "images_per_s" in other and (other.get("limit", False) if limit else is_own(other)):
            key = other["group"], other["round"]
            others[key] = max(others.get(key, 0.0), other["images_per_s"])
    found = [
        one["images_per_s"] / others[one["group"], one["round"]]
        for one in rows
        if one["system"] == row["system"] and "images_per_s" in one and (one["group"], one["round"]) in others
    ]
    if not found and others:
        found = [middle(rows, row["system"], "images_per_s") / statistics.median(others.values())]
    return f"{statistics.median(found):.2f}" if found else ""


def is_own(row: Row) -> bool:
    return bool(row["system"].startswith("rawpack"))


def per_thousand(rows: list[Row], row: Row) -> str:
    found = values(rows, row["system"], "disk_bytes")
    return f"{found[0] / row['images'] / 1e3:,.1f}" if found else ""


def failures(rows: list[Row]) -> str:
    errors = {row["system"]: row["error"] for row in rows if "error" in row}
    return "".join(f"\n\n{name} failed: {plain(error)}" for name, error in errors.items())


def markdown(head: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """A table, or nothing where it has no rows."""
    found = list(cells)
    lines = [head, ("---",) * len(head), *found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if found else ""


def about(result: Result) -> str:
    """Where, when and with what, in a sentence."""
    machine, settings = result["machine"], result["settings"]
    text = (
        f"Measured on {result['date']} with rawpack {result['rawpack']} on {machine['cpus']} CPUs ({machine['cpu']}), "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['os']}, Python {machine['python']}, load at the start "
        f"{machine['load_at_start']:.1f}. {settings['images']:,} raw images and {settings['images'] // 2:,} JPEG "
        f"files, batches of {settings['batch']}, {settings['workers']} workers; the median of {settings['rounds']} "
        f"round{'s' * (settings['rounds'] != 1)}, with the least and the most. Made by `{result['command']}`."
    )
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def lines(result: Result) -> str:
    """What README says: rawpack and the fastest of the others, in one small table."""
    cells = []
    for (kind, crop), called in _WAYS.items():
        rows = [
            row for row in result["rows"] if row["measure"] == "read" and (row["kind"], row["crop"]) == (kind, crop)
        ]
        found = [row for row in ordered(rows) if not row.get("limit")]
        own = [row for row in found if is_own(row)][:1]
        for row in own + [row for row in found if not is_own(row)][:3]:
            first = median(rows, row, "first_batch_s", "{:.2f} s")
            cells.append(
                (called, row["system"], spread(rows, row, "images_per_s"), ratio(rows, row, limit=False), first)
            )
    return markdown(("", "", "images/s", "of rawpack", "first batch"), cells) + "\n\n" + about(result)


def benchmark(bench: Result) -> str:
    """Every row of the benchmark with its limit, where and when."""
    parts = []
    for table in bench["tables"]:
        if not table["lines"]:
            continue
        rows = {row["label"]: row for row in table["rows"]}
        cells = []
        for line in table["lines"]:
            low, high = line["images_per_s"][1:]
            rate = f"{line['images_per_s'][0]:,.0f}" + (f" ({low:,.0f} to {high:,.0f})" if low != high else "")
            bar = "" if line["bar"] is None else f"at least {line['bar']:.2f}, {'met' if line['passed'] else 'missed'}"
            times = "" if line["ratio"] is None else f"{line['ratio'][0]:.2f} of {line['against']}"
            cells.append((line["label"], rate, times, bar))
        text = markdown(("", "images/s", "ratio", "wanted"), cells)
        bars = [
            (b["bar"], b["found"], b["wanted"], {True: "met", False: "missed", None: ""}[b["passed"]])
            for b in table["bars"]
        ]
        if bars:
            text += "\n\n" + markdown(("", "found", "wanted", ""), bars)
        settings = next(iter(rows.values()))["settings"]
        shape = "x".join(map(str, settings["shape"]))
        parts.append(f"### {table['table']}\n\nImages {shape}, batches of {settings['batch']}.\n\n{text}")
        if table["left_out"]:
            parts.append("Not installed, so left out: " + ", ".join(table["left_out"]) + ".")
    row = next(row for table in bench["tables"] for row in table["rows"])
    machine = row["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    where = (
        f"Measured {bench.get('date', '')} on {machine['cpus']} CPUs ({machine['cpu']}, {machine['os']}), load at the "
        f"start {bench['load_at_start']:.1f}; {versions}. Made by `{bench.get('command', 'scripts/bench/run.py')}`."
    )
    return "\n\n".join([textwrap.fill(where, 120, break_long_words=False, break_on_hyphens=False), *parts])


def draw_cores(result: Result, path: Path) -> None:
    """How many cores are in use at a sustained rate; a line ends where the system gives no more."""
    rows = [row for row in result["rows"] if row["measure"] == "pace" and "paced" in row]
    if not rows:
        return
    colors = colors_of(result)
    with style() as figure_of:
        figure = figure_of((10.5, 6.2))
        for axes, (kind, called) in zip(figure.subplots(1, 2, sharey=True), _KINDS.items(), strict=True):
            for row in (row for row in rows if row["kind"] == kind):
                own = is_own(row)
                points = sorted((point["images_per_s"], point["cores"]) for point in row["paced"])
                x, y = zip(*points, strict=True)
                axes.plot(x, y, "o-", ms=3, lw=2.4 if own else 1.1, color=colors[row["system"]], label=row["system"])
            axes.set(xscale="log", xlabel=f"images/s that the step gets, {called}")
            round_numbers(axes.xaxis)
            if axes.lines:
                below: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12), "ncols": 3}
                axes.legend(fontsize=7, frameon=False, labelcolor=_INK, **below)
        figure.axes[0].set_ylabel("CPU cores in use")
        save(figure, path)


def draw_disk(result: Result, path: Path) -> None:
    """Bytes on disk against images/s, a point for each format of each system."""
    marks = []
    for kind in _KINDS:
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
        axes.set(
            xscale="log", yscale="log", xlabel="kB on disk for each image (smaller is to the left)", ylabel="images/s"
        )
        rates = [rate for _, rate, _, _ in marks]
        span = max(10.0, max(rates) / min(rates))
        for kind in _KINDS:
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


def apart(rates: list[float], span: float) -> list[float]:
    """Heights of labels, rising and far enough from each other on a logarithmic axis that spans `span` times."""
    shown: list[float] = []
    for rate in rates:
        shown.append(max(rate, shown[-1] * span ** (1 / 26)) if shown else rate)
    return shown


def round_numbers(axis: Any) -> None:
    """1, 2 and 5 of each power of ten, written out."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def colors_of(result: Result) -> dict[str, str]:
    """The same in all plots of a result."""
    names = dict.fromkeys(row["system"] for row in result["rows"] if not row.get("limit"))
    return {name: _COLORS[k % len(_COLORS)] for k, name in enumerate(names)}


class style:  # noqa: N801, read as a word of a `with`
    """Text and axes that show on light and dark pages; the same bytes from the same figures."""

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


def replace(page: Path, name: str, made: str) -> None:
    """Put what was made between the page's markers."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = page.read_text("utf-8")
    if begin not in text or end not in text:
        raise SystemExit(f"{page} lacks {begin} or {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{made}\n\n{end}{after}", "utf-8")


if __name__ == "__main__":
    main()
