"""All of a plan: what was asked, tried, predicted and advised; for a program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rawpack
from rawpack import machine
from rawpack.errors import UsageError
from rawpack_packer import show
from rawpack_packer.plan.candidates import Candidate
from rawpack_packer.plan.predict import Prediction, predict
from rawpack_packer.plan.recommend import Advice, Wishes, overlaps, recommend
from rawpack_packer.plan.sample import SampleSource
from rawpack_packer.plan.scratch import scratch_folder
from rawpack_packer.plan.trial import Say, try_out
from rawpack_packer.sources import Source

_SHARE = 0.9
"""Of the memory that is free now: what files may take of it."""


@dataclass(frozen=True)
class Asked:
    """What `rawpack plan` was asked."""

    source: str
    """As the user wrote it: it goes into the command that is recommended."""
    candidates: Sequence[Candidate]
    workers: Sequence[int]
    """Ascending."""
    wishes: Wishes
    memory: int | None = None
    """Bytes that files may take in the page cache; None for most of what is free now."""
    budget: float = 60.0
    batch: int = 256
    image_size: tuple[int, int] | None = None
    transform: tuple[Any, ...] = ()
    """Steps of `rawpack.transforms`, done in the workers."""
    seed: int = 0
    tmp: str | None = None
    source_options: tuple[str, ...] = ()
    """Options that speak of the source, as the user wrote them."""

    def command(self, taken: Prediction) -> str:
        """The command that packs the source so, fit for a terminal."""
        words = [show.plain(word) for word in self.source_options]
        return taken.candidate.command(show.plain(self.source), words)


@dataclass(frozen=True)
class Planned:
    """What came out."""

    asked: Asked
    samples: int
    """Of the whole source."""
    sample: SampleSource
    memory: int | None
    predictions: list[Prediction]
    advice: Advice
    load: float | None
    """The load average for each CPU before the start."""
    where: str
    """The folder in which the trials lay: the disk that was measured."""

    @property
    def reference(self) -> float:
        """Images per second at which the CPUs that are left are told: the target, or what the slowest gives."""
        if self.asked.wishes.target is not None:
            return self.asked.wishes.target
        return min(one.images_per_s.median for one in self.predictions if one.images_per_s is not None)

    @property
    def overlapping(self) -> list[tuple[str, str]]:
        return overlaps(self.predictions)

    def as_dict(self) -> dict[str, Any]:
        asked, taken = self.asked, self.advice.taken
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
            "target_images_per_s": asked.wishes.target,
            "disk_bytes": asked.wishes.disk,
            "memory_bytes": self.memory,
            "measured_in": self.where,
            "candidates": [one.as_dict() for one in self.predictions],
            "recommended": None if taken is None else taken.candidate.name,
            "command": None if taken is None else taken.candidate.command(asked.source, asked.source_options),
            "why": self.advice.why,
            "lost": [{"name": one.candidate.name, "why": why} for one, why in self.advice.lost],
            "overlapping": [list(pair) for pair in self.overlapping],
        }


def plan(source: Source, asked: Asked, say: Say) -> Planned:
    """Try all candidates on a sample of the source, and say which to take. Leaves nothing behind.

    Raises UsageError where that makes no sense, PackError where no image of the sample can be packed.
    """
    for candidate in asked.candidates:
        if candidate.recipe.target is None and asked.image_size is None and not asked.transform:
            raise UsageError("--size keep: images of different sizes make no batch; give --image-size, such as 224")
    load = os.getloadavg()[0] / machine.cpus() if hasattr(os, "getloadavg") else None
    memory = asked.memory
    if memory is None:
        free = machine.available_memory_bytes()
        memory = None if free is None else int(free * _SHARE)
    with scratch_folder(asked.tmp) as folder:
        if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(source.root)):
            raise UsageError(f"{folder.parent} lies inside the source {source.root}: name another folder with --tmp")
        trials, sample = try_out(
            source,
            asked.candidates,
            folder,
            budget=asked.budget,
            workers=asked.workers,
            batch=asked.batch,
            image_size=asked.image_size,
            transform=asked.transform,
            seed=asked.seed,
            say=say,
        )
        where = str(folder.parent)
    predictions = predict(trials, len(source), memory)
    advice = recommend(predictions, asked.wishes)
    return Planned(asked, len(source), sample, memory, predictions, advice, load, where)
