"""A plan: its request, trials, predictions and recommendation, also as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import rawpack
from rawpack.errors import UsageError
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.options.naming import opt
from rawpack_packer.sources import Source
from rawpack_packer.sources.view import View
from rawpack_packer.tune.measure.cpu import load_per_cpu
from rawpack_packer.tune.plan.candidates import Candidate
from rawpack_packer.tune.plan.predict import Prediction, predict
from rawpack_packer.tune.plan.recommend import Goals, Recommendation, by_target, overlaps, recommend
from rawpack_packer.tune.plan.scratch import scratch_folder
from rawpack_packer.tune.plan.trial import Say, try_out

_SHARE = 0.9
"""The share of the free memory that files may take."""

_SHOWN = 8


@dataclass(frozen=True)
class PlanRequest:
    """The request of a user of `rawpack plan`."""

    source: str
    """As the user wrote it, for the recommended command."""
    candidates: Sequence[Candidate]
    workers: Sequence[int]
    """Ascending."""
    goals: Goals
    memory: int | None = None
    """Bytes that files may take in the page cache; None for most of the free memory."""
    budget: float = 60.0
    batch: int = 256
    image_size: tuple[int, int] | None = None
    transform: tuple[Any, ...] = ()
    """Steps of `rawpack.transforms`, applied in the workers."""
    seed: int = 0
    tmp: str | None = None
    source_options: tuple[str, ...] = ()
    """Options about the source, as the user wrote them."""

    def command(self, taken: Prediction) -> str:
        """The command that packs the source this way, safe to print."""
        words = [text.plain(word) for word in self.source_options]
        return taken.candidate.command(text.plain(self.source), words)


@dataclass(frozen=True)
class Plan:
    """The results of a plan."""

    asked: PlanRequest
    samples: int
    """Of the whole source."""
    noun: str
    """What one of them is called: "image", "frame"."""
    sample: View
    memory: int | None
    predictions: list[Prediction]
    left_out: list[Candidate]
    """Candidates for which the budget left no time."""
    recommendation: Recommendation
    load: float | None
    """Load average per CPU before the start."""
    where: str
    """The folder of the trials, on the disk that was measured."""

    def __str__(self) -> str:
        from rawpack_packer.tune.plan.text import as_text

        return as_text(self)

    def __repr__(self) -> str:
        taken = self.recommendation.taken
        best = "nothing" if taken is None else taken.candidate.name
        return f"Plan({self.asked.source!r}: {best} of {text.count(len(self.predictions), 'candidate')})"

    @property
    def reference(self) -> float:
        """Images per second for which `CPUs left` is computed: the target, or the speed of the slowest candidate."""
        if self.asked.goals.target is not None:
            return self.asked.goals.target
        return min(one.trial.best.images_per_s.median for one in self.predictions)

    @property
    def why(self) -> str:
        """Why the recommended candidate, or none, is taken. It says only as much as was tried."""
        why = self.recommendation.why
        if not self.left_out:
            return why
        if len(self.predictions) == 1 and self.recommendation.taken and self.asked.goals.target is None:
            return "the only one that was tried: nothing was compared"
        names = text.listed([one.name for one in self.left_out], _SHOWN)
        if self.recommendation.taken is None:
            return f"{why} Not tried: {names}."
        return f"of those that were tried, {why}; not tried: {names}"

    @cached_property
    def limits(self) -> dict[str, float]:
        """The bare limits of this machine, with as many threads as workers: "copy 256", "decode 256 q90" -> images per
        second, the highest that was measured."""
        found: dict[str, float] = {}
        for one in self.predictions:
            limit = one.trial.best.limit
            if limit is not None:
                found[one.candidate.work] = max(found.get(one.candidate.work, 0.0), limit.shown)
        return found

    def limit(self, one: Prediction) -> float | None:
        """Images per second at the bare limit of reading this candidate; None where none was measured."""
        return None if one.trial.best.limit is None else self.limits[one.candidate.work]

    @cached_property
    def by_target(self) -> list[tuple[float, Prediction]]:
        """The recommendation for each `--target`, see `recommend.by_target`."""
        return by_target(self.predictions, self.asked.goals.disk)

    def as_dict(self) -> dict[str, Any]:
        asked, taken = self.asked, self.recommendation.taken
        return {
            "rawpack": rawpack.__version__,
            "machine": machine.describe(),
            "load_per_cpu_at_start": self.load,
            "source": asked.source,
            "samples": self.samples,
            "sampled": len(self.sample),
            "seed": asked.seed,
            "budget_s": asked.budget,
            "batch": asked.batch,
            "workers": list(asked.workers),
            "image_size": asked.image_size,
            "transform": [repr(step) for step in asked.transform],
            "target_images_per_s": asked.goals.target,
            "disk_bytes": asked.goals.disk,
            "memory_bytes": self.memory,
            "measured_in": self.where,
            "candidates": [self._candidate(one) for one in self.predictions],
            "left_out": [one.name for one in self.left_out],
            "recommended": None if taken is None else taken.candidate.name,
            "command": None if taken is None else taken.candidate.command(asked.source, asked.source_options),
            "why": self.why,
            "lost": [{"name": one.candidate.name, "why": why} for one, why in self.recommendation.lost],
            "by_target": [{"up_to_images_per_s": most, "name": one.candidate.name} for most, one in self.by_target],
            "overlapping": [list(pair) for pair in overlaps(self.predictions)],
        }

    def _candidate(self, one: Prediction) -> dict[str, Any]:
        """of_limit: the median divided by `limit_images_per_s`; readings have that of each round."""
        limit = self.limit(one)
        return one.as_dict() | {
            "limit": None if limit is None else one.candidate.work,
            "limit_images_per_s": limit,
            "of_limit": None if limit is None else one.trial.best.images_per_s.median / limit,
            "cpus_left": one.cpus_left(self.reference, machine.cpus()),
        }


def plan(source: Source, asked: PlanRequest, say: Say) -> Plan:
    """Try all candidates on a sample of the source, and recommend one. Removes everything that it writes.

    Raises UsageError for a request that cannot be measured, PackError where no image of the sample can be packed.
    """
    for candidate in asked.candidates:
        if candidate.recipe.target is None and asked.image_size is None and not asked.transform:
            raise UsageError(
                f"{opt.size('keep')}: images of different sizes make no batch; give {opt.image_size}, such as 224"
            )
    load = load_per_cpu()
    memory = asked.memory
    if memory is None:
        free = machine.available_memory_bytes()
        memory = None if free is None else int(free * _SHARE)
    with scratch_folder(asked.tmp) as folder:
        if any(Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(path)) for path in source.info.paths):
            raise UsageError(
                f"{folder.parent} is inside the source {source.info.root}: name another folder with {opt.tmp}"
            )
        tried = try_out(source, asked, folder, say)
    predictions = predict(tried.trials, len(source), memory)
    return Plan(
        asked,
        samples=len(source),
        noun=source.info.noun,
        sample=tried.sample,
        memory=memory,
        predictions=predictions,
        left_out=tried.left_out,
        recommendation=recommend(predictions, asked.goals),
        load=load,
        where=str(folder.parent),
    )
