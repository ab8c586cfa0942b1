"""Trials of candidates: a sample is packed into each, and each is read back."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rawpack.errors import UsageError
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.destination.journal import read_rejects
from rawpack_packer.job.estimate import START_S, estimate
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import NoProgress, RunOptions
from rawpack_packer.options import opt
from rawpack_packer.recipe.fields import exact_bytes, part_rows, store_fields
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.sources import Table
from rawpack_packer.tune.candidates import Candidate
from rawpack_packer.tune.loss import Loss, Strip, compare
from rawpack_packer.tune.measure import (
    BESIDE_ROUNDS,
    COLD_ROUNDS,
    ROUNDS,
    Figure,
    Reading,
    Setting,
    StoreMeter,
    read_in_turn,
)

_FEWEST, _LEAST, _MOST = 2, 32, 8192
"""Images in a sample: at least of large ones, at least of others, and at most."""
_LEAST_S = 4.0
"""Seconds of CPU time that preparing the least sample may take."""
_PROBED = 4
_PACKING, _PACKED_BY, _COMPARING = 0.25, 0.65, 0.05
"""Shares of the budget: for packing; after which no further candidate is packed; for comparing pixels."""
_SHORT_S = 10.0
"""With a shorter budget, every candidate is tried, however long that takes."""
_SPACE = 0.25
"""The share of the free disk space that trials may take."""
_PIECES = 4
"""Parts of a sample for each worker, so that all of them have something to do."""
_PART_BYTES = 2 << 20
"""Of raw pixels: in smaller parts, what a shard holds in addition would count."""
_SLICES = (0.1, 2.0)
"""Seconds of one measurement, least and most."""

Say = Callable[[str, float], None]
"""Called before each step, with the step and the estimated seconds that are left."""


@dataclass(frozen=True, eq=False)
class Trial:
    """The results of trying one candidate, and what they say of the whole set."""

    candidate: Candidate
    rows: int
    """Samples that were packed."""
    seen: int
    """Samples that were to be packed."""
    store_bytes: float
    """Of the whole set."""
    pack_s: float
    """To pack the whole set."""
    fits: bool
    """Whether the store stays in memory after its first epoch."""
    reading: Reading
    loss: Loss | None = None
    """None where nothing is lost."""
    augmented: Reading | None = None
    """With random crops and flips; None where `reading` has steps of its own, or those do not fit the fields."""

    @property
    def training(self) -> Reading:
        """As training reads."""
        return self.augmented or self.reading

    @property
    def rate(self) -> Figure | None:
        """Images per second in training: from memory if the store fits, else from the disk; None where that could not
        be measured."""
        return self.training.images_per_s if self.fits else self.training.cold_images_per_s

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.candidate.name,
            "options": list(self.candidate.options),
            "store_bytes": self.store_bytes,
            "pack_s": self.pack_s,
            "fits_memory": self.fits,
            "images_per_s": None if self.rate is None else self.rate.as_dict(),
            "psnr_db": None if self.loss is None else self.loss.psnr_db,
            "ssim": None if self.loss is None else self.loss.ssim,
            "sampled": self.rows,
            "rejected": self.seen - self.rows,
            "reading": self.reading.as_dict(),
            "augmented": None if self.augmented is None else self.augmented.as_dict(),
        }


@dataclass(frozen=True)
class Whole:
    """What is predicted of."""

    samples: int
    memory: int | None
    """Bytes that files may take in the page cache; None where that is unknown, and everything is assumed to fit."""


@dataclass(frozen=True)
class TriedOut:
    """The trials of all candidates."""

    trials: list[Trial]
    """In the order of the candidates."""
    left_out: list[Candidate]
    """Those for which there was no time."""
    sampled: int
    strips: list[Strip]
    """Crops of what is lost."""


class Pace(NoProgress):
    """When the samples of a job were packed. tick: called with each report."""

    def __init__(self, tick: Callable[[], object]) -> None:
        self._tick, self._began = tick, time.perf_counter()
        self._first = self._last = (self._began, 0)

    def advance(self, samples: int, bytes_in: int, rejects: int) -> None:
        if samples > self._last[1]:
            self._last = time.perf_counter(), samples
            self._first = self._first if self._first[1] else self._last
        self._tick()

    def seconds_for(self, samples: int) -> float:
        """The seconds that packing this number of samples takes, estimated from the job that has just ended: its own
        time, plus the time of a sample after the first report for each further sample. The start of workers and the end
        count once."""
        took = time.perf_counter() - self._began
        (start, before), (end, done) = self._first, self._last
        if done - before < done / 2:
            # All came in one report, or nearly.
            start, before = self._began + min(START_S, (end - self._began) / 2), 0
        each = (end - start) / max(1, done - before)
        return max(took + (samples - done) * each, samples * each)


def try_out(
    source: Table,
    candidates: Sequence[Candidate],
    setting: Setting,
    whole: Whole,
    folder: Path,
    *,
    budget: float,
    seed: int,
    say: Say,
) -> TriedOut:
    """Pack a sample of the source into each candidate below `folder`, and read each back.

    budget: seconds. From `_SHORT_S` on, candidates and rounds for which there is no time are left out; only the first
    candidate is packed in any case, and what was packed is read at least once.
    """
    began = time.monotonic()
    deadline = began + budget

    def tell(step: str) -> None:
        say(step, max(0.0, deadline - time.monotonic()))

    tell(f"looking at some {source.info.noun}s")
    sample = draw(source, sample_size(source, candidates, folder, budget), seed)
    packed, bad, slowest = dict[str, Trial](), set[int](), 0.0
    for candidate in formats_first(candidates):
        start = time.monotonic()
        if packed and budget >= _SHORT_S and start + slowest > began + _PACKED_BY * budget:
            continue
        pace = Pace(partial(tell, f"packing {text.count(len(sample), source.info.noun)} as {candidate.name}"))
        packed[candidate.name] = trial = _pack(sample, candidate, setting, whole, folder, pace)
        meter = trial.reading.meter
        bad |= {one.sample for one in read_rejects(meter.path, meter.manifest)}
        slowest = max(slowest, time.monotonic() - start)
    tried = [one for one in candidates if one.name in packed]
    tell("comparing pixels")
    losses, strips = compare(sample, tried, _COMPARING * budget, bad)
    trials = [_with_training(replace(packed[one.name], loss=losses.get(one.name))) for one in tried]
    if not all(one.augmented for one in trials):
        trials = [replace(one, augmented=None) for one in trials]
    for one in trials:
        one.reading.beside = one.augmented is not None
    readings = [reading for one in trials for reading in (one.reading, one.augmented) if reading]
    # A cold measurement takes twice as long as a warm one.
    warm = ROUNDS if len(readings) == len(trials) else ROUNDS + BESIDE_ROUNDS
    each = (deadline - time.monotonic()) / len(trials) - (warm + COLD_ROUNDS) * START_S
    seconds = min(_SLICES[1], max(_SLICES[0], each / (warm + 2 * COLD_ROUNDS)))
    tell("reading")
    read_in_turn(readings, seconds, deadline=deadline, tick=lambda: tell("reading"))
    return TriedOut(trials, [one for one in candidates if one.name not in packed], len(sample), strips)


def _with_training(one: Trial) -> Trial:
    """The same, with what is to be read as training does."""
    meter = one.reading.meter
    setting = meter.augmented(one.reading.setting)
    return one if setting is None else replace(one, augmented=Reading(meter, setting))


def draw(source: Table, count: int, seed: int) -> Table:
    """`count` samples of a source, or all: one at random from each of as many runs of equal length."""
    found = np.setdiff1d(np.arange(len(source)), source.unread)
    count = min(count, len(found))
    edges = np.arange(count + 1) * len(found) // max(1, count)
    return source.take(found[np.random.default_rng(seed).integers(edges[:-1], edges[1:])])


def formats_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One candidate of each format before the second of any, so that no format is missing where time is short. hdf5
    comes after the others: it is as large and as fast as memmap, so a plan without it tells more than one without lmdb.
    """
    ranks: Counter[str] = Counter()
    places = {}
    for one in candidates:
        places[one.name] = ranks[one.recipe.format]
        ranks[one.recipe.format] += 1
    return sorted(candidates, key=lambda one: (places[one.name], one.recipe.format == "hdf5"))


def sample_size(source: Table, candidates: Sequence[Candidate], folder: Path, budget: float) -> int:
    """How many images can be packed into all candidates in the budget's share for packing, and on the disk.

    Raises UsageError where the disk has not even room for a few.
    """
    few, seconds, size = draw(source, _PROBED, 0), 0.0, 0.0
    recipes = {one.group: one.raw_recipe for one in candidates}
    for group, stores in Counter(one.group for one in candidates).items():
        found = estimate(few, recipes[group], store_fields(recipes[group], few), 1, _PROBED)
        seconds += stores * found.seconds / len(few)
        size += stores * found.store_bytes / len(few)
    by_time = max(START_S, _PACKING * budget - START_S * len(candidates)) * machine.cpus() / max(seconds, 1e-9)
    least = min(len(source), int(max(_FEWEST, min(_LEAST, _LEAST_S / max(seconds, 1e-9)))))
    by_space = machine.free_bytes(folder) * _SPACE / max(1.0, size)
    if by_space < least:
        raise UsageError(
            f"{folder.parent} has too little space for trials: name a folder on another disk with {opt.tmp}"
        )
    return int(max(least, min(len(source), _MOST, by_time, by_space)))


def _pack(sample: Table, candidate: Candidate, setting: Setting, whole: Whole, folder: Path, pace: Pace) -> Trial:
    """Pack the sample into a candidate, and predict the whole set."""
    recipe, cpus, seen = candidate.recipe, machine.cpus(), len(sample)
    raw = exact_bytes(store_fields(recipe, sample), encoded=True) or 1
    small = msgspec.structs.replace(recipe, shard_size=max(_PART_BYTES, seen * raw // (_PIECES * cpus)))
    path = folder / candidate.name.replace(" ", "-")
    # sample_size has made sure of the space, and a broken image is a result, not an error.
    Job(sample, small, path, RunOptions(cpus, max_rejects=1e14, progress=pace)).pack(check_free=False)
    pack_s = pace.seconds_for(whole.samples)
    meter = StoreMeter(path)
    rows, shards = len(meter), len(meter.manifest.shards)
    beside = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) - meter.store_bytes
    # What a shard holds besides its images counts for each shard, and some files for the whole store.
    fixed = output_format(recipe.format).shard_bytes
    all_shards = math.ceil(whole.samples / part_rows(recipe, meter.manifest.fields))
    store_bytes = (meter.store_bytes - fixed * shards) / seen * whole.samples + fixed * all_shards + beside
    return Trial(
        candidate,
        rows=rows,
        seen=seen,
        store_bytes=store_bytes,
        pack_s=pack_s,
        fits=whole.memory is None or store_bytes <= whole.memory,
        reading=Reading(meter, setting),
    )
