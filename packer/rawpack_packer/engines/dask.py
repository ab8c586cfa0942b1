"""The engine for a running Dask cluster, which needs the extra `rawpack[dask]`."""

from __future__ import annotations

import asyncio
import pickle
import pkgutil
import platform
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

from rawpack.errors import PackError
from rawpack_packer import text
from rawpack_packer.engines import remote_worker
from rawpack_packer.engines.address import host_and_port, knock, no_answer
from rawpack_packer.engines.pooled import ANSWER_S, Call, PooledEngine
from rawpack_packer.errors import need
from rawpack_packer.voice import again

_SCHEMES = ("tcp", "tls", "ucx", "ws", "wss")
_EXAMPLE = "tcp://host:8786, where a Dask scheduler listens"
_SCHEDULER = "Dask scheduler"
_ASK_S = 10.0
"""How long workers have to say whether they can pack."""
_NAMED = 5
"""How many unfit workers an error names."""


class DaskEngine(PooledEngine):
    """See `Engine`. Runs one part for each thread of the cluster's workers."""

    def __init__(self, cluster: Any, *, timeout: float | None = None, patience_s: float = 3600.0) -> None:
        """cluster: a scheduler's address, "tcp://host:8786", or a `distributed.Client`, which the caller closes.

        timeout: seconds to wait for the scheduler to answer, and then for a worker to take a part; None for 10 and 60.
        Raises MissingExtraError without `distributed`, UsageError for a malformed address, PackError where no
        scheduler answers.
        """
        where = host_and_port(cluster, _SCHEDULER, _SCHEMES, _EXAMPLE) if isinstance(cluster, str) else None
        distributed = need("distributed", "dask", "packing by Dask")
        self._own = None
        if where is not None:
            cluster = self._own = _client(distributed, cluster, where, ANSWER_S if timeout is None else timeout)
        super().__init__(_Dask(distributed, cluster), timeout=timeout, patience_s=patience_s)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


def _client(distributed: Any, address: str, where: tuple[str, int], timeout: float) -> Any:
    """A client of the scheduler at this address.

    A client that cannot connect logs tracebacks and blocks for a minute when it is collected, so the scheduler is asked
    first.
    """

    async def kind() -> str:
        options = distributed.Security().get_connection_args("client")
        async with distributed.rpc(address, connection_args=options) as there:
            return str((await asyncio.wait_for(there.identity(), timeout))["type"])

    try:
        if not address.startswith("ucx:"):
            knock(*where, timeout)
        with ThreadPoolExecutor(1) as thread:  # a notebook's own thread already runs an event loop
            found = thread.submit(asyncio.run, kind()).result()
        if found != "Scheduler":
            raise PackError(f"no Dask scheduler answers at {address}: a {found} does")
        return distributed.Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise no_answer(address, _SCHEDULER, timeout, error) from error


class _Dask:
    """See `Pool`."""

    def __init__(self, distributed: Any, client: Any) -> None:
        self._distributed, self._client = distributed, client

    def slots(self) -> int:
        return sum(self._threads().values())

    def room(self) -> str:
        workers = self._threads()
        if not workers:
            return "the Dask cluster has no workers"
        return f"the Dask cluster has {text.count(len(workers), 'worker')}, busy with other work or stuck"

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        with warnings.catch_warnings():
            # A dataset in memory is sent along with its parts, as the user asked.
            warnings.filterwarnings("ignore", message="Sending large graph")
            call: Call = self._client.submit(
                pickle.loads, pickle.dumps(remote_worker.PickledCall(function, order)), pure=False
            )
        return call

    def deaths(self, error: BaseException, /) -> int:
        # Dask itself gives the task of a dead worker to others, and raises after this many deaths.
        if isinstance(error, self._distributed.KilledWorker):
            return int(error.allowed_failures) + 1
        if isinstance(error, CancelledError | asyncio.CancelledError):
            raise PackError(
                f"the Dask scheduler is gone, or has dropped a part ({error!r}); {again()} resumes, also with "
                "another scheduler"
            ) from error
        if isinstance(error, ImportError | AttributeError | SyntaxError):
            who = self._unfit() or f"a worker: {error}"
            raise PackError(f"{remote_worker.UNFIT} {who}") from error
        raise PackError(f"Dask could not run a part: {error!r}; {again()} resumes") from error

    def _threads(self) -> dict[str, int]:
        """Address of each worker -> its number of threads."""
        try:
            threads: dict[str, int] = self._client.nthreads()
        except (OSError, ValueError) as error:
            raise PackError(f"the Dask scheduler is gone ({error}); {again()} resumes with another") from error
        return threads

    def _unfit(self) -> str:
        """The workers that cannot import what packs, each with its error; "" where none answers in time."""
        said: list[str] = []

        def ask() -> None:
            found = self._client.run(pkgutil.resolve_name, f"{remote_worker.__name__}:__name__", on_error="return")
            bad = {worker: error for worker, error in found.items() if isinstance(error, BaseException)}
            hosts = self._client.run(platform.node, workers=list(bad)) if bad else {}
            said.extend(f"on host {hosts[worker]} ({worker}): {error}" for worker, error in bad.items())

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_ASK_S)
        return text.listed(said, _NAMED, separator="; ")
