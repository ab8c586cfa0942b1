#!/usr/bin/env python3
"""How many Python functions are called for a sample, or for a batch, in the process that hands batches over.

    scripts/bench/calls.py                      over made photographs
    scripts/bench/calls.py --json calls.json
    scripts/bench/calls.py --quick              over fewer and smaller ones: the counts are nearly the same

Unlike times, counts do not depend on what else the machine does, so that a few calls more are seen. They depend on the
version of Python, and a little on those of numpy and the decoder: bars are for Python 3.11. Counted are the `call`
events of `sys.setprofile`; a generator that continues counts too. Workers have their own calls, which are not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import data
import report
from contract import Settings
from subjects.stores import MEAN, STD

_WORK = Path(__file__).resolve().parent.parent.parent / "build" / "bench"
BATCH = 32
_MADE, _IMAGES, _QUICK_IMAGES = 40, 2048, 320
_WARM, _COUNTED = 2, 3
"""Epochs that are read first; and those that are counted, of which the fewest calls count: for some batches after one
that had to wait for the disk, the disk is asked in advance."""
_SETTLED, _QUICK_SETTLED = 6, 3
"""Batches at both ends of each of these that are not counted: beginning an epoch is no part of a batch."""


@dataclass(frozen=True)
class Line:
    """What is counted."""

    label: str
    form: str
    side: int
    """Of the stored images."""
    per: Literal["sample", "batch"]
    bar: float | None = None
    """The most calls, with Python 3.11."""
    steps: Callable[[], list[Any]] | None = None
    workers: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, default=_WORK, help="folder for what is made, used again [build/bench]")
    parser.add_argument("--json", type=Path, help="write the counts there")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller images")
    asked = parser.parse_args()
    work = asked.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if asked.quick:
        images = data.photos(work, data.once(work / "small", draw_small), _QUICK_IMAGES)
    else:
        made = data.once(work / f"photos-{_MADE}", lambda folder: data.make_photos(folder, _MADE))
        images = data.photos(work, made, _IMAGES)
    counts = [
        count(line, Settings(str(work), str(images), (line.side, line.side, 3), BATCH), quick=asked.quick)
        for line in lines()
    ]
    print(f"calls: batches of {BATCH}, shuffled, Python {sys.version.split()[0]}")
    print("\n".join("  " + line for line in report.aligned([("", "calls", "", "target", ""), *map(cells, counts)])))
    if asked.json:
        asked.json.write_text(json.dumps(counts, indent=1))


def lines() -> list[Line]:
    """All lines."""
    from rawpack.transforms import CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop

    def augment() -> list[Any]:
        return [RandomResizedCrop(128), RandomHorizontalFlip(), Normalize(MEAN, STD)]

    return [
        Line("lmdb", "lmdb", 128, "sample", 8),
        Line("lmdb, center crop of 96 px", "lmdb", 128, "sample", None, lambda: [CenterCrop(96)]),
        Line("lmdb, crops, flips, normalize", "lmdb", 128, "sample", 28, augment),
        Line(
            "lmdb, 256 px, crops and flips", "lmdb", 256, "sample", None,
            lambda: [RandomResizedCrop(224, interpolation="area"), RandomHorizontalFlip()],
        ),
        Line("memmap, crops, flips, normalize", "memmap", 128, "sample", None, augment),
        Line("memmap", "memmap", 128, "batch"),
        Line("hdf5", "hdf5", 128, "batch"),
        Line("memmap, 2 workers", "memmap", 128, "batch", 60, None, 2),
        Line("lmdb, 2 workers", "lmdb", 128, "batch", None, None, 2),
    ]  # fmt: skip


def draw_small(folder: Path) -> None:
    """A few small JPEG files, which take less time to pack than to start the packer for: what is in them does not
    change which functions are called."""
    import cv2

    random = np.random.default_rng(0)
    (folder / "0").mkdir(parents=True)
    for number in range(_MADE):
        light = random.integers(0, 256, (6, 8, 3)).astype(np.uint8)
        cv2.imwrite(str(folder / "0" / f"{number:02}.jpg"), cv2.resize(light, (200, 150)))


def count(line: Line, settings: Settings, *, quick: bool) -> dict[str, Any]:
    """Count the calls of a line: what --json writes. quick: the store is packed in this process."""
    import rawpack_packer
    from rawpack import Reader

    if not quick:
        data.make_store(settings, line.form)
    elif not data.store_path(settings, line.form).exists():
        options: Any = {"size": line.side, "format": line.form, "workers": 0}
        rawpack_packer.pack(settings.images, data.store_path(settings, line.form), **options)
    steps = None if line.steps is None else line.steps()
    with Reader(data.store_path(settings, line.form)) as reader:
        batches = reader.batches(settings.batch, shuffle=True, transform=steps, workers=line.workers, drop_last=True)
        for _ in range(1 if quick else _WARM):
            for _ in batches:
                pass
        settled = _QUICK_SETTLED if quick else _SETTLED
        calls = min(counted(batches, settled) for _ in range(2 if quick else _COUNTED))
    each = settings.batch if line.per == "sample" else 1
    return {"label": line.label, "per": line.per, "calls": calls / each, "bar": line.bar}


def counted(batches: Any, settled: int) -> float:
    """The calls of Python functions for a batch in the middle of an epoch, on average."""
    calls, iterator, middle = 0, iter(batches), len(batches) - 2 * settled

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    def take(count: int | None) -> None:
        for _ in islice(iterator, count):
            pass

    take(settled)
    sys.setprofile(profile)
    try:
        take(middle)
    finally:
        sys.setprofile(None)
    take(None)
    return calls / middle


def cells(one: dict[str, Any]) -> tuple[str, ...]:
    bar = ("", "") if one["bar"] is None else (f"at most {one['bar']:g}", report.MET[one["calls"] <= one["bar"]])
    return one["label"], f"{one['calls']:.1f}", f"a {one['per']}", *bar


if __name__ == "__main__":
    main()
