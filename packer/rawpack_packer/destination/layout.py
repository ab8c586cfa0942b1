"""Names of the packer's files in a store's folder; `rawpack.disk.manifest` has those that readers need."""

from __future__ import annotations

import re

from rawpack.disk.manifest import NAME, Manifest

WORK = ".rawpack"
"""The folder in the destination that holds what packing needs until the manifest is written: the job, records of
finished parts, locks."""
JOB = "job"
"""In WORK: what is packed, and how. It shows that the folder is ours."""
APPEND = "append"
"""In WORK, in place of JOB: what is appended, and to which state of the finished store."""
RUN = "run"
"""In WORK: the run whose workers on other machines may write there."""
COLUMNS = "columns-1"
REJECTS = "rejects.jsonl"
PROVENANCE = "provenance.json"
STATES = "provenance.npy"
"""Size and time of every source file."""

_OF_RUNS = re.compile(r"columns-[1-9]\d*|rejects(-[1-9]\d*)?\.jsonl|provenance(-[1-9]\d*)?\.(json|npy)")
_RUN = re.compile(r"rejects-([1-9]\d{0,8})\.jsonl")


def of_run(name: str, run: int) -> str:
    """The name under which run `run` writes its COLUMNS, REJECTS, PROVENANCE or STATES, such as "rejects-2.jsonl".

    Run 1 makes the store, and each append is one more. It writes its own files, so that no file that a manifest names
    ever changes.
    """
    if name == COLUMNS:
        return f"columns-{run}"
    stem, _, suffix = name.partition(".")
    return name if run == 1 else f"{stem}-{run}.{suffix}"


def runs_by(rejects: str) -> int:
    """How many runs have made a store whose manifest names this file of rejects."""
    match = _RUN.fullmatch(rejects)
    return int(match[1]) if match else 1


def is_of_run(name: str) -> bool:
    """Whether `of_run` gives this name."""
    return bool(_OF_RUNS.fullmatch(name))


def names_of(manifest: Manifest) -> set[str]:
    """The names in a store's folder that its manifest, or an earlier one, names, and those of its provenance."""
    runs = range(1, runs_by(manifest.rejects.file.name) + 1)
    own = {of_run(name, run) for run in runs for name in (REJECTS, PROVENANCE, STATES)}
    return {name.split("/")[0] for name, _ in manifest.records()} | own | {NAME}
