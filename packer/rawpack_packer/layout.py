"""How the packer's files in a store's folder are called. The reader's side of it is `rawpack.manifest`."""

from __future__ import annotations

WORK = ".rawpack"
"""The folder inside the destination that holds what packing needs until the manifest is written: the job, records of
finished parts, locks."""
JOB = "job"
"""In WORK: what is packed, and how. It tells that the folder is ours."""
COLUMNS = "columns-1"
REJECTS = "rejects.jsonl"
PROVENANCE = "provenance.json"
STATES = "provenance.npy"
"""Size and time of every source file."""
