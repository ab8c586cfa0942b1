#!/usr/bin/env python3
"""What a million small files cost: how long they are scanned, how soon a run that resumes packs on, and the memory.

scripts/bench/million.py                     a million files of 2 kB, packed by this checkout
scripts/bench/million.py --files 20000       fewer
scripts/bench/million.py --before TREE       this checkout and another one, with a .venv each, in turn

Files are packed whole, and by two commands, of which the first is stopped after its first part. What a run does is seen
in its destination, and its memory in /proc: the code that runs is that of users.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

_BYTES = 2000
"""Of a file."""
_IN_A_CLASS = 1000
"""Files."""
_LOOK_EVERY_S = 0.005
_OPTIONS = ("--size", "32", "--shard-size", "4MB")
"""Parts of 1,302 images."""


def _make(folder: Path, count: int) -> None:
    """Make files in class folders, no two alike."""
    classes = range(-(-count // _IN_A_CLASS))
    with ProcessPoolExecutor() as pool:
        list(pool.map(partial(_make_class, folder, count), classes, chunksize=8))


def _make_class(folder: Path, count: int, number: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((48, 48)).save(file, "JPEG", quality=90)
    head, rest = file.getvalue()[:2], file.getvalue()[2:]
    room = _BYTES - len(head) - len(rest) - 4
    assert room >= 8, room
    place = folder / f"{number:04d}"
    place.mkdir()
    for i in range(number * _IN_A_CLASS, min(count, (number + 1) * _IN_A_CLASS)):
        # A comment, which tells the files apart.
        comment = b"\xff\xfe" + (room + 2).to_bytes(2, "big") + i.to_bytes(8, "big").ljust(room, b" ")
        (place / f"{i:07d}.jpg").write_bytes(head + comment + rest)


@dataclass(frozen=True)
class Ran:
    """How a command ran. Times in seconds since it began; nan for what it was stopped before."""

    scanned: float
    """When the note of its job was written, which follows the scan; nan where it was there."""
    begun: float
    """When its first part began."""
    cpu: float
    """CPU time of the main process until then: other programs disturb it less."""
    ended: float
    peak: int
    """Bytes of memory that the main process held."""
    table: int
    """Bytes of what it saved of its scan."""


def _run(tree: Path, source: Path, store: Path, workers: int, stop: Callable[[Path], bool] = lambda work: False) -> Ran:
    """Pack. stop: whether to interrupt it, by what is in the work folder."""
    work = store / ".rawpack"
    before = _parts(work)
    noted = (work / "job").exists()
    scanned = begun = cpu = float("nan")
    peak = table = 0
    rawpack = tree / ".venv" / "bin" / "rawpack"
    command = [str(rawpack), "pack", "--quiet", "--workers", str(workers), *_OPTIONS]
    start = time.monotonic()
    process = subprocess.Popen([*command, source, store], stdin=subprocess.DEVNULL)
    stopped = False
    while process.poll() is None:
        now = time.monotonic() - start
        if not noted and (work / "job").exists():
            noted, scanned = True, now
            table = sum(file.stat().st_size for file in (work / "table").glob("*"))
        if not begun >= 0 and not _parts(work) <= before:
            begun = now
            with suppress(OSError):
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
                cpu = sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = max(peak, next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")))
        if not stopped and stop(work):
            stopped = True
            process.send_signal(signal.SIGINT)
        time.sleep(_LOOK_EVERY_S)
    ended = time.monotonic() - start
    if process.returncode != (130 if stopped else 0):
        sys.exit(f"{command} ended with {process.returncode}")
    return Ran(scanned, begun, cpu, ended, peak, table)


def _parts(work: Path) -> set[str]:
    """The names of parts in a work folder, begun or done."""
    names = [path.name for path in work.iterdir()] if work.is_dir() else []
    return {name.removesuffix(".tmp") for name in names if name.startswith(("shard-", "part-"))}


def _measure(tree: Path, source: Path, scratch: Path, workers: int, count: int) -> list[float]:
    """A row of the table."""
    store = scratch / "store"
    whole = _run(tree, source, store, workers)
    shutil.rmtree(store)
    _run(tree, source, store, workers, lambda work: any(work.glob("part-*.done")))
    resumed = _run(tree, source, store, workers)
    shutil.rmtree(store)
    table = whole.table / count if whole.table else float("nan")
    return [
        whole.scanned, whole.begun, whole.cpu, whole.ended, whole.peak / 1e6, table,
        resumed.begun, resumed.cpu, resumed.ended, resumed.peak / 1e6,
    ]  # fmt: skip


_COLUMNS = (
    "scan, s", "first part, s", "CPU, s", "whole, s", "peak, MB", "table, bytes/file",
    "resumed: first part, s", "CPU, s", "whole, s", "peak, MB",
)  # fmt: skip


def _print(rows: Sequence[tuple[str, Sequence[float]]]) -> None:
    print(f"| checkout | {' | '.join(_COLUMNS)} |")
    print(f"|---|{'---:|' * len(_COLUMNS)}")
    for name, values in rows:
        print(f"| {name} | {' | '.join('' if value != value else f'{value:.2f}' for value in values)} |")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--before", type=Path, metavar="TREE", help="another checkout, which is measured too")
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="how often each is measured (3)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where files are made (a temporary folder)")
    parser.add_argument("--source", type=Path, metavar="DIR", help="files of an earlier run, or where to keep them")
    options = parser.parse_args()
    trees = {"this": Path(__file__).parents[2]}
    if options.before is not None:
        trees = {"before": options.before.resolve(), **trees}
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        source = options.source or Path(made) / "source"
        if not source.exists():
            source.mkdir()
            _make(source, options.files)
        rows: dict[str, list[list[float]]] = {name: [] for name in trees}
        for number in range(options.pairs):
            for name in list(trees)[:: 1 if number % 2 == 0 else -1]:
                measured = _measure(trees[name], source, Path(made), options.workers, options.files)
                rows[name].append(measured)
                _print([(f"{name}, {number + 1}", measured)])
        print(f"Medians of {options.pairs}, {options.files:,} files of {_BYTES:,} bytes:\n")
        _print([(name, [*map(statistics.median, zip(*several, strict=True))]) for name, several in rows.items()])


if __name__ == "__main__":
    main()
