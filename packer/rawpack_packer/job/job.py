"""A packing job: what is packed, by which recipe, and where to. `estimate` says what it needs, and `run` runs it.

All that a job checks and finds out, it does once: its fields, its libraries, the digest of its source. Nothing is
written before `run`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.errors import PackError, StoreError, UsageError
from rawpack_packer import text
from rawpack_packer.destination import files, journal
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.files import SPOOL, WORK
from rawpack_packer.destination.journal import NOT_SCANNED
from rawpack_packer.destination.lock import Lock
from rawpack_packer.engines import InlineEngine, LocalEngine
from rawpack_packer.job import differences
from rawpack_packer.job.commit import Duplicates, Totals, commit_store, facts_of_run, tidy, tidy_finished
from rawpack_packer.job.differences import probed
from rawpack_packer.job.estimate import START_S, check_space, estimate
from rawpack_packer.job.limit import RejectLimit
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.parts import Parts
from rawpack_packer.job.summary import DryRun, Summary
from rawpack_packer.options import opt
from rawpack_packer.part import PartRecord
from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.depth import lost_depth
from rawpack_packer.recipe.fields import check_first, made_here, part_rows, store_fields
from rawpack_packer.sources import Table
from rawpack_packer.sources.table.kept import keep_found

Note = TypeVar("Note", bound=journal.JobNote)


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
    """The manifest's."""
    labels: Mapping[int, int] = field(default_factory=dict)
    """Label -> samples."""


class Job:
    """A store to be packed from a source.

    source: with the keys and classes that samples get in the store. as_given: the source with its own keys. recipe:
    with the libraries of this machine. counts: what all sources of the store left out. before: the store that is
    appended to. shown_as: what messages call the destination if it is a scratch folder. asked: see `known.digest_of`;
    "" where there is none.
    """

    asked = ""

    def __init__(
        self,
        source: Table,
        recipe: Recipe,
        destination: str | os.PathLike[str],
        run_options: RunOptions | None = None,
        *,
        shown_as: str = "",
        checked: bool = False,
    ) -> None:
        """checked: whether the destination was checked before the source was opened. Raises UsageError where the
        destination or the recipe does not suit the source."""
        self.source = self.as_given = source
        self.destination, self.run_options, self.shown_as = Path(destination), run_options or RunOptions(), shown_as
        if not checked:
            destinations.check(self.destination)
        for path in source.info.paths:
            destinations.check_apart(self.destination, path)
        self.recipe = made_here(recipe, source)
        self.fields = store_fields(self.recipe, source)
        check_first(self.recipe, source)
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
        """The digest of the source, with the keys of the store: see `journal.source_digest`."""
        return journal.source_digest(self.source)

    @property
    def digest_as_given(self) -> str:
        """The digest of the source, with its own keys."""
        return self.digest

    @property
    def begun(self) -> journal.JobNote | None:
        """The note of the run that began this or another job there; None where there is none."""
        return journal.read_note(self.destination, journal.JobNote)

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
        if not destinations.is_finished(self.destination) or self.run_options.restart:
            return None
        path, source = self.destination, self.source
        try:
            manifest, digest = manifests.load(path)
        except StoreError as error:
            cure = f"`rawpack inspect --verify` shows more. {differences.store_at(path, self.shown_as).restart}"
            raise UsageError(f"{error}; {cure}") from None
        differences.check_same(self, manifest)
        if self.run_options.strict and manifest.rejects.count - manifest.rejects.reasons.get(NOT_SCANNED, 0):
            raise PackError(
                f"{path} is complete, with {text.count(manifest.rejects.count, source.info.noun)} rejected "
                f"({', '.join(manifest.rejects.reasons)}), listed in {path / manifest.rejects.file.name}; {opt.strict} "
                "allows none"
            )
        if self.run_options.strict and (lost := lost_depth(manifest.counts)):
            raise PackError(f"{path} is complete, with {lost}; {opt.strict} allows none")
        self.check_files(manifest)
        return nothing_to_do(path, manifest, digest, source)

    def check_files(self, manifest: Manifest) -> None:
        """Raise PackError where a file of the finished store is missing, or has another size."""
        try:
            check_sizes(self.destination, manifest)
        except PackError as error:
            raise PackError(f"{error}, and {opt.restart} packs it again") from None

    def on_done(self, record: PartRecord | None) -> None:
        """Called with each part that is done, by this or an earlier run, and with None before the store is made."""

    def estimate(self) -> DryRun:
        """What `run` needs. Writes nothing. Raises as that does before it begins."""
        self.finished()
        self._check_containers()
        guess = estimate(self.source, self.recipe, self.fields, self.run_options.processes)
        if self.run_options.processes:
            guess = replace(guess, seconds=guess.seconds + START_S)
        free = destinations.free_bytes(self.destination)
        return DryRun(guess, len(self.source), text.image_shapes(self.fields), free)

    def _check_containers(self) -> None:
        """Raise PackError, before anything is packed, where more videos are known to be unreadable than is allowed."""
        begun = not self.run_options.restart and self.begun is not None
        RejectLimit(self.source, self.run_options).check_containers(begun=begun)

    def run(self) -> Summary:
        """Pack the store, or resume that. Raises as `do`."""
        return self.pack()

    def pack(self, *, check_free: bool = True) -> Summary:
        """What `run` does here, and in a subclass a part of it. Raises as `do`, which gets check_free."""
        try:
            summary = self.finished()
        except UsageError:
            if destinations.has_only_spool(self.destination):  # of a finished store, which needs none
                tidy_finished(self.destination)
            raise
        if summary is None:
            return self.do(check_free=check_free)
        tidy_finished(self.destination)
        return summary

    def do(self, *, check_free: bool = True) -> Summary:
        """Do the job, or resume it. check_free: refuse to begin if the whole store does not fit.

        Raises UsageError with nothing written, PackError where it started and failed: the same job then resumes;
        KeyboardInterrupt, with `Parts.kept`, after Ctrl-C.
        """
        began, path, source, run_options = time.monotonic(), self.destination, self.source, self.run_options
        self._check_containers()
        if check_free and len(source) and (run_options.restart or self.begun is None):
            freed = 0 if self.adds else destinations.own_bytes(path)
            check_space(path, [self], destinations.free_bytes(path) + freed)
        with files.refusals_named(path):
            destinations.make(path)
        try:
            with files.refusals_named(path), Lock(path) as lock:
                # Another run may have done it meanwhile.
                if (done := self.finished()) is not None:
                    tidy(path)
                    return done
                if run_options.restart:
                    self.clear()
                probes = self._begin()
                keep_found(path / WORK / SPOOL)
                started = datetime.now(UTC)
                totals = Totals(Duplicates(path / WORK / "identical"), classes=source.info.classes is not None)
                parts = Parts(self, totals)
                forks = run_options.processes and hasattr(os, "fork")
                engine = run_options.engine or (
                    LocalEngine(run_options.processes, held=[lock.workers]) if forks else InlineEngine()
                )
                try:
                    parts.run(engine)
                except KeyboardInterrupt:
                    raise KeyboardInterrupt(parts.kept()) from None
                processes = run_options.processes if run_options.engine is None else 0
                manifest = commit_store(self, totals, self._provenance(started, processes, probes, totals.bytes_in))
        finally:
            run_options.progress.end()
        sizes = [totals.labels[label] for label in range(len(source.info.classes or ()))] if totals.labels else []
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
            info=source.info,
            lost=parts.limit.containers_in_words() if parts.limit.containers else "",
            unread=len(source.unread),
            class_sizes=(min(sizes), max(sizes)) if sizes and not self.adds else None,
        )

    def _begin(self) -> Mapping[str, str]:
        """Note a new job in its destination. Returns its probes. Raises UsageError where another job was begun."""
        begun = self.begun
        if begun is None:
            # Leftovers of a --restart that was killed, or of an append whose note is gone.
            self.clear()
            begun = self.note()
            journal.write_job(self.destination, begun)
            files.sync_folder(self.destination)
        else:
            differences.check_same(self, begun)
        return begun.probes

    def _provenance(
        self, started: datetime, processes: int, probes: Mapping[str, str], bytes_in: int
    ) -> dict[str, Any]:
        """When, where and from what the store was packed: all that may differ between two runs."""
        info = self.as_given.info
        source = {
            "kind": info.kind, "root": info.root, "digest": self.digest_as_given, "options": info.options,
            "bytes": bytes_in,
        }  # fmt: skip
        source |= {"asked": self.asked} if self.asked and not len(self.source.unread) else {}
        facts = {"started": started.isoformat(timespec="seconds"), "workers": processes, **facts_of_run()}
        facts |= {"first": self.before.seen} if self.adds else {}
        return {"source": source | ({"probes": dict(probes)} if probes else {}), **facts}


def nothing_to_do(path: Path, manifest: Manifest, digest: str, source: Table, seconds: float = 0.0) -> Summary:
    """The summary of a job that an earlier run did."""
    done = (len(source), 0, 0, manifest.shard_bytes, seconds, source.info, len(source.unread))
    return Summary(str(path), manifest, digest, True, *done)


def check_sizes(path: Path, manifest: Manifest) -> None:
    """Raise PackError where a file of a finished store is missing, or has another size."""
    for name, what in destinations.wrong_sizes(path, manifest):
        more = "`rawpack inspect --verify` shows what else is damaged"
        raise PackError(f"{path} was complete, but {name} {what}; {more}")
