"""One job with one system, in a process and an environment of its own: needs only numpy, OpenCV and simplejpeg.

python harness.py '{"action": "read", "system": "webdataset", ...}'      one line of JSON on standard output

An adapter is a module of `systems` with

- `NAME`, the distribution whose version is reported;
- `pack(source, folder, job)`, which writes all samples of `source`, a `Source`, into `folder`, with their numbers as
  labels;
- `read(folder, job)`, which returns a function from an epoch's number to its shuffled batches: images, uint8
  (n, side, side, 3), or float32 (n, 3, side, side) if the job wants floats, and the numbers of their samples, both in
  the type that the system gives its users;
- if the system can resume, `resume(folder, job, state)`, which returns an iterator over the batches of an epoch (over
  those after `state` unless that is None), and a function that returns the state after the last batch taken.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pickle
import signal
import sys
import time
import zlib
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

from measuring.counters import cpu_seconds, memory, ticks, workers
from systems.images import Source, cropped, decoded
from systems.job import Job
from systems.recipe import LEVELS, pixels

_WARM_S = 1.0
_CHECKED = 256
"""About how many images have their pixels compared."""
_WRONG = 8.0
"""Mean difference in levels from which on an image counts as a wrong one; decoders differ by less than 4."""


_BOXES = 20_000
"""Crops of an image whose mean colors are compared with that of a crop delivered."""
_BESIDE = 16.0
"""Levels by which that may lie outside their range."""
_NEAR = 0.1
"""By how much the mean and the deviation of all normalized values may differ from those of other crops."""


def main() -> None:
    job = Job.from_json(sys.argv[1])
    result = globals()[job.action](job, importlib.import_module(f"systems.{job.system}"))
    print("\n" + json.dumps(result), flush=True)


def pack(job: Job, system: Any) -> dict[str, Any]:
    """Write the store, and time it: this includes listing the photographs and starting workers."""
    began, cpu = time.perf_counter(), cpu_seconds()
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    source = Source(job)
    system.pack(source, folder, job)
    seconds = time.perf_counter() - began
    return {
        "images": len(source),
        "seconds": seconds,
        "images_per_s": len(source) / seconds,
        "cpu_s_per_1000": (cpu_seconds() - cpu) / len(source) * 1000,
        "version": metadata.version(system.NAME),
    }


def read(job: Job, system: Any) -> dict[str, Any]:
    """Time whole epochs after a warm-up; then measure the memory in one more."""
    began = time.perf_counter()
    epochs = system.read(Path(job.folder), job)
    first = None
    numbers = itertools.count()
    while first is None or time.perf_counter() - began < first + _WARM_S:
        for images, _ in epochs(next(numbers)):
            first = time.perf_counter() - began if first is None else first
            touch(images)
    count, cpu, began = 0, cpu_seconds(), time.perf_counter()
    while time.perf_counter() - began < job.seconds:
        count += sum(touch(images) for images, _ in epochs(next(numbers)))
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    most = 0
    for number, (images, _) in enumerate(epochs(next(numbers))):
        touch(images)
        if number < 8:
            most = max(most, memory()["beside_bytes"] or 0)
    return {
        "first_batch_s": first,
        "images_per_s": count / seconds,
        "cpu_s_per_1000": cpu / count * 1000,
        "memory_bytes": most,
        "version": metadata.version(system.NAME),
    }


def pace(job: Job, system: Any) -> dict[str, Any]:
    """The rate for a consumer that takes a fixed time for each batch, and the number of cores in use."""
    epochs = system.read(Path(job.folder), job)
    stream = (images for number in itertools.count() for images, _ in epochs(number))
    began, found = time.perf_counter(), []
    while time.perf_counter() - began < _WARM_S:
        touch(next(stream))
    for rate in job.rates:
        step, count = job.batch / rate, 0
        for _ in range(4):
            touch(next(stream))
            time.sleep(step)
        cpu, began = cpu_seconds(), time.perf_counter()
        while time.perf_counter() - began < job.seconds:
            count += touch(next(stream))
            time.sleep(step)
        seconds = time.perf_counter() - began
        found.append({"wanted": rate, "images_per_s": count / seconds, "cores": (cpu_seconds() - cpu) / seconds})
    return {"paced": found}


def check(job: Job, system: Any) -> dict[str, Any]:
    """Read one epoch: does each sample come exactly once, with the pixels that were packed?"""
    if job.floats:
        return check_floats(job, system)
    source = Source(job)
    every = max(1, len(source) // _CHECKED)
    seen: list[int] = []
    differences: list[float] = []
    for images, numbers in system.read(Path(job.folder), job)(0):
        found = as_numpy(images)
        if found.dtype != np.uint8 or found.shape[1:] != (job.side, job.side, 3):
            raise ValueError(f"images are {found.dtype} {found.shape}")
        for image, number in zip(found, as_numpy(numbers).reshape(-1).tolist(), strict=True):
            seen.append(number)
            if number % every == 0:
                differences.append(float(np.abs(image.astype(int) - expected(source, number, job)).mean()))
    wrong = sum(difference > _WRONG for difference in differences)
    return counted(seen, len(source)) | {"difference": max(differences), "checked": len(differences), "wrong": wrong}


def check_floats(job: Job, system: Any) -> dict[str, Any]:
    """Read one epoch of random crops: each sample once, its colors those of a crop of its image, and all values
    together as those of crops made here, normalized."""
    source = Source(job)
    every = max(1, len(source) // _CHECKED)
    times = max(1, 96 // len(source))  # few crops may differ much by chance
    # The same crops each time; the system's own draws, which may be numpy's too, are left alone.
    random, draws = np.random.default_rng(1), np.random.RandomState(1)
    seen: list[int] = []
    beside: list[float] = []
    theirs, ours = np.zeros((2, 3)), np.zeros((2, 3))
    mean, std = (np.array(levels).reshape(3, 1, 1) for levels in LEVELS)
    for images, numbers in system.read(Path(job.folder), job)(0):
        found = as_numpy(images)
        if found.dtype != np.float32 or found.shape[1:] != (3, job.side, job.side):
            raise ValueError(f"images are {found.dtype} {found.shape}")
        for image, number in zip(found, as_numpy(numbers).reshape(-1).tolist(), strict=True):
            seen.append(number)
            if number % every == 0:
                stored = pixels(source.sample(number), job)
                low, high = color_range(stored, random)
                color = (image * std + mean).mean(axis=(1, 2))
                beside.append(float(np.maximum(low - color, color - high).max()))
                theirs += moments(image)
                for _ in range(times):
                    crop = cropped(stored, job.side, "random", draws).transpose(2, 0, 1)
                    ours += moments((crop - mean) / std) / times
    # The mean and the deviation of each channel.
    (first, second), (own_first, own_second) = theirs / len(beside), ours / len(beside)
    near = {
        "mean": float(np.abs(first - own_first).max()),
        "deviation": float(np.abs(np.sqrt(second - first**2) - np.sqrt(own_second - own_first**2)).max()),
    }
    if not max(near.values()) <= _NEAR:
        raise ValueError(f"values are not those of normalized crops: they differ by {near}")
    wrong = sum(outside > _BESIDE for outside in beside)
    return counted(seen, len(source)) | near | {"difference": max(beside), "checked": len(beside), "wrong": wrong}


def moments(image: Any) -> Any:
    """The mean and the mean square of each channel, (2, 3), of an image (3, height, width)."""
    values = image.astype(float)
    return np.stack([values.mean(axis=(1, 2)), (values**2).mean(axis=(1, 2))])


def color_range(image: Any, random: Any) -> tuple[Any, Any]:
    """The lowest and the highest mean of each channel, (3,) of levels, over many crops of (height, width, 3)."""
    height, width, channels = image.shape
    sums = np.zeros((height + 1, width + 1, channels))
    sums[1:, 1:] = image.cumsum(axis=0, dtype=float).cumsum(axis=1)
    area = height * width * random.uniform(0.08, 1, _BOXES)
    aspect = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3), _BOXES))
    high, wide = np.sqrt(area / aspect).astype(int).clip(1, height), np.sqrt(area * aspect).astype(int).clip(1, width)
    top, left = random.integers(height - high + 1), random.integers(width - wide + 1)
    below, right = top + high, left + wide
    boxes = sums[below, right] - sums[top, right] - sums[below, left] + sums[top, left]
    means = boxes / (high * wide)[:, None]
    return means.min(axis=0), means.max(axis=0)


def kept(job: Job, system: Any) -> dict[str, Any]:
    """Keep batches while reading continues, and count those that have changed by the end."""
    batches: list[tuple[Any, int]] = []
    for number in itertools.count():
        for images, _ in system.read(Path(job.folder), job)(number):
            if len(batches) < job.keep:
                batches.append((images, checksum(images)))
        if len(batches) == job.keep:
            return {"kept": job.keep, "changed": sum(checksum(images) != before for images, before in batches)}
    raise AssertionError


def kill_worker(job: Job, system: Any) -> dict[str, Any]:
    """Kill the busiest worker process by SIGKILL after two batches, and continue to read."""
    source, seen, killed = Source(job), list[int](), None
    try:
        for batch, (images, numbers) in enumerate(system.read(Path(job.folder), job)(0)):
            touch(images)
            seen += as_numpy(numbers).reshape(-1).tolist()
            if batch == 1:
                killed = max(workers(), key=ticks, default=None)
                if killed is None:
                    return {"workers": 0}
                print("\n" + json.dumps({"killed": True}), flush=True)
                os.kill(int(killed), signal.SIGKILL)
    except Exception as error:
        return {"workers": 1, "raised": f"{type(error).__name__}: {first_line(error)}", **counted(seen, len(source))}
    return {"workers": int(killed is not None), **counted(seen, len(source))}


def resume_save(job: Job, system: Any) -> dict[str, Any]:
    """Read some batches of an epoch, and save the state."""
    if not hasattr(system, "resume"):
        return {"offered": False}
    batches, state = system.resume(Path(job.folder), job, None)
    taken = [as_numpy(numbers).reshape(-1).tolist() for _, numbers in itertools.islice(batches, job.take)]
    Path(job.state).write_bytes(pickle.dumps((state(), list(itertools.chain(*taken)))))
    return {"offered": True}


def resume_rest(job: Job, system: Any) -> dict[str, Any]:
    """Load the state in a new process and read the rest: both parts together must be the epoch."""
    state, taken = pickle.loads(Path(job.state).read_bytes())
    batches, _ = system.resume(Path(job.folder), job, state)
    count = len(Source(job))
    rest: list[int] = []
    for _, numbers in batches:
        rest += as_numpy(numbers).reshape(-1).tolist()
        if len(rest) > 2 * count:
            break
    return {"taken": len(taken), **counted(taken + rest, count)}


def counted(seen: list[int], samples: int) -> dict[str, Any]:
    """How many samples were delivered, are missing, and came more than once."""
    often = np.bincount(np.array(seen, np.int64), minlength=samples)
    return {
        "samples": samples,
        "delivered": len(seen),
        "missing": int((often == 0).sum()),
        "repeated": int((often > 1).sum()),
    }


def expected(source: Source, number: int, job: Job) -> Any:
    """The pixels of sample `number` as the system should return them."""
    sample = source.sample(number)
    return sample if job.kind == "raw" else decoded(sample, replace(job, crop="centre"))


def touch(images: Any) -> int:
    """Read every 97th row and column, as a consumer that does almost nothing; returns the number of images."""
    read = images[:, ::97, ::97] if images.shape[-1] == 3 else images[:, :, ::97, ::97]
    if not float(read.sum()):
        raise ValueError("all images are black")
    return len(images)


def checksum(images: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(as_numpy(images)).data)


def as_numpy(array: Any) -> Any:
    return array.numpy() if hasattr(array, "numpy") else np.asarray(array)


def first_line(error: BaseException) -> str:
    """The first line of the error's message, short enough for a table."""
    lines = str(error).strip().splitlines()
    return lines[0][:120] if lines else ""


if __name__ == "__main__":
    main()
