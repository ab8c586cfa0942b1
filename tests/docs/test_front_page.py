"""README's first screens: the figures are those of the recorded runs, the charts name what they show, and what it says
to type is installed by what it says to type first. And the scripts that it names do what they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import make_chart
import pytest
from pictures import picture, save
from running import environment, run_here

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text("utf-8")
PERFORMANCE = (DOCS / "explanation" / "performance.md").read_text("utf-8")
COMPARED = (DOCS / "explanation" / "compared.md").read_text("utf-8")
TRAINING = json.loads((ROOT / "scripts" / "measured" / "training.json").read_text("utf-8"))
RATES = {
    network: {way: one["images_per_second"] for way, one in ways.items()} for network, ways in TRAINING["rates"].items()
}


def table(page: str, heading: str) -> dict[str, dict[str, str]]:
    """The first table below a heading: first cell of a row, without backticks -> column -> cell."""
    lines = page[page.index(heading) :].split("\n")
    start = next(k for k, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}


def number(cell: str) -> float:
    """The first number of a cell such as "7,495 (5,626 to 7,758)"."""
    return float(cell.split()[0].replace(",", ""))


def test_the_table_of_training_is_that_of_the_run() -> None:
    """performance.md rounds what was recorded; other pages that say a figure of it say the same."""
    rows = table(PERFORMANCE, "## Training on a GPU")
    called = {
        "gpu alone": "GPU alone", "files": "JPEG files, torch DataLoader, 16 workers", "lmdb": "lmdb 256",
        "memmap": "memmap 256", "planes": "memmap 256 ycgco420",
    }  # fmt: skip
    assert set(rows) == set(called.values())
    for network, title in (("resnet50", "ResNet-50"), ("resnet18", "ResNet-18")):
        for way, rate in RATES[network].items():
            assert number(rows[called[way]][title]) == round(rate), (network, way)
    page = (DOCS / "how-to" / "train-with-pytorch.md").read_text("utf-8")
    for way in ("memmap", "files"):
        assert f"{RATES['resnet50'][way]:,.0f}" in page


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_charts_show_recorded_figures(theme: str) -> None:
    """As `scripts/make_chart.py` draws them."""
    for name, chart in (("training", make_chart.training()), ("recipe", make_chart.recipe())):
        assert (DOCS / f"{name}-{theme}.svg").read_text("utf-8") == make_chart.drawn(chart, theme)


def test_what_the_first_sentences_claim_is_what_the_charts_show() -> None:
    """Times and shares are quotients of the bars."""
    opening = " ".join(README.partition("## Start")[0].split())
    for network, title in (("resnet18", "ResNet-18"), ("resnet50", "ResNet-50")):
        rates = RATES[network]
        found = re.search(rf"{title} trains ([\d.]+) times as fast.*?, at (\d+)%", opening)
        assert found, title
        assert found[1] == f"{rates['memmap'] / rates['files']:.1f}"
        assert found[2] == f"{100 * rates['memmap'] / rates['gpu alone']:.0f}"
    found = re.search(
        r"([\d.]+) times as fast as in the next .*? from raw pixels, and ([\d.]+) times from JPEG", opening
    )
    assert found
    for k, (stored, ours) in enumerate((("raw", "rawpack memmap"), ("JPEG", "rawpack lmdb"))):
        rows = table(COMPARED, f"from {stored}, 256 px**")
        rates = {name: number(row["images/s"]) for name, row in rows.items() if "*" not in name}
        best = max(rate for name, rate in rates.items() if "rawpack" not in name)
        assert found[k + 1] == f"{rates[ours] / best:.1f}"


def test_no_quantity_has_two_values() -> None:
    """No other figures of speed than those that the tests above compare: none in the rest of the page."""
    rest = README[README.index("## Start") : README.index("<!-- size:begin -->")] + README.partition("size:end")[2]
    assert re.findall(r"\d[\d,.]* (?:times|images/s)|\d+%", rest) == []


# ---------------------------------------------------------------------------------------------- scripts


def test_compare_stores(tmp_path: Path) -> None:
    """A row for the files and one for each store: bytes, speed, and speed in multiples of the first row."""
    photos, store = tmp_path / "photos", tmp_path / "store"
    for i in range(6):
        save(photos / f"{i % 2}" / f"{i}.jpg", picture(40 + i, 60, i))
    run_here("pack", "--size", "32", photos, store)
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "compare_stores.py", "--seconds", "0.1", photos, store],
        capture_output=True, encoding="utf-8", env=environment(), check=True,
    )  # fmt: skip
    rows = [re.split(r"\s{2,}", line.strip()) for line in ran.stdout.splitlines() if line.startswith("  ")]
    plain = [row for row in rows if row[0] in ("files, plain workers", "store")]
    assert [row[0] for row in plain] == ["files, plain workers", "store"] * 2
    for files, packed in (plain[:2], plain[2:]):
        for row, folder in ((files, photos), (packed, store)):
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            assert row[1] == f"{size / 1e6:,.1f} MB"
        assert files[-1] == "1 time"
        times = float(packed[-1].removesuffix(" times").replace(",", ""))
        rates = [float(row[2].replace(",", "")) for row in (files, packed)]
        assert abs(times - rates[1] / rates[0]) <= 0.05 * times + 0.06
