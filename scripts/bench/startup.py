#!/usr/bin/env python3
"""What commands and `import rawpack` cost before they do anything: CPU seconds of a process and its workers.

scripts/bench/startup.py                     this checkout
scripts/bench/startup.py --before TREE       another checkout and this one, in turn

Both run in this Python, with bytecode that is written before. CPU seconds are those of user and system: other programs
disturb them less than the clock. The work is that of eight small images, so that nearly all of it is imports.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

_COMMAND = "from rawpack_packer.cli import main; main()"
_READ = "import rawpack; next(iter(rawpack.Reader('store').batches(8, workers={})))"


def _make(folder: Path) -> None:
    (folder / "photos" / "class").mkdir(parents=True)
    for i in range(8):
        pixels = np.random.default_rng(i).integers(0, 256, (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / "class" / f"{i}.jpg")


def _pack(store: str, workers: int) -> list[str]:
    return ["-c", _COMMAND, *f"pack -q --size 32 --workers {workers} photos {store}".split()]


def _rows() -> dict[str, list[str]]:
    """Name -> the arguments of Python."""
    return {
        "import numpy": ["-c", "import numpy"],
        "import rawpack; rawpack.Reader": ["-c", "import rawpack; rawpack.Reader"],
        "rawpack --version": ["-c", _COMMAND, "--version"],
        "rawpack --help": ["-c", _COMMAND, "--help"],
        "rawpack inspect": ["-c", _COMMAND, "inspect", "store"],
        "rawpack pack --workers 0": _pack("packed", 0),
        "rawpack pack --workers 1": _pack("packed", 1),
        "one batch, workers=0": ["-c", _READ.format(0)],
        "one batch, workers=2": ["-c", f"if __name__ == '__main__':\n    {_READ.format(2)}"],
    }


def _cpu_seconds(tree: Path, folder: Path, arguments: list[str]) -> float:
    """Of a Python, and of all processes that it waited for."""
    shutil.rmtree(folder / "packed", ignore_errors=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(tree / one) for one in ("reader", "packer"))}
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{arguments} in {tree} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="TREE", help="another checkout, which is measured too")
    parser.add_argument("--runs", type=int, default=9, metavar="N", help="of each, after one that does not count (9)")
    options = parser.parse_args()
    trees = [*([options.before.resolve()] if options.before else []), Path(__file__).resolve().parents[2]]
    columns = ["before", "this", "ratio"] if options.before else ["this"]
    print(f"| CPU seconds, median of {options.runs} | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _make(folder)
        _cpu_seconds(trees[-1], folder, _pack("store", 0))
        for name, arguments in _rows().items():
            runs = [[_cpu_seconds(tree, folder, arguments) for tree in trees] for _ in range(options.runs + 1)][1:]
            found = [statistics.median(times) for times in zip(*runs, strict=True)]
            ratio = [found[-1] / found[0]] if len(trees) > 1 else []
            print(f"| {name} | {' | '.join(f'{value:.2f}' for value in [*found, *ratio])} |", flush=True)


if __name__ == "__main__":
    main()
