"""The engine for any `concurrent.futures.Executor`: process pools, MPI by `mpi4py.futures`, Slurm by submitit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from typing import Any

from rawpack.errors import PackError
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.engines import remote_worker
from rawpack_packer.engines.pooled import Call, PooledEngine


class ExecutorEngine(PooledEngine):
    """See `Engine`. The caller shuts the executor down."""

    def __init__(
        self, executor: Any, *, slots: int | None = None, timeout: float = 3600.0, patience_s: float = 3600.0
    ) -> None:
        """executor: has `submit(function, argument)`, which returns an object with `done`, `result` and `cancel`.

        slots: how many parts it runs side by side; None asks the executor, and falls back to the CPUs of this machine.
        timeout: seconds to wait for one of its workers to take a part; long, because jobs may wait in a queue.
        """
        super().__init__(_Executor(executor, slots), timeout=timeout, patience_s=patience_s)


class _Executor:
    """See `Pool`."""

    def __init__(self, executor: Any, slots: int | None) -> None:
        # mpi4py's executor has `num_workers`; those of the standard library only a private attribute.
        known = (getattr(executor, name, None) for name in ("num_workers", "_max_workers"))
        self._slots = slots or next((count for count in known if isinstance(count, int)), None) or machine.cpus()
        self._executor = executor

    def slots(self) -> int:
        return self._slots

    def room(self) -> str:
        return f"the executor, {text.count(self._slots, 'part')} at a time, has begun none"

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        try:
            call: Call = self._executor.submit(function, order)
        except RuntimeError as error:  # it was shut down, or is a BrokenExecutor
            raise self._gone(error) from error
        return call

    def deaths(self, error: BaseException, /) -> int:
        if isinstance(error, BrokenExecutor):
            raise self._gone(error) from error
        # submitit raises this for a job that was ended from outside. By name, as submitit may not be installed.
        if type(error).__name__ == "UncompletedJobError":
            return 1
        unfit = f"{remote_worker.UNFIT} " if isinstance(error, ImportError) else ""
        raise PackError(f"{unfit}the executor could not run a part: {error!r}") from error

    def _gone(self, error: BaseException) -> PackError:
        return PackError(
            f"the executor takes no more parts ({type(error).__name__}: {error}): one of its workers may have died, "
            "perhaps out of memory. The same call with a new executor resumes"
        )
