"""Compare rawpack with other systems on your photographs and your machine, in one run.

    python scripts/compare --photos ~/photos --json results.json        everything: an hour, mostly installing
    python scripts/compare --photos ~/photos --systems rawpack,ffcv     some of the systems
    python scripts/compare --photos ~/photos --quick                    check that it works; the figures mean nothing
    python scripts/compare --make-only --keep --home ~/environments     only install
    scripts/draw.py results.json --out docs/explanation                 tables and plots

Each system has an environment of its own, built from the pinned versions in `requirements/`, and every measurement is
a fresh process. Without --keep, one system after another is installed, measured next to the bare limits, and removed.
With --keep, all are installed first and measured in turn, round by round, which is fairer and needs about 40 GB of
disk. Systems that cannot be installed are left out, and the result says so. Linux only.

| file | holds |
|---|---|
| `../systems/` | one adapter for each system, and what they share; the benchmark uses them, too |
| `requirements/`, `environments.py` | what is installed, and how |
| `harness.py`, `call.py`, `../measuring/` | one measurement, the same for all, and the process that it runs in |
| `behavior.py` | kills, a small /dev/shm, kept batches, resuming |
| `../draw.py`, `../drawing/` | the command that draws a result, and its tables and plots |
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import behavior
import environments
from call import SIDES, Call, System
from drawing import results
from drawing.figures import Row
from measuring.counters import total_bytes
from measuring.processes import CallFailedError, output

BENCH = environments.ROOT / "scripts" / "bench"
BOTH = ("raw", "jpeg")
REFERENCE = "rawpack"
SYSTEMS = (
    System("rawpack memmap", "rawpack", REFERENCE, ("raw",), "memmap"),
    System("rawpack hdf5", "rawpack", REFERENCE, ("raw",), "hdf5"),
    System("rawpack lmdb", "rawpack", REFERENCE, ("jpeg",), "lmdb"),
    System("FFCV", "ffcv", "ffcv", BOTH),
    System("TurboLoader", "turboloader", "turboloader", BOTH, floats=True),
    System("datago", "datago", "datago", ("jpeg",)),
    System("DALI", "dali", "dali", BOTH),
    System("tf.data", "tfdata", "tfdata", BOTH),
    System("Grain", "grain", "grain", BOTH),
    System("litdata", "litdata", "litdata", BOTH),
    System("MosaicML streaming", "streaming", "streaming", BOTH),
    System("WebDataset", "webdataset", "webdataset", BOTH),
    System("Hugging Face datasets", "datasets", "datasets", BOTH),
    System("Lance", "lance", "lance", BOTH),
    System("SPDL", "spdl", "spdl", ("jpeg",)),
    System("tensordict", "tensordict", "tensordict", ("raw",)),
    System("torch DataLoader", "dataloader", "torch", BOTH),
    System("torch DataLoader, whole batches", "dataloader", "torch", ("raw",), "whole batches", "torch DataLoader"),
)
LIMITS = {"raw": "copy limit", "jpeg": "decode limit"}
PACK_LIMITS = {"raw": "bare loop, raw", "jpeg": "bare loop, jpeg"}
_PACK_ROUNDS, _PACE_S = 2, 1.5
_MARK = ".rawpack-compare"
RECIPE_LIMITS = {"raw": "bare C kernel", "jpeg": "decode limit"}
LARGE_RAW = "raw-256"
PARTS = ("recipe", "pack", "read", "pace", "behavior")
MODES = (("raw", "centre"), ("jpeg", "centre"), ("jpeg", "random"))
RATES = {"raw": (2_000, 5_000, 10_000, 20_000, 40_000, 80_000), "jpeg": (500, 1_000, 2_000, 4_000, 8_000)}


def main() -> None:
    asked = arguments()
    chosen = [system for system in SYSTEMS if wanted(system, asked.systems)]
    run = Run(asked)
    groups = [chosen] if asked.keep else [[s for s in chosen if s.environment == e] for e in unique(chosen)]
    try:
        for number, group in enumerate(groups):
            run.measure(number, group)
    finally:
        if asked.keep:
            print(f"kept: environments in {run.home}, stores in {run.work}", file=sys.stderr)
        for folder in run.removed_at_end:
            shutil.rmtree(folder, ignore_errors=True)


def without_folder(argument: str) -> str:
    """The last part of a path: results are published, and the folders of a machine stay private."""
    return argument.rstrip("/").rpartition("/")[2]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python scripts/compare", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--photos", type=Path, help="folder of JPEG files [generated ones]")
    parser.add_argument("--systems", help="names or their beginnings, separated by commas [all]")
    parser.add_argument("--json", type=Path, help="write all rows to this file, after each table")
    parser.add_argument("--home", type=Path, help="folder for environments, removed unless --keep [a temporary one]")
    parser.add_argument("--work", type=Path, help="folder for the stores, removed unless --keep [a temporary one]")
    parser.add_argument("--keep", action="store_true", help="keep environments and stores; measure all systems in turn")
    parser.add_argument("--make-only", action="store_true", help="only install")
    parser.add_argument("--quick", action="store_true", help="few images, one round: only to check that it works")
    parser.add_argument("--rounds", type=int, default=3, help="of reading; packing has two at most [3]")
    parser.add_argument("--seconds", type=float, default=2.0, help="least duration of a measurement [2]")
    parser.add_argument("--images", type=int, default=4096, help="in a raw store; others have half as many [4096]")
    parser.add_argument("--batch", type=int, default=256, help="[256]")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="of each system [2]")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"what to measure [{','.join(PARTS)}]")
    asked = parser.parse_args()
    if asked.quick:
        asked.rounds, asked.seconds, asked.images, asked.batch = 1, 0.2, 256, 16
    for folder in (asked.home, asked.work):
        if folder and folder.exists() and not (folder / _MARK).exists() and any(folder.iterdir()):
            parser.error(f"{folder} contains other files, which would be deleted: name a new or an empty folder")
    if asked.photos and not photographs(asked.photos):
        parser.error(f"--photos {asked.photos}: no JPEG files there")
    if unknown := set(asked.parts.split(",")) - set(PARTS):
        parser.error(f"--parts {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    for one in (asked.systems or "").split(",") if asked.systems is not None else ():
        if not one or not any(wanted(system, one) for system in SYSTEMS):
            names = ", ".join(system.name for system in SYSTEMS)
            parser.error(f"--systems {one!r}: no system's name begins like this; there are {names}")
    if min(asked.batch, asked.workers, asked.rounds) < 1:
        parser.error("--batch, --workers and --rounds must be 1 or more")
    if asked.images < 1 or asked.images % (2 * asked.batch):
        parser.error("--images must be a multiple of two batches")
    return asked


def photographs(folder: Path) -> int:
    """How many JPEG files are in a folder. They are repeated until there are `--images`."""
    return sum(path.suffix.lower() in (".jpg", ".jpeg") for path in folder.rglob("*"))


def wanted(system: System, beginnings: str | None) -> bool:
    return beginnings is None or system.name.lower().startswith(tuple(beginnings.lower().split(",")))


def unique(systems: list[System]) -> list[str]:
    return list(dict.fromkeys(system.environment for system in systems))


class Run:
    """One run of the comparison: its folders, and what it has found so far."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.home, self.work = (
            (folder or Path(tempfile.mkdtemp(prefix="compare-"))).resolve() for folder in (asked.home, asked.work)
        )
        # Not what an earlier run has kept: other files may be there by now.
        self.removed_at_end = [
            folder for folder in (self.home, self.work) if not asked.keep and not (folder / _MARK).exists()
        ]
        for folder in (self.home, self.work):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _MARK).touch()
        self.rows: list[Row] = []
        self.left_out: dict[str, str] = {}
        self.environments: dict[str, Any] = {}
        self.about = about() | {"command": " ".join(["python scripts/compare", *map(without_folder, sys.argv[1:])])}

    def measure(self, group: int, systems: list[System]) -> None:
        """Install these systems, measure them in turn next to the bare limits, and remove them unless --keep is set."""
        asked, parts = self.asked, self.asked.parts.split(",")
        pythons = self.install(dict.fromkeys((REFERENCE, *unique(systems))))
        systems = [system for system in systems if system.environment in pythons]
        if not asked.make_only:
            call = Call(self.work, pythons, asked)
            sets = {kind: images(call, asked, kind) for kind in (*BOTH, LARGE_RAW)}
            begin = {"group": group}
            needed = [kind for kind in BOTH if kind == "jpeg" or parts != ["recipe"]]
            for kind in [*needed, *([LARGE_RAW] * ("recipe" in parts))]:
                mine = [system for system in systems if kind.partition("-")[0] in system.kinds]
                if mine:
                    again = "pack" in parts and kind in BOTH
                    self.tabulate("pack", self.packing(call, mine, kind, sets[kind], again), begin)
            for kind in BOTH if "recipe" in parts else ():
                mine = [system for system in systems if kind in system.kinds]
                if mine:
                    self.tabulate("recipe", self.training(call, mine, kind, sets), begin)
            for kind, crop in MODES if "read" in parts else ():
                mine = [system for system in systems if kind in system.kinds and not system.floats]
                if mine:
                    self.tabulate("read", self.reading(call, mine, kind, crop, sets), begin)
            for part, rows in (("pace", self.pacing), ("behavior", self.behaving)):
                if part in parts:
                    self.tabulate(part, rows(call, systems, sets), begin)
        if not asked.keep:
            for name in unique(systems):
                environments.remove(name, self.home)
            for system in systems:
                shutil.rmtree(self.work / "stores" / system.name, ignore_errors=True)

    def install(self, names: dict[str, None]) -> dict[str, Path]:
        """Name of an environment -> its Python. Environments that cannot be installed are left out."""
        pythons = {}
        for name in names:
            try:
                python = environments.make(name, self.home)
            except environments.EnvironmentFailedError as error:
                print(f"left out: {error}\n", flush=True)
                self.left_out[name] = str(error)
                continue
            pythons[name] = python
            held = environments.installed(python)
            self.environments[name] = {"distributions": held, "bytes": environments.size(python)}
            print(f"{name}: {len(held)} distributions, {self.environments[name]['bytes'] / 1e6:,.0f} MB", flush=True)
        if REFERENCE not in pythons:
            sys.exit("rawpack's own environment could not be installed: there is nothing to compare with")
        return pythons

    def packing(self, call: Call, systems: list[System], kind: str, folder: Path, again: bool) -> Iterator[Row]:
        """Pack each system's store: in at most two rounds if `again`, otherwise once, only if it is missing, and with
        rows of failures only."""
        for number in range(min(self.asked.rounds, _PACK_ROUNDS) if again else 1):
            if again:
                yield self.limit(call, PACK_LIMITS[kind], kind, folder, number, once=True) | {"measure": "pack"}
            for system in systems:
                store = self.store(system, kind)
                if system.store or (not again and (store / "done").exists()):
                    continue
                shutil.rmtree(store, ignore_errors=True)
                row = self.job(call, system, kind, "pack", folder, round=number, folder=str(store / "data"))
                if "error" not in row:
                    (store / "done").write_text(str(row["wall_s"]))
                    row["disk_bytes"] = total_bytes(store / "data")
                if again or "error" in row:
                    yield row

    def training(self, call: Call, systems: list[System], kind: str, sets: dict[str, Path]) -> Iterator[Row]:
        """Random crops, flipped and normalized to float32: checked once, then measured."""
        stored, recipe = LARGE_RAW if kind == "raw" else kind, dict[str, Any](crop="random", floats=True)
        about = {"kind": kind, "measure": "recipe"}
        for system in systems:
            checked = self.job(call, system, stored, "check", sets[stored], **recipe)
            yield checked | about | {"measure": "recipe_check"}
        for number in range(self.asked.rounds):
            yield self.limit(call, RECIPE_LIMITS[kind], stored, sets[stored], number) | about | {"crop": "random"}
            for system in systems:
                yield self.job(call, system, stored, "read", sets[stored], round=number, **recipe) | about

    def reading(self, call: Call, systems: list[System], kind: str, crop: str, sets: dict[str, Path]) -> Iterator[Row]:
        for number in range(self.asked.rounds):
            yield self.limit(call, LIMITS[kind], kind, sets[kind], number) | {"measure": "read", "crop": crop}
            for system in systems:
                yield self.job(call, system, kind, "read", sets[kind], round=number, crop=crop)

    def pacing(self, call: Call, systems: list[System], sets: dict[str, Path]) -> Iterator[Row]:
        for kind in BOTH:
            rates = RATES[kind][:2] if self.asked.quick else RATES[kind]
            for system in systems:
                if kind in system.kinds and not system.floats:
                    batch, seconds = min(64, self.asked.batch), min(_PACE_S, self.asked.seconds)
                    yield self.job(call, system, kind, "pace", sets[kind], rates=rates, batch=batch, seconds=seconds)

    def behaving(self, call: Call, systems: list[System], sets: dict[str, Path]) -> Iterator[Row]:
        for system in systems:
            for kind in system.kinds:
                yield self.job(call, system, kind, "check", sets[kind])
            kind = system.kinds[-1]
            job = call.job(system, kind, "check", sets[kind], self.store(system, kind) / "data")
            done = self.store(system, kind) / "done"
            took = float(done.read_text()) if done.exists() and not system.store else None
            yield from self.named(system, kind, behavior.rows(call, system.environment, job, took, system.floats))
            # Only batches of raw images are too large.
            kind = system.kinds[0]
            job = call.job(system, kind, "check", sets[kind], self.store(system, kind) / "data")
            yield from self.named(system, kind, behavior.small_shm(call, system.environment, job))

    def job(
        self, call: Call, system: System, kind: str, action: str, images: Path, round: int = 0, **changes: Any
    ) -> Row:
        """A row: what the system's process reported, or its error."""
        job = call.job(system, kind, action, images, self.store(system, kind) / "data")
        job = replace(job, **changes)
        began = time.perf_counter()
        try:
            found = call(system.environment, job)
        except CallFailedError as failure:
            found = {"error": str(failure)}
        about = {"system": system.name, "kind": kind, "crop": job.crop, "measure": action, "round": round}
        return about | found | {"wall_s": time.perf_counter() - began}

    def named(self, system: System, kind: str, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            yield {"system": system.name, "kind": kind, "round": 0, **row}

    def limit(self, call: Call, name: str, kind: str, folder: Path, round: int, *, once: bool = False) -> Row:
        """A bare limit, as the benchmark measures it."""
        side = SIDES[kind]
        settings = {
            "work": str(self.work), "images": str(folder), "shape": [side, side, 3], "batch": self.asked.batch,
            "workers": self.asked.workers, "seconds": 1e-9 if once else self.asked.seconds, "warm": not once,
        }  # fmt: skip
        job = json.dumps({"subjects": [name], "settings": settings})
        python = call.pythons[REFERENCE]
        about = {"system": name, "kind": kind, "limit": True, "round": round}
        try:
            for action in ("prepare", "measure"):
                command = [python, BENCH / "measure.py", action, job]
                out = output(command, self.work, last=action == "measure")
        except CallFailedError as failure:
            return about | {"error": str(failure)}
        found = json.loads(out)
        return about | {key: found[key] for key in ("images_per_s", "cpu_s_per_1000")}

    def store(self, system: System, kind: str) -> Path:
        return self.work / "stores" / (system.store or system.name) / kind

    def tabulate(self, table: str, rows: Iterator[Row], begin: Row) -> None:
        """Collect the rows as they are measured; then print their tables, and write all results so far."""
        already = len(self.rows)
        for row in rows:
            self.rows.append(begin | row)
            said = row.get("error") or row.get("images_per_s") or ""
            print(f"  {row['measure']}: {row['system']}, {row['kind']} {said}", file=sys.stderr, flush=True)
        result = self.result()
        for title, text in results.tables(result | {"rows": self.rows[already:]}, table):
            print(f"\n{title}\n\n{text}", flush=True)
        if self.asked.json:
            self.asked.json.write_text(json.dumps(result, indent=1))

    def result(self) -> dict[str, Any]:
        settings = {
            name: getattr(self.asked, name) for name in ("images", "batch", "workers", "rounds", "seconds", "quick")
        }
        settings["photographs"] = photographs(self.asked.photos) if self.asked.photos else None
        return {
            **self.about, "settings": settings, "left_out": self.left_out,
            "environments": self.environments, "rows": self.rows,
        }  # fmt: skip


def images(call: Call, asked: argparse.Namespace, kind: str) -> Path:
    """A folder of numbered links to the photographs, repeated as often as needed; half as many for JPEG stores."""
    count = asked.images if kind == "raw" else asked.images // 2  # half as many where they are larger or decoded
    folder = call.work / f"images-{count}"
    if not folder.exists():
        photos = repr(str(asked.photos.resolve())) if asked.photos else None
        code = (
            f"import sys; sys.path.insert(0, {str(BENCH)!r}); import data; from pathlib import Path;"
            f"print(data.photos(Path({str(call.work)!r}), {photos} and Path({photos}), {count}))"
        )
        command: list[str | Path] = [call.pythons[REFERENCE], "-c", code]
        found = Path(output(command, call.work, 600).strip().rpartition("\n")[2])
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "all").mkdir(parents=True)
        for number, path in enumerate(sorted(found.rglob("*.jpg"))):
            (partial / "all" / f"{number:07}.jpg").symlink_to(path.resolve())
        partial.rename(folder)
    return folder


def about() -> dict[str, Any]:
    """The date, the machine, and the commit."""
    info = Path("/proc/cpuinfo").read_text()
    cpu = next((line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")), "")
    git = ["git", "-C", str(environments.ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(git, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": {
            "cpu": cpu or platform.processor(),
            "cpus": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "os": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "load_at_start": os.getloadavg()[0],
        },
        "rawpack": commit.stdout.strip(),
    }


if __name__ == "__main__":
    main()
