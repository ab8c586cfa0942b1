"""What a system does when things go wrong, and whether kept batches stay as they are: one row for each question."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from call import Call
from measuring.counters import statuses
from measuring.processes import CallFailedError, end, start
from systems.images import image_files
from systems.job import Job

_PATIENCE_S = 60.0
"""A process that takes longer is reported as hanging."""
_KEPT, _TAKEN = 16, 5
_SMALL_SHM = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'


def rows(call: Call, environment: str, job: Job, took: float | None, floats: bool) -> Iterator[dict[str, Any]]:
    """All questions about one system except `small_shm`. took: seconds to pack its store, None if it packs none.
    floats: whether it delivers no bytes."""
    batch = max(1, min(64, len(image_files(job.images)) // _KEPT))
    job = replace(job, batch=batch)
    read = replace(job, crop="random", floats=True) if floats else job
    yield {"measure": "kept", **answer(call, environment, replace(read, action="kept", keep=_KEPT))}
    yield {"measure": "kill_worker", **answer(call, environment, replace(read, action="kill_worker"))}
    yield {"measure": "resume", **resume(call, environment, read)}
    if took is not None:
        yield {"measure": "killed_packer", **killed_packer(call, environment, job, took)}


def answer(call: Call, environment: str, job: Job, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the process reported, or its error."""
    try:
        return call(environment, job, _PATIENCE_S, prefix)
    except CallFailedError as failure:
        return {"error": str(failure)}


def small_shm(call: Call, environment: str, job: Job) -> Iterator[dict[str, Any]]:
    """Read one epoch with a /dev/shm of 1 MB, as in some containers; this needs root."""
    if os.geteuid() or not shutil.which("unshare"):
        yield {"measure": "small_shm", "left_out": "needs root and unshare"}
        return
    prefix = ("unshare", "--mount", "sh", "-c", _SMALL_SHM, "sh")
    yield {"measure": "small_shm", **answer(call, environment, job, prefix)}


def resume(call: Call, environment: str, job: Job) -> dict[str, Any]:
    """Read part of an epoch, save the state, and read the rest in another process."""
    with tempfile.TemporaryDirectory(dir=call.work) as folder:
        job = replace(job, take=_TAKEN, state=str(Path(folder, "state")))
        saved = answer(call, environment, replace(job, action="resume_save"))
        if not saved.get("offered"):
            return saved
        return saved | answer(call, environment, replace(job, action="resume_rest"))


def killed_packer(call: Call, environment: str, job: Job, took: float) -> dict[str, Any]:
    """Kill packing halfway and try to read; then pack again by the same call, and read again."""
    whole = disk_bytes(Path(job.folder))
    folder = Path(call.work, "killed")
    shutil.rmtree(folder, ignore_errors=True)
    pack = replace(job, action="pack", folder=str(folder))
    check = replace(job, folder=str(folder))
    scratch = Path(tempfile.mkdtemp(dir=call.work, prefix="tmp-"))
    process = start(call.command(environment, pack), scratch)
    began = time.perf_counter()
    while process.poll() is None and disk_bytes(folder) < whole / 2 and time.perf_counter() - began < 0.7 * took:
        time.sleep(0.02)
    finished = process.poll() is not None
    end(process)
    shutil.rmtree(scratch, ignore_errors=True)
    left = disk_bytes(folder)
    found: dict[str, Any] = {"finished": finished, "left_bytes": left, "left": answer(call, environment, check)}
    began = time.perf_counter()
    found["again"] = answer(call, environment, pack)
    found |= {"again_s": time.perf_counter() - began, "whole_s": took}
    if "error" not in found["again"]:
        found["after"] = answer(call, environment, check)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def disk_bytes(folder: Path) -> int:
    """Bytes that a folder takes on disk: less than the sizes of its files while these are still sparse."""
    return 512 * sum(status.st_blocks for status in statuses(folder))
