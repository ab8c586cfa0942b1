#!/usr/bin/env python3
"""Print one table of stores that hold the same images: bytes on disk, reading speed, time to the first batch.

python compare_stores.py SOURCE STORE...
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from rawpack import Reader

_SECONDS = 2.0
_BATCH = 64


def main() -> None:
    source, *stores = sys.argv[1:]
    if source == "--measure":
        print(json.dumps(measure(stores[0])))
        return
    rows = [("", "bytes on disk", "images/s", "first batch"), ("source files", _size(Path(source)), "", "")]
    for store in stores:
        # In a process of its own: what the first one loads would make those after it look quick to start.
        done = subprocess.run(
            [sys.executable, __file__, "--measure", store], check=True, capture_output=True, text=True
        )
        first_s, rate = json.loads(done.stdout)
        rows.append((Path(store).name, _size(Path(store)), f"{rate:,.0f}", f"{first_s:.2f} s"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *figures in rows:
        cells = [name.ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(figures, widths[1:], strict=True)]
        print("  " + "   ".join(cells).rstrip())
    print(f"\n  Shuffled batches of {_BATCH}, with as many workers as rawpack chooses; files in the page cache.")


def measure(store: str) -> tuple[float, float]:
    """Seconds from opening a store to its first batch, and images per second of whole epochs after the first."""
    began = time.perf_counter()
    batches = Reader(store).batches(_BATCH, shuffle=True)
    first_s = 0.0
    for batch in batches:
        first_s = first_s or time.perf_counter() - began
        batch["image"][:, ::97, ::97].sum()
    images, began = 0, time.perf_counter()
    while time.perf_counter() - began < _SECONDS:
        for batch in batches:
            images += len(batch["image"])
            batch["image"][:, ::97, ::97].sum()
    return first_s, images / (time.perf_counter() - began)


def _size(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:,.1f} MB"


if __name__ == "__main__":
    main()
