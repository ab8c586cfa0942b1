#!/usr/bin/env python3
"""Put the trade of size against speed, measured by `rawpack plan` on a folder of pictures, into README.md.

    python scripts/make_trade_off.py PHOTOS [--name "what the pictures are"] [--budget 5min] [--print]

With --print the block is printed, and nothing is written. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- trade-off:begin -->", "<!-- trade-off:end -->"
_OPTIONS = ["--color", "rgb", "--color", "yuv420"]
_HEAD = ("format, size, quality", "whole set", "images/s", "a core", "first batch", "from disk", "PSNR, SSIM")


def main() -> None:
    parser = argparse.ArgumentParser(description="Put the measured trade into README.md.")
    parser.add_argument("photos")
    parser.add_argument("--name", help="what the pictures are, for the reader [their number]")
    parser.add_argument("--budget", default="5min")
    parser.add_argument("--print", dest="only_print", action="store_true", help="print the block, write nothing")
    asked = parser.parse_args()
    options = [*_OPTIONS, "--budget", asked.budget]
    command = [sys.executable, "-m", "rawpack_packer", "plan", "--json", *options, asked.photos]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    made = block(told, asked.name or f"{told['samples']:,} pictures", options)
    if asked.only_print:
        print(made)
        return
    before, _, rest = README.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n\n{made}\n\n{END}{after}", "utf-8")


def block(told: dict[str, Any], name: str, options: list[str]) -> str:
    """The table and what it was measured on."""
    rows = [_HEAD, ("---",) * len(_HEAD), *map(cells, told["candidates"])]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    machine = told["machine"]
    busy = told["load_per_cpu_at_start"] or 0.0
    about = (
        f"{name}, on {machine['cpus']} CPUs ({machine['cpu']}) with {told['workers'][-1]} workers, in batches of "
        f"{told['batch']}; load before the start {busy:.1f} for each CPU. Made by `rawpack plan {' '.join(options)}`."
    )
    return f"{table}\n\n{about}"


def cells(one: dict[str, Any]) -> tuple[str, ...]:
    reading = one["readings"][-1]
    loss = "" if one["psnr_db"] is None else f"{one['psnr_db']:.1f} dB, {one['ssim']:.3f}"
    size = f"{one['store_bytes'] / 1e6:,.1f} MB"
    return (
        f"`{one['name']}`",
        size,
        median(reading["images_per_s"]),
        median(reading["images_per_core_s"]),
        "" if reading["first_batch_s"] is None else f"{reading['first_batch_s']['median']:.2f} s",
        median(reading["cold_images_per_s"]),
        loss,
    )


def median(figure: dict[str, float] | None) -> str:
    """Three digits: more would promise too much."""
    return "" if figure is None else format(float(format(figure["median"], ".3g")), ",.0f")


if __name__ == "__main__":
    main()
