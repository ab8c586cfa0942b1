#!/usr/bin/env python3
"""Draw the two charts of README.md, docs/training-{light,dark}.svg and docs/recipe-{light,dark}.svg.

    python scripts/make_chart.py

The first is drawn from scripts/measured/training.json, which scripts/bench_training.py writes; the second from the
tables `recipe` of docs/explanation/compared.md, which scripts/compare measures and scripts/draw.py writes. Each shows
one run on one machine, which it names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
TRAINING = ROOT / "scripts" / "measured" / "training.json"
COMPARED = ROOT / "docs" / "explanation" / "compared.md"
_NETWORKS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}
_LOADERS = {"files": "JPEG files, DataLoader", "memmap": "rawpack memmap", "gpu alone": "GPU alone"}
_SYSTEMS = {
    "raw pixels, 256 px": ("torch DataLoader", "FFCV", "DALI", "TurboLoader", "rawpack memmap"),
    "JPEG, 256 px": ("torch DataLoader", "DALI", "FFCV", "rawpack lmdb"),
}
"""What is stored -> the systems shown, of the table whose heading ends so: torch's, the fastest others, rawpack."""
_COLORS = {
    "light": {"text": "#1f2328", "muted": "#59636e", "other": "#afb8c1", "ours": "#0969da"},
    "dark": {"text": "#f0f6fc", "muted": "#9198a1", "other": "#656c76", "ours": "#4493f8"},
}
# In units of the drawing, which a phone shows at about 0.55 px each, and a page at 1 px.
_WIDTH, _LABEL, _ROW, _FONT, _TITLE = 640, 248, 31, 19, 22


@dataclass(frozen=True)
class Chart:
    """Bars in groups, with the unit in the title, and the machine."""

    title: str
    machine: str
    groups: dict[str, dict[str, int]]
    """Title of a group -> label -> images per second."""


def main() -> None:
    for name, chart in (("training", training()), ("recipe", recipe())):
        for theme in _COLORS:
            (ROOT / "docs" / f"{name}-{theme}.svg").write_text(drawn(chart, theme), "utf-8")


def training() -> Chart:
    """Two networks that train from files, from a store, and from a batch in the GPU's memory."""
    measured = json.loads(TRAINING.read_text("utf-8"))
    machine, rates = measured["machine"], measured["rates"]
    groups = {
        called: {label: round(rates[network][way]["images_per_second"]) for way, label in _LOADERS.items()}
        for network, called in _NETWORKS.items()
    }
    return Chart("Training on a GPU: images per second", f"{machine['gpu']}, {machine['cpus']} CPU cores", groups)


def recipe() -> Chart:
    """Random-resized-crops, flipped and normalized, by rawpack and by others."""
    page = COMPARED.read_text("utf-8")
    groups = {}
    for stored, systems in _SYSTEMS.items():
        ending = re.escape(stored.replace("raw pixels", "raw"))
        found = re.search(rf"\*\*Random-resized-crop 224, .* from {ending}\*\*\n\n((?:\|.*\n)+)", page)
        if not found:
            raise SystemExit(f"{COMPARED} has no table of the recipe from {stored}")
        head, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
        rates = {cells[0]: int(cells[head.index("images/s")].split()[0].replace(",", "")) for cells in rows[1:]}
        groups[f"From {stored}"] = {name: rates[name] for name in systems}
    machine = re.search(r"on (\d+) CPUs \(([^)]*)\)", page.partition("<!-- recipe:end -->")[0])
    if not machine:
        raise SystemExit(f"{COMPARED} does not name the machine of the recipe")
    return Chart("Random crop, flip, normalize: images per second", f"{machine[1]} CPU cores, {machine[2]}", groups)


def drawn(chart: Chart, theme: str) -> str:
    """An SVG with a bar for each row."""
    color, most = _COLORS[theme], max(max(rates.values()) for rates in chart.groups.values())
    lines = [
        f'<text x="0" y="24" fill="{color["text"]}" font-size="{_TITLE}" font-weight="600">'
        f"{escape(chart.title)}</text>",
        f'<text x="0" y="50" fill="{color["muted"]}">{escape(chart.machine)}</text>',
    ]
    top = 58
    for title, rates in chart.groups.items():
        lines.append(f'<text x="0" y="{top + 29}" fill="{color["muted"]}">{escape(title)}</text>')
        top += 38
        for label, rate in rates.items():
            width = max(2, round(rate / most * (_WIDTH - _LABEL - 86)))
            ours = label.startswith("rawpack")
            weight = ' font-weight="600"' if ours else ""
            lines += [
                f'<text x="16" y="{top + 21}" fill="{color["text"]}"{weight}>{escape(label)}</text>',
                f'<rect x="{_LABEL}" y="{top + 4}" width="{width}" height="{_ROW - 8}" rx="3" '
                f'fill="{color["ours" if ours else "other"]}"/>',
                f'<text x="{_LABEL + width + 10}" y="{top + 21}" fill="{color["text"]}"{weight}>{rate:,}</text>',
            ]
            top += _ROW
    rows = "; ".join(
        f"{title}: " + ", ".join(f"{label} {rate:,}" for label, rate in rates.items())
        for title, rates in chart.groups.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + 6}" width="{_WIDTH}" role="img" '
        f'font-size="{_FONT}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
        f"<title>{escape(chart.title)}. {escape(chart.machine)}. {escape(rows)}</title>\n"
        + "\n".join(lines)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
