"""Runs a packing job: locks the destination, records the job, has an engine pack the parts, and commits the store."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rawpack
from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.errors import PackError
from rawpack_packer.destination import files, journal
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.layout import SPOOL, WORK
from rawpack_packer.destination.lock import Lock
from rawpack_packer.engines import InlineEngine, LocalEngine
from rawpack_packer.job import differences
from rawpack_packer.job.commit import Totals, commit_store, tidy
from rawpack_packer.job.estimate import check_space
from rawpack_packer.job.parts import Parts
from rawpack_packer.job.summary import Summary
from rawpack_packer.part.duplicates import Duplicates
from rawpack_packer.sources import Source
from rawpack_packer.sources.optional import unread_of
from rawpack_packer.sources.table.kept import keep_found

if TYPE_CHECKING:
    from rawpack_packer.job.job import Job


def run_job(job: Job, *, check_free: bool = True) -> Summary:
    """Do a job, or resume it. check_free: refuse to begin if the whole store does not fit.

    Raises UsageError with nothing written, PackError where it started and failed: the same job then resumes;
    KeyboardInterrupt, with `Parts.kept`, after Ctrl-C.
    """
    began, path, how = time.monotonic(), job.destination, job.how
    if check_free and len(job.source) and (how.restart or job.begun is None):
        own = 0 if job.adds else destinations.own_bytes(path)
        check_space(path, [job], destinations.free_bytes(path) + own)
    with files.refusals_named(path):
        destinations.make(path)
    try:
        with files.refusals_named(path), Lock(path) as lock:
            # Another run may have done it meanwhile.
            if (done := job.finished()) is not None:
                tidy(path)
                return done
            if how.restart:
                job.clear()
            probes = _begin(job)
            keep_found(path / WORK / SPOOL)
            started = datetime.now(UTC)
            totals = Totals(Duplicates(path / WORK / "identical"), classes=job.source.info.classes is not None)
            parts = Parts(job, totals)
            forks = how.processes and hasattr(os, "fork")
            engine = how.engine or (LocalEngine(how.processes, held=[lock.workers]) if forks else InlineEngine())
            try:
                parts.run(engine)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(parts.kept()) from None
            processes = how.processes if how.engine is None else 0
            manifest = commit_store(job, totals, _provenance(job, started, processes, probes))
    finally:
        how.progress.end()
    source = job.source
    return Summary(
        str(path),
        manifest,
        manifests.load(path)[1],
        already=False,
        seen=len(source),
        packed_now=parts.done_now,
        bytes_in=totals.bytes_in,
        bytes_out=totals.bytes_out,
        seconds=time.monotonic() - began,
        empty_classes=source.info.empty_classes,
        problems=source.info.problems,
        skipped=source.info.skipped,
        noun=source.info.noun,
        unread=len(unread_of(source)),
        flat=source.info.flat,
        bare=source.info.kind == "dataset" and not source.info.fields,
    )


def nothing_to_do(path: Path, manifest: Manifest, digest: str, source: Source, seconds: float = 0.0) -> Summary:
    """The summary of a job that an earlier run did."""
    return Summary(
        str(path), manifest, digest, True, len(source), 0, 0, manifest.shard_bytes, seconds,
        problems=source.info.problems, unread=len(unread_of(source)),
    )  # fmt: skip


def check_sizes(path: Path, manifest: Manifest) -> None:
    """Raise PackError where a file of a finished store is missing, or has another size."""
    for name, record in manifest.records():
        found = path / name
        if not found.is_file() or found.stat().st_size != record.bytes:
            what = "has another size than was packed" if found.is_file() else "is missing"
            raise PackError(
                f"{path} was complete, but {name} {what}; `rawpack inspect --verify` shows what else is damaged"
            )


def _begin(job: Job) -> Mapping[str, str]:
    """Note a new job in its destination. Returns its probes. Raises UsageError where another job was begun there."""
    begun = job.begun
    if begun is None:
        # Leftovers of a --restart that was killed, or of an append whose note is gone.
        job.clear()
        begun = job.note()
        journal.write_job(job.destination, begun)
        files.sync_folder(job.destination)
    else:
        differences.check_same(job, begun)
    return begun.probes


def _provenance(job: Job, started: datetime, processes: int, probes: Mapping[str, str]) -> dict[str, Any]:
    """When, where and from what the store was packed: all that may differ between two runs."""
    source = job.own
    return {
        "source": {
            "kind": source.info.kind,
            "root": source.info.root,
            "digest": job.own_digest,
            "options": source.info.options,
        }
        | ({"probes": dict(probes)} if probes else {}),
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "workers": processes,
        "rawpack": rawpack.__version__,
        "python": platform.python_version(),
    } | ({"first": job.before.seen} if job.adds else {})
