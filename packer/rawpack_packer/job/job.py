"""A packing job, from a source to a store: checked, cut into parts, run by an engine, and committed."""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import rawpack
from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Field, Manifest
from rawpack.errors import PackError, StoreError, UsageError
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.destination import files, journal
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.layout import REJECTS, WORK
from rawpack_packer.destination.rejects import NOT_SCANNED, Reject
from rawpack_packer.engines import Engine, InlineEngine, LocalEngine
from rawpack_packer.engines.pooled import PooledEngine
from rawpack_packer.engines.remote_worker import TICKS
from rawpack_packer.job import commit, differences
from rawpack_packer.job.commit import NOTHING, Before, Totals, commit_store
from rawpack_packer.job.estimate import SAMPLES, Estimate, estimate, most_bytes
from rawpack_packer.part import pieces
from rawpack_packer.part.duplicates import Duplicates
from rawpack_packer.part.part import PartRecord, PartTask, Tick, read_record
from rawpack_packer.recipe.fields import exact_bytes, made_here, part_rows, store_fields
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import Source
from rawpack_packer.sources.stores.view import is_flat, noun_of, options_of, unread_of

_LEFT = (pieces.PATTERN, TICKS, "shard-*.tmp", "shard-*.spool", "part-*.tmp")
"""What runs that were killed, and workers of clusters, leave in the work folder."""


class Progress(Protocol):
    """Who watches a job: a progress bar, or nobody."""

    def begin(self, samples: int, done: int, noun: str = "image") -> None:
        """Packing begins: so many samples in all, each a `noun`, so many done by an earlier run."""

    def advance(self, samples: int, bytes_in: int, rejects: int) -> None:
        """So many samples and bytes of the source are done in this run, so many samples rejected in all."""

    def waits(self, why: str) -> None:
        """Nothing is packed yet, by a cluster that has no room for it: a line for the user."""

    def commit(self) -> None:
        """All parts are done; columns and manifest are being written."""

    def end(self) -> None:
        """Nothing more will come."""


class NoProgress:
    """A watch that looks away."""

    def begin(self, samples: int, done: int, noun: str = "image") -> None: ...
    def advance(self, samples: int, bytes_in: int, rejects: int) -> None: ...
    def waits(self, why: str) -> None: ...
    def commit(self) -> None: ...
    def end(self) -> None: ...


@dataclass(frozen=True)
class Limits:
    """What does not change a store's bytes."""

    workers: int | None = None
    """Worker processes; 0 packs in this process, None takes one for each CPU."""
    max_rejects: float = 0.01
    """The largest share of samples that may be rejected, or from 1 on their number."""
    strict: bool = False
    restart: bool = False

    def allowed(self, samples: int) -> int:
        """How many of so many samples may be rejected."""
        return int(self.max_rejects) if self.max_rejects >= 1 else int(self.max_rejects * samples)


@dataclass(frozen=True)
class Summary:
    """What a job came to."""

    destination: str
    manifest: Manifest
    digest: str
    already: bool
    """The store was complete before this run, which did nothing."""
    seen: int
    """Samples of the source: packed and rejected ones."""
    packed_now: int
    """Samples that this run packed; others were done by an earlier one."""
    bytes_in: int
    bytes_out: int
    seconds: float
    empty_classes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    noun: str = "image"
    """What a sample of the source is called."""
    unread: int = 0
    """Folders and files of the source that could not be looked into: what is in them is not in the store."""
    flat: bool = False
    """The source is a folder without sub-folders, so that there are no classes."""


def pack(
    source: Source,
    destination: str | os.PathLike[str],
    recipe: Recipe,
    limits: Limits | None = None,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
    check_free: bool = True,
    called: str = "",
) -> Summary:
    """Pack `source` into a store at `destination`, or go on with one that was begun.

    check_free: refuse to begin where the whole store does not fit. called: what messages call the destination, where it
    is the scratch folder of another.

    Raises UsageError where that makes no sense, with nothing written; PackError where it ran and could not finish: the
    same call then goes on from there.
    """
    began = time.monotonic()
    limits, progress = limits or Limits(), progress or NoProgress()
    recipe = made_here(recipe, source)
    path = Path(destination)
    destinations.check(path, source.root)
    fields = store_fields(recipe, source)
    if destinations.is_finished(path) and not limits.restart:
        summary = _already(path, source, recipe, fields, limits, called)
        if destinations.is_untidy(path):
            with destinations.Lock(path):
                commit.tidy(path)
        return summary
    workers = machine.cpus() if limits.workers is None else limits.workers
    if check_free and not (destinations.is_begun(path) and not limits.restart):
        free = destinations.free_bytes(path) + destinations.own_bytes(path)
        check_space(path, [(source, recipe)], workers, free)
    with files.refusals_named(path):
        _make(path)
    with files.refusals_named(path), destinations.Lock(path) as lock:
        if limits.restart:
            destinations.clear(path)
        elif destinations.is_finished(path):
            # Another run finished it since this one looked.
            summary = _already(path, source, recipe, fields, limits, called)
            commit.tidy(path)
            return summary
        _begin(path, source, recipe, fields, called)
        started = datetime.now(UTC)
        totals = Totals(Duplicates(path / WORK / "identical"), classes=source.classes is not None)
        job = Parts(path, source, recipe, fields, limits, progress, totals)
        job.run(engine or engine_for(workers, lock))
        provenance = made_from(source, started, workers_of(engine, workers))
        counts = dict(source.counts)
        manifest = commit_store(
            path,
            recipe,
            fields,
            source.classes,
            job.parts,
            job.totals,
            counts,
            provenance,
            source.states(),
        )
    progress.end()
    return Summary(
        str(destination),
        manifest,
        manifests.load(path)[1],
        already=False,
        seen=len(source),
        packed_now=job.done_now,
        bytes_in=job.totals.bytes_in,
        bytes_out=job.totals.bytes_out,
        seconds=time.monotonic() - began,
        empty_classes=source.empty_classes,
        problems=source.problems,
        noun=noun_of(source),
        unread=len(unread_of(source)),
        flat=is_flat(source),
    )


def dry_run(
    source: Source, destination: str | os.PathLike[str], recipe: Recipe, limits: Limits | None = None
) -> tuple[Estimate, int]:
    """What `pack` would need, and the bytes that are free where the store would lie. Writes nothing.

    Raises UsageError where `pack` would before it begins.
    """
    path = Path(destination)
    destinations.check(path, source.root)
    if destinations.is_finished(path) and not (limits and limits.restart):
        _already(path, source, made_here(recipe, source), store_fields(recipe, source), limits or Limits())
    workers = machine.cpus() if limits is None or limits.workers is None else limits.workers
    return estimate(source, recipe, workers), destinations.free_bytes(path)


def engine_for(workers: int, lock: destinations.Lock) -> Engine:
    """What runs the parts where the caller did not say."""
    return LocalEngine(workers, held=[lock.workers]) if workers and hasattr(os, "fork") else InlineEngine()


def workers_of(engine: Engine | None, workers: int) -> int:
    """How many processes of this machine pack, for the provenance."""
    return 0 if isinstance(engine, PooledEngine) else workers


@dataclass
class Parts:
    """The parts of a job and what is known of them. Is told by the engine: see `Report`."""

    path: Path
    source: Source
    recipe: Recipe
    fields: Mapping[str, Field]
    limits: Limits
    progress: Progress
    totals: Totals
    before: Before = NOTHING
    """What the store holds that this job adds to."""
    done_now: int = 0
    _rejects: int = 0
    _ticks: dict[int, Tick] = field(default_factory=dict)
    _finished: Tick = field(default_factory=lambda: Tick(0, 0))

    @property
    def parts(self) -> int:
        return -(-len(self.source) // part_rows(self.recipe, self.fields))

    @property
    def numbers(self) -> range:
        """The numbers of the parts, and so of their shards."""
        return range(self.before.parts, self.before.parts + self.parts)

    def run(self, engine: Engine) -> None:
        """Do all parts that are not done, then add all up."""
        todo, done = [], 0
        for pattern in _LEFT:
            for left in (self.path / WORK).glob(pattern):
                left.unlink(missing_ok=True)  # by a run that was killed
        for number in self.numbers:
            record = read_record(self.path, number)
            if record is None:
                todo.append(number)
            else:
                rejects = _of_samples(record)
                if self.limits.strict and rejects:
                    first = rejects[0]
                    raise PackError(
                        f"{first.key}: {first.reason}: {first.detail}; an earlier run rejected it, and --strict "
                        "allows no reject"
                    )
                done += record.rows + len(record.rejects)
                self._rejects += len(rejects)
        self.progress.begin(len(self.source), done, noun_of(self.source))
        if todo:
            engine.run(self._tasks(todo), self)
        self.progress.commit()
        for number in self.numbers:
            record = read_record(self.path, number)
            if record is not None:
                self.totals.add(record)
        self._check_rejects()
        if self.totals.samples + self.totals.rejects.total() != len(self.source):
            raise PackError(f"{self.path}: parts of the store went away while packing; the same command goes on")
        if not self.totals.samples and self.before.manifest is None:
            raise PackError(
                f"none of {text.count(len(self.source), noun_of(self.source))} could be packed: {self._reasons()}"
            )

    def ticked(self, number: int, tick: Tick, /) -> None:
        self._ticks[number] = tick
        self._tell()

    def finished(self, number: int, /) -> None:
        tick = self._ticks.pop(number, Tick(0, 0))
        self._finished = Tick(self._finished.samples + tick.samples, self._finished.bytes_in + tick.bytes_in)
        record = read_record(self.path, number)
        if record is not None:
            self.done_now += record.rows
            self._rejects += len(_of_samples(record))
        self._tell()

    def waits(self, why: str, /) -> None:
        self.progress.waits(why)

    def _tell(self) -> None:
        samples = self._finished.samples + sum(tick.samples for tick in self._ticks.values())
        bytes_in = self._finished.bytes_in + sum(tick.bytes_in for tick in self._ticks.values())
        self.progress.advance(samples, bytes_in, self._rejects)

    def _tasks(self, todo: list[int]) -> Iterator[PartTask]:
        rows = part_rows(self.recipe, self.fields)
        for number in todo:
            if self._rejects > self.limits.allowed(len(self.source)):
                return
            start = (number - self.before.parts) * rows
            stop = min(start + rows, len(self.source))
            yield PartTask(
                number=number,
                first=self.before.seen + start,
                samples=self.source.part(start, stop),
                recipe=self.recipe,
                fields=self.fields,
                destination=str(self.path.resolve()),
                strict=self.limits.strict,
                max_rejects=self.limits.allowed(len(self.source)),
                root=self.source.root,
            )

    def _check_rejects(self) -> None:
        rejects = self.totals.rejects.total() - self.totals.rejects[NOT_SCANNED]
        allowed = self.limits.allowed(len(self.source))
        if rejects > allowed:
            checked = self.totals.samples + rejects
            listed = self.path / WORK / REJECTS
            commit.write_rejects(self.path, self.numbers, listed)
            raise PackError(
                f"{rejects:,} of {text.count(checked, noun_of(self.source))} "
                f"{'was' if rejects == 1 else 'were'} rejected ({self._reasons()}), and --max-rejects "
                f"allows {allowed}; they are listed in {listed}. The same command with a larger --max-rejects goes on "
                "without doing anything again"
            )

    def _reasons(self) -> str:
        return ", ".join(f"{reason} {count}" for reason, count in self.totals.rejects.most_common())


def _of_samples(record: PartRecord) -> list[Reject]:
    """The rejects that --strict and --max-rejects speak of."""
    return [reject for reject in record.rejects if reject.reason != NOT_SCANNED]


def _already(
    path: Path, source: Source, recipe: Recipe, fields: Mapping[str, Field], limits: Limits, called: str = ""
) -> Summary:
    """The summary of a store that is complete, if it is the one that was asked for."""
    try:
        manifest, digest = manifests.load(path)
    except StoreError as error:
        cure = f"`rawpack inspect --verify` says more. {differences.store_at(path, called).restart}"
        raise UsageError(f"{error}; {cure}") from None
    there = differences.store_at(path, called)
    known = functools.cache(functools.partial(journal.finished_source, path, manifest))
    differences.check_recipe(there, manifest.recipe, recipe, source, known)
    differences.check_fields(there, manifest, fields, source, known)
    differences.check_source(there, known(), source)
    if limits.strict and manifest.rejects.count - manifest.rejects.reasons.get(NOT_SCANNED, 0):
        raise PackError(
            f"{path} is complete, with {text.count(manifest.rejects.count, noun_of(source))} rejected "
            f"({', '.join(manifest.rejects.reasons)}), listed in {path / manifest.rejects.file.name}; --strict allows "
            "none"
        )
    try:
        check_sizes(path, manifest)
    except PackError as error:
        raise PackError(f"{error}, and --restart packs it anew") from None
    return Summary(
        str(path), manifest, digest, True, len(source), 0, 0, manifest.shard_bytes, 0.0,
        problems=source.problems, unread=len(unread_of(source)),
    )  # fmt: skip


def check_sizes(path: Path, manifest: Manifest) -> None:
    """Raise PackError where a file of a finished store is missing, or has another size."""
    for name, record in manifest.records():
        found = path / name
        if not found.is_file() or found.stat().st_size != record.bytes:
            what = "has another size than was packed" if found.is_file() else "is missing"
            raise PackError(
                f"{path} was complete, but {name} {what}; `rawpack inspect --verify` tells what else is damaged"
            )


def _make(path: Path) -> None:
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        (path / WORK).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror or error}") from None
    for folder in missing:
        files.sync_folder(folder.parent)


def _begin(path: Path, source: Source, recipe: Recipe, fields: Mapping[str, Field], called: str) -> None:
    """Note a new job in its destination; one that was begun must be this one."""
    begun = journal.read_job(path)
    if begun is None:
        # What a --restart that was killed had not removed yet.
        destinations.clear(path)
        journal.write_job(path, journal.job_of(recipe, fields, source))
        files.sync_folder(path)
    else:
        there, known = differences.store_at(path, called), begun.source
        differences.check_recipe(there, begun.recipe, recipe, source, known)
        differences.check_fields(there, begun, fields, source, known)
        differences.check_source(there, known(), source)


def check_space(path: Path, jobs: Sequence[tuple[Source, Recipe]], workers: int, free: int) -> None:
    """Raise UsageError where what recipes make of sources, one after another, will not fit into so many bytes at
    `path`."""
    most = [most_bytes(source, recipe) for source, recipe in jobs]
    if all(most) and sum(most) <= free:
        return  # no sample need be tried
    need = spare = 0
    for source, recipe in jobs:
        guess = estimate(source, recipe, workers, 0 if exact_bytes(store_fields(recipe, source)) else SAMPLES)
        need, spare = need + guess.store_bytes, max(spare, guess.spare_bytes)
    need += spare
    if need > free:
        beside = f", {text.size(spare)} of it while packing only" if spare else ""
        raise UsageError(
            f"the store needs about {text.size(need)}{beside}, and {path} has {text.size(free)} free: free some "
            "space, or take a smaller --size or --format lmdb"
        )


def made_from(source: Source, started: datetime, workers: int) -> dict[str, Any]:
    """The provenance of what is packed now."""
    return {
        "source": {
            "kind": source.kind,
            "root": source.root,
            "digest": journal.source_digest(source),
            "options": options_of(source),
        },
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "workers": workers,
        "rawpack": rawpack.__version__,
        "python": platform.python_version(),
    }
