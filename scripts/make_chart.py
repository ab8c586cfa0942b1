#!/usr/bin/env python3
"""Draw the chart of README.md, docs/chart-light.svg and docs/chart-dark.svg, from the tables of the documentation.

    python scripts/make_chart.py

The figures are those of docs/explanation/compared.md and docs/explanation/performance.md: measure them again with
scripts/compare and scripts/make_trade_off.py, and then draw.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
EXPLANATION = ROOT / "docs" / "explanation"
_COMPARED, _PERFORMANCE = EXPLANATION / "compared.md", EXPLANATION / "performance.md"


@dataclass(frozen=True)
class Bar:
    """One system: the page, the heading above its table, and the first cell of its row."""

    label: str
    page: Path
    heading: str
    row: str
    ours: bool = False


_GROUPS = {
    "JPEG files as they are": [
        Bar("torch DataLoader", _PERFORMANCE, "## Size against speed", "JPEG files, torch DataLoader"),
    ],
    "JPEG at 256 px, center crop 224": [
        Bar("litdata", _COMPARED, "**Reading, JPEG, 256 px, center crop 224**", "litdata"),
        Bar("FFCV", _COMPARED, "**Reading, JPEG, 256 px, center crop 224**", "FFCV"),
        Bar("rawpack lmdb", _COMPARED, "**Reading, JPEG, 256 px, center crop 224**", "rawpack lmdb", ours=True),
    ],
    "Raw pixels, 224 px": [
        Bar("litdata", _COMPARED, "**Reading, raw, 224 px**", "litdata"),
        Bar("FFCV", _COMPARED, "**Reading, raw, 224 px**", "FFCV"),
        Bar("rawpack memmap", _COMPARED, "**Reading, raw, 224 px**", "rawpack memmap", ours=True),
    ],
}
_COLORS = {
    "light": {"text": "#1f2328", "muted": "#59636e", "other": "#afb8c1", "ours": "#0969da"},
    "dark": {"text": "#f0f6fc", "muted": "#9198a1", "other": "#656c76", "ours": "#4493f8"},
}
# In units of the drawing, which a phone shows at about 0.55 px each: text of 22 units is 12 px there.
_WIDTH, _LABEL, _ROW, _HEAD, _FONT = 640, 232, 34, 44, 22


def main() -> None:
    groups = {title: [(bar, images_per_second(bar)) for bar in bars] for title, bars in _GROUPS.items()}
    for theme in _COLORS:
        (ROOT / "docs" / f"chart-{theme}.svg").write_text(drawn(groups, theme), "utf-8")


def images_per_second(bar: Bar) -> int:
    """The figure in the column `images/s`, of the first table below a heading that has such a row."""
    _, found, below = bar.page.read_text("utf-8").partition(bar.heading)
    for table in re.findall(r"^\|.*\n(?:\|.*\n)+", below, re.MULTILINE) if found else []:
        head, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
        for cells in rows:
            if cells[0] == bar.row:
                return int(cells[head.index("images/s")].split()[0].replace(",", ""))
    raise SystemExit(f"{bar.page} has no row {bar.row!r} below {bar.heading!r}")


def drawn(groups: dict[str, list[tuple[Bar, int]]], theme: str) -> str:
    """An SVG with a bar for each system."""
    color, most = _COLORS[theme], max(rate for bars in groups.values() for _, rate in bars)
    lines, top = [], 0
    for title, bars in groups.items():
        lines.append(f'<text x="0" y="{top + 30}" fill="{color["muted"]}">{escape(title)}</text>')
        top += _HEAD
        for bar, rate in bars:
            width = max(2, round(rate / most * (_WIDTH - _LABEL - 96)))
            weight = ' font-weight="600"' if bar.ours else ""
            lines += [
                f'<text x="0" y="{top + 24}" fill="{color["text"]}"{weight}>{escape(bar.label)}</text>',
                f'<rect x="{_LABEL}" y="{top + 5}" width="{width}" height="{_ROW - 10}" rx="3" '
                f'fill="{color["ours" if bar.ours else "other"]}"/>',
                f'<text x="{_LABEL + width + 10}" y="{top + 24}" fill="{color["text"]}"{weight}>{rate:,}</text>',
            ]
            top += _ROW
    told = "; ".join(
        f"{title}: " + ", ".join(f"{bar.label} {rate:,}" for bar, rate in bars) for title, bars in groups.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + 8}" role="img" font-size="{_FONT}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
        f"<title>Images per second. {escape(told)}</title>\n" + "\n".join(lines) + "\n</svg>\n"
    )


if __name__ == "__main__":
    main()
