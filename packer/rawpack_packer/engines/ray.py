"""The engine for a running Ray cluster, which needs the extra `rawpack[ray]`."""

from __future__ import annotations

import os
import pickle
import platform
import socket
from collections.abc import Callable
from typing import Any

from rawpack.errors import PackError, UsageError
from rawpack_packer import text
from rawpack_packer.engines import remote_worker
from rawpack_packer.engines.address import host_and_port, knock, no_answer
from rawpack_packer.engines.pooled import ANSWER_S, Call, PooledEngine
from rawpack_packer.errors import need
from rawpack_packer.voice import again

_EXAMPLE = "auto, host:6379, or ray://host:10001"
_CLUSTER = "Ray cluster"
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How an HTTP/2 client, and so a gRPC client, begins: with its (empty) settings. A server answers with its own."""
_SETTINGS = 4
"""The fourth byte of a settings frame."""


class RayEngine(PooledEngine):
    """See `Engine`. Runs one part for each CPU of the cluster."""

    def __init__(self, address: str | None = None, *, timeout: float | None = None, patience_s: float = 3600.0) -> None:
        """address: "auto" for the cluster that this machine belongs to, "host:6379" or "ray://host:10001"; None uses
        the connection that this process already has, and leaves it open.

        timeout: seconds to wait for the cluster to answer, and then for a worker to take a part; None for 10 and 60.
        Raises MissingExtraError without `ray`, UsageError for a malformed address, PackError where no cluster answers.
        """
        where = None
        if address not in (None, "auto"):
            where = host_and_port(address, _CLUSTER, ("ray",), _EXAMPLE)
        ray = need("ray", "ray", "packing by Ray")
        self._ray, self._own = ray, address is not None
        if address is not None:
            _connect(ray, address, where, ANSWER_S if timeout is None else timeout)
        elif not ray.is_initialized():
            raise UsageError("this process is not connected to a Ray cluster: give its address")
        super().__init__(_Ray(ray), timeout=timeout, patience_s=patience_s)

    def close(self) -> None:
        if self._own:
            self._ray.shutdown()


def _connect(ray: Any, address: str, where: tuple[str, int] | None, timeout: float) -> None:
    """Connect this process to the cluster. Ray itself would wait for minutes where something else listens."""
    try:
        if where is not None:
            knock(*where, timeout)
            _greet(*where, timeout)
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        raise no_answer(address, _CLUSTER, timeout, error) from error


def _greet(host: str, port: int, timeout: float) -> None:
    """Raise OSError where the server there does not speak gRPC, as Ray does."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return  # it answers no client without a certificate
    with socket.create_connection((host, port), timeout=timeout) as connection:
        connection.sendall(_HELLO)
        answer = connection.recv(9)
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise OSError("something other than Ray listens there")


class _Ray:
    """See `Pool`."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

        def load(pickled: bytes) -> Any:
            try:
                return pickle.loads(pickled)
            except (ImportError, AttributeError, SyntaxError) as error:
                raise ImportError(f"on host {platform.node()}: {error}") from None

        # Pickled by value, because it is local to a function. rawpack retries, as it counts the deaths.
        self._load = ray.remote(num_cpus=1, max_retries=0)(load)

    def slots(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def room(self) -> str:
        free = int(self._ray.available_resources().get("CPU", 0))
        return f"{free} of {text.count(self.slots(), 'CPU')} of the Ray cluster {'is' if free == 1 else 'are'} free"

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        return _RayCall(self._load.remote(pickle.dumps(remote_worker.PickledCall(function, order))).future())

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
        raise PackError(f"Ray could not run a part: {error!r}; {again()} resumes") from error


class _RayCall:
    """See `Call`."""

    def __init__(self, future: Any) -> None:
        self.done, self.result, self.add_done_callback = future.done, future.result, future.add_done_callback

    def cancel(self) -> None:
        """Does nothing: where `ray.cancel` meets the end of its task, Ray aborts this process (2.60, "Tried to complete
        task that was not pending"). A part that begins later finds that its run has ended."""
