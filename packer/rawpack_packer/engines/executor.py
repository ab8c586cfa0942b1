"""Any `concurrent.futures.Executor`: process pools, MPI by `mpi4py.futures`; and submitit's, which is much like one."""

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
    """See `Engine`. The executor stays its owner's, who shuts it down."""

    def __init__(
        self, executor: Any, *, slots: int | None = None, timeout: float = 3600.0, patience_s: float = 3600.0
    ) -> None:
        """executor: what has `submit(function, argument)`, giving something with `done`, `result` and `cancel`.

        slots: how many parts it does side by side; None asks the executor, and where it does not say takes one for
        each CPU of this machine. timeout: seconds to wait for a worker of it to take a part: jobs may stand in a queue.
        """
        super().__init__(_Executor(executor, slots), timeout=timeout, patience_s=patience_s)


class _Executor:
    """See `Pool`."""

    def __init__(self, executor: Any, slots: int | None) -> None:
        # The standard library's executors keep it to themselves; that of mpi4py has `num_workers`.
        said = (getattr(executor, name, None) for name in ("num_workers", "_max_workers"))
        self._slots = slots or next((count for count in said if isinstance(count, int)), None) or machine.cpus()
        self._executor = executor

    def slots(self) -> int:
        return self._slots

    def room(self) -> str:
        return f"the executor, {text.count(self._slots, 'part')} at a time, has begun none"

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        try:
            call: Call = self._executor.submit(function, order)
        except RuntimeError as error:  # it was shut down; or is a BrokenExecutor
            raise self._gone(error) from error
        return call

    def deaths(self, error: BaseException, /) -> int:
        if isinstance(error, BrokenExecutor):
            raise self._gone(error) from error
        # Of submitit, by its name, so that it need not be there: a job that was ended, not one that failed.
        if type(error).__name__ == "UncompletedJobError":
            return 1
        unfit = f"{remote_worker.UNFIT} " if isinstance(error, ImportError) else ""
        raise PackError(f"{unfit}the executor could not run a part: {error!r}") from error

    def _gone(self, error: BaseException) -> PackError:
        return PackError(
            f"the executor takes no more parts ({type(error).__name__}: {error}): a worker of it may have died, of too "
            "little memory say. The same call with a new executor goes on"
        )
