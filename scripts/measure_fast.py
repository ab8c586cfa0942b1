#!/usr/bin/env python3
"""Measure what `rawpack pack --fast` gains and costs: speed, and PSNR against the exact way.

    scripts/measure_fast.py PHOTOS --size 64 --size 128 --size 224

Files that it decodes at full scale anyway, being too small for the size, are counted and left out.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path

import cv2
import numpy as np

from rawpack.errors import DecodeError
from rawpack_packer.images import read_header
from rawpack_packer.recipe.recipe import Recipe, make_recipe
from rawpack_packer.samples.sample import prepare, reduction

_HEAD: tuple[str, ...] = (
    "size",
    "decoded at",
    "files",
    "PSNR: median",
    "lowest",
    "ms exact",
    "ms fast",
    "times faster",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("photos", type=Path, help="folder with JPEG files")
    parser.add_argument("--size", action="append", help="as of rawpack pack; several [64, 128, 224]")
    asked = parser.parse_args()
    cv2.setNumThreads(1)
    found = sorted(path for path in asked.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    files = [path.read_bytes() for path in found]
    rows: list[tuple[str, ...]] = [_HEAD]
    left_out = []
    for size in asked.size or ("64", "128", "224"):
        exact, fast = make_recipe(size=size), make_recipe(size=size, fast=True)
        by_scale: dict[int, list[bytes]] = {}
        for data in files:
            try:
                by_scale.setdefault(reduction(read_header(data), fast), []).append(data)
            except DecodeError:
                continue
        left_out.append(f"{len(by_scale.pop(1, []))} at {size}")
        rows += [(size, f"1/{scale}", *measure(data, exact, fast)) for scale, data in sorted(by_scale.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    print(f"\nToo small to be reduced, and left out: {', '.join(left_out)}. Times are CPU time on one core.")


def measure(files: list[bytes], exact: Recipe, fast: Recipe) -> tuple[str, ...]:
    """Number of files, median and least PSNR in dB, CPU milliseconds a file each way, and their ratio."""
    ratios, seconds = [], [0.0, 0.0]
    for data in files:
        images = []
        for k, recipe in enumerate((exact, fast)):
            began = time.process_time()
            images.append(prepare(data, recipe).image.astype(np.float64))
            seconds[k] += time.process_time() - began
        error = float(np.square(images[0] - images[1]).mean())
        ratios.append(10 * math.log10(255**2 / error) if error else math.inf)
    each = [second / len(files) * 1000 for second in seconds]
    return (
        str(len(files)), f"{statistics.median(ratios):.1f} dB", f"{min(ratios):.1f} dB",
        f"{each[0]:.2f}", f"{each[1]:.2f}", f"{each[0] / each[1]:.2f}",
    )  # fmt: skip


if __name__ == "__main__":
    main()
