"""A packing job as a value: its source, recipe and destination, and what is already there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rawpack.disk.manifest import Field, Manifest
from rawpack.disk.provenance import packing_runs
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination import journal
from rawpack_packer.destination.layout import names_of
from rawpack_packer.job.probes import probed
from rawpack_packer.recipe.fields import part_rows
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import Source

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


@dataclass(frozen=True)
class Job:
    """What is packed, by which recipe, and where to."""

    destination: Path
    source: Source
    """With the keys and classes that samples get in the store."""
    recipe: Recipe
    fields: dict[str, Field]
    """Of the store."""
    counts: Mapping[str, int]
    """What all sources of the store left out."""
    before: Before = Before()
    own: Source | None = None
    """The source with its own keys, where those in the store differ."""
    called: str = ""
    """What messages call the destination if it is a scratch folder."""

    @property
    def adds(self) -> bool:
        """Whether it appends to a finished store."""
        return self.before.manifest is not None

    @property
    def rows(self) -> int:
        """Samples in each part but the last."""
        return part_rows(self.recipe, self.fields)

    @property
    def numbers(self) -> range:
        """The numbers of its parts and their shards."""
        return range(self.before.parts, self.before.parts - (-len(self.source) // self.rows))

    @property
    def begun(self) -> journal.JobNote | None:
        """The note of the run that began this or another job there; None where there is none."""
        return journal.read_append(self.destination) if self.adds else journal.read_job(self.destination)

    def note(self) -> journal.JobNote:
        """The note to leave in its destination."""
        if not self.adds:
            return journal.job_of(self.recipe, self.fields, self.source, probes=probed(self.source))
        noted = journal.job_of(self.recipe, self.fields, self.source, listed=True, probes=probed(self.source))
        values = {name: getattr(noted, name) for name in noted.__struct_fields__}
        return journal.AppendNote(**values, run=self.before.run, store=self.before.digest)

    def clear(self) -> None:
        """Remove what earlier runs left: the whole store, or the unfinished append."""
        if self.before.manifest is None:
            destinations.clear(self.destination)
        else:
            destinations.clear_append(self.destination, names_of(self.before.manifest))
