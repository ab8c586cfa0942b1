"""The options of a run, such as the number of workers, which never change the bytes of the store."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.system import machine
from rawpack_packer.engines import as_engine
from rawpack_packer.options import opt

if TYPE_CHECKING:
    from rawpack_packer.engines import Engine

Connect: TypeAlias = "Callable[[], Engine]"
"""Connects to a cluster. It is called after all other checks, and before the source is scanned."""
_ALL = 1e14
"""`max_rejects` for "100%"."""
ROUNDING = 1e-9
"""The share of all samples by which a product of floats may be too small: 0.29 * 100 is less than 29."""


@runtime_checkable
class Progress(Protocol):
    """Follows a job: a progress bar, or nothing."""

    def begin(self, samples: int, done: int, noun: str = "image") -> None:
        """Packing begins. samples: in all, each a `noun`; done: how many of them earlier runs did."""

    def advance(self, samples: int, bytes_in: int, rejects: int) -> None:
        """samples, bytes_in: what this run has done of the source so far. rejects: of all runs."""

    def waits(self, why: str) -> None:
        """Nothing is packed yet, because the cluster is busy or a source is being fetched. why: a line for the user."""

    def commit(self) -> None:
        """All parts are done; columns and manifest are being written."""

    def end(self) -> None:
        """The job has ended, done or not. May be called twice."""


class NoProgress:
    """Ignores all progress."""

    def begin(self, samples: int, done: int, noun: str = "image") -> None: ...
    def advance(self, samples: int, bytes_in: int, rejects: int) -> None: ...
    def waits(self, why: str) -> None: ...
    def commit(self) -> None: ...
    def end(self) -> None: ...


@dataclass(frozen=True)
class RunOptions:
    """How a job runs: `keywords.RunKeywords` describes each. `run_options` checks them."""

    workers: int | None = None
    max_rejects: float = 0.01
    strict: bool = False
    restart: bool = False
    engine: Engine | None = None
    """Runs the parts; None runs them on this machine."""
    connect: Connect | None = None
    """Gives the engine, once all else was checked."""
    progress: Progress = field(default_factory=NoProgress, repr=False)

    @property
    def elsewhere(self) -> bool:
        """Whether other processes than our own pack the parts."""
        return self.engine is not None or self.connect is not None

    @property
    def processes(self) -> int:
        """Number of worker processes on this machine."""
        return machine.cpus() if self.workers is None else self.workers

    def allowed(self, samples: int) -> int:
        """How many of this many samples may be rejected."""
        return int(self.max_rejects) if self.max_rejects >= 1 else int((self.max_rejects + ROUNDING) * samples)

    def connected(self) -> RunOptions:
        """These options, with the engine connected to its cluster."""
        return self if self.connect is None else replace(self, engine=self.connect(), connect=None)


def parse_run_options(
    workers: int | None = None,
    max_rejects: float | str | None = None,
    strict: bool = False,
    restart: bool = False,
    engine: Any = None,
    progress: Progress | bool | None = None,
) -> RunOptions:
    """Check the options as a user gave them. Raises UsageError.

    engine: an engine, an executor, or a function that connects to a cluster. progress: True shows a bar.
    """
    if engine is not None and workers is not None:
        raise UsageError(
            f"{opt.workers} applies to {opt.engine('local')} only: clusters and executors have workers of their own"
        )
    if workers is not None:
        workers = whole_number("workers", workers, 0)
    connect = engine if callable(engine) and not hasattr(engine, "run") else None
    share = 0.01 if max_rejects is None else parse_share(max_rejects)
    made = None if connect else as_engine(engine)
    return RunOptions(workers, share, strict, restart, made, connect, followed_by(progress))


def followed_by(progress: Progress | bool | None) -> Progress:
    """What follows a job: `progress=` as a user gave it."""
    if progress is None or progress is False:
        return NoProgress()
    if progress is True:
        from rawpack_packer.progress import watched

        return watched()
    if not isinstance(progress, Progress):
        raise UsageError(
            f"progress={progress!r} must be True, False, or an object with begin(), advance(), waits(), commit() and "
            "end()"
        )
    return progress


def parse_share(share_text: float | str) -> float:
    """Parse `--max-rejects`: "1%", "0.01", or a number of samples. Raises UsageError."""
    text = str(share_text).strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = math.nan
    if text == "100%":
        return _ALL
    if not 0 <= share < 10 * _ALL or (share >= 1 and (text.endswith("%") or share != int(share))):
        raise UsageError(f"{opt.max_rejects(repr(text))}: must be a share such as 1% or 0.01, or a number of samples")
    return share
