"""Names of what packing needs in a store's folder. Those of the files of a finished store are in `rawpack.disk`."""

from __future__ import annotations

from rawpack.disk.manifest import NAME, Manifest
from rawpack.disk.provenance import COLUMNS, PROVENANCE, REJECTS, STATES, of_run, packing_runs

WORK = ".rawpack"
"""The folder in the destination that holds what packing needs until the manifest is written: the job, records of
finished parts, locks."""
JOB = "job"
"""In WORK: what is packed, and how. It shows that the folder is ours."""
APPEND = "append"
"""In WORK, in place of JOB: what is appended, and to which state of the finished store."""
TICKS = "tick-*"
"""In WORK: how far the workers of a cluster are with their parts."""
SPOOL = "spool"
"""In WORK: archives behind URLs, fetched to be packed, and what was found in archives."""


def names_of(manifest: Manifest) -> set[str]:
    """What is in a store's folder by its manifest, what earlier manifests named, and the provenance."""
    own = {of_run(name, run) for run in packing_runs(manifest) for name in (COLUMNS, REJECTS, PROVENANCE, STATES)}
    return {name.split("/")[0] for name, _ in manifest.records()} | own | {NAME}
