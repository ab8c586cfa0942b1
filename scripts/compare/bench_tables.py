"""The benchmark's rows as Markdown tables, with their limits and bars."""

from __future__ import annotations

import textwrap

from figures import Result
from result_tables import markdown


def benchmark(bench: Result) -> str:
    """All rows of the benchmark with their limits, and when and where they were measured."""
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
        text = markdown(("row", "images/s", "ratio", "bar"), cells)
        bars = [
            (b["bar"], b["found"], b["wanted"], {True: "met", False: "missed", None: ""}[b["passed"]])
            for b in table["bars"]
        ]
        if bars:
            text += "\n\n" + markdown(("bar", "found", "wanted", "result"), bars)
        settings = next(iter(rows.values()))["settings"]
        shape = "x".join(map(str, settings["shape"]))
        several = {one["settings"]["workers"] for one in rows.values()}
        workers = f", {settings['workers']} workers" if len(several) == 1 and settings["workers"] else ""
        workers = workers.replace(" 1 workers", " 1 worker")
        parts.append(f"### {table['table']}\n\nImages {shape}, batches of {settings['batch']}{workers}.\n\n{text}")
        if table["left_out"]:
            parts.append("Left out, because not installed: " + "; ".join(table["left_out"]) + ".")
    row = next(row for table in bench["tables"] for row in table["rows"])
    machine = row["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
    where = (
        f"Measured {bench.get('date', '')} on {machine['cpus']} CPUs ({machine['cpu']}, {machine['os']}), load at the "
        f"start {bench['load_at_start']:.1f}; {versions}. Made by `{bench.get('command', 'scripts/bench/run.py')}`."
    )
    return "\n\n".join([textwrap.fill(where, 120, break_long_words=False, break_on_hyphens=False), *parts])
