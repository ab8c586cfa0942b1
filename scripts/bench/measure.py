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
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from contract import Epoch, Settings, Subject
from measuring.counters import cpu_seconds, memory
from subjects import SUBJECTS

_WARM_EPOCHS = 3
"""Each worker meets a random part of the pages in each epoch; after three, nearly all of them."""
_WARM_S = 3.0
"""Where epochs are long, further ones are left out once so much time has passed."""
_DISTRIBUTIONS = (
    "rawpack", "numpy", "opencv-python-headless", "simplejpeg", "lmdb", "h5py",
    "torch", "tensordict", "ffcv", "numba", "litdata", "av", "torchcodec", "decord2", "eva-decord",
    "fsspec", "aiohttp", "s3fs", "moto", "webdataset", "mosaicml-streaming",
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
    before = memory()
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
        "calls": getattr(subject, "calls", None),
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


if __name__ == "__main__":
    main()
