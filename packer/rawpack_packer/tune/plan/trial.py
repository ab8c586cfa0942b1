"""Trying candidates: a sample is packed into each, and each is read back."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack.store.store import Store
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.engines import InlineEngine, LocalEngine
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.pack import pack
from rawpack_packer.samples.image import prepare
from rawpack_packer.sources import Source
from rawpack_packer.tune.measure.meter import Setting, StoreMeter
from rawpack_packer.tune.measure.rounds import Case, Reading, Schedule, read_in_turn
from rawpack_packer.tune.plan.candidates import Candidate
from rawpack_packer.tune.plan.loss import as_read, psnr, ssim
from rawpack_packer.tune.plan.sample import SampleSource, draw
from rawpack_packer.tune.plan.throughput import PacedEngine

_FEWEST, _LEAST, _MOST = 8, 32, 8192
"""Images in a sample: of large ones, of others, and at most."""
_LEAST_S = 4.0
"""Seconds that packing the least sample may take."""
_PACKING, _COMPARING = 0.35, 0.05
"""Shares of the budget."""
_LATE = (0.25, 8.0)
"""How long after its end measurements still begin, so that each figure gets its interval: a share of the budget, and at
least so many seconds."""
_PROBED = 4
_SPACE = 0.25
"""The share of the free disk that trials may take."""
_PART_BYTES = 2 << 20
"""Of raw pixels: in smaller parts what a shard holds beside them would count."""
_COMPARED = 24
"""Images by which loss is measured."""
_START_S = 0.6
"""What it takes to start and end the workers of one measurement, about."""
_SLICES = (0.1, 2.0)
"""Seconds of one measurement, least and most."""

Say = Callable[[str, float], None]
"""Told what is being done, before each step, and how many seconds are left, about."""


@dataclass(frozen=True)
class Loss:
    """What a candidate loses against the same pixels stored raw: means over those of some images that lose anything."""

    psnr_db: float
    ssim: float


@dataclass
class Trial:
    """What was found out about one candidate."""

    candidate: Candidate
    rows: int
    """Samples that were packed."""
    seen: int
    """Samples that were to be packed."""
    bytes_per_sample: float
    """Of all files of the store."""
    shards: int
    """In which the sample lies."""
    bytes_error: float
    """Half of the 95 % interval of `bytes_per_sample`, as a share of it; 0 where every sample has the same."""
    packed_per_s: float
    """Samples of the source per second, all workers busy."""
    start_s: float
    """What packing took beside that: the start of the workers, and what is written last."""
    loss: Loss | None
    """None where nothing is lost."""
    image_bytes: float
    """Of an image in its shard."""
    readings: list[Reading] = field(default_factory=list)
    """By workers, the most last."""
    disk_bytes_per_s: float | None = None

    @property
    def best(self) -> Reading:
        """With the most workers: as training would read it."""
        return self.readings[-1]


def try_out(
    source: Source,
    candidates: Sequence[Candidate],
    folder: Path,
    *,
    budget: float,
    workers: Sequence[int],
    batch: int,
    image_size: tuple[int, int] | None,
    transform: tuple[Any, ...],
    seed: int,
    say: Say,
) -> tuple[list[Trial], SampleSource]:
    """Pack a sample of the source into each candidate below `folder`, and read each back.

    budget: seconds that all of it may take, about; no less than it takes to pack and read a few images.
    """
    began = time.monotonic()

    def tell(step: str) -> None:
        say(step, max(0.0, began + budget - time.monotonic()))

    tell(f"looking at some {source.info.noun}s")
    sample = draw(source, sample_size(source, candidates, folder, budget, seed), seed)
    trials, meters = [], []
    for candidate in candidates:
        tell(f"packing {text.count(len(sample), source.info.noun)} as {candidate.name}")
        trial, meter = _packed(sample, candidate, folder)
        trials.append(trial)
        meters.append(meter)
    tell("comparing pixels")
    for trial, loss in zip(trials, losses(sample, candidates, _COMPARING * budget), strict=True):
        trial.loss = loss
    cases = [
        Case(candidate.name, meter, Setting(batch, count, image_size, transform), curve=count < workers[-1])
        for candidate, meter in zip(candidates, meters, strict=True)
        for count in workers
    ]
    schedule = _schedule(len(candidates), len(cases), budget, began)
    for trial, meter in zip(trials, meters, strict=True):
        trial.disk_bytes_per_s = meter.disk(0.5)
    tell("reading")
    readings = read_in_turn(cases, schedule, lambda: tell("reading"))
    for k, trial in enumerate(trials):
        trial.readings = [one for one in readings[k * len(workers) : (k + 1) * len(workers)] if one.warm]
    return trials, sample


def sample_size(source: Source, candidates: Sequence[Candidate], folder: Path, budget: float, seed: int) -> int:
    """How many images can be packed into all candidates in the share of the budget that packing has, and on the disk.

    Raises UsageError where not even a few fit on it.
    """
    few = draw(source, _PROBED, seed)
    seconds, size, tried = 0.0, 0.0, 0
    groups = {one.group: one.raw_recipe for one in candidates}
    alike = Counter(one.group for one in candidates)
    for i in range(len(few)):
        took = 0.0
        try:
            data = few[i].image
            for group, recipe in groups.items():
                began = time.perf_counter()
                size += alike[group] * math.prod(prepare(data, recipe).shape)
                took += alike[group] * (time.perf_counter() - began)
        except (DecodeError, PackError):
            continue
        seconds += took
        tried += 1
        if seconds > budget * 0.1:
            break
    if not tried:
        return min(len(source), _LEAST)
    pace = machine.cpus() / (seconds / tried)
    by_time = max(_START_S, _PACKING * budget - _START_S * len(candidates)) * pace
    least = min(len(source), max(_FEWEST, min(_LEAST, int(_LEAST_S * pace))))
    room = shutil.disk_usage(folder).free * _SPACE
    by_space = room / max(1.0, size / tried)
    if by_space < least:
        raise UsageError(f"{folder.parent} has too little room for trials: name a folder on another disk with --tmp")
    return max(least, min(len(source), _MOST, int(by_time), int(by_space)))


def _packed(sample: SampleSource, candidate: Candidate, folder: Path) -> tuple[Trial, StoreMeter]:
    """Pack the sample into one candidate."""
    workers = machine.cpus()
    raw = math.prod(candidate.recipe.target or (1,)) * candidate.recipe.channels
    rows = max(32, min(1024, len(sample) // (4 * workers)), _PART_BYTES // raw if candidate.recipe.target else 0)
    path = folder / candidate.name.replace(" ", "-")
    # As `rawpack pack` chooses.
    paced = PacedEngine(
        LocalEngine(workers) if hasattr(os, "fork") else InlineEngine(), min(workers, -(-len(sample) // rows))
    )
    began = time.perf_counter()
    # There is room: sample_size saw to that.
    how = RunOptions(workers, max_rejects=1e14, engine=paced)
    pack(sample, path, candidate.trial(rows), how, check_free=False)
    took = time.perf_counter() - began
    meter = StoreMeter(path)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return (
        Trial(
            candidate,
            rows=len(meter),
            seen=len(sample),
            bytes_per_sample=size / len(meter),
            shards=len(meter.manifest.shards),
            bytes_error=_error(meter),
            packed_per_s=paced.samples_per_s,
            start_s=max(0.0, took - len(sample) / paced.samples_per_s),
            loss=None,
            image_bytes=meter.sample_bytes,
        ),
        meter,
    )


def _error(meter: StoreMeter) -> float:
    """Half of the 95 % interval of a sample's mean bytes, as a share of them."""
    store = Store(meter.path)
    if meter.field.codec.in_place and meter.field.uniform:
        return 0.0
    if meter.field.deflated:
        # What lies on the disk, not what it inflates to.
        sizes = np.concatenate([one.arrays["image.chunk"][:, 1] for one in store.columns.folders]).tolist()
    else:
        sizes = [len(store.reader(shard, "image").stored(row)) for shard, row in map(store.locate, range(len(meter)))]
    if len(sizes) < 2:
        return 1.0
    return float(1.96 * statistics.stdev(sizes) / math.sqrt(len(sizes)) / statistics.mean(sizes))


def losses(sample: SampleSource, candidates: Sequence[Candidate], seconds: float) -> list[Loss | None]:
    """PSNR and SSIM of each candidate over some images of the sample that decode; None where nothing is lost.

    seconds: after so many no further image is looked at, once there was one.
    """
    lossy = [one for one in candidates if one.lossy]
    groups = {one.group: one.raw_recipe for one in lossy}
    found: dict[str, list[tuple[float, float]]] = {one.name: [] for one in lossy}
    began, compared = time.monotonic(), 0
    numbers = np.linspace(0, len(sample) - 1, min(_COMPARED, len(sample))).astype(int)
    for i in np.random.default_rng(0).permutation(numbers).tolist() if lossy else []:
        if compared and time.monotonic() - began > seconds:
            break
        try:
            data = sample[i].image
            pixels = {group: prepare(data, recipe).image for group, recipe in groups.items()}
        except DecodeError:
            continue
        compared += 1
        for one in lossy:
            image = pixels[one.group]
            read, _ = as_read(image, one.recipe)
            if not np.array_equal(image, read):  # a grey picture has no color to lose
                found[one.name].append((psnr(image, read), ssim(image, read)))
    return [_mean(found.get(one.name, [])) for one in candidates]


def _mean(found: Sequence[tuple[float, float]]) -> Loss | None:
    if not found:
        return None
    return Loss(statistics.mean(one for one, _ in found), statistics.mean(one for _, one in found))


def _schedule(stores: int, cases: int, budget: float, began: float) -> Schedule:
    """What of the budget is left, cut into measurements. cases: stores by workers."""
    left = max(0.0, budget - (time.monotonic() - began))
    rounds, cold = 5, 2
    starts = (stores * cold * 2 + cases * rounds) * _START_S
    seconds = (left - starts) / (cases * rounds * 1.5 + stores * cold * 2)
    if seconds < _SLICES[0]:
        cold = 1
    return Schedule(
        rounds,
        min(_SLICES[1], max(_SLICES[0], seconds)),
        cold,
        began + budget,
        began + budget + max(_LATE[0] * budget, _LATE[1]),
    )
