"""The runs that made a finished store: what each calls its files, and what it recorded about itself.

Run 1 makes the store, and each append is one more run with files of its own, such as `rejects-2.jsonl`: no file that a
manifest names ever changes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk import npy
from rawpack.disk.manifest import Manifest, unseal
from rawpack.errors import DamagedStoreError
from rawpack.system.files import read_plain

COLUMNS = "columns-1"
REJECTS = "rejects.jsonl"
PROVENANCE = "provenance.json"
STATES = "provenance.npy"
"""Size and time of every source file."""
UNKNOWN = (-1, -1)
"""Size and mtime of what has none, such as a broken link."""

_OF_RUNS = re.compile(r"columns-[1-9]\d*|rejects(-[1-9]\d*)?\.jsonl|provenance(-[1-9]\d*)?\.(json|npy)")
_RUN = re.compile(r"rejects-([1-9]\d{0,8})\.jsonl")
NOT_RECORDED = (FileNotFoundError, DamagedStoreError)
"""What `read_provenance` raises where nothing is known; any other error is one of reading."""
_MAX_PROVENANCE, _MAX_STATES = 1 << 20, 1 << 34
"""Bytes: an untrusted store must not fill this machine's memory."""


def of_run(name: str, run: int) -> str:
    """What run `run` calls its own of COLUMNS, REJECTS, PROVENANCE and STATES."""
    if name == COLUMNS:
        return f"columns-{run}"
    stem, _, suffix = name.partition(".")
    return name if run == 1 else f"{stem}-{run}.{suffix}"


def is_of_run(name: str) -> bool:
    """Whether `of_run` gives this name."""
    return bool(_OF_RUNS.fullmatch(name))


def packing_runs(manifest: Manifest) -> range:
    """The numbers of the runs that made a store, from 1."""
    match = _RUN.fullmatch(manifest.rejects.file.name)
    return range(1, int(match[1]) + 1 if match else 2)


def read_provenance(path: Path, run: int = 1) -> tuple[dict[str, Any], NDArray[np.int64]]:
    """What a run recorded in the store at `path`: `provenance.json`, and size and time of every source file (n, 2).

    Raises DamagedStoreError where either was changed, FileNotFoundError where it is missing; StoreError and OSError,
    with its path, where it cannot be read.
    """
    name, of_states = of_run(PROVENANCE, run), of_run(STATES, run)
    text, _ = unseal(read_plain(path / name, _MAX_PROVENANCE), name)
    data = read_plain(path / of_states, _MAX_STATES)
    try:
        provenance = msgspec.json.decode(text, type=dict[str, Any])
    except ValueError as error:
        raise DamagedStoreError(f"{name} is no JSON object: {error}") from error
    if provenance.get("states") != xxhash.xxh3_64_hexdigest(data):
        raise DamagedStoreError(f"{of_states} was changed: its checksum does not fit")
    states = npy.array(np.frombuffer(data, np.uint8), of_states)
    return provenance, states.astype(np.int64)
