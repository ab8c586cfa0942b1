#!/usr/bin/env python3
"""Measure the trade of size against speed on a folder of photographs; put the figures into the pages and a picture.

    python scripts/make_trade_off.py PHOTOS [--name "what the photographs are"] [--budget 5min] [--torch SITE_PACKAGES]

`rawpack plan` measures the stores; scripts/compare_stores.py reads the folder itself, by plain workers and by torch's
DataLoader. --torch names the folder that torch is in, if another Python has it. Run it on an idle machine. Replaced is
what is between the markers `size` of README.md, and `trade-off` of docs/explanation/performance.md; the picture is
docs/frontier.svg.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import compare_stores
from drawing import plots
from drawing.pages import replace
from drawing.results import markdown
from matplotlib.ticker import FuncFormatter
from measuring.counters import total_bytes

ROOT = Path(__file__).resolve().parents[1]
README, PICTURE = ROOT / "README.md", ROOT / "docs" / "frontier.svg"
PERFORMANCE = ROOT / "docs" / "explanation" / "performance.md"
_SHORT = {
    "memmap 256": "raw pixels",
    "memmap 256 ycgco420": "half the bytes of RGB",
    "lmdb 256 q90": "JPEG",
}
"""The stores of README -> what they contain."""
_IMAGENET, _PACKED, _MEMORY = 1_281_167, 145, 25
"""ImageNet's photographs, how many of them a core packs in a second, and gigabytes of memory."""
_BYTES = {"memmap 256": 196_648, "memmap 256 ycgco420": 98_344, "lmdb 256 q90": 19_040}
"""What one of them takes in a store."""
_OPTIONS = ["--color", "rgb", "--color", "ycgco420"]
_HEAD = ("format, size, quality", "whole set", "images/s", "augmented", "per core", "first batch", "cold", "PSNR, SSIM")
_ROUNDS = 3
_FILES = {"pool": "JPEG files, plain workers", "torch": "JPEG files, torch DataLoader"}
_COLORS = {"memmap": "#1d6fb7", "hdf5": "#0f8a5e", "lmdb": "#b06a00", "files": "#7a7b7c"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the trade of size against speed for README.md.")
    parser.add_argument("photos", type=Path)
    parser.add_argument("--name", help="what the photographs are, for the reader [their number]")
    parser.add_argument("--budget", default="5min")
    parser.add_argument(
        "--torch", metavar="SITE_PACKAGES", help="the folder that torch is in, if another Python has it"
    )
    asked = parser.parse_args()
    options = [*_OPTIONS, "--budget", asked.budget]
    files = read_files(asked.photos, asked.torch)
    command = [sys.executable, "-m", "rawpack", "plan", "--json", *options, str(asked.photos)]
    plan = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    if plan["left_out"] or not all(one["reading"]["images_per_s"] for one in plan["candidates"]):
        sys.exit("the plan could not measure everything: use an idle machine, or a longer --budget")
    file_bytes = total_bytes(asked.photos)
    name = asked.name or f"{plan['samples']:,} photographs"
    replace(README, "size", short_table(plan, files, file_bytes))
    replace(PERFORMANCE, "trade-off", table(plan, files, file_bytes, name, options))
    draw(plan, files, file_bytes)


def read_files(photos: Path, torch: str | None) -> dict[str, tuple[float, float]]:
    """Way of reading the files themselves, and the raw store augmented -> seconds to the first batch and images/s,
    medians of some rounds."""
    ways = ["pool", *(["torch"] if torch else [])]
    measured = [(way, False) for way in ways] + [(way, True) for way in (*ways, "store")]
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store")
        subprocess.run([sys.executable, "-m", "rawpack", "pack", "--quiet", str(photos), str(store)], check=True)
        settings = argparse.Namespace(torch=torch, stores=[store], seconds=2.0)
        for _ in range(_ROUNDS):
            for way, augment in measured:
                source = store if way == "store" else photos
                each = compare_stores.in_a_process_of_its_own(way, source, settings, augment=augment)
                found.setdefault(f"{way}, augmented" if augment else way, []).append(each)
    return {
        way: (statistics.median(first for first, _ in each), statistics.median(rate for _, rate in each))
        for way, each in found.items()
    }


def short_table(plan: dict[str, Any], files: dict[str, tuple[float, float]], file_bytes: int) -> str:
    """Three stores and the files, without transforms, and how many cores that decode one core that copies replaces."""
    found = {one["name"]: one for one in plan["candidates"]}
    rows = []
    for name, contains in _SHORT.items():
        one = found[name]
        loss = "none" if one["psnr_db"] is None else f"{one['psnr_db']:.1f} dB"
        rates = rounded(best_rate(one)), median(one["reading"]["images_per_core_s"])
        rows.append((f"`{name}`", contains, imagenet(name), *rates, loss))
    way = "torch" if "torch" in files else "pool"
    decoding = files[way][1] / compare_stores.workers()
    replaced = float(found["memmap 256"]["reading"]["images_per_core_s"]["median"]) / decoding
    machine = plan["machine"]
    about = (
        f"Read without transforms on {machine['cpus']} CPU cores ({machine['cpu']}); from files, "
        f"{'a `DataLoader` makes' if way == 'torch' else 'plain workers make'} {rounded(files[way][1])}, "
        f"{rounded(decoding)} a core: a core that copies replaces {rounded(replaced)} that decode ([all "
        "stores](docs/explanation/performance.md#size-against-speed)). ImageNet: 1.28 million photographs, packed on 2 "
        f"cores, and whether they fit into {_MEMORY} GB of memory ([how much?](docs/how-to/estimate.md))."
    )
    shown = markdown(
        ("store", "contains", "all of ImageNet", "images/s", "images/s a core", "loss of the resized image"), rows
    )
    return f"{shown}\n\n{textwrap.fill(about, 120, break_long_words=False, break_on_hyphens=False)}"


def imagenet(name: str) -> str:
    """What the store of all of ImageNet takes, by docs/how-to/estimate.md: disk, time and memory."""
    size, minutes = _IMAGENET * _BYTES[name] / 1e9, _IMAGENET / (_PACKED * 2) / 60
    return f"{size:.0f} GB, about {round(minutes / 5) * 5} min, {'fits' if size <= _MEMORY else 'does not fit'}"


def table(
    plan: dict[str, Any], files: dict[str, tuple[float, float]], file_bytes: int, name: str, options: list[str]
) -> str:
    """The table and what it was measured on."""
    rows: list[tuple[str, ...]] = []
    for way, called in _FILES.items():
        if way not in files:
            continue
        first_s, rate = files[way]
        core, augmented = rounded(rate / compare_stores.workers()), rounded(files[f"{way}, augmented"][1])
        rows.append((called, f"{file_bytes / 1e6:,.1f} MB", rounded(rate), augmented, core, f"{first_s:.2f} s", "", ""))
    rows += [*map(cells, plan["candidates"])]
    shown = markdown(_HEAD, rows)
    machine, reading = plan["machine"], plan["candidates"][0]["reading"]
    busy = plan["load_per_cpu_at_start"] or 0.0
    about = (
        "Images/s are from memory; *augmented* is the same with random crops of 224 px and flips (files: also "
        "normalized); *per core* is images/s for each CPU in use; *cold* is augmented from the disk, with nothing in "
        f"memory. {name}, on {machine['cpus']} CPUs ({machine['cpu']}) with {reading['workers']} workers, in "
        f"batches of {reading['batch']} (files: {compare_stores.BATCH}); load before the start {busy:.1f} per CPU. "
        f"Measured by `rawpack plan {' '.join(options)}` and `scripts/make_trade_off.py`."
    )
    return f"{shown}\n\n{textwrap.fill(about, 120, break_long_words=False, break_on_hyphens=False)}"


def cells(one: dict[str, Any]) -> tuple[str, ...]:
    reading = one["reading"]
    loss = "lossless" if one["psnr_db"] is None else f"{one['psnr_db']:.1f} dB, {one['ssim']:.3f}"
    return (
        f"`{one['name']}`",
        f"{one['store_bytes'] / 1e6:,.1f} MB",
        median(reading["images_per_s"]),
        median(one["augmented"]["images_per_s"]),
        median(reading["images_per_core_s"]),
        "" if reading["first_batch_s"] is None else f"{reading['first_batch_s']['median']:.2f} s",
        median(one["augmented"]["cold_images_per_s"]),
        loss,
    )


def draw(plan: dict[str, Any], files: dict[str, tuple[float, float]], file_bytes: int) -> None:
    """Size against augmented speed, both logarithmic: up is faster, left is smaller."""
    rates = {way: files[f"{way}, augmented"][1] for way in _FILES if way in files}
    marks = [(file_bytes, rate, _FILES[way], "files") for way, rate in rates.items()]
    for one in plan["candidates"]:
        rate, name = float(one["augmented"]["images_per_s"]["median"]), one["name"]
        marks.append((one["store_bytes"], rate, name, name.split()[0]))
    with plots.style() as figure_of:
        figure = figure_of((7.6, 4.2))
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log")
        axes.set(xlabel="size of the whole set (smaller is to the left)", ylabel="images/s with random crops and flips")
        for size, rate, label, kind in marks:
            axes.plot(size, rate, "s" if kind == "files" else "o", ms=8, color=_COLORS[kind])
            # Apart from a neighbor's label, where there is one.
            near = [
                other
                for other in marks
                if abs(math.log(size / other[0])) < 0.6 and abs(math.log(rate / other[1])) < 0.5
            ]
            shift = 0 if len(near) == 1 else 7 if rate == max(other[1] for other in near) else -7
            # On the left of a mark, where another is at the right.
            left = any(
                0.1 < math.log(other[0] / size) < 0.8 and abs(math.log(rate / other[1])) < 0.3 for other in marks
            )
            axes.annotate(
                label, (size, rate), xytext=(-9 if left else 9, shift), textcoords="offset points", va="center",
                ha="right" if left else "left", color=_COLORS[kind],
            )  # fmt: skip
        axes.set_ylim(min(mark[1] for mark in marks) / 1.6, max(mark[1] for mark in marks) * 1.6)
        axes.set_xlim(min(mark[0] for mark in marks) / 2.4, max(mark[0] for mark in marks) * 3.2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:g} MB"))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        plots.save(figure, PICTURE)


def best_rate(one: dict[str, Any]) -> float:
    return float(one["reading"]["images_per_s"]["median"])


def rounded(value: float) -> str:
    """Two digits below 100, else three: more would promise too much."""
    return format(float(format(value, ".2g" if value < 100 else ".3g")), ",.0f")


def median(figure: dict[str, float] | None) -> str:
    return "" if figure is None else rounded(figure["median"])


if __name__ == "__main__":
    main()
