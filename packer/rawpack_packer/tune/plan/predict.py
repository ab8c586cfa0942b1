"""Predictions for the whole set from the trials of a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rawpack_packer.recipe.fields import IMAGE, part_rows, picture_field
from rawpack_packer.recipe.tables import is_jpeg, output_format
from rawpack_packer.tune.measure.interval import Figure
from rawpack_packer.tune.plan.candidates import Candidate
from rawpack_packer.tune.plan.trial import Trial


@dataclass(frozen=True, eq=False)
class Prediction:
    """The whole set, packed as one candidate and read with the most workers."""

    trial: Trial
    store_bytes: float
    bytes_error: float
    """Half of the 95 % interval of `store_bytes`, as a share of it; 0 where it is exact."""
    pack_s: float
    """Including the start of the workers."""
    fits: bool
    """Whether the store stays in memory after its first epoch."""
    even_bytes_per_s: float | None
    """For raw candidates: with a faster disk they are read faster than JPEG, neither in memory; None where no JPEG
    candidate has the same pixels."""
    even_with: Candidate | None

    @property
    def candidate(self) -> Candidate:
        return self.trial.candidate

    @property
    def images_per_s(self) -> Figure | None:
        """In training: from memory if the store fits, else from the disk; None where that could not be measured."""
        reading = self.trial.best
        return reading.images_per_s if self.fits else reading.cold_images_per_s

    def cpus_left(self, images_per_s: float, cpus: int) -> float | None:
        """CPUs that are free for the training while it reads `images_per_s`."""
        core = self.trial.best.images_per_core_s
        return None if core is None else max(0.0, cpus - images_per_s / core.median)

    def as_dict(self) -> dict[str, Any]:
        trial = self.trial
        return {
            "name": self.candidate.name,
            "options": list(self.candidate.options),
            "store_bytes": self.store_bytes,
            "store_bytes_error": self.bytes_error,
            "pack_s": self.pack_s,
            "pack_start_s": trial.start_s,
            "packed_per_s": trial.packed_per_s,
            "fits_memory": self.fits,
            "images_per_s": None if self.images_per_s is None else self.images_per_s.as_dict(),
            "even_bytes_per_s": self.even_bytes_per_s,
            "even_with": None if self.even_with is None else self.even_with.name,
            "psnr_db": None if trial.loss is None else trial.loss.psnr_db,
            "ssim": None if trial.loss is None else trial.loss.ssim,
            "image_bytes": trial.image_bytes,
            "sampled": trial.rows,
            "rejected": trial.seen - trial.rows,
            "disk_bytes_per_s": trial.disk_bytes_per_s,
            "readings": [reading.as_dict() for reading in trial.readings],
        }


def predict(trials: Sequence[Trial], samples: int, memory: int | None) -> list[Prediction]:
    """Predict a set of `samples` as each candidate. memory: bytes that files may take in the page cache; None where
    that is unknown, and everything is assumed to fit."""
    found = []
    for trial in trials:
        size = _whole_bytes(trial, samples)
        jpeg = _same_pixels(trial, trials)
        even = None if jpeg is None else jpeg.best.images_per_s.median * trial.image_bytes
        found.append(
            Prediction(
                trial,
                store_bytes=size,
                bytes_error=_bytes_error(trial, samples),
                pack_s=trial.start_s + samples / trial.packed_per_s,
                fits=memory is None or size <= memory,
                even_bytes_per_s=even,
                even_with=None if jpeg is None else jpeg.candidate,
            )
        )
    return found


def _whole_bytes(trial: Trial, samples: int) -> float:
    """Bytes of the store with `samples` of the source: what shards hold besides images counts per shard."""
    fixed, recipe = output_format(trial.candidate.recipe.format).shard_bytes, trial.candidate.recipe
    each = trial.bytes_per_sample - fixed * trial.shards / trial.rows
    rows = part_rows(recipe, {IMAGE: picture_field(recipe)})
    return each * samples * trial.rows / trial.seen + fixed * math.ceil(samples / rows)


def _bytes_error(trial: Trial, samples: int) -> float:
    """The error that the sample leaves, of image sizes and the share of rejects; 0 for a sample of everything."""
    packed = trial.rows / trial.seen
    rejecting = 1.96 * math.sqrt((1 - packed) / packed / trial.seen)
    return math.hypot(trial.bytes_error, rejecting) * math.sqrt(max(0.0, 1 - trial.seen / samples))


def _same_pixels(trial: Trial, trials: Sequence[Trial]) -> Trial | None:
    """For a raw candidate, the JPEG candidate of the same size and color that is read fastest, if any."""
    if not trial.candidate.raw:
        return None
    jpegs = [
        one for one in trials
        if is_jpeg(one.candidate.recipe.encoding) and one.candidate.group == trial.candidate.group
    ]  # fmt: skip
    return max(jpegs, key=lambda one: one.best.images_per_s.median, default=None)
