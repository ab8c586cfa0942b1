"""A packing job as a value: what is packed, by which recipe, where to, and what was there before."""

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
from rawpack_packer.recipe.fields import part_rows
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import Source

_SHARD = re.compile(r"shard-(\d{1,15})\.")


@dataclass(frozen=True)
class Before:
    """What a store holds already that a run adds to; nothing where the run makes it."""

    run: int = 1
    """The run's own number: 1 makes the store."""
    parts: int = 0
    """Number of its first part, and so of its first shard."""
    seen: int = 0
    """Samples of all sources so far, rejected ones counted."""
    manifest: Manifest | None = None
    digest: str = ""
    """Of the store, which it must still have once it is locked."""
    labels: Mapping[int, int] = field(default_factory=dict)
    """Label -> samples."""


NOTHING = Before()


def before_append(manifest: Manifest, digest: str, labels: Mapping[int, int]) -> Before:
    """What the store of this manifest holds. labels: label -> samples."""
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
    """What is packed, and where to."""

    destination: Path
    source: Source
    """With the keys and classes that its samples get in the store."""
    recipe: Recipe
    fields: dict[str, Field]
    """Of the store."""
    counts: Mapping[str, int]
    """What the sources of the store left out, all together."""
    before: Before = NOTHING
    """What is in the store that the job adds to."""
    own: Source | None = None
    """The source with its own keys, where they are others in the store."""
    called: str = ""
    """What messages call the destination, where it is the scratch folder of another."""

    @property
    def adds(self) -> bool:
        """Whether it adds to a finished store, and makes no new one."""
        return self.before.manifest is not None

    @property
    def rows(self) -> int:
        """Samples in each part but the last."""
        return part_rows(self.recipe, self.fields)

    @property
    def numbers(self) -> range:
        """The numbers of its parts, and so of their shards."""
        return range(self.before.parts, self.before.parts - (-len(self.source) // self.rows))

    @property
    def begun(self) -> journal.JobNote | None:
        """What its destination remembers of the run that began it; None where none did."""
        return journal.read_append(self.destination) if self.adds else journal.read_job(self.destination)

    def note(self) -> journal.JobNote:
        """What its destination is to remember of it."""
        if not self.adds:
            return journal.job_of(self.recipe, self.fields, self.source)
        noted = journal.job_of(self.recipe, self.fields, self.source, listed=True)
        values = {name: getattr(noted, name) for name in noted.__struct_fields__}
        return journal.AppendNote(**values, run=self.before.run, store=self.before.digest)

    def clear(self) -> None:
        """Remove what earlier runs of the job left: the whole store, or all that was appended and is not in it yet."""
        if self.before.manifest is None:
            destinations.clear(self.destination)
        else:
            destinations.clear_append(self.destination, names_of(self.before.manifest))
