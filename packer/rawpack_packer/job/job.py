"""A packing job: what is packed, by which recipe, and where to. `estimate` says what it needs, and `run` runs it.

All that a job checks and finds out, it does once: its fields, its libraries, the digest of its source. Nothing is
written before `run`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.disk.provenance import packing_runs
from rawpack.errors import PackError, StoreError, UsageError
from rawpack_packer import text
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination import journal
from rawpack_packer.destination.rejects import NOT_SCANNED
from rawpack_packer.job import differences
from rawpack_packer.job.commit import tidy_finished
from rawpack_packer.job.differences import probed
from rawpack_packer.job.estimate import estimate
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.run import check_sizes, nothing_to_do, run_job
from rawpack_packer.job.summary import DryRun, Summary
from rawpack_packer.options.naming import opt
from rawpack_packer.recipe.fields import made_here, part_rows, store_fields
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import Source

Note = TypeVar("Note", bound=journal.JobNote)
_SHARD = re.compile(r"shard-(\d{1,15})\.")


@dataclass(frozen=True)
class Before:
    """The store that a run appends to; the defaults are those of a run that makes a new store."""

    run: int = 1
    """Number of this run: 1 makes the store."""
    parts: int = 0
    """Number of this run's first part, and so of its first shard."""
    seen: int = 0
    """Samples of all sources so far, including rejected ones."""
    manifest: Manifest | None = None
    digest: str = ""
    """Of the manifest."""
    labels: Mapping[int, int] = field(default_factory=dict)
    """Label -> samples."""


def before_append(manifest: Manifest, digest: str, labels: Mapping[int, int]) -> Before:
    """What an append to the store of this manifest starts from. labels: label -> samples."""
    names = [record.name for shard in manifest.shards for record in shard.files]
    numbers = [int(match[1]) for match in map(_SHARD.match, names) if match]
    return Before(
        run=len(packing_runs(manifest)) + 1,
        parts=max(numbers, default=-1) + 1,
        seen=manifest.samples + manifest.rejects.count,
        manifest=manifest,
        digest=digest,
        labels=labels,
    )


class Job:
    """A store to be packed from a source.

    source: with the keys and classes that samples get in the store. own: the source with its own keys. recipe: with the
    libraries of this machine. counts: what all sources of the store left out. before: the store that is appended to.
    called: what messages call the destination if it is a scratch folder.
    """

    def __init__(
        self,
        source: Source,
        recipe: Recipe,
        destination: str | os.PathLike[str],
        how: RunOptions | None = None,
        *,
        called: str = "",
        checked: bool = False,
    ) -> None:
        """checked: whether the destination was checked before the source was opened. Raises UsageError where the
        destination or the recipe does not suit the source."""
        self.source = self.own = source
        self.destination, self.how, self.called = Path(destination), how or RunOptions(), called
        if not checked:
            destinations.check(self.destination)
        for path in source.info.paths:
            destinations.check_apart(self.destination, path)
        self.recipe = made_here(recipe, source)
        self.fields = store_fields(self.recipe, source)
        self.counts = dict(source.info.counts)
        self.before = Before()

    @property
    def adds(self) -> bool:
        """Whether it appends to a finished store."""
        return self.before.manifest is not None

    @cached_property
    def rows(self) -> int:
        """Samples in each part but the last."""
        return part_rows(self.recipe, self.fields)

    @property
    def numbers(self) -> range:
        """The numbers of its parts and their shards."""
        return range(self.before.parts, self.before.parts - (-len(self.source) // self.rows))

    @cached_property
    def digest(self) -> str:
        """Of the source, with the keys of the store: see `journal.source_digest`."""
        return journal.source_digest(self.source)

    @property
    def own_digest(self) -> str:
        """Of the source, with its own keys."""
        return self.digest

    @property
    def is_new(self) -> bool:
        """Whether no run has begun or done it."""
        return not destinations.is_finished(self.destination) and self.begun is None

    @property
    def begun(self) -> journal.JobNote | None:
        """The note of the run that began this or another job there; None where there is none."""
        return journal.read_job(self.destination)

    def note(self) -> journal.JobNote:
        """The note to leave in its destination."""
        return self._noted(journal.JobNote)

    def _noted(self, kind: Callable[..., Note], **more: Any) -> Note:
        return kind(
            recipe=self.recipe.as_manifest(), fields=dict(self.fields), classes=self.source.info.classes,
            digest=self.digest, samples=len(self.source), options=dict(self.source.info.options),
            probes=probed(self.source), **more,
        )  # fmt: skip

    def clear(self) -> None:
        """Remove what earlier runs left."""
        destinations.clear(self.destination)

    def finished(self) -> Summary | None:
        """The summary, where another run has done this job; None where it is to be done. Raises UsageError where the
        destination is another store, PackError where it is damaged."""
        if not destinations.is_finished(self.destination) or self.how.restart:
            return None
        path, source = self.destination, self.source
        try:
            manifest, digest = manifests.load(path)
        except StoreError as error:
            cure = f"`rawpack inspect --verify` shows more. {differences.store_at(path, self.called).restart}"
            raise UsageError(f"{error}; {cure}") from None
        differences.check_same(self, manifest)
        if self.how.strict and manifest.rejects.count - manifest.rejects.reasons.get(NOT_SCANNED, 0):
            raise PackError(
                f"{path} is complete, with {text.count(manifest.rejects.count, source.info.noun)} rejected "
                f"({', '.join(manifest.rejects.reasons)}), listed in {path / manifest.rejects.file.name}; {opt.strict} "
                "allows none"
            )
        try:
            check_sizes(path, manifest)
        except PackError as error:
            raise PackError(f"{error}, and {opt.restart} packs it again") from None
        return nothing_to_do(path, manifest, digest, source)

    def estimate(self) -> DryRun:
        """What `run` needs. Writes nothing. Raises as that does before it begins."""
        self.finished()
        guess = estimate(self.source, self.recipe, self.fields, self.how.processes)
        free = destinations.free_bytes(self.destination)
        return DryRun(guess, len(self.source), self.fields["image"].shape, free)

    def run(self) -> Summary:
        """Pack the store, or resume that. Raises as `run_job`."""
        return self.pack()

    def pack(self, *, check_free: bool = True) -> Summary:
        """See `run_job`."""
        summary = self.finished()
        if summary is None:
            return run_job(self, check_free=check_free)
        tidy_finished(self.destination)
        return summary
