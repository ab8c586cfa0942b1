"""The tables of a results file as Markdown, for the terminal and for the page."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from published_parts.contract import Part, by_cell, medians

Result = Mapping[str, Any]


def as_text(part: Part, result: Result) -> str:
    """Both tables of a part: its figures, and its relations with verdicts."""
    lines = [
        part.unit,
        f"Measured on {_machine(result)}, {result['date']}. {_rounds(part, result)}",
        "",
    ]
    if result["quick"]:
        lines = ["**Tiny sets, one round: these figures only show that everything works.**", "", *lines]
    lines += _figures(part, result)
    for label, why in result["left_out"].items():
        lines += ["", f"Left out: {label} ({why})."]
    verdicts = [(relation, *relation.judge(medians(result["rows"]))) for relation in part.relations]
    lines += ["", "| relation | report | here | verdict |", "|---|---|---|---|"]
    for relation, ours, verdict in verdicts:
        lines.append(f"| {relation.says} | {_expected(relation)} | {_times(ours)} | {verdict} |")
    return "\n".join(lines)


def overview(parts: Sequence[Part], results: Mapping[str, Result]) -> str:
    """For each part, how many of the report's relations between its own methods hold on this machine."""
    lines = ["| section | relations of the report | agree | same direction | do not agree |", "|---|---|---|---|---|"]
    for part in parts:
        if found := results.get(str(part.number)):
            words = [relation.judge(medians(found["rows"]))[1] for relation in part.relations if relation.reported]
            counts = [sum(word.startswith(one) for word in words) for one in ("agrees", "same", "does not")]
            anchor = f"{part.number}-{re.sub(r'[^a-z0-9 -]', '', part.title.lower()).replace(' ', '-')}"
            lines.append(
                f"| [{part.number}. {part.title}](#{anchor}) | {sum(counts)} | " + " | ".join(map(str, counts)) + " |"
            )
    return "\n".join([*lines, "", versions(results)])


def versions(results: Mapping[str, Result]) -> str:
    """A line with the versions of all libraries, and the commit of rawpack if it was recorded."""
    found: dict[str, list[str]] = {}
    for result in results.values():
        for name, version in result["versions"].items():
            found.setdefault(name, []).extend(version.split(" and "))
    return "Versions: " + ", ".join(f"{name} {' and '.join(dict.fromkeys(each))}" for name, each in found.items()) + "."


def draw(parts: Sequence[Part], results: Mapping[str, Result], page: Path) -> None:
    """Write the tables between the markers of the page; parts that were not measured stay as they are."""
    texts = {"overview": overview(parts, results)}
    texts |= {
        f"table {part.number}": as_text(part, results[str(part.number)])
        for part in parts
        if str(part.number) in results
    }
    whole = page.read_text("utf-8")
    for name, text in texts.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, found, rest = whole.partition(begin)
        _, found_end, after = rest.partition(end)
        if not (found and found_end):
            raise SystemExit(f"{page} needs the markers {begin} and {end}")
        whole = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    page.write_text(whole, "utf-8")


def _rounds(part: Part, result: Result) -> str:
    """How many rounds the medians are of."""
    counts = Counter(row["label"] for row in result["rows"])
    most = max(counts.values(), default=0)
    if most <= 1:
        return "One round."
    fewer = [f"{method.label}: {counts[method.label]}" for method in part.methods if 0 < counts[method.label] < most]
    rest = f" Fewer rounds: {'; '.join(fewer)}." if fewer else ""
    return f"Median of {most} rounds [lowest, highest].{rest}"


def _figures(part: Part, result: Result) -> list[str]:
    cells = by_cell(result["rows"])
    columns = [column for column in part.columns if any(column == name for _, name in [*cells, *part.published])]
    labels = [method.label for method in part.methods]
    labels = [label for label in labels if any(label == found for found, _ in [*cells, *part.published])]
    labels += sorted({label for label, _ in part.published} - set(labels))
    head, rows = ["method"], [[label] for label in labels]
    for column in columns:
        if any((label, column) in cells for label in labels):
            head.append(column)
            for row, label in zip(rows, labels, strict=True):
                row.append(_spread(cells.get((label, column), [])))
        if any((label, column) in part.published for label in labels):
            head.append(f"{column}: report")
            for row, label in zip(rows, labels, strict=True):
                row.append(_given(part.published.get((label, column))))
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]


def _expected(relation: Any) -> str:
    if relation.theirs is not None:
        return _times(relation.theirs)
    if relation.within is not None:
        low, high = relation.within
        return f"{_number(low)} or more" if high >= 1000 else f"{_number(low)} to {_number(high)}"
    return ""


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    middle = _number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} [{_number(min(values))}, {_number(max(values))}]"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _given(value: float | None) -> str:
    """A figure of a report, with all its digits."""
    return "" if value is None else f"{value:,}"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    number = _number(ratio)
    return "1.0 times" if number == "1" else f"{number} times"


def _machine(result: Result) -> str:
    machine = result["machine"]
    load = result["load"] / machine["cpus"]
    memory = machine["memory_limit_bytes"] / 2**30
    return f"{machine['cpus']} CPUs ({machine['cpu']}), {memory:.0f} GiB, load before the start {load:.1f} for each CPU"
