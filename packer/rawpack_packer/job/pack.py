"""Packs a source into a new store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rawpack.disk import manifest as manifests
from rawpack.errors import PackError, StoreError, UsageError
from rawpack_packer import text
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.rejects import NOT_SCANNED
from rawpack_packer.job import differences
from rawpack_packer.job.commit import tidy_finished
from rawpack_packer.job.estimate import Estimate, estimate
from rawpack_packer.job.job import Job
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.run import Summary, check_sizes, nothing_to_do, run_job
from rawpack_packer.recipe.fields import made_here, store_fields
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import Source


@dataclass(frozen=True)
class DryRun:
    """What a job needs."""

    estimate: Estimate
    samples: int
    shape: tuple[int | None, ...]
    """Of the images."""
    free_bytes: int
    """At the destination."""


def pack(
    source: Source,
    destination: str | os.PathLike[str],
    recipe: Recipe,
    how: RunOptions | None = None,
    *,
    check_free: bool = True,
    called: str = "",
) -> Summary:
    """Pack `source` into a store at `destination`, or resume. check_free: see `run_job`, also for errors. called: see
    `Job`."""
    how = how or RunOptions()
    job = _job(source, destination, recipe, called)
    path = job.destination

    def settled() -> Summary | None:
        return _already(job, how) if destinations.is_finished(path) and not how.restart else None

    summary = settled()
    if summary is None:
        return run_job(job, how, settled, check_free=check_free)
    tidy_finished(path)
    return summary


def dry_run(
    source: Source, destination: str | os.PathLike[str], recipe: Recipe, how: RunOptions | None = None
) -> DryRun:
    """Estimate what `pack` needs. Writes nothing. Raises UsageError where `pack` would before it begins."""
    how = how or RunOptions()
    job = _job(source, destination, recipe)
    if destinations.is_finished(job.destination) and not how.restart:
        _already(job, how)
    guess = estimate(source, recipe, how.processes)
    return DryRun(guess, len(source), job.fields["image"].shape, destinations.free_bytes(job.destination))


def _job(source: Source, destination: str | os.PathLike[str], recipe: Recipe, called: str = "") -> Job:
    path = Path(destination)
    destinations.check(path, source.info.paths)
    return Job(
        path, source, made_here(recipe, source), store_fields(recipe, source), dict(source.info.counts), called=called
    )


def _already(job: Job, how: RunOptions) -> Summary:
    """The summary of a store that is complete. Raises UsageError where it is another one."""
    path, source, called = job.destination, job.source, job.called
    try:
        manifest, digest = manifests.load(path)
    except StoreError as error:
        cure = f"`rawpack inspect --verify` shows more. {differences.store_at(path, called).restart}"
        raise UsageError(f"{error}; {cure}") from None
    same = differences.check_same(path, manifest, job.recipe, job.fields, source, called)
    if how.strict and manifest.rejects.count - manifest.rejects.reasons.get(NOT_SCANNED, 0):
        raise PackError(
            f"{path} is complete, with {text.count(manifest.rejects.count, source.info.noun)} rejected "
            f"({', '.join(manifest.rejects.reasons)}), listed in {path / manifest.rejects.file.name}; --strict allows "
            "none"
        )
    try:
        check_sizes(path, manifest)
    except PackError as error:
        raise PackError(f"{error}, and --restart packs it again") from None
    return nothing_to_do(path, manifest, digest, source, random=same.random)
