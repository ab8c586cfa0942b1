"""How a job runs: what its user chooses that is no part of the recipe and changes no byte of the store."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeGuard

from rawpack.errors import UsageError
from rawpack.system import machine
from rawpack_packer.engines import Engine, as_engine

Connect = Callable[[], Engine]
"""Connects to a cluster. Called once nothing is left to refuse, and before the source is scanned."""
_ALL = 1e14
"""As `max_rejects`: every sample may be rejected."""


class Progress(Protocol):
    """Follows a job: a progress bar, or nothing."""

    def begin(self, samples: int, done: int, noun: str = "image") -> None:
        """Packing begins: so many samples in all, each a `noun`, so many done by an earlier run."""

    def advance(self, samples: int, bytes_in: int, rejects: int) -> None:
        """So many samples and bytes of the source are done in this run, so many samples rejected in all."""

    def waits(self, why: str) -> None:
        """Nothing is packed yet, because the cluster is busy: a line for the user."""

    def commit(self) -> None:
        """All parts are done; columns and manifest are being written."""

    def end(self) -> None:
        """The job has ended, done or not. May come twice."""


class NoProgress:
    """Ignores all progress."""

    def begin(self, samples: int, done: int, noun: str = "image") -> None: ...
    def advance(self, samples: int, bytes_in: int, rejects: int) -> None: ...
    def waits(self, why: str) -> None: ...
    def commit(self) -> None: ...
    def end(self) -> None: ...


@dataclass(frozen=True)
class RunOptions:
    """How a job runs. See `run_options`, which checks them."""

    workers: int | None = None
    """Worker processes; 0 packs in this process, None starts one for each CPU."""
    max_rejects: float = 0.01
    """The largest share of samples that may be rejected, or from 1 on their number."""
    strict: bool = False
    """Stop at the first sample that cannot be packed."""
    restart: bool = False
    """Delete what an earlier run left, and begin anew."""
    engine: Engine | Connect | None = None
    """What runs the parts; None runs them on this machine."""
    progress: Progress = field(default_factory=NoProgress)

    @property
    def processes(self) -> int:
        """Worker processes on this machine."""
        return machine.cpus() if self.workers is None else self.workers

    def allowed(self, samples: int) -> int:
        """How many of so many samples may be rejected."""
        return int(self.max_rejects) if self.max_rejects >= 1 else int(self.max_rejects * samples)

    def connected(self) -> RunOptions:
        """The same, connected to its cluster."""
        return replace(self, engine=as_engine(self.engine())) if _connects(self.engine) else self

    def parts_by(self, default: Engine) -> Engine:
        """The engine that runs the parts; `default` where none was named."""
        engine: Engine | None = self.connected().engine  # type: ignore[assignment] # which is connected
        return engine or default


def run_options(
    workers: int | None = None,
    max_rejects: float | str = 0.01,
    strict: bool = False,
    restart: bool = False,
    engine: Any = None,
    progress: Progress | None = None,
) -> RunOptions:
    """The options as a user gave them, checked.

    engine: an engine, an executor, or a function that connects to a cluster. Raises UsageError.
    """
    if engine is not None and workers is not None:
        raise UsageError(
            "--workers applies to --engine local only: a cluster or an executor decides itself how many parts it runs "
            "at once"
        )
    if workers is not None and workers < 0:
        raise UsageError(f"--workers {workers}: 0 or more")
    parts_by = engine if _connects(engine) else as_engine(engine)
    return RunOptions(workers, parse_share(max_rejects), strict, restart, parts_by, progress or NoProgress())


def parse_share(given: float | str) -> float:
    """`--max-rejects`: "1%", "0.01", or a number of samples. Raises UsageError."""
    text = str(given).strip()
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = math.nan
    if text == "100%":
        return _ALL
    if not 0 <= share < 10 * _ALL or (share >= 1 and (text.endswith("%") or share != int(share))):
        raise UsageError(f"--max-rejects {text!r}: a share such as 1% or 0.01, or a number of samples")
    return share


def _connects(engine: Any) -> TypeGuard[Connect]:
    return callable(engine) and not hasattr(engine, "run")
