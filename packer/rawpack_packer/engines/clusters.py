"""The engines for a running Dask or Ray cluster, which need the extras `rawpack[dask]` and `rawpack[ray]`."""

from __future__ import annotations

import re
import socket
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from rawpack.errors import PackError, UsageError
from rawpack_packer.engines.executor import Call, ExecutorEngine
from rawpack_packer.errors import need

_ANSWER_S = 20.0
"""How long a cluster may take to answer, and then a worker to begin a part."""
_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<host>[\w.-]+|\[[\w:.%]+\]):(?P<port>[0-9]{1,5})/?")


class DaskEngine(ExecutorEngine):
    """See `Engine`. Runs one part for each thread of the cluster's workers."""

    def __init__(self, cluster: Any, *, timeout: float | None = None, patience_s: float = 3600.0) -> None:
        """cluster: a scheduler's address, "tcp://host:8786", or a `distributed.Client`, which the caller closes.

        timeout: seconds to wait for the scheduler to answer, and then for a worker to take a part; None for 20. Raises
        MissingExtraError without `distributed`, UsageError for a malformed address, PackError where no scheduler
        answers.
        """
        timeout = _ANSWER_S if timeout is None else timeout
        self._own = None
        if isinstance(cluster, str):
            what, address = "Dask scheduler", cluster
            where = _parsed(address, what, ("tcp", "tls", "ucx", "ws", "wss"), "tcp://host:8786")
            distributed = need("distributed", "dask", "packing by Dask")

            def connect() -> Any:
                return distributed.Client(address, timeout=timeout, set_as_default=False)

            cluster = self._own = _connected(what, address, where, timeout, connect)
        name = f"the Dask cluster at {cluster.scheduler.address}"
        super().__init__(_DaskExecutor(cluster), timeout=timeout, patience_s=patience_s, name=name)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


class RayEngine(ExecutorEngine):
    """See `Engine`. Runs one part for each CPU of the cluster."""

    def __init__(self, address: str | None = None, *, timeout: float | None = None, patience_s: float = 3600.0) -> None:
        """address: "auto" for the cluster that this machine belongs to, "host:6379" or "ray://host:10001"; None uses
        the connection that this process already has, and leaves it open.

        timeout: seconds to wait for the cluster to answer, and then for a worker to take a part; None for 20. Raises
        MissingExtraError without `ray`, UsageError for a malformed address, PackError where no cluster answers.
        """
        timeout = _ANSWER_S if timeout is None else timeout
        what, where = "Ray cluster", None
        if address not in (None, "auto"):
            where = _parsed(address, what, ("ray",), "auto, host:6379, or ray://host:10001")
        ray = self._ray = need("ray", "ray", "packing by Ray")
        self._own = address is not None
        if address is not None:

            def connect() -> Any:
                return ray.init(address, log_to_driver=False, logging_level="ERROR")

            _connected(what, address, where, timeout, connect)
        elif not ray.is_initialized():
            raise UsageError("this process is not connected to a Ray cluster: give its address")
        name = f"the Ray cluster at {ray.get_runtime_context().gcs_address}"
        super().__init__(_RayExecutor(ray), timeout=timeout, patience_s=patience_s, name=name)

    def close(self) -> None:
        if self._own:
            self._ray.shutdown()


class _DaskExecutor:
    """A Dask client as `ExecutorEngine` takes it."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def num_workers(self) -> int:
        return sum(self._client.nthreads().values())

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        with warnings.catch_warnings():
            # A dataset in memory is sent along with its parts, as the user asked.
            warnings.filterwarnings("ignore", message="Sending large graph")
            call: Call = self._client.submit(_carried(function), order, pure=False)
        return call


class _RayExecutor:
    """Ray as `ExecutorEngine` takes it."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    @property
    def num_workers(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        # rawpack retries, as it counts the deaths.
        remote = self._ray.remote(num_cpus=1, max_retries=0)(_carried(function))
        future = remote.remote(order).future()
        # Where `ray.cancel` meets the end of its task, Ray aborts this process (2.60, "Tried to complete task that was
        # not pending"). A part that begins later finds that its run has ended.
        call: Call = SimpleNamespace(
            done=future.done, result=future.result, cancel=lambda: None, add_done_callback=future.add_done_callback
        )
        return call


def _carried(function: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A module's function as one that is sent by value. So a worker without rawpack can receive it, as can a scheduler,
    and say what is missing, and on which host; a Dask worker that cannot unpickle a function closes itself."""
    module, name = function.__module__, function.__qualname__

    def call(order: bytes) -> Any:
        import importlib
        import platform

        try:
            called = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, SyntaxError) as error:
            raise ImportError(f"on host {platform.node()}: {error}") from None
        return called(order)

    return call


def _parsed(address: str, what: str, schemes: tuple[str, ...], example: str) -> tuple[str, int]:
    """Host and port of "tcp://host:8786" or "host:8786". Raises UsageError with the example for anything else.

    what: what should listen there.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or match["scheme"] not in (None, *schemes) or not 0 < int(match["port"]) < 1 << 16:
        raise UsageError(f"{address!r} is not the address of a {what}: give {example}")
    return match["host"].strip("[]"), int(match["port"])


def _connected(
    what: str, address: str, where: tuple[str, int] | None, timeout: float, connect: Callable[[], Any]
) -> Any:
    """What `connect` returns, by a thread of its own: where something else listens, those libraries wait for minutes.

    Raises PackError where it takes longer than `timeout`, or fails.
    """
    made: Future[Any] = Future()

    def run() -> None:
        try:
            made.set_result(connect())
        except BaseException as error:
            made.set_exception(error)

    try:
        if where is not None and not address.startswith("ucx:"):
            _knock(*where, timeout)
        threading.Thread(target=run, daemon=True).start()
        return made.result(timeout)
    except TimeoutError as error:
        raise PackError(f"no {what} answers at {address}: not within {timeout:g} s") from error
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise PackError(f"no {what} answers at {address}: {why}") from error


def _knock(host: str, port: int, timeout: float) -> None:
    """Return once something accepts connections there. Raises OSError where nothing does in time."""
    until = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection((host, port), timeout=max(until - time.monotonic(), 0.01)).close()
        except ConnectionRefusedError:  # it may be starting
            if time.monotonic() >= until:
                raise
            time.sleep(0.1)
