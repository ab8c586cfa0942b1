"""The contract of engines, as tests to inherit."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rawpack.errors import DecodeError, PackError
from rawpack_packer import api
from rawpack_packer.engines.local import Engine, InlineEngine, Report
from rawpack_packer.part import PartTask, Tick

COUNT = 200
"""Samples: four parts, of at most 64."""
_AT = 77
"""The sample with trouble: none of those that the job itself reads, before and after the engine runs."""
Trouble = Literal["none", "reject", "stop", "kill once", "kill", "crash"]


@dataclass(frozen=True)
class Patterns:
    """A dataset of generated images, with trouble at one sample for the process that reads it."""

    trouble: Trouble = "none"
    folder: str = ""
    """Where a kill is noted."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int, /) -> dict[str, Any]:
        if not 0 <= i < COUNT:
            raise IndexError(f"sample {i} of a dataset of {COUNT}")
        if i == _AT:
            self._make_trouble()
        return {"image": np.random.default_rng(i).integers(0, 255, (24, 32, 3), np.uint8)}

    def _make_trouble(self) -> None:
        if self.trouble == "reject":
            raise DecodeError("corrupt", "it is a test")
        if self.trouble == "stop":
            raise PackError("the disk of the patterns is gone; mount it again")
        if self.trouble == "kill once":
            try:
                (Path(self.folder) / "killed").touch(exist_ok=False)
            except FileExistsError:
                return
        if self.trouble.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.trouble == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)


@dataclass
class Recorded:
    """An engine that records its reports."""

    engine: Engine
    interrupt: bool = False
    """Whether Ctrl-C comes when the first part has ended."""
    finished_parts: Counter[int] = field(default_factory=Counter)
    given: list[int] = field(default_factory=list)
    last: dict[int, Tick] = field(default_factory=dict)

    def run(self, tasks: Iterator[PartTask], report: Report, /) -> None:
        self._report = report
        self.engine.run(self._noted(tasks), self)

    def _noted(self, tasks: Iterator[PartTask]) -> Iterator[PartTask]:
        for task in tasks:
            self.given.append(task.number)
            yield task

    def ticked(self, number: int, tick: Tick, /) -> None:
        self.last[number] = tick
        self._report.ticked(number, tick)

    def finished(self, number: int, /) -> None:
        self.finished_parts[number] += 1
        self._report.finished(number)
        if self.interrupt:
            raise KeyboardInterrupt

    def waits(self, why: str, /) -> None:
        self._report.waits(why)


class EngineConformance:
    """Subclass it as `Test...` and write `start`. The engine's workers must see the tests' folder."""

    in_this_process = False
    """Whether samples are read in the process that runs the tests, which then no test kills."""
    resumes_after_a_death = True
    """Whether a run survives a kill of the process that reads samples."""

    def start(self) -> AbstractContextManager[Engine]:
        """A context with the engine, ready to run parts."""
        raise NotImplementedError

    def test_every_part_is_done_once(self, tmp_path: Path) -> None:
        """Every part is taken once and reported as finished once, and its last tick counts its samples."""
        with self.start() as engine:
            recorded = Recorded(engine)
            _pack(tmp_path / "store", recorded)
        assert sorted(recorded.given) == [0, 1, 2, 3], f"parts taken: {recorded.given}"
        assert recorded.finished_parts == Counter(range(4)), f"parts finished: {dict(recorded.finished_parts)}"
        ticks = {number: tick.samples for number, tick in recorded.last.items()}
        assert ticks == {0: 64, 1: 64, 2: 64, 3: 8}, f"samples by the last tick of each part: {ticks}"

    def test_bytes_are_those_of_one_process(self, tmp_path: Path) -> None:
        """In every format, the store is byte for byte the one that this process packs alone."""
        for layout in ("memmap", "lmdb", "hdf5"):
            with self.start() as engine:
                made = _pack(tmp_path / layout, engine, format=layout)
            alone = _pack(tmp_path / f"{layout}-alone", InlineEngine(), format=layout)
            check_files(made, alone)

    def test_a_killed_worker_s_part_is_done_again(self, tmp_path: Path) -> None:
        """After a kill in the middle of a part, the store is that of an undisturbed run."""
        if self.in_this_process or not self.resumes_after_a_death:
            return
        with self.start() as engine:
            made = _pack(tmp_path / "store", engine, Patterns("kill once", str(tmp_path)))
        assert (tmp_path / "killed").exists(), "no process was killed, so this test proved nothing"
        check_files(made, _pack(tmp_path / "alone", InlineEngine()))

    def test_a_sample_that_kills_costs_itself_alone(self, tmp_path: Path) -> None:
        """A sample that always crashes its process is rejected as crashed; all others are packed."""
        if self.in_this_process or not self.resumes_after_a_death:
            return
        with self.start() as engine:
            summary = api.pack(Patterns("crash"), tmp_path / "store", engine=engine, **_OPTIONS)
        assert dict(summary.manifest.rejects.reasons) == {"crashed": 1}, f"rejects: {summary.manifest.rejects.reasons}"
        assert summary.manifest.samples == COUNT - 1, f"{summary.manifest.samples} samples were packed"

    def test_killed_processes_reject_nothing(self, tmp_path: Path) -> None:
        """Where each process that reads a sample is killed, as where memory is short, the run ends with an error that
        names the sample; the same call then packs all."""
        if self.in_this_process or not self.resumes_after_a_death:
            return
        with self.start() as engine:
            _check_error(f"{_AT:08d}", tmp_path / "store", engine, Patterns("kill"))
            made = _pack(tmp_path / "store", engine)
        check_files(made, _pack(tmp_path / "alone", InlineEngine()))

    def test_a_reject_is_no_error(self, tmp_path: Path) -> None:
        """A sample that cannot be read is rejected with its reason, as by one process."""
        with self.start() as engine:
            made = _pack(tmp_path / "store", engine, Patterns("reject"))
        check_files(made, _pack(tmp_path / "alone", InlineEngine(), Patterns("reject")))

    def test_errors_reach_the_caller(self, tmp_path: Path) -> None:
        """An error in a worker ends the run with a PackError that has its message; strict names the reject."""
        with self.start() as engine:
            _check_error("disk of the patterns is gone", tmp_path / "store", engine, Patterns("stop"))
            _check_error(f"{_AT:08d}", tmp_path / "strict", engine, Patterns("reject"), strict=True)

    def test_a_stopped_run_resumes(self, tmp_path: Path) -> None:
        """Ctrl-C reaches the caller; the same call then packs the remaining parts, to the same bytes."""
        with self.start() as engine:
            stopped = Recorded(engine, interrupt=True)
            try:
                _pack(tmp_path / "store", stopped)
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("KeyboardInterrupt, raised by a report, did not reach the caller of run()")
            again = Recorded(engine)
            made = _pack(tmp_path / "store", again)
        assert not set(stopped.finished_parts) & set(again.given), "a finished part was packed again"
        check_files(made, _pack(tmp_path / "alone", InlineEngine()))


_OPTIONS: dict[str, Any] = {"size": "keep", "shard_size": 1, "max_rejects": 20}


def _pack(store: Path, engine: Any, source: Patterns | None = None, **options: Any) -> dict[str, bytes]:
    api.pack(source or Patterns(), store, engine=engine, **_OPTIONS, **options)
    return settled_files(store)


def settled_files(store: Path) -> dict[str, bytes]:
    """Name -> bytes of every file that is the same however a store is packed: all but provenance."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and not path.name.startswith("provenance")
    }


def _check_error(words: str, store: Path, engine: Engine, source: Patterns, **options: Any) -> None:
    said = "no PackError"
    try:
        _pack(store, engine, source, **options)
    except PackError as error:
        said = str(error)
    assert words in said, f"the run ended with {said}"


def check_files(made: dict[str, bytes], alone: dict[str, bytes]) -> None:
    assert sorted(made) == sorted(alone), f"files are {sorted(made)}, one process makes {sorted(alone)}"
    differing = [name for name in made if made[name] != alone[name]]
    assert not differing, f"{', '.join(differing)}: other bytes than one process makes"
