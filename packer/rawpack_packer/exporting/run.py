"""Exports a store to a folder: checks the folder, writes file by file, and resumes after a kill.

A file gets its name only when its bytes are on the disk. So every file with its name is complete, and a run that
resumes leaves it alone. `export.json` is written last, and says that nothing is missing.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rawpack.errors import DecodeError, PackError, RawpackError, UsageError
from rawpack.system.files import read_plain
from rawpack_packer import text
from rawpack_packer.destination import files
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.lock import LOCKS, Lock
from rawpack_packer.exporting.card import CARD, write_card
from rawpack_packer.exporting.files import FileTarget
from rawpack_packer.exporting.parquet import ParquetTarget
from rawpack_packer.exporting.target import ExportOptions, Target, Written, contents
from rawpack_packer.exporting.webdataset import WebDatasetTarget
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.summary import rejected_rows
from rawpack_packer.options import opt
from rawpack_packer.provenance import REJECTS
from rawpack_packer.sources.exported import NOTE
from rawpack_packer.sources.store import store_rows
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import again, listed, plain

_BEGUN = "export"
"""In WORK: says which store is being exported, and how its files are named."""
_NEW = f"{_BEGUN}.tmp"
_NEW_CARD = f"{CARD}.tmp"
_TRIED = 24
_MAX_NOTE = 1 << 20


TARGETS: Mapping[str, type[Target]] = {"files": FileTarget, "webdataset": WebDatasetTarget, "parquet": ParquetTarget}


def make_target(to: str, source: Table, folder: Path, options: ExportOptions) -> Target:
    """Raises UsageError for an unknown target, or an option that it does not take."""
    if to not in TARGETS:
        raise UsageError(f"{opt.to(repr(to))}: must be one of {', '.join(TARGETS)}")
    for option in (one.name for one in fields(options)):
        if getattr(options, option) not in (None, False) and option not in TARGETS[to].takes:
            others = [opt.to(name) for name, target in TARGETS.items() if option in target.takes]
            raise UsageError(f"{getattr(opt, option)} applies to {' and '.join(others)} only")
    return TARGETS[to](source, folder, options)


@dataclass(frozen=True)
class Exported(text.Shown):
    """The result of an export."""

    folder: str
    samples: int
    """Number of samples that have files now."""
    files: int
    """Number of their images and masks; number of shards, where there are shards."""
    written_now: int
    """Files that this run wrote; earlier runs wrote the others."""
    bytes_written: int
    rejects: Mapping[str, int]
    """Reason -> samples that are damaged in the store, and have no file."""
    seconds: float
    splits: tuple[str, ...] = ()
    """Splits are in folders of `folder`, each with its files."""

    def __repr__(self) -> str:
        rejects = f", {text.count(sum(self.rejects.values()), 'reject')}" if self.rejects else ""
        samples, files = text.count(self.samples, "sample"), text.count(self.files, "file")
        return f"Exported({self.folder!r}: {samples}, {files}{rejects})"

    @property
    def already(self) -> bool:
        """Whether an earlier run wrote all files."""
        return not self.written_now

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"already_complete": self.already}

    def in_words(self) -> text.Block:
        now = "" if self.written_now == self.files else f", {self.written_now:,} of them written now"
        size = f", {text.size(self.bytes_written)}" if self.written_now == self.files else ""
        rows = [("samples", f"{self.samples:,}"), ("files", f"{self.files:,}{now}")]
        where = f"{self.folder}/SPLIT" if self.splits else self.folder
        rows = [("splits", ", ".join(map(plain, self.splits))), *rows] if self.splits else rows
        rows += rejected_rows(self.rejects, f"{where}/rejects.jsonl")
        rows.append(("time", text.duration(self.seconds)))
        rows.append(("stored in", f"{plain(self.folder)}: {text.count(self.files, 'file')}{size}"))
        return text.Block("Nothing to do." if self.already else "Exported.", rows)


@dataclass(frozen=True)
class DryExport(text.Shown):
    """What an export needs."""

    samples: int
    files_bytes: int
    free_bytes: int

    def in_words(self) -> text.Block:
        rows = [
            ("samples", f"{self.samples:,}"),
            ("files", f"about {text.size(self.files_bytes)}"),
            ("free", text.size(self.free_bytes)),
        ]
        return text.Block("Nothing was written. Exporting would take:", rows)


class Export:
    """One store, and the folder that it is exported to."""

    def __init__(
        self, source: Table, folder: Path, to: str, run_options: RunOptions, *, of_set: bool = False, **options: Any
    ) -> None:
        """of_set: whether the store is a split, and the folder that of its set has the data card. options: those of
        `ExportOptions`. Raises UsageError with nothing written."""
        self.source, self.folder, self._options, self._of_set = source, folder, run_options, of_set
        self.target = make_target(to, source, folder, ExportOptions(**options))
        self.begun = self._check_folder()
        self.target.check()

    def estimate(self) -> DryExport:
        return DryExport(len(self.source), self.need_bytes(), destinations.free_bytes(self.folder))

    def need_bytes(self) -> int:
        """About how much all files take on the disk, estimated from a few samples."""
        tried = [k * len(self.source) // min(_TRIED, len(self.source)) for k in range(min(_TRIED, len(self.source)))]
        sizes = []
        for row in tried:
            try:
                made = [len(data) for _, data in contents(self.source[row], self.target.suffixes)]
            except DecodeError:
                continue
            sizes.append(self.target.need_bytes(made))
        return int(len(self.source) * float(np.mean(sizes or [self.target.need_bytes([])]))) + self.target.own_bytes()

    def run(self) -> Exported:
        began, run = time.monotonic(), self._options
        if not self.begun:
            check_space(self.folder, self.need_bytes())
        try:
            with files.refusals_named(self.folder):
                destinations.make(self.folder)
                with Lock(self.folder):
                    done = self._write(run)
        finally:
            run.progress.end()
        reasons = Counter(reject.reason for reject in done.rejects)
        samples = len(self.source) - len(done.rejects)
        return Exported(
            str(self.folder), samples, self.target.files(samples), done.files, done.bytes, dict(reasons),
            time.monotonic() - began,
        )  # fmt: skip

    def _write(self, run: RunOptions) -> Written:
        work = self.folder / WORK
        for left in work.glob("*.tmp"):
            left.unlink()
        files.write_whole(work / _BEGUN, msgspec.json.encode(self.target.identity), work / _NEW)
        run.progress.begin(len(self.source), 0)
        done = self.target.write(run)
        run.progress.commit()
        lines = b"".join(msgspec.json.encode(reject) + b"\n" for reject in done.rejects)
        allowed = run.allowed(len(self.source))
        if len(done.rejects) > allowed:
            first = done.rejects[0]
            files.write_whole(work / REJECTS, lines, work / f"{REJECTS}.tmp")
            raise PackError(
                f"the store has {text.count(len(done.rejects), 'damaged sample')} ({plain(first.key)}: {first.detail}, "
                f"...), and {opt.max_rejects} allows {allowed}; those seen so far are listed in {work / REJECTS}. "
                f"{again().capitalize()} with {opt.max_rejects(len(done.rejects))} or more resumes"
            )
        if done.files or not (self.folder / NOTE).exists():
            # The names of all files reach the disk before the note.
            files.sync_tree(self.folder)
            (self.folder / REJECTS).unlink(missing_ok=True)
            if done.rejects:
                files.write_whole(self.folder / REJECTS, lines, work / f"{REJECTS}.tmp")
            self.target.finish(done.rejects)
            if not self._of_set and (card := self.target.card()) is not None:
                write_card(self.folder, [card], work / f"{CARD}.tmp")
            noted = msgspec.json.format(msgspec.json.encode(self.target.note(done.rejects)), indent=1)
            files.write_whole(self.folder / NOTE, noted + b"\n", work / f"{NOTE}.tmp")
        shutil.rmtree(work)
        files.sync_folder(self.folder)
        return done

    def _check_folder(self) -> bool:
        """Whether an earlier run has worked there. Raises UsageError where the folder may not be used."""
        folder = self.folder
        destinations.check_apart(folder, store_rows(self.source).stores[0].path)
        if not destinations.check_folder(folder):
            return False
        names = sorted(path.name for path in folder.iterdir())
        before = _read_note(folder / NOTE) or _read_note(folder / WORK / _BEGUN)
        if not names or (names == [WORK] and before is None and _is_only_locks(folder / WORK)):
            return False
        if before is None or (folder / WORK).is_symlink():
            raise UsageError(f"{folder} contains other files ({listed(names, 3)}); name an empty or a new folder")
        same = {"to": None, **self.target.identity}
        if {name: before.get(name) for name in same} != same:
            raise UsageError(
                f"{folder} contains the files of another store, or files exported with other options ({NOTE} describes "
                "them); name another folder"
            )
        return True


class SplitsExport:
    """A set of splits, each exported to the folder of its name in `folder`."""

    def __init__(self, exports: Mapping[str, Export], folder: Path) -> None:
        """Raises UsageError where the folder contains anything else."""
        self._exports, self._folder = exports, folder
        names = sorted(path.name for path in folder.iterdir()) if destinations.check_folder(folder) else []
        if others := [name for name in names if name not in (*exports, CARD, _NEW_CARD)]:
            raise UsageError(f"{folder} contains other files ({listed(others, 3)}); name an empty or a new folder")
        if CARD in names and not any(export.begun for export in exports.values()):
            raise UsageError(f"{folder} contains a {CARD} of another set; name an empty or a new folder")

    def estimate(self) -> DryExport:
        about = [export.estimate() for export in self._exports.values()]
        total = sum(one.files_bytes for one in about)
        return DryExport(sum(one.samples for one in about), total, destinations.free_bytes(self._folder))

    def run(self) -> Exported:
        """Export the splits one after another. Raises UsageError with nothing written where there is too little space
        for all."""
        check_space(self._folder, sum(export.need_bytes() for export in self._exports.values() if not export.begun))
        done = [export.run() for export in self._exports.values()]
        written = sum(one.written_now for one in done)
        cards = [card for name, export in self._exports.items() if (card := export.target.card(name)) is not None]
        if cards and (written or not (self._folder / CARD).exists()):
            with files.refusals_named(self._folder):
                write_card(self._folder, cards, self._folder / _NEW_CARD)
        return Exported(
            str(self._folder),
            sum(one.samples for one in done),
            sum(one.files for one in done),
            written,
            sum(one.bytes_written for one in done),
            dict(sum((Counter(one.rejects) for one in done), Counter())),
            sum(one.seconds for one in done),
            tuple(self._exports),
        )


def check_space(folder: Path, need: int) -> None:
    """Raise UsageError where files of this many bytes do not fit."""
    free = destinations.free_bytes(folder)
    if need > free:
        raise UsageError(
            f"the files need about {text.size(need)}, and {folder} has {text.size(free)} free"
            f"{destinations.in_memory_words(folder)}: free some space, or name a folder on another disk"
        )


def _read_note(path: Path) -> dict[str, Any] | None:
    """A note of an export; None where there is none."""
    try:
        return msgspec.json.decode(read_plain(path, _MAX_NOTE), type=dict[str, Any])
    except (OSError, RawpackError, ValueError):
        return None


def _is_only_locks(work: Path) -> bool:
    """Whether a run was killed there before it had noted anything."""
    return not work.is_symlink() and work.is_dir() and {path.name for path in work.iterdir()} <= {*LOCKS, _NEW}
