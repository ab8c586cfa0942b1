"""Plan and commit a store of a billion samples without its pixels: how long it takes, and in how much memory.

    python scripts/simulate_billion.py --samples 100000000 --records written FOLDER
    python scripts/simulate_billion.py --samples 1000000000 --shard-size 4GiB FOLDER

The job is the real one: it scans the parts, gives each to an engine, adds their records up and commits columns and
manifest. The source is computed (keys of ten digits, a thousand classes), and the engine packs nothing: shards are
empty files that claim their size, and each record has what a real one would have. `--records written` writes the
records to the disk, where the job finds them; `computed` makes them up again whenever they are read, because those of a
billion samples are larger than many disks. FOLDER must not be there, and is removed at the end. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from rawpack import Reader
from rawpack.disk.manifest import FileRecord, Placement
from rawpack_packer.engines import Report
from rawpack_packer.job import commit
from rawpack_packer.job import job as jobs
from rawpack_packer.job import parts as counted
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import NoProgress, RunOptions
from rawpack_packer.part import part as parts
from rawpack_packer.part.part import PartRecord, PartTask, Tick
from rawpack_packer.recipe.recipe import make_recipe
from rawpack_packer.sources import FieldKind, Item, SourceInfo

CLASSES = 1000
SIDE = 256
BLOCK = 10_000
ENDS = [f"{k:04d}" for k in range(BLOCK)]


@dataclass(frozen=True)
class Computed:
    """Samples start to stop of the source: nothing but their keys."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, i: int, /) -> Item:
        raise NotImplementedError("nothing is packed here")

    def key(self, i: int, /) -> str:
        return f"{self.start + i:010d}"


class Source(Computed):
    """A source of so many samples: see `rawpack_packer.sources.Source`."""

    def __init__(self, samples: int) -> None:
        super().__init__(0, samples)
        self.info = SourceInfo(
            kind="folder",
            root="<computed>",
            fields={"label": FieldKind("int64")},
            classes=tuple(f"class {k:04d}" for k in range(CLASSES)),
        )

    def part(self, start: int, stop: int, /) -> Computed:
        return Computed(start, stop)

    def states(self) -> NDArray[np.int64]:
        return np.empty((0, 2), np.int64)


def record_of(number: int, start: int, stop: int) -> PartRecord:
    """What a worker would have written of this part."""
    rows = stop - start
    size = 4096 + rows * SIDE * SIDE * 3
    numbers = np.arange(start, stop, dtype=np.uint64)
    sums = (numbers * np.uint64(0x9E3779B97F4A7C15)).tobytes()
    keys = ""
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        prefix, first = f"{block:06d}", block * BLOCK
        keys += "".join(prefix + end for end in ENDS[max(0, start - first) : stop - first])
    file = FileRecord(name=f"shard-{number:05d}.npy", bytes=size, xxh3=f"{number:016x}", head=f"{number:016x}")
    return PartRecord(
        number=number,
        rows=rows,
        files=(file,),
        placements={"image": Placement(offset=4096, bytes=size - 4096)},
        columns={
            "label": (numbers % CLASSES).astype("<i8").tobytes(),
            "image.xxh3": sums,
            "key": keys.encode(),
            "key.length": np.full(rows, 10, "<i8").tobytes(),
        },
        rejects=(),
        counts={},
        bytes_in=rows * 100_000,
        sources=sums,
    )


class Recorder:
    """An engine whose parts are done as soon as they are given to it. See `Engine`."""

    def __init__(self, folder: Path, written: bool) -> None:
        self._folder, self._written = folder, written
        self.seconds = 0.0
        """Of making up and writing records: what workers do."""
        self.bounds: dict[int, tuple[int, int]] = {}
        self.bytes = 0

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        for task in tasks:
            began = time.perf_counter()
            self.bounds[task.number] = task.first, task.first + len(task.samples)
            if self._written:
                record = record_of(task.number, *self.bounds[task.number])
                with (self._folder / record.files[0].name).open("wb") as shard:
                    os.truncate(shard.fileno(), record.files[0].bytes)
                with mock.patch("os.fsync"):
                    parts.write_record(self._folder, record)
                self.bytes += parts.record_path(self._folder, task.number).stat().st_size
            self.seconds += time.perf_counter() - began
            report.ticked(task.number, Tick(len(task.samples), 0))
            report.finished(task.number)

    def read(self, folder: Path, number: int) -> PartRecord | None:
        """Stands for `read_record`, of records that are computed."""
        return record_of(number, *self.bounds[number]) if number in self.bounds else None


class Memory:
    """The most anonymous memory that this process had, looked at ten times a second: mapped files do not count."""

    def __init__(self) -> None:
        self.peak = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def now(self) -> int:
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) << 10

    def take(self) -> int:
        """The peak since the last call, in bytes."""
        peak, self.peak = max(self.peak, self.now()), 0
        return peak

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, self.now())
            time.sleep(0.1)


@dataclass
class Figures:
    samples: int
    parts: int
    records: str
    record_bytes: int
    """Of all parts, on the disk; 0 where they were computed."""
    plan_s: float
    """From the start of the job to the end of the last part, without the making of records: the source's digest, the
    search for finished parts, and the giving out of all."""
    add_up_s: float
    """All records read, and added up."""
    commit_s: float
    """Columns, rejects, provenance, manifest."""
    pack_peak_bytes: int
    column_bytes: int
    manifest_bytes: int
    open_s: float
    """`Reader(store)`, in the same process."""
    open_peak_bytes: int
    load_1min: float


def simulate(folder: Path, samples: int, shard_size: str, written: bool) -> Figures:
    memory, source, engine = Memory(), Source(samples), Recorder(folder, written)
    times: dict[str, float] = {}

    def committed(*args: Any) -> Any:
        times["commit"] = time.perf_counter()
        return commit.commit_store(*args)

    class Progress(NoProgress):
        def commit(self) -> None:
            times["add up"] = time.perf_counter()

    began = time.perf_counter()
    with mock.patch.object(jobs, "commit_store", committed), mock.patch.object(jobs, "check_space"):
        if not written:
            mock.patch.object(counted, "read_record", engine.read).start()
            mock.patch.object(commit, "read_record", engine.read).start()
        how = RunOptions(engine=engine, progress=Progress())
        summary = Job(source, make_recipe(size=str(SIDE), shard_size=shard_size), folder, how).run()
    ended = time.perf_counter()
    mock.patch.stopall()
    peak = memory.take()
    opening = time.perf_counter()
    reader = Reader(folder)
    opened = time.perf_counter()
    assert len(reader) == samples == summary.manifest.samples
    return Figures(
        samples=samples,
        parts=len(summary.manifest.shards),
        records="written" if written else "computed",
        record_bytes=engine.bytes,
        plan_s=times["add up"] - began - engine.seconds,
        add_up_s=times["commit"] - times["add up"],
        commit_s=ended - times["commit"],
        pack_peak_bytes=peak,
        column_bytes=sum(file.bytes for columns in summary.manifest.columns for file in columns.files),
        manifest_bytes=(folder / "store.json").stat().st_size,
        open_s=opened - opening,
        open_peak_bytes=memory.take(),
        load_1min=os.getloadavg()[0],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=1_000_000_000)
    parser.add_argument("--shard-size", default="256MiB")
    parser.add_argument("--records", choices=["written", "computed"], default="computed")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True)
    try:
        figures = simulate(chosen.folder, chosen.samples, chosen.shard_size, chosen.records == "written")
    finally:
        shutil.rmtree(chosen.folder)
    print(json.dumps({"shard_size": chosen.shard_size, **asdict(figures)}))


if __name__ == "__main__":
    main()
