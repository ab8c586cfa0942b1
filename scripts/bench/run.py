#!/usr/bin/env python3
"""Measure reading and packing as ratios to the bare limits of this machine, in one run.

    scripts/bench/run.py                        every table, over made photographs
    scripts/bench/run.py --data ~/photos        over photographs of yours
    scripts/bench/run.py --tables reading --rounds 9 --json out.json
    scripts/bench/run.py --tables reading --line "copy limit" --line memmap --rounds 15
    scripts/bench/run.py --tables growth        how cost grows with workers, batch and image size
    scripts/bench/run.py --tables clips --videos ~/videos       random clips of videos, against decoding them anew
    scripts/bench/run.py --tables videos        the same of many small videos, and of four cameras
    scripts/bench/run.py --quick                to see that it works; its figures mean nothing

Each subject is measured in fresh processes, in turn with the others of its table, round by round; a ratio is the median
of the rounds' ratios, with the least and the most. What is not installed is left out, and said.

| file | holds |
|---|---|
| `contract.py` | what a subject is: `prepare`, `open`, `epoch` |
| `subjects/` | one module for each kind |
| `tables.py` | which subjects make a table, and what each is held against |
| `data.py`, `videos.py` | the images and stores that are read; the videos, their stores, and the random clips of them |
| `measure.py` | one measurement, in a process of its own |
| `bars.py` | what is to hold beside the lines' own ratios |
| `report.py` | medians, spread and ratios as text |
| `calls.py` | how many Python functions are called for a sample: run by itself |
| `loopback.py` | the server of the table `remote` |
| `../systems/`, `../measuring/` | adapters of other systems; processes and counters: shared with `scripts/compare` |
| `../draw.py` | tables and plots of the documentation from what `--json` wrote |
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import data
import report
import videos
from contract import Settings
from measuring.processes import CallFailedError, output
from subjects import SUBJECTS
from tables import Table, tables

_HERE = Path(__file__).resolve().parent
_WORK = _HERE.parent.parent / "build" / "bench"
_QUIET_LOAD = 0.5
_ONE_EPOCH = 1e-9
_IMAGES = 16_000
"""An epoch of raw images of 224 px then takes a tenth of a second or more, of which its first batch is 3 to 4 ms. They
are 2.4 GB, and lie in memory several times, once for each subject's own file."""
_FEW, _COUNTED = 64, 640
DEFAULT = (
    "reading,copying,next-epoch,single,stores,small,cold,remote,"
    "memory,start,epochs,giant,packing,passing,scan,tiny,augment,recipe"
)


def main() -> None:
    asked = arguments()
    if importlib.util.find_spec("rawpack") is None:
        sys.exit("rawpack is not installed for this Python: pip install -e . in the checkout, then run this with it")
    # As pip does for all that it installs but a checkout: workers start in half the time.
    for package in ("rawpack", "rawpack_packer"):
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            compileall.compile_dir(folder, quiet=2)
    load = os.getloadavg()[0]
    if load > _QUIET_LOAD:
        print(f"NOTE: load average {load:.2f} before the start: others use this machine, and figures will show it\n")
    if asked.quick:
        print("NOTE: --quick only shows that all works: its figures and verdicts mean nothing\n")
    results: list[dict[str, Any]] = []
    for table in plan(asked):
        missing = {entry.label: gone for entry in table.entries if (gone := missing_modules(entry.subject))}
        rows: list[dict[str, Any]] = []
        stopped = False
        try:
            for row in measure(table, missing, min(asked.rounds, table.rounds or asked.rounds)):
                rows.append(row)
        except KeyboardInterrupt:
            print(f"NOTE: stopped after {len(rows)} measurements of the next table\n")
            stopped = True
        lines, verdicts = report.summary(table, rows), report.judge(table, rows)
        print(report.as_text(table, lines, verdicts))
        for label, modules in missing.items():
            print(f"  left out: {label} (not installed: {', '.join(modules)})")
        print(flush=True)
        bars = [asdict(verdict) for verdict in verdicts]
        results.append({"table": table.name, "lines": lines, "bars": bars, "left_out": missing, "rows": rows})
        if asked.json:
            # After each table: a run of an hour that is stopped keeps what it has.
            command = " ".join(["python scripts/bench/run.py", *(one.rpartition("/")[2] for one in sys.argv[1:])])
            when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
            kept = {"date": when, "command": command, "load_at_start": load, "quick": asked.quick, "tables": results}
            asked.json.write_text(json.dumps(kept, indent=1))
        if stopped:
            sys.exit(130)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with JPEG files [made ones]")
    parser.add_argument("--videos", type=Path, help="folder with videos [made ones]")
    parser.add_argument("--work", type=Path, default=_WORK, help="folder for what is made, used again [build/bench]")
    parser.add_argument("--tables", help=f"names, or beginnings of them, with commas [{DEFAULT}]")
    parser.add_argument("--line", action="append", metavar="LABEL", help="one of the tables; several times [all]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement, at least [2]")
    parser.add_argument("--images", type=int, default=_IMAGES, help=f"to read; made by repeating files [{_IMAGES}]")
    parser.add_argument("--pack-images", type=int, default=2000, help="to pack")
    parser.add_argument("--json", type=Path, help="write all rows there")
    parser.add_argument("--quick", action="store_true", help="tiny sets, one round")
    asked = parser.parse_args()
    if asked.quick:
        asked.rounds, asked.seconds, asked.images, asked.pack_images = 1, 0.05, 48, 16
    if min(asked.rounds, asked.images, asked.pack_images) < 1 or asked.seconds <= 0:
        parser.error("--rounds, --images and --pack-images from 1 on, --seconds more than 0")
    return asked


def plan(asked: argparse.Namespace) -> list[Table]:
    """The tables asked for, with their images made."""
    work: Path = asked.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    shape, small, tiny, epochs, samples = (224, 224, 3), 60_000, 200_000, 1000, 100_000_000
    made, small_made = videos.Made(20, 10.0, (256, 340)), videos.Made(400, 4.0, (96, 96))
    # Three scenes with four cameras; with key frames as close as LeRobot's recorder puts them, for random access.
    cameras = videos.Made(12, 10.0, (480, 640), key_every=2)
    if asked.quick:
        shape, small, tiny, epochs, samples = (48, 48, 3), 200, 1000, 20, 2_000
        made, small_made = videos.Made(2, 2.5, (256, 340)), videos.Made(4, 1.0, (96, 96))
        cameras = videos.Made(4, 1.0, (96, 128), key_every=2)
    common: dict[str, Any] = {"work": str(work), "images": "", "seconds": asked.seconds}
    few: dict[str, Any] = common | {"seconds": _ONE_EPOCH}
    every = tables(
        Settings(shape=shape, batch=min(256, asked.images // 3 or 1), **common),
        Settings(shape=(28, 28, 1), workers=None, consumer="sum", **common),
        Settings(shape=shape, warm=False, **few),
        Settings(shape=(32, 32, 3), batch=16, epochs=epochs, warm=False, **few),
        Settings(shape=(28, 28, 1), samples=samples, backend="process", warm=False, **few),
        Settings(shape=shape, batch=8, **common),
    )
    beginnings = tuple((asked.tables or DEFAULT).split(","))
    chosen = [table for table in every if table.name.startswith(beginnings)]
    if asked.line:
        lines = set(asked.line)
        unknown = lines - {entry.label for table in chosen for entry in table.entries}
        if unknown:
            sys.exit(f"--line {', '.join(sorted(unknown))}: in none of the tables asked for")
        chosen = [
            replace(table, entries=tuple(entry for entry in table.entries if entry.label in lines)) for table in chosen
        ]
        chosen = [table for table in chosen if table.entries]
    if not chosen:
        sys.exit(f"--tables {asked.tables}: beginnings of {', '.join(table.name for table in every)}")
    make: dict[str, Callable[[], Path]] = {
        "photos": lambda: data.photos(work, asked.data, asked.images),
        # Larger ones, which must still lie in memory as often.
        "fewer photos": lambda: data.photos(work, asked.data, max(1, asked.images // 4)),
        "small": lambda: data.small_images(work, small),
        "packing": lambda: data.photos(work, asked.data, asked.pack_images),
        # More of them, because starting takes longer than copying a few.
        "copies": lambda: data.copies(work, data.photos(work, asked.data, 4 * asked.pack_images)),
        "tiny": lambda: data.tiny_images(work, tiny),
        "few": lambda: data.photos(work, asked.data, _FEW),
        "videos": lambda: videos.videos(work, asked.videos, made),
        "small videos": lambda: videos.videos(work, None, small_made),
        "cameras": lambda: videos.videos(work, None, cameras),
        "videos ten times": lambda: videos.linked(work, videos.videos(work, asked.videos, made), 10),
        "counted": lambda: data.photos(work, asked.data, max(_COUNTED, asked.images // 4)),
        "none": lambda: Path(),
    }
    images = {name: str(make[name]()) for name in {table.images for table in chosen}}
    return [replace(table, settings=replace(table.settings, images=images[table.images])) for table in chosen]


def missing_modules(subject: str) -> list[str]:
    """What a subject needs and is not installed."""
    return [name for name in SUBJECTS[subject]().needs if importlib.util.find_spec(name) is None]


def measure(table: Table, missing: dict[str, list[str]], rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each line of the table and each round, in turn."""
    entries = [entry for entry in table.entries if entry.label not in missing]
    prepared: dict[Settings, list[str]] = {}
    for entry in entries:
        prepared.setdefault(entry.settings(table.settings), []).append(entry.subject)
    for settings, subjects in prepared.items():
        call("prepare", list(dict.fromkeys(subjects)), settings)
    for number in range(rounds):
        for entry in entries:
            settings = entry.settings(table.settings)
            row = json.loads(call("measure", [entry.subject], settings))
            yield {"label": entry.label, "round": number, "settings": asdict(settings), **row}


def call(action: str, subjects: list[str], settings: Settings) -> str:
    """Run `measure.py` in a fresh process; the last line of JSON that it printed."""
    asked = json.dumps({"subjects": subjects, "settings": asdict(settings)})
    command: list[str | Path] = [sys.executable, _HERE / "measure.py", action, asked]
    try:
        return output(command, settings.folder, None, last=action == "measure", shown=True)
    except CallFailedError as failure:
        sys.exit(f"{action} {', '.join(subjects)} failed: {failure}; see above")


if __name__ == "__main__":
    main()
