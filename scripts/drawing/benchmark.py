"""The benchmark's rows as Markdown tables, with their limits and targets."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from drawing.figures import Result, Row
from drawing.results import markdown

RECIPE = "recipe-"
_VERDICT = ("found", "wanted", "result")


def benchmark(bench: Result) -> str:
    """All rows of the benchmark with their limits, and when and where they were measured."""
    parts = [_where(bench)]
    for table in bench["tables"]:
        if not table["lines"]:
            continue
        cells = []
        for line in table["lines"]:
            rate = _rate(line)
            bar = "" if line["bar"] is None else f"at least {line['bar']:.2f}, {'met' if line['passed'] else 'missed'}"
            times = "" if line["ratio"] is None else f"{line['ratio'][0]:.2f} of {line['against']}"
            cells.append((line["label"], rate, times, bar))
        text = markdown(("row", "images/s", "ratio", "target"), cells)
        if table["bars"]:
            text += "\n\n" + markdown(("target", *_VERDICT), [(b["bar"], *_verdict(b)) for b in table["bars"]])
        parts.append(f"### {table['table']}\n\n{_settings(table['rows'])}\n\n{text}")
        if table["left_out"]:
            parts.append("Left out, because not installed: " + "; ".join(table["left_out"]) + ".")
    return "\n\n".join(parts)


def targets(bench: Result) -> str:
    """Each table in a row, with what met its target and what missed it, and when and where they were measured."""
    rows = []
    for table in bench["tables"]:
        met, missed = [], []
        for line in table["lines"]:
            if line["bar"] is not None:
                found = f"{line['label']}: {line['ratio'][0]:.2f} of {line['against']}"
                met.append(found) if line["passed"] else missed.append(f"{found} (at least {line['bar']:.2f})")
        for bar in table["bars"]:
            if bar["passed"] is not None:
                found = f"{bar['bar']}: {bar['found'].partition(' (')[0]}"
                met.append(found) if bar["passed"] else missed.append(f"{found} ({bar['wanted']})")
        if met or missed:
            images = _images(table["rows"])
            rows.append((f"{table['table']}: {images[:1].lower()}{images[1:]}", "; ".join(met), "; ".join(missed)))
    return f"{markdown(('table', 'met', 'missed (wanted)'), rows)}\n\n{_where(bench)}"


def recipe(bench: Result) -> str:
    """The rows of the tables `recipe-...` in one table, and what they were compared with in another."""
    tables = [table for table in bench["tables"] if table["table"].startswith(RECIPE)]
    bars = [(_images(table["rows"]), bar["bar"], *_verdict(bar)) for table in tables for bar in table["bars"]]
    lines = [
        (_images(table["rows"]), line["label"], _rate(line), f"{line['cpu_s_per_1000'] * 1000:,.0f} µs")
        for table in tables
        for line in table["lines"]
        if line["label"] != "calls"
    ]
    found = markdown(("measured with", "target", *_VERDICT), bars)
    rates = markdown(("measured with", "row", "images/s", "CPU time an image"), lines)
    return "\n\n".join([found, rates, _where(bench)])


def _verdict(bar: Row) -> tuple[str, str, str]:
    return bar["found"], bar["wanted"], {True: "met", False: "missed", None: ""}[bar["passed"]]


def _rate(line: Row) -> str:
    """The median of images/s, and the range where there is one."""
    median, low, high = line["images_per_s"]
    return f"{median:,.0f}" + (f" ({low:,.0f} to {high:,.0f})" if low != high else "")


def _where(bench: Result) -> str:
    """When, on what and with what it was measured."""
    row = next(row for table in bench["tables"] for row in table["rows"])
    machine = row["machine"]
    used: dict[str, str] = {}
    for table in bench["tables"]:
        for one in table["rows"]:
            used = one["versions"] | used
    versions = ", ".join(f"{name} {version}" for name, version in used.items())
    where = (
        f"Measured {bench.get('date', '')} on {machine['cpus']} CPUs ({machine['cpu']}, {machine['os']}), load at the "
        f"start {bench['load_at_start']:.1f}; {versions}. Made by `{bench.get('command', 'scripts/bench/run.py')}`."
    )
    return textwrap.fill(where, 120, break_long_words=False, break_on_hyphens=False)


def _settings(rows: list[Row]) -> str:
    """What the rows of a table have in common, with the number of rounds."""
    rounds = len({row["round"] for row in rows})
    return f"{_images(rows)}; {rounds} round{'s' * (rounds != 1)}."


def _images(rows: list[Row]) -> str:
    """The images, the batches and the workers that the rows of a table have in common."""

    def common(name: str) -> Any:
        found = {json.dumps(row["settings"][name]) for row in rows}
        return rows[0]["settings"][name] if len(found) == 1 else None

    parts = []
    if shape := common("shape"):
        parts.append("Images " + "x".join(map(str, shape)))
    if batch := common("batch"):
        parts.append(f"batches of {batch}")
    if workers := common("workers"):
        parts.append(f"{workers} worker{'s' * (workers != 1)}")
    return ", ".join(parts)
