"""Ray: the nodes of a cluster that runs already. Comes with the extra `rawpack[ray]`."""

from __future__ import annotations

import os
import pickle
import platform
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rawpack.errors import MissingExtraError, PackError, UsageError
from rawpack_packer import text
from rawpack_packer.engines import remote_worker
from rawpack_packer.engines.address import host_and_port, knock, no_answer
from rawpack_packer.engines.pooled import ANSWER_S, TAKEN_S, Call, PooledEngine

EXAMPLE = "auto, host:6379, or ray://host:10001"
_CLUSTER = "Ray cluster"
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client of HTTP/2 begins, and so of gRPC: with its (empty) settings. A server answers with its own."""
_SETTINGS = 4
"""The fourth byte of them."""


class RayEngine(PooledEngine):
    """See `Engine`. One part for each CPU of the cluster."""

    def __init__(self, address: str | None = None, *, timeout: float | None = None, patience_s: float = 3600.0) -> None:
        """address: "auto" for the cluster that this machine belongs to, "host:6379", "ray://host:10001"; None takes the
        one that this process is connected to, which stays its owner's.

        timeout: seconds to wait for an answer from the cluster, then for a worker to take a part; None takes 10 and 60.
        Raises MissingExtraError without `ray`, UsageError for what is no address, PackError where no cluster answers.
        """
        where = None
        if address not in (None, "auto"):
            where = host_and_port(address, _CLUSTER, ("ray",), EXAMPLE)
        try:
            import ray
        except ImportError:
            raise MissingExtraError("packing by Ray needs ray: pip install 'rawpack[ray]'") from None
        self._ray, self._own = ray, address is not None
        if address is not None:
            _connect(ray, address, where, ANSWER_S if timeout is None else timeout)
        elif not ray.is_initialized():
            raise UsageError("this process is connected to no Ray cluster: name its address")
        super().__init__(_Ray(ray), timeout=TAKEN_S if timeout is None else timeout, patience_s=patience_s)

    def close(self) -> None:
        """Leave the cluster."""
        if self._own:
            self._ray.shutdown()

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _connect(ray: Any, address: str, where: tuple[str, int] | None, timeout: float) -> None:
    """Connect this process with the cluster. Where something else listens than Ray, Ray would wait for minutes."""
    try:
        if where is not None:
            knock(*where, timeout)
            _greet(*where, timeout)
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except TimeoutError as error:
        raise no_answer(address, _CLUSTER, TimeoutError(f"not within {timeout:g} s")) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise no_answer(address, _CLUSTER, error) from error


def _greet(host: str, port: int, timeout: float) -> None:
    """Raise OSError where what listens there does not speak gRPC, as Ray does."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return  # it would say nothing to who has no certificate
    with socket.create_connection((host, port), timeout=timeout) as connection:
        connection.sendall(_HELLO)
        answer = connection.recv(9)
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise OSError("something else than Ray listens there")


class _Ray:
    """See `Pool`."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

        def load(pickled: bytes) -> Any:
            try:
                return pickle.loads(pickled)
            except (ImportError, AttributeError, SyntaxError) as error:
                raise ImportError(f"on host {platform.node()}: {error}") from None

        # Travels by value, being local to a function. Done again by rawpack, which counts the deaths.
        self._load = ray.remote(num_cpus=1, max_retries=0)(load)

    def slots(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def room(self) -> str:
        free = int(self._ray.available_resources().get("CPU", 0))
        return f"{free} of {text.count(self.slots(), 'CPU')} of the Ray cluster {'is' if free == 1 else 'are'} free"

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        return _RayCall(self._load.remote(pickle.dumps(remote_worker.PickledCall(function, order))))

    def deaths(self, error: BaseException, /) -> int:
        known = self._ray.exceptions
        if isinstance(
            error,
            known.WorkerCrashedError
            | known.NodeDiedError
            | known.LocalRayletDiedError
            | known.OutOfMemoryError
            | known.ObjectLostError,
        ):
            return 1
        if isinstance(error, ImportError):
            raise PackError(f"{remote_worker.UNFIT} {getattr(error, 'cause', error)}") from error
        raise PackError(f"Ray could not run a part: {error!r}. The same command goes on") from error


class _RayCall:
    """See `Call`."""

    def __init__(self, reference: Any) -> None:
        self._future = reference.future()

    def done(self) -> bool:
        return bool(self._future.done())

    def result(self) -> Any:
        return self._future.result()

    def cancel(self) -> None:
        """Nothing: where `ray.cancel` meets the end of its task, Ray aborts this process (2.60, "Tried to complete task
        that was not pending"). A part that begins later finds that its run has ended."""

    def add_done_callback(self, function: Callable[[Any], object]) -> None:
        self._future.add_done_callback(function)
