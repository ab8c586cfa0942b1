"""A packing job: what is packed, by which recipe, and where to. `estimate` says what it needs, and `run` runs it.

All that a job checks and finds out, it does once: its fields, its libraries, the digest of its source. Nothing is
written before `run`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.errors import PackError, StoreError, UsageError
from rawpack_packer import text
from rawpack_packer.destination import files, journal
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.journal import NOT_SCANNED
from rawpack_packer.destination.lock import Lock
from rawpack_packer.engines import InlineEngine, LocalEngine
from rawpack_packer.job import differences
from rawpack_packer.job.commit import Duplicates, Totals, commit_store, facts_of_run, tidy, tidy_finished
from rawpack_packer.job.differences import probe
from rawpack_packer.job.estimate import check_space, estimate, full_size_words, jpeg_bytes, memory_for_files
from rawpack_packer.job.limit import RejectLimit
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.parts import Parts
from rawpack_packer.job.saved_tables import SavedTables
from rawpack_packer.job.summary import DryRun, Summary
from rawpack_packer.options import opt
from rawpack_packer.part import PartRecord
from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.depth import lost_depth
from rawpack_packer.recipe.fields import check_first, made_here, part_rows, store_fields
from rawpack_packer.sources import Table

if TYPE_CHECKING:
    from rawpack_packer.job.upload import Upload


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
    counts: Mapping[str, int] = field(default_factory=dict)
    """What all sources of the store left out, with the one that is appended."""


NEW = Before()


class Job:
    """A store to be packed from a source.

    source: with the keys and classes that samples get in the store. as_given: the source with its own keys. recipe:
    with the libraries of this machine. counts: what all sources of the store left out.
    """

    def __init__(
        self,
        source: Table,
        recipe: Recipe,
        destination: str | os.PathLike[str],
        run_options: RunOptions | None = None,
        *,
        as_given: Table | None = None,
        before: Before = NEW,
        saved: SavedTables | None = None,
        upload: Upload | None = None,
        checked: bool = False,
    ) -> None:
        """before: the store that is appended to. saved: keeps tables for a run that resumes. upload: sends the store to
        a URL, for which the destination is a scratch folder. checked: whether the destination was checked before the
        source was opened. Raises UsageError where the destination or the recipe does not suit the source."""
        self.source, self.as_given, self.destination = source, as_given or source, Path(destination)
        self.run_options, self.before, self.saved, self.upload = run_options or RunOptions(), before, saved, upload
        if before.manifest is not None:
            self.recipe, self.fields, self.counts = recipe, dict(before.manifest.fields), dict(before.counts)
            return
        if not checked:
            destinations.check(self.destination)
        for path in source.info.paths:
            destinations.check_apart(self.destination, path)
        self.recipe = made_here(recipe, source)
        self.fields = store_fields(self.recipe, source)
        check_first(self.recipe, source)
        self.counts = dict(source.info.counts)

    @property
    def shown_as(self) -> str:
        """What messages call the destination, if it is a scratch folder."""
        return "" if self.upload is None else str(self.upload.target)

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
        numbered = self.adds and self.source.info.numbered  # on from those of the store
        return journal.source_digest(self.source) if numbered else self.digest_as_given

    @cached_property
    def digest_as_given(self) -> str:
        """The digest of the source, with its own keys."""
        return journal.source_digest(self.as_given)

    @property
    def begun(self) -> journal.JobNote | None:
        """The note of the run that began this or another job there; None where there is none."""
        return journal.read_note(self.destination, journal.AppendNote if self.adds else journal.JobNote)

    def note(self) -> journal.JobNote:
        """The note to leave in its destination."""
        source, before = self.source, self.before
        note = journal.JobNote(
            recipe=self.recipe.as_manifest(), fields=dict(self.fields), classes=source.info.classes, digest=self.digest,
            samples=len(source), options=dict(source.info.options), probe=probe(source),
            table="" if self.saved is None else self.saved.digest,
        )  # fmt: skip
        if not self.adds:
            return note
        keys = [source.key(i) for i in range(len(source))]
        return journal.AppendNote(**msgspec.structs.asdict(note), keys=keys, run=before.run, store=before.digest)

    def clear(self) -> None:
        """Remove what earlier runs left: the store, or an unfinished append to it."""
        if self.before.manifest is None:
            destinations.clear(self.destination)
        else:
            destinations.clear_append(self.destination, destinations.names_of(self.before.manifest))

    def finished(self) -> Summary | None:
        """The summary, where another run has done this job; None where it is to be done. Raises UsageError where the
        destination is another store, PackError where it is damaged."""
        path, source = self.destination, self.source
        if self.before.manifest is not None:
            if manifests.load(path)[1] != self.before.digest:
                if not self.begun:
                    tidy(path)
                raise UsageError(f"another run has just appended to {path}; give the command again")
            if len(source):
                return None
            self.clear()
            return nothing_to_do(path, self.before.manifest, self.before.digest, source)
        if not destinations.is_finished(path) or self.run_options.restart:
            return None
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
        if self.upload is not None:
            self.upload.check_files(manifest)
            return
        try:
            check_sizes(self.destination, manifest)
        except PackError as error:
            raise PackError(f"{error}, and {opt.restart} packs it again") from None

    def on_done(self, record: PartRecord | None) -> None:
        """Called with each part that is done, by this or an earlier run, and with None before the store is made."""
        if self.upload is not None:
            self.upload.on_done(record)

    def estimate(self) -> DryRun:
        """What `run` needs. Writes nothing. Raises as that does before it begins."""
        self.finished()
        self._check_containers()
        guess = estimate(self.source, self.recipe, self.fields, self.run_options.processes)
        guess = replace(guess, seconds=guess.seconds + guess.start_s)
        free, memory = destinations.free_bytes(self.destination), memory_for_files()
        full_size, smaller = "", 0
        if not self.adds:
            full_size = full_size_words(self.source, self.recipe, guess.store_bytes)
            if memory is not None and guess.store_bytes > memory:
                smaller = jpeg_bytes(self.source, self.recipe, self.run_options.processes)
        shapes = text.image_shapes(self.fields)
        return DryRun(guess, len(self.source), shapes, free, memory, smaller, full_size)

    def _check_containers(self) -> None:
        """Raise PackError, before anything is packed, where more videos are known to be unreadable than is allowed."""
        begun = not self.run_options.restart and self.begun is not None
        RejectLimit(self.source, self.run_options).check_containers(begun=begun)

    def run(self) -> Summary:
        """Pack the store, or resume that. Raises as `do`."""
        return self.pack() if self.upload is None else self.upload.run(self)

    def pack(self, *, check_free: bool = True) -> Summary:
        """What `run` does on this machine. Raises as `do`, which gets check_free."""
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
            for guess in check_space(path, [self], destinations.free_bytes(path) + freed):
                if not self.adds and (line := full_size_words(source, self.recipe, guess.store_bytes)):
                    run_options.progress.waits(line)
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
                probed = self._begin()
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
                manifest = commit_store(self, totals, self._provenance(started, processes, probed, totals.bytes_in))
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
            scanned=None if self.saved is None else self.saved.when,
        )

    def _begin(self) -> str:
        """Note a new job in its destination. Returns its probe. Raises UsageError where another job was begun."""
        begun, saved = self.begun, self.saved
        if begun is None:
            # Leftovers of a --restart that was killed, or of an append whose note is gone.
            self.clear()
        else:
            differences.check_same(self, begun)
        if begun is None or (saved is not None and saved.digest != begun.table):
            if saved is not None and saved.place == self.destination:
                saved.save()
            begun = self.note()
            journal.write_job(self.destination, begun)
            files.sync_folder(self.destination)
        return begun.probe

    def _provenance(self, started: datetime, processes: int, probed: str, bytes_in: int) -> dict[str, Any]:
        """When, where and from what the store was packed: all that may differ between two runs."""
        info = self.as_given.info
        source = {
            "kind": info.kind, "root": info.root, "digest": self.digest_as_given, "options": info.options,
            "bytes": bytes_in,
        }  # fmt: skip
        facts = {"started": started.isoformat(timespec="seconds"), "workers": processes, **facts_of_run()}
        facts |= {"first": self.before.seen} if self.adds else {}
        return {"source": source | ({"probe": probed} if probed else {}), **facts}


def nothing_to_do(path: Path, manifest: Manifest, digest: str, source: Table, seconds: float = 0.0) -> Summary:
    """The summary of a job that an earlier run did."""
    done = (len(source), 0, 0, manifest.shard_bytes, seconds, source.info, len(source.unread))
    return Summary(str(path), manifest, digest, True, *done)


def check_sizes(path: Path, manifest: Manifest) -> None:
    """Raise PackError where a file of a finished store is missing, or has another size."""
    for name, what in destinations.wrong_sizes(path, manifest):
        more = "`rawpack inspect --verify` shows what else is damaged"
        raise PackError(f"{path} was complete, but {name} {what}; {more}")
