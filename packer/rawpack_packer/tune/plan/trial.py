"""Trials of candidates: a sample is packed into each, and each is read back."""

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
from typing import TYPE_CHECKING

import numpy as np

from rawpack.errors import DecodeError, PackError, UsageError
from rawpack.store.store import Store
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.engines import InlineEngine, LocalEngine
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import RunOptions
from rawpack_packer.options.naming import opt
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.samples.sample import prepare
from rawpack_packer.sources import Source
from rawpack_packer.sources.view import View
from rawpack_packer.tune.measure.meter import Setting, StoreMeter
from rawpack_packer.tune.measure.rounds import CURVE_FROM, ROUNDS, Case, Reading, Schedule, read_in_turn
from rawpack_packer.tune.plan.candidates import Candidate
from rawpack_packer.tune.plan.loss import as_read, psnr, ssim
from rawpack_packer.tune.plan.sample import draw
from rawpack_packer.tune.plan.throughput import PacedEngine

if TYPE_CHECKING:
    from rawpack_packer.tune.plan.planned import PlanRequest

_FEWEST, _LEAST, _MOST = 2, 32, 8192
"""Images in a sample: at least of large ones, at least of others, and at most."""
_LEAST_S = 4.0
"""Seconds that packing the least sample may take."""
_PROBING, _PACKING, _COMPARING, _DISK = 0.1, 0.25, 0.05, 0.05
"""Shares of the budget for the steps before reading."""
_PACKED_BY = 0.65
"""Share of the budget after which no further candidate is packed."""
_SHORT_S = 10.0
"""With a shorter budget, every candidate is tried once, however long that takes."""
_PROBED = 4
_SPACE = 0.25
"""The share of the free disk space that trials may take."""
_PART_BYTES = 2 << 20
"""Of raw pixels: in smaller parts, what a shard holds in addition would count."""
_COMPARED = 24
"""Images by which loss is measured."""
_START_S = 0.6
"""Roughly what it takes to start and end the workers of one measurement."""
_SLICES = (0.1, 2.0)
"""Seconds of one measurement, least and most."""
_DISK_S = 0.5
"""The most seconds for which the disk is read in order."""

Say = Callable[[str, float], None]
"""Called before each step, with the step and the estimated seconds that are left."""


@dataclass(frozen=True)
class Loss:
    """What a candidate loses compared to the same pixels stored raw: means over the images that lose anything."""

    psnr_db: float
    ssim: float


@dataclass
class Trial:
    """The results of trying one candidate."""

    candidate: Candidate
    rows: int
    """Samples that were packed."""
    seen: int
    """Samples that were to be packed."""
    bytes_per_sample: float
    """Of all files of the store."""
    shards: int
    """That hold the sample."""
    bytes_error: float
    """Half of the 95 % interval of `bytes_per_sample`, as a share of it; 0 where every sample has the same."""
    packed_per_s: float
    """Samples of the source per second, all workers busy."""
    start_s: float
    """What packing took in addition: the start of the workers, and the commit."""
    loss: Loss | None
    """None where nothing is lost."""
    image_bytes: float
    """Of an image in its shard."""
    readings: list[Reading] = field(default_factory=list)
    """By workers, ascending."""
    disk_bytes_per_s: float | None = None

    @property
    def best(self) -> Reading:
        """With the most workers, as in training."""
        return self.readings[-1]


@dataclass(frozen=True)
class Probe:
    """The cost of an image of the source in all candidates together, measured on a few."""

    tried: int
    """Images that decoded; the other figures are 0 if none did."""
    seconds: float
    """To read and prepare it, on one CPU."""
    bytes: float
    """Of its raw pixels."""


@dataclass(frozen=True)
class TriedOut:
    """The trials of all candidates."""

    trials: list[Trial]
    """In the order of the candidates."""
    left_out: list[Candidate]
    """Those for which there was no time."""
    sample: View


def try_out(source: Source, asked: PlanRequest, folder: Path, say: Say) -> TriedOut:
    """Pack a sample of the source into each candidate below `folder`, and read each back.

    With a budget from 10 s on, candidates and rounds for which there is no time are left out; only the first candidate
    is packed and read in any case, with a few images.
    """
    candidates, workers, budget = asked.candidates, asked.workers, asked.budget
    began = time.monotonic()
    deadline, packed_by = began + budget, began + _PACKED_BY * budget

    def tell(step: str) -> None:
        say(step, max(0.0, deadline - time.monotonic()))

    tell(f"looking at some {source.info.noun}s")
    size = sample_size(source, candidates, folder, budget, probe(source, candidates, budget, asked.seed))
    sample = draw(source, size, asked.seed)
    packed: dict[str, tuple[Trial, StoreMeter]] = {}
    slowest = 0.0
    for candidate in formats_first(candidates):
        start = time.monotonic()
        if packed and budget >= _SHORT_S and start + slowest > packed_by:
            continue
        tell(f"packing {text.count(len(sample), source.info.noun)} as {candidate.name}")
        inline = len(sample) < min(_LEAST, len(source))
        packed[candidate.name] = _pack_trial(sample, candidate, folder, inline=inline)
        slowest = max(slowest, time.monotonic() - start)
    tried = [one for one in candidates if one.name in packed]
    tell("comparing pixels")
    for one, loss in zip(tried, losses(sample, tried, _COMPARING * budget), strict=True):
        packed[one.name][0].loss = loss
    for trial, meter in packed.values():
        trial.disk_bytes_per_s = meter.disk(min(_DISK_S, _DISK * budget / len(packed)))
    tell("reading")
    cases = [
        Case(
            one.name,
            packed[one.name][1],
            Setting(asked.batch, count, asked.image_size, asked.transform),
            curve=count < workers[-1],
        )
        for one in tried
        for count in workers
    ]
    schedule = _schedule(len(tried), len(cases), deadline, all_once=budget < _SHORT_S)
    readings = read_in_turn(cases, schedule, lambda: tell("reading"))
    for k, one in enumerate(tried):
        mine = readings[k * len(workers) : (k + 1) * len(workers)]
        packed[one.name][0].readings = [reading for reading in mine if reading.warm]
    trials = [packed[one.name][0] for one in tried if packed[one.name][0].readings]
    names = {trial.candidate.name for trial in trials}
    return TriedOut(trials, [one for one in candidates if one.name not in names], sample)


def probe(source: Source, candidates: Sequence[Candidate], budget: float, seed: int) -> Probe:
    """Prepare a few images for all candidates: at least one, and no more after a tenth of the budget."""
    few, began = draw(source, _PROBED, seed), time.perf_counter()
    recipes = {one.group: one.raw_recipe for one in candidates}
    stores, tried, seconds, size = Counter(one.group for one in candidates), 0, 0.0, 0.0
    for i in range(len(few)):
        try:
            data = few[i].image
            for group, recipe in recipes.items():
                start = time.perf_counter()
                size += stores[group] * math.prod(prepare(data, recipe).shape)
                seconds += stores[group] * (time.perf_counter() - start)
        except (DecodeError, PackError):
            continue
        tried += 1
        if time.perf_counter() - began > _PROBING * budget:
            break
    return Probe(tried, seconds / max(1, tried), size / max(1, tried))


def formats_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One candidate of each format before the second of any, so that no format is missing where time is short."""
    ranks: Counter[str] = Counter()
    places = {}
    for one in candidates:
        places[one.name] = ranks[one.recipe.format]
        ranks[one.recipe.format] += 1
    return sorted(candidates, key=lambda one: places[one.name])


def sample_size(source: Source, candidates: Sequence[Candidate], folder: Path, budget: float, found: Probe) -> int:
    """How many images can be packed into all candidates in the budget's share for packing, and on the disk.

    Raises UsageError where the disk has not even room for a few.
    """
    if not found.tried:
        return min(len(source), _LEAST)
    alone = 1 / found.seconds if found.seconds else math.inf
    by_time = max(_START_S, _PACKING * budget - _START_S * len(candidates)) * alone * machine.cpus()
    if by_time < _LEAST:
        by_time = _PACKING * budget * alone  # in this process
    least = min(len(source), int(max(_FEWEST, min(_LEAST, _LEAST_S * alone))))
    by_space = shutil.disk_usage(folder).free * _SPACE / max(1.0, found.bytes)
    if by_space < least:
        raise UsageError(
            f"{folder.parent} has too little room for trials: name a folder on another disk with {opt.tmp}"
        )
    return int(max(least, min(len(source), _MOST, by_time, by_space)))


def _pack_trial(sample: View, candidate: Candidate, folder: Path, *, inline: bool) -> tuple[Trial, StoreMeter]:
    """Pack the sample into a candidate. inline: start no workers, for a sample that is packed before they are ready."""
    cpus, count = machine.cpus(), len(sample)
    inline = inline or not hasattr(os, "fork")
    rows = _rows_of_a_part(candidate.recipe, count, cpus)
    engine = PacedEngine(InlineEngine(), 1) if inline else PacedEngine(LocalEngine(cpus), min(cpus, -(-count // rows)))
    path = folder / candidate.name.replace(" ", "-")
    began = time.perf_counter()
    # sample_size has made sure of the space, and a broken image is a result, not an error.
    how = RunOptions(cpus, max_rejects=1e14, engine=engine)
    Job(sample, candidate.trial(rows), path, how).pack(check_free=False)
    took, meter = time.perf_counter() - began, StoreMeter(path)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    rate = engine.samples_per_s * (cpus if inline else 1)
    return Trial(
        candidate,
        rows=len(meter),
        seen=count,
        bytes_per_sample=size / len(meter),
        shards=len(meter.manifest.shards),
        bytes_error=_error(meter),
        packed_per_s=rate,
        start_s=_START_S if inline else max(0.0, took - count / rate),
        loss=None,
        image_bytes=meter.sample_bytes,
    ), meter


def _rows_of_a_part(recipe: Recipe, samples: int, workers: int) -> int:
    """Samples in a part: few enough that all workers have something to do."""
    raw = math.prod(recipe.target or (1,)) * recipe.channels
    return max(32, min(1024, samples // (4 * workers)), _PART_BYTES // raw if recipe.target else 0)


def _error(meter: StoreMeter) -> float:
    """Half of the 95 % interval of a sample's mean bytes, as a share of them."""
    store = Store(meter.path)
    if meter.field.codec.in_place and meter.field.uniform:
        return 0.0
    if meter.field.deflated:
        # As stored on the disk, not inflated.
        sizes = np.concatenate([one.arrays["image.chunk"][:, 1] for one in store.columns.folders]).tolist()
    else:
        sizes = [len(store.reader(shard, "image").stored(row)) for shard, row in map(store.locate, range(len(meter)))]
    if len(sizes) < 2:
        return 1.0
    return float(1.96 * statistics.stdev(sizes) / math.sqrt(len(sizes)) / statistics.mean(sizes))


def losses(sample: View, candidates: Sequence[Candidate], seconds: float) -> list[Loss | None]:
    """PSNR and SSIM of each candidate over some images of the sample that decode; None where nothing is lost.

    seconds: after this time no further image is compared, but always one.
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
            if not np.array_equal(image, read):  # a gray picture has no color to lose
                found[one.name].append((psnr(image, read), ssim(image, read)))
    means = {name: Loss(*map(statistics.mean, zip(*pairs, strict=True))) for name, pairs in found.items() if pairs}
    return [means.get(one.name) for one in candidates]


def _schedule(stores: int, cases: int, deadline: float, *, all_once: bool) -> Schedule:
    """Divide the time until the deadline among the measurements. cases: stores by workers."""
    warm, cold = stores * ROUNDS + (cases - stores) * (ROUNDS - CURVE_FROM), 2
    left = deadline - time.monotonic() - (warm + stores * cold * 2) * _START_S
    seconds = left / (warm * 1.5 + stores * cold * 2)
    if seconds < _SLICES[0]:
        cold = 1
    return Schedule(ROUNDS, min(_SLICES[1], max(_SLICES[0], seconds)), cold, deadline, all_once)
