"""Work on subjects in this process, which is made for it.

python measure.py prepare '{"subjects": ["memmap", ...], "settings": {...}}'
python measure.py measure '{"subjects": ["memmap"], "settings": {...}}'      one line of JSON on standard output
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from contract import Epoch, Settings, Subject
from subjects import SUBJECTS

_WARM_EPOCHS = 3
"""Each worker meets a random part of the pages in each epoch; after three, nearly all of them."""
_WARM_S = 3.0
"""Where epochs are long, further ones are left out once so much time has passed."""
_DISTRIBUTIONS = (
    "rawpack", "numpy", "opencv-python-headless", "simplejpeg", "PyTurboJPEG", "lmdb", "h5py",
    "torch", "tensordict", "ffcv", "numba", "litdata", "av", "torchcodec", "decord2", "eva-decord",
    "fsspec", "aiohttp", "s3fs", "obstore", "moto", "webdataset", "mosaicml-streaming",
)  # fmt: skip


def main() -> None:
    action, asked = sys.argv[1], json.loads(sys.argv[2])
    settings = Settings(**{**asked["settings"], "shape": tuple(asked["settings"]["shape"])})
    for name in asked["subjects"]:
        if action == "prepare":
            SUBJECTS[name]().prepare(settings)
        else:
            print(json.dumps(measure(SUBJECTS[name](), settings) | about()), flush=True)


def measure(subject: Subject, settings: Settings) -> dict[str, Any]:
    """Open, warm up, and go through whole epochs until `settings.seconds` have passed, or there were enough."""
    before = memory(0)
    began = time.perf_counter()
    subject.open(settings)
    opened = time.perf_counter() - began - getattr(subject, "server_s", 0.0)
    warm, epochs = list[Epoch](), list[Epoch]()
    if settings.warm:
        while len(warm) < _WARM_EPOCHS and sum(epoch.seconds for epoch in warm) < _WARM_S:
            warm.append(subject.epoch(len(warm)))
    early: dict[str, int | None] = {}
    cpu = cpu_seconds()
    while len(epochs) < settings.epochs or sum(epoch.seconds for epoch in epochs) < settings.seconds:
        epochs.append(subject.epoch(len(warm) + len(epochs)))
        if len(epochs) == settings.epochs // 10:
            early = memory(before["process_bytes"])
    cpu = cpu_seconds() - cpu
    late = memory(before["process_bytes"])
    images, seconds = sum(epoch.images for epoch in epochs), sum(epoch.seconds for epoch in epochs)
    first = (warm + epochs)[0].first_s
    later = [epoch.first_s for epoch in (warm + epochs)[1:] if epoch.first_s is not None]
    return {
        "images_per_s": images / seconds,
        "images": images,
        "seconds": seconds,
        "epochs": len(epochs),
        "cpu_s_per_1000": cpu / images * 1000,
        "cpu_s_per_gb": cpu / fetched * 1e9 if (fetched := sum(epoch.fetched_bytes or 0 for epoch in epochs)) else None,
        "opened_s": opened,
        "first_batch_s": None if first is None else opened + first,
        "next_epoch_s": statistics.median(later) if later else None,
        "disk_bytes": epochs[-1].disk_bytes,
        "bytes_per_file": late["beside_bytes"] / epochs[-1].images if late["beside_bytes"] is not None else None,
        "growth_bytes": late["beside_bytes"] - early["beside_bytes"] if early else None,
        **late,
    }


def about() -> dict[str, Any]:
    """Machine, load and versions, for a row that is read elsewhere and later."""
    from rawpack.system import machine

    facts = machine.describe()
    versions = {"python": sys.version.split()[0]}
    for name in _DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "machine": {name: facts[name] for name in ("cpu", "cpus", "cpu_quota", "memory_limit_bytes", "os")},
        "load": os.getloadavg()[0],
        "versions": versions,
    }


def cpu_seconds() -> float:
    """CPU time so far of this process and all of its children, where the kernel tells; else without living children."""
    ticks = 0
    for pid in _descendants():
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")


def memory(before: int | None) -> dict[str, Any]:
    """Bytes beside the page cache: this process's own, its largest worker's, those of shared memory, and all of them
    together without the `before` of this process.

    None where the kernel does not tell.
    """
    own = _rollup("self")
    if not own:
        return dict.fromkeys(("process_bytes", "worker_bytes", "worker_private_bytes", "shared_bytes", "beside_bytes"))
    workers = [one for one in map(_rollup, _descendants()) if one]
    shared = sum(one["Pss_Shmem"] for one in (own, *workers))
    return {
        "process_bytes": own["Pss_Anon"],
        "worker_bytes": max((one["Pss_Anon"] for one in workers), default=None),
        "worker_private_bytes": max(map(_private, _descendants()), default=None),
        "shared_bytes": shared,
        "beside_bytes": sum(one["Pss_Anon"] for one in (own, *workers)) + shared - (before or 0),
    }


def _private(pid: str) -> int:
    """Bytes that a process has written to and shares with nobody. Slots, which it fills for others, do not count."""
    found, counts = 0, True
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
            name = line.split(maxsplit=1)[0]
            if not name.endswith(":"):
                counts = "memfd:rawpack" not in line
            elif counts and name == "Private_Dirty:":
                found += int(line.split()[1]) * 1024
    return found


def _descendants(pid: str = "self") -> list[str]:
    """Process numbers of a process's living children, and of theirs; none where the kernel does not list them."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += listed.read_text().split()
    return found + [below for child in found for below in _descendants(child)]


def _rollup(pid: str) -> dict[str, int]:
    """Totals of a process's memory in bytes, as the kernel adds them up; empty where it does not tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}


if __name__ == "__main__":
    main()
