"""Rows of measurements as a table for people: medians, their spread, ratios round by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from bars import Row, Verdict, by_round, shown, spread
from tables import Entry, Table

MET = {True: "met", False: "MISSED", None: ""}


def summary(table: Table, rows: Sequence[Row]) -> list[Row]:
    """One row for each line of the table that was measured: (median, least, most) of what its rounds gave."""
    rates = {entry.label: by_round(rows, entry.label, "images_per_s") for entry in table.entries}
    return [_line(entry, rates, rows) for entry in table.entries if rates[entry.label]]


def judge(table: Table, rows: Sequence[Row]) -> list[Verdict]:
    """How the table's bars fared, as far as what they speak of was measured."""
    return [verdict for bar in table.bars if (verdict := bar.judge(rows)) is not None]


def as_text(table: Table, lines: Sequence[Row], verdicts: Sequence[Verdict]) -> str:
    """A table for a terminal."""
    settings = table.settings
    title = f"{table.name}: {'x'.join(map(str, settings.shape))}"
    if table.title:
        title += f", batch {settings.batch}, {table.title}"
    if settings.workers is not None:
        title += f", {settings.workers} worker{'s' * (settings.workers != 1)}"
    text = aligned([tuple(_COLUMNS), *(tuple(cell(line) for cell in _COLUMNS.values()) for line in lines)])
    if verdicts:
        head = ("", "found", "wanted", "")
        text += ["", *aligned([head, *((v.bar, v.found, v.wanted, MET[v.passed]) for v in verdicts)])]
    return "\n".join([title, *("  " + line if line else "" for line in text)])


def aligned(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with their columns below each other; without columns that are empty but for their head."""
    empty = {k for k in range(1, len(cells[0])) if not any(row[k] for row in cells[1:])}
    kept = [[cell for k, cell in enumerate(row) if k not in empty] for row in cells]
    widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in kept]


def _line(entry: Entry, rates: dict[str, dict[int, float]], rows: Sequence[Row]) -> Row:
    own = rates[entry.label]
    other = rates.get(entry.against or "", {})
    ratios = [rate / other[number] for number, rate in own.items() if number in other]
    ratio = spread(ratios) if ratios else None
    mine = [row for row in rows if row["label"] == entry.label]

    def median(name: str) -> float | None:
        values = [row[name] for row in mine if row[name] is not None]
        return statistics.median(values) if values else None

    # The memory of subjects that hand no batches over says nothing of a reader.
    hands_over = median("first_batch_s") is not None
    return {
        "label": entry.label,
        "images_per_s": spread(list(own.values())),
        "cpu_s_per_1000": median("cpu_s_per_1000"),
        "cpu_s_per_gb": median("cpu_s_per_gb"),
        "against": entry.against if ratios else None,
        "ratio": ratio,
        "bar": entry.bar,
        "passed": None if entry.bar is None or ratio is None else ratio[0] >= entry.bar,
        "first_batch_s": median("first_batch_s"),
        "next_epoch_s": median("next_epoch_s"),
        "worker_bytes": median("worker_bytes") if hands_over else None,
        "shared_bytes": median("shared_bytes") if hands_over else None,
        "disk_bytes": median("disk_bytes"),
        "rounds": len(own),
    }


def _bar(line: Row) -> str:
    return "" if line["bar"] is None else f"{line['bar']:.2g} {MET[line['passed']] or 'not measured'}"


def _if_known(line: Row, name: str, form: str, times: float = 1.0) -> str:
    return "" if line[name] is None else form.format(line[name] * times)


def _megabytes(line: Row, name: str) -> str:
    return f"{line[name] / 1e6:.0f} MB" if line[name] else ""


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "": lambda line: str(line["label"]),
    "images/s": lambda line: shown(line["images_per_s"], "{:,.0f}".format),
    "CPU s/1,000": lambda line: f"{line['cpu_s_per_1000']:.2g}",
    "CPU s/GB": lambda line: _if_known(line, "cpu_s_per_gb", "{:.2f}"),
    "ratio": lambda line: shown(line["ratio"], "{:.2f}".format) if line["ratio"] else "",
    "to": lambda line: line["against"] or "",
    "target": _bar,
    "first batch": lambda line: _if_known(line, "first_batch_s", "{:.2f} s"),
    "next epoch": lambda line: _if_known(line, "next_epoch_s", "{:.1f} ms", 1000),
    "a worker": lambda line: _megabytes(line, "worker_bytes"),
    "slots": lambda line: _megabytes(line, "shared_bytes"),
    "on disk": lambda line: _megabytes(line, "disk_bytes"),
}
"""Head of a column -> its cell in a line."""
