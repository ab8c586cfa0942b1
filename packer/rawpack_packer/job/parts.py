"""Hands the parts of a job to an engine, counts them as they finish, and adds up their results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from rawpack.errors import DecodeError, PackError
from rawpack_packer import text
from rawpack_packer.destination.files import TICKS, WORK
from rawpack_packer.destination.journal import NOT_SCANNED, Reject, typical
from rawpack_packer.engines import Engine
from rawpack_packer.job import commit
from rawpack_packer.job.commit import Totals
from rawpack_packer.job.limit import RejectLimit
from rawpack_packer.options import opt
from rawpack_packer.part import PartRecord, PartTask, Tick, pieces, read_record, record_path
from rawpack_packer.provenance import REJECTS
from rawpack_packer.recipe.depth import lost_depth
from rawpack_packer.sources.files import UNREADABLE
from rawpack_packer.text import again

if TYPE_CHECKING:
    from rawpack_packer.job.job import Job

_LEFT = (pieces.PATTERN, TICKS, "shard-*.tmp", "shard-*.spool", "part-*.tmp")
"""Files that killed runs and workers of clusters leave in the work folder."""


@dataclass
class Parts:
    """The parts of a job and their progress, which the engine reports: see `Report`."""

    job: Job
    totals: Totals
    done_now: int = 0
    """Samples that this run packed."""
    _rejects: int = 0
    """All that were found so far."""
    _counted: int = 0
    """Those that count as a sample each, see `RejectLimit`."""
    _ticks: dict[int, Tick] = field(default_factory=dict)
    _finished: Tick = field(default_factory=lambda: Tick(0, 0))

    def run(self, engine: Engine) -> None:
        """Do all parts that are not done yet, then add up all."""
        todo, done = [], 0
        for pattern in _LEFT:
            for left in (self.job.destination / WORK).glob(pattern):
                left.unlink(missing_ok=True)
        for number in self.job.numbers:
            record = read_record(self.job.destination, number)
            if record is not None and self._reads_now(record):
                for file in record.files:
                    (self.job.destination / file.name).unlink(missing_ok=True)
                record_path(self.job.destination, number).unlink()
                record = None
            if record is None:
                todo.append(number)
            else:
                rejects = _apart(record)
                if self.job.run_options.strict and rejects:
                    first = rejects[0]
                    raise PackError(
                        f"{first.key}: {first.reason}: {first.detail}; an earlier run rejected it, and {opt.strict} "
                        "allows no rejects"
                    )
                if self.job.run_options.strict and (lost := lost_depth(record.counts)):
                    raise PackError(f"an earlier run packed {lost}, and {opt.strict} allows none")
                done += record.rows + len(record.rejects)
                self._add(record)
                self.job.on_done(record)
        self.job.run_options.progress.begin(len(self.job.source), done, self.job.source.info.noun)
        if todo:
            engine.run(self._tasks(todo), self)
        self.job.on_done(None)
        self.job.run_options.progress.commit()
        self._rejects = self._counted = 0
        for number in self.job.numbers:
            record = read_record(self.job.destination, number)
            if record is not None:
                self.totals.add(record)
                self._add(record)
        self._check_rejects()
        source = self.job.source
        if self.totals.samples + self.totals.rejects.total() != len(source):
            raise PackError(f"{self.job.destination}: parts of the store disappeared while packing; {again()} resumes")
        if not self.totals.samples and not self.job.adds:
            example = self._example()
            none = f"none of {text.count(len(source), source.info.noun)} could be packed: {self._reasons()}"
            raise PackError(f"{none}, for example {example}" if example else none)

    def _reads_now(self, record: PartRecord) -> bool:
        """Whether a sample that an earlier run could not read can be read now: its disk or its permission may have
        been to blame."""
        for reject in record.rejects:
            if reject.reason == UNREADABLE:
                try:
                    self.job.source[reject.sample - self.job.before.seen]
                except DecodeError as error:
                    if error.reason == UNREADABLE:
                        continue
                return True
        return False

    def kept(self) -> str:
        """What an interrupted run leaves to the next one: "after 3 of 12 parts; the same command resumes"."""
        done = sum(1 for _ in (self.job.destination / WORK).glob("part-*.done"))
        if not done:
            return f"before the first part was finished: {again()} starts over"
        return f"after {done:,} of {text.count(len(self.job.numbers), 'part')}; {again()} resumes"

    @cached_property
    def limit(self) -> RejectLimit:
        """What `--max-rejects` allows."""
        return RejectLimit(self.job.source, self.job.run_options)

    def _add(self, record: PartRecord) -> None:
        self._rejects += len(_apart(record))
        self._counted += self.limit.counted(record.rejects, self.job.before.seen)

    def ticked(self, number: int, tick: Tick, /) -> None:
        self._ticks[number] = tick
        self._report()

    def finished(self, number: int, /) -> None:
        tick = self._ticks.pop(number, Tick(0, 0))
        self._finished = Tick(self._finished.samples + tick.samples, self._finished.bytes_in + tick.bytes_in)
        record = read_record(self.job.destination, number)
        if record is not None:
            self.done_now += record.rows
            self._add(record)
            self.job.on_done(record)
        self._report()

    def waits(self, why: str, /) -> None:
        self.job.run_options.progress.waits(why)

    def _report(self) -> None:
        samples = self._finished.samples + sum(tick.samples for tick in self._ticks.values())
        bytes_in = self._finished.bytes_in + sum(tick.bytes_in for tick in self._ticks.values())
        self.job.run_options.progress.advance(samples, bytes_in, self._rejects)

    def _tasks(self, todo: list[int]) -> Iterator[PartTask]:
        rows, alone = self.job.rows, self.job.source.at_hand() is not None
        for number in todo:
            if self.limit.exceeded_by(self._counted):
                return
            start = (number - self.job.before.parts) * rows
            stop = min(start + rows, len(self.job.source))
            yield PartTask(
                number=number,
                first=self.job.before.seen + start,
                samples=self.job.source.part(start, stop),
                recipe=self.job.recipe,
                fields=self.job.fields,
                destination=str(self.job.destination.resolve()),
                strict=self.job.run_options.strict,
                max_rejects=self.limit.left,
                root=self.job.source.info.root,
                alone=alone,
            )

    def _check_rejects(self) -> None:
        rejects = self.totals.rejects.total() - self.totals.rejects[NOT_SCANNED]
        if self.limit.exceeded_by(self._counted):
            checked = self.totals.samples + rejects
            listed = self.job.destination / WORK / REJECTS
            commit.write_rejects(self.job.destination, self.job.numbers, listed)
            example = self._example()
            containers = f"{self.limit.containers_in_words()}; in all, " if self.limit.containers else ""
            raise PackError(
                f"{containers}{rejects:,} of {text.count(checked, self.job.source.info.noun)} "
                f"{'was' if rejects == 1 else 'were'} rejected ({self._reasons()}), for example {example}. "
                f"{opt.max_rejects} allows {self.limit.allows}; "
                f"{'it is' if rejects == 1 else 'all are'} listed in {listed}. {self._cure(rejects, checked)}"
            )

    def _reasons(self) -> str:
        return ", ".join(f"{reason} {count}" for reason, count in self.totals.rejects.most_common())

    def _example(self) -> str:
        """A reject of the commonest reason; empty where none counts."""
        numbers = self.job.numbers
        records = (record for number in numbers if (record := read_record(self.job.destination, number)) is not None)
        example = typical(reject for record in records for reject in _apart(record))
        return "" if example is None else str(example)

    def _cure(self, rejects: int, checked: int) -> str:
        """Which --max-rejects would do, if any."""
        left = len(self.job.source) - self.totals.samples - self.totals.rejects.total()
        if not self.totals.samples and not self.job.adds:
            which = f"of the first {checked:,}" if left else "of them"
            return f"None {which} could be packed, so a larger {opt.max_rejects} does not help"
        first = f"{left:,} are not tried yet: if they are like these, {again()}" if left else again().capitalize()
        enough = self.limit.share(self._counted, checked) if left or self.limit.containers else rejects
        return f"{first} with {opt.max_rejects(enough)} resumes; finished work is kept"


def _apart(record: PartRecord) -> list[Reject]:
    """The rejects apart from those that --skip-unreadable alone allows."""
    return [reject for reject in record.rejects if reject.reason != NOT_SCANNED]
