#!/usr/bin/env python3
"""How cost grows with workers, batch and image size: measured, and drawn for the documentation.

scripts/bench/growth.py --data ~/photos         measure, then draw docs/explanation/growth.svg
scripts/bench/growth.py --from growth.json      draw what `run.py --tables growth --json` wrote
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_PICTURE = _HERE.parent.parent / "docs" / "explanation" / "growth.svg"
_FORMS = ("memmap", "lmdb")
_WIDTH, _HEIGHT = 300, 300
"""Of a panel, in pixels."""
_LEFT, _TOP, _RIGHT, _BOTTOM = 52, 56, 12, 46
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 } .note { font-size: 12px; fill: #57606a }
.grid { stroke: #d0d7de } .axis { stroke: #57606a }
.memmap { stroke: #0969da; fill: #0969da } .lmdb { stroke: #bc4c00; fill: #bc4c00 }
path.memmap, path.lmdb { fill: none; stroke-width: 2 } text.memmap, text.lmdb { stroke: none }
.page { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .note { fill: #9198a1 } .grid { stroke: #3d444d } .axis { stroke: #9198a1 }
.memmap { stroke: #58a6ff; fill: #58a6ff } .lmdb { stroke: #f0883e; fill: #f0883e }
path.memmap, path.lmdb { fill: none } .page { fill: #0d1117 } }
"""


@dataclass(frozen=True)
class Panel:
    """One of the pictures beside each other."""

    table: str
    title: str
    x: Callable[[dict[str, Any]], float]
    """What grows, from a row's settings."""


PANELS = (
    Panel("growth-workers", "workers", lambda settings: settings["workers"]),
    Panel("growth-batch", "images in a batch", lambda settings: settings["batch"]),
    Panel("growth-size", "pixels a side", lambda settings: settings["shape"][0]),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--from", dest="measured", type=Path, help="JSON that run.py wrote; measured anew without it")
    parser.add_argument(
        "--out", type=Path, default=_PICTURE, help=f"the picture [{_PICTURE.name} in the documentation]"
    )
    asked, others = parser.parse_known_args()
    if asked.measured is not None:
        if others:
            parser.error(f"nothing is measured, so {' '.join(others)} means nothing")
        result = json.loads(asked.measured.read_text())
    else:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "growth.json"
            command: list[str | Path] = [
                sys.executable,
                _HERE / "run.py",
                "--tables",
                "growth",
                "--json",
                output,
                *others,
            ]
            subprocess.run(command, check=True)
            result = json.loads(output.read_text())
    asked.out.write_text(draw(result))


def draw(result: dict[str, Any]) -> str:
    """The picture, of the medians over the rounds: microseconds an image, both axes logarithmic."""
    tables = {table["table"]: table for table in result["tables"]}
    curves = {panel.table: points_of(tables[panel.table], panel) for panel in PANELS}
    costs = [y for forms in curves.values() for points in forms.values() for _, y in points]
    low, high = math.floor(math.log10(min(costs))), math.ceil(math.log10(max(costs)))
    row = tables[PANELS[0].table]["rows"][0]
    size = _WIDTH * len(PANELS), _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" role="img" '
        'aria-label="Microseconds an image, by workers, batch and image size">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{size[0]}" height="{size[1]}"/>',
        '<text class="title" x="12" y="22">Microseconds an image</text>',
        *(f'<text class="{form}" x="{200 + 80 * k}" y="22">{form}</text>' for k, form in enumerate(_FORMS)),
        f'<text class="note" x="{size[0] - 12}" y="22" text-anchor="end">{escape(where(row))}</text>',
    ]
    for k, panel in enumerate(PANELS):
        parts += [f'<g transform="translate({k * _WIDTH} 0)">', *panel_of(panel.title, curves[panel.table], low, high)]
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def points_of(table: dict[str, Any], panel: Panel) -> dict[str, list[tuple[float, float]]]:
    """For each form the points (what grows, microseconds an image)."""
    settings = {row["label"]: row["settings"] for row in table["rows"]}
    points: dict[str, list[tuple[float, float]]] = {form: [] for form in _FORMS}
    for line in table["lines"]:
        form = line["label"].partition(",")[0]
        points[form].append((panel.x(settings[line["label"]]), 1e6 / line["images_per_s"][0]))
    return {form: sorted(found) for form, found in points.items()}


def panel_of(title: str, curves: dict[str, list[tuple[float, float]]], low: int, high: int) -> list[str]:
    """The elements of one panel; costs from 10**low to 10**high."""
    values = sorted({x for points in curves.values() for x, _ in points})
    first, last = math.log(values[0]), math.log(values[-1])

    def at_x(x: float) -> float:
        return _LEFT + (math.log(x) - first) / (last - first) * (_WIDTH - _LEFT - _RIGHT - 16) + 8

    def at_y(y: float) -> float:
        return _HEIGHT - _BOTTOM - (math.log10(y) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for power in range(low, high + 1):
        y = at_y(10**power)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text class="note" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10**power:,g}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT} {at_y(10**low):.1f}H{_WIDTH - _RIGHT}"/>')
    for x in values:
        label = f'x="{at_x(x):.1f}" y="{_HEIGHT - _BOTTOM + 17}" text-anchor="middle"'
        parts.append(f'<text class="note" {label}>{x:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{title}</text>')
    for form, points in curves.items():
        parts += curve(form, [(at_x(x), at_y(y)) for x, y in points])
    return parts


def curve(form: str, points: Sequence[tuple[float, float]]) -> list[str]:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return [
        f'<path class="{form}" d="M{path}"/>',
        *(f'<circle class="{form}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points),
    ]


def where(row: dict[str, Any]) -> str:
    """The machine and the conditions that the panels share, in words."""
    settings, machine = row["settings"], row["machine"]
    shape = "x".join(map(str, settings["shape"]))
    return (
        f"{machine['cpu']}, {machine['cpus']} CPUs; unless said otherwise {shape}, batch {settings['batch']}, 2 workers"
    )


if __name__ == "__main__":
    main()
