"""Trying candidates: a sample is packed into each, and each is read back."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
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
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.samples.image import prepare
from rawpack_packer.sources import Source
from rawpack_packer.sources.stores.source import StoreSource
from rawpack_packer.sources.view import View
from rawpack_packer.tune.measure.meter import Setting, StoreMeter
from rawpack_packer.tune.measure.rounds import Case, Reading, Schedule, read_in_turn
from rawpack_packer.tune.plan.candidates import Candidate, Group
from rawpack_packer.tune.plan.loss import as_read, psnr, ssim
from rawpack_packer.tune.plan.sample import draw
from rawpack_packer.tune.plan.throughput import PacedEngine

_FEWEST, _LEAST, _MOST = 2, 32, 8192
"""Images in a sample: of large ones, of others, and at most."""
_LEAST_S = 4.0
"""Seconds that packing the least sample may take."""
_PACKING, _COMPARING = 0.35, 0.05
"""Shares of the budget."""
_LATE = (0.25, 8.0)
"""How long after the budget's end measurements still begin, so that each figure gets its interval: a share of the
budget, and at least so many seconds."""
_PACKED_BY, _END = 0.75, 1.65
"""When the last candidate is to be packed, and when the last measurement is to end, as shares of the budget. All of it
is to end within twice the budget, and on a busy machine the start of the command takes several seconds."""
_SHORT_S = 10.0
"""In a shorter budget every candidate is tried once, whatever the clock says."""
_PROBED = 4
_SLOW_S = 0.02
"""An image that takes longer to decode is decoded once for all candidates of its pixels. For faster ones each candidate
decodes by itself, so that what is said of packing is measured and not put together."""
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
_DISK_S = 0.5
"""Seconds for which the disk is read in order."""

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


@dataclass(frozen=True)
class Probe:
    """What a few images of the source showed, prepared for each group of candidates."""

    tried: int
    """Images that decoded; the other figures are 0 where none did."""
    seconds: dict[Group, float]
    """To read and prepare an image for the candidates of a group, on one CPU."""
    bytes: dict[Group, float]
    """Of an image's raw pixels in the same."""


class Trials:
    """Packs the sample into one candidate after another, below a folder."""

    def __init__(self, sample: View, folder: Path, shared: Collection[Group], *, inline: bool) -> None:
        """shared: groups of candidates for which each image is decoded once. inline: start no workers, for a sample so
        small that it is packed before they have started."""
        self._sample, self._folder, self._shared = sample, folder, shared
        self._inline = inline or not hasattr(os, "fork")
        self._bases: dict[Group, tuple[Trial, StoreMeter]] = {}
        self._took_source = self._took_pixels = 0.0
        """Seconds that the slowest candidate took, of those from the source and of those from pixels."""

    def expected_s(self, candidate: Candidate) -> float:
        """How long a candidate will take to pack, by those that were packed; 0 where there was none."""
        return self._took_pixels if self._shares(candidate) and candidate.group in self._bases else self._took_source

    def pack(self, candidate: Candidate) -> tuple[Trial, StoreMeter]:
        """Pack the sample into a candidate."""
        group = candidate.group
        if not self._shares(candidate):
            return self._pack_source(candidate)
        if group not in self._bases:
            pixels = Candidate(f"pixels {len(self._bases)}", candidate.raw_recipe, ())
            self._bases[group] = self._pack_source(candidate if candidate.raw_pixels else pixels)
            if candidate.raw_pixels:
                return self._bases[group]
        return self._pack_pixels(candidate, *self._bases[group])

    def _shares(self, candidate: Candidate) -> bool:
        return candidate.group in self._shared and not candidate.recipe.passes_through

    def _pack_source(self, candidate: Candidate) -> tuple[Trial, StoreMeter]:
        """From the source, as `rawpack pack` does."""
        cpus, count = machine.cpus(), len(self._sample)
        rows = _rows_of_a_part(candidate.recipe, count, cpus)
        if self._inline:
            paced = PacedEngine(InlineEngine(), 1)
        else:
            paced = PacedEngine(LocalEngine(cpus), min(cpus, -(-count // rows)))
        meter, took = self._packed(self._sample, candidate, rows, paced)
        self._took_source = max(self._took_source, took)
        if self._inline:
            return _trial(candidate, meter, count, paced.samples_per_s * cpus, _START_S), meter
        return _trial(candidate, meter, count, paced.samples_per_s, max(0.0, took - count / paced.samples_per_s)), meter

    def _pack_pixels(self, candidate: Candidate, base: Trial, pixels: StoreMeter) -> tuple[Trial, StoreMeter]:
        """From the pixels of another candidate. To pack the source takes as long as it took there, and this besides."""
        cpus = machine.cpus()
        # No workers are started: there is little to do, and nothing that could end a process.
        paced = PacedEngine(InlineEngine(), 1)
        rows = _rows_of_a_part(candidate.recipe, base.seen, cpus)
        meter, took = self._packed(StoreSource(pixels.path), candidate, rows, paced)
        self._took_pixels = max(self._took_pixels, took)
        seconds = 1 / base.packed_per_s + 1 / (paced.samples_per_s * cpus)
        return _trial(candidate, meter, base.seen, 1 / seconds, base.start_s), meter

    def _packed(self, source: Source, candidate: Candidate, rows: int, engine: PacedEngine) -> tuple[StoreMeter, float]:
        """The store, and the seconds that packing it took."""
        path = self._folder / candidate.name.replace(" ", "-")
        began = time.perf_counter()
        # There is room: sample_size saw to that.
        how = RunOptions(machine.cpus(), max_rejects=1e14, engine=engine)
        pack(source, path, candidate.trial(rows), how, check_free=False)
        return StoreMeter(path), time.perf_counter() - began


@dataclass(frozen=True)
class TriedOut:
    """What came of trying candidates."""

    trials: list[Trial]
    """In the order of the candidates."""
    left_out: list[Candidate]
    """Those for which there was no time."""
    sample: View


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
) -> TriedOut:
    """Pack a sample of the source into each candidate below `folder`, and read each back.

    budget: seconds that all of it may take. From 10 s on, what there is no time for is left out, so that it ends within
    twice the budget; but one candidate is packed and read in any case, with a few images.
    """
    began = time.monotonic()

    def tell(step: str) -> None:
        say(step, max(0.0, began + budget - time.monotonic()))

    tell(f"looking at some {source.info.noun}s")
    found = probe(source, candidates, budget, seed)
    shared = shared_groups(candidates, found)
    sample = draw(source, sample_size(source, candidates, folder, budget, found), seed)
    trials = Trials(sample, folder, shared, inline=len(sample) < min(_LEAST, len(source)))
    packed: dict[str, tuple[Trial, StoreMeter]] = {}
    packed_by = math.inf if budget < _SHORT_S else began + _PACKED_BY * budget
    for candidate in packing_order(candidates, shared):
        if packed and time.monotonic() + trials.expected_s(candidate) > packed_by:
            continue
        tell(f"packing {text.count(len(sample), source.info.noun)} as {candidate.name}")
        packed[candidate.name] = trials.pack(candidate)
    tried = [one for one in candidates if one.name in packed]
    tell("comparing pixels")
    for one, loss in zip(tried, losses(sample, tried, _COMPARING * budget), strict=True):
        packed[one.name][0].loss = loss
    cases = [
        Case(one.name, packed[one.name][1], Setting(batch, count, image_size, transform), curve=count < workers[-1])
        for one in tried
        for count in workers
    ]
    schedule = _schedule(len(tried), len(cases), budget, began)
    for trial, meter in packed.values():
        trial.disk_bytes_per_s = meter.disk(_DISK_S)
    tell("reading")
    readings = read_in_turn(cases, schedule, lambda: tell("reading"))
    for k, one in enumerate(tried):
        mine = readings[k * len(workers) : (k + 1) * len(workers)]
        packed[one.name][0].readings = [reading for reading in mine if reading.warm]
    whole = [packed[one.name][0] for one in tried if packed[one.name][0].readings]
    names = {trial.candidate.name for trial in whole}
    return TriedOut(whole, [one for one in candidates if one.name not in names], sample)


def probe(source: Source, candidates: Sequence[Candidate], budget: float, seed: int) -> Probe:
    """Prepare a few images for each group of candidates, for a tenth of the budget and at least one."""
    few = draw(source, _PROBED, seed)
    recipes = {one.group: one.raw_recipe for one in candidates}
    seconds, size, tried = dict.fromkeys(recipes, 0.0), dict.fromkeys(recipes, 0.0), 0
    for i in range(len(few)):
        took, held = {}, {}
        try:
            data = few[i].image
            for group, recipe in recipes.items():
                began = time.perf_counter()
                held[group] = math.prod(prepare(data, recipe).shape)
                took[group] = time.perf_counter() - began
        except (DecodeError, PackError):
            continue
        tried += 1
        for group in recipes:
            seconds[group] += took[group]
            size[group] += held[group]
        if sum(seconds.values()) > budget * 0.1:
            break
    return Probe(
        tried,
        {group: one / max(1, tried) for group, one in seconds.items()},
        {group: one / max(1, tried) for group, one in size.items()},
    )


def shared_groups(candidates: Sequence[Candidate], found: Probe) -> set[Group]:
    """Groups whose images are decoded once, for all candidates that hold the same pixels.

    Only where decoding takes far longer than the rest, and images are brought to one size: large pixels take long to
    store as well.
    """
    several = Counter(one.group for one in candidates if one.recipe.target is not None)
    return {group for group, count in several.items() if count > 1 and found.seconds[group] > _SLOW_S}


def packing_order(candidates: Sequence[Candidate], shared: Collection[Group]) -> list[Candidate]:
    """One candidate of each format first, so that these are there where time is short; but before the first of a shared
    group the one that holds its pixels as they are, from which the others can be made."""
    ranks: Counter[str] = Counter()
    places: dict[str, int] = {}
    bases: dict[Group, Candidate] = {}
    for one in candidates:
        places[one.name] = ranks[one.recipe.format]
        ranks[one.recipe.format] += 1
        if one.raw_pixels and one.group in shared:
            bases.setdefault(one.group, one)
    ordered: dict[str, Candidate] = {}
    for one in sorted(candidates, key=lambda one: places[one.name]):
        for each in (bases.get(one.group, one), one):
            ordered.setdefault(each.name, each)
    return list(ordered.values())


def sample_size(source: Source, candidates: Sequence[Candidate], folder: Path, budget: float, found: Probe) -> int:
    """How many images can be packed into all candidates in the share of the budget that packing has, and on the disk.

    Raises UsageError where not even a few fit on it.
    """
    if not found.tried:
        return min(len(source), _LEAST)
    shared, alike = shared_groups(candidates, found), Counter(one.group for one in candidates)
    times = {group: 1 if group in shared else count for group, count in alike.items()}
    seconds = sum(times[group] * found.seconds[group] for group in times)
    size = sum(alike[group] * found.bytes[group] for group in alike)
    alone = 1 / seconds if seconds else math.inf
    by_time = max(_START_S, _PACKING * budget - _START_S * sum(times.values())) * alone * machine.cpus()
    if by_time < _LEAST:
        by_time = _PACKING * budget * alone
    least = min(len(source), int(max(_FEWEST, min(_LEAST, _LEAST_S * alone))))
    by_space = shutil.disk_usage(folder).free * _SPACE / max(1.0, size)
    if by_space < least:
        raise UsageError(f"{folder.parent} has too little room for trials: name a folder on another disk with --tmp")
    return int(max(least, min(len(source), _MOST, by_time, by_space)))


def _rows_of_a_part(recipe: Recipe, samples: int, workers: int) -> int:
    """Samples in a part, so that all workers have something to do."""
    raw = math.prod(recipe.target or (1,)) * recipe.channels
    return max(32, min(1024, samples // (4 * workers)), _PART_BYTES // raw if recipe.target else 0)


def _trial(candidate: Candidate, meter: StoreMeter, seen: int, packed_per_s: float, start_s: float) -> Trial:
    size = sum(file.stat().st_size for file in meter.path.rglob("*") if file.is_file())
    return Trial(
        candidate,
        rows=len(meter),
        seen=seen,
        bytes_per_sample=size / len(meter),
        shards=len(meter.manifest.shards),
        bytes_error=_error(meter),
        packed_per_s=packed_per_s,
        start_s=start_s,
        loss=None,
        image_bytes=meter.sample_bytes,
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


def losses(sample: View, candidates: Sequence[Candidate], seconds: float) -> list[Loss | None]:
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
        None if budget < _SHORT_S else began + _END * budget,
    )
