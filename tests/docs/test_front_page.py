"""README's first screens: the figures are those of the recorded runs, the charts name what they show, and what it says
to type is installed by what it says to type first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

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


def bars(chart: str, theme: str) -> dict[str, int]:
    """Label of a bar, after the title of its group -> what it says, of a drawing."""
    text = (DOCS / f"{chart}-{theme}.svg").read_text("utf-8")
    words = re.findall(r"<text[^>]*>([^<]*)</text>", text)[2:]
    found, group = {}, ""
    for k, word in enumerate(words):
        if re.fullmatch(r"[\d,]+", word):
            found[f"{group}: {words[k - 1]}"] = int(word.replace(",", ""))
        elif k + 1 < len(words) and not re.fullmatch(r"[\d,]+", words[k + 1]):
            group = word
    return found


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
    ways = {"JPEG files, DataLoader": "files", "rawpack memmap": "memmap", "GPU alone": "gpu alone"}
    assert bars("training", theme) == {
        f"{title}: {label}": round(RATES[network][way])
        for network, title in (("resnet18", "ResNet-18"), ("resnet50", "ResNet-50"))
        for label, way in ways.items()
    }
    shown = bars("recipe", theme)
    for group, heading in (("raw pixels, 256 px", "from raw, 256 px**"), ("JPEG, 256 px", "from JPEG, 256 px**")):
        rows = {label.removeprefix(f"From {group}: "): rate for label, rate in shown.items() if group in label}
        measured = {name: number(row["images/s"]) for name, row in table(COMPARED, heading).items()}
        assert {name: measured[name] for name in rows} == rows
        # The best of the others are there.
        others = {name: rate for name, rate in measured.items() if "rawpack" not in name and "*" not in name}
        assert max(others, key=lambda name: others[name]) in rows


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


def test_the_table_of_sizes_has_the_figures_of_the_page_it_names() -> None:
    stores = table(PERFORMANCE, "<!-- trade-off:begin -->")
    columns = {"images/s": "images/s", "images/s a core": "per core"}
    estimates = (ROOT / "docs" / "how-to" / "estimate.md").read_text("utf-8")
    for name, row in table(README, "<!-- size:begin -->").items():
        assert {column: row[column] for column in columns} == {
            column: stores[name][there] for column, there in columns.items()
        }
        option = name.strip("`").replace(" 256 ", " --color " if "ycgco" in name else " ").replace("256", "").strip()
        size, minutes, fits = row["all of ImageNet"].split(", ")
        line = next(
            line for line in estimates.splitlines() if line.startswith(f"| `{option.replace('q90', '--quality 90')}` |")
        )
        assert all(f"| {part} |" in line for part in (size, minutes, fits)), line
        loss = row["loss of the resized image"].replace("none", "lossless")
        assert stores[name]["PSNR, SSIM"].startswith(loss)
    words = " ".join(README[README.index("<!-- size:begin -->") : README.index("<!-- size:end -->")].split())
    files = stores["JPEG files, torch DataLoader"]
    assert f"from files, a `DataLoader` makes {files['images/s']}, {files['per core']} a core" in words
    replaced = number(stores["memmap 256"]["per core"]) / number(files["per core"])
    assert f"a core that copies replaces {replaced:.0f} that decode" in words


def test_no_quantity_has_two_values() -> None:
    """No other figures of speed than those that the tests above compare: none in the rest of the page."""
    rest = README[README.index("## Start") : README.index("<!-- size:begin -->")] + README.partition("size:end")[2]
    assert re.findall(r"\d[\d,.]* (?:times|images/s)|\d+%", rest) == []
