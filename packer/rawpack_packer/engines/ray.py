"""Ray: the nodes of a cluster that runs already. Comes with the extra `rawpack[ray]`."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rawpack.errors import MissingExtraError, PackError, UsageError
from rawpack_packer.engines.pooled import Call, PooledEngine

_CONNECT_S = 30.0


class RayEngine(PooledEngine):
    """See `Engine`. One part for each CPU of the cluster."""

    def __init__(self, address: str | None = None, *, patience_s: float = 3600.0) -> None:
        """address: "auto" for the cluster that this machine belongs to, "host:6379", "ray://host:10001"; None takes the
        one that this process is connected to, which stays its owner's.

        Raises MissingExtraError without `ray`, UsageError where no cluster answers.
        """
        try:
            import ray
        except ImportError:
            raise MissingExtraError("packing by Ray needs ray: pip install 'rawpack[ray]'") from None
        self._ray, self._own = ray, address is not None
        if address is not None:
            try:
                _knock(address)
                ray.init(address, log_to_driver=False, logging_level="ERROR")
            except (OSError, RuntimeError, ValueError) as error:
                raise UsageError(f"no Ray cluster answers at {address}: {error}") from None
        elif not ray.is_initialized():
            raise UsageError("this process is connected to no Ray cluster: name its address")
        super().__init__(_Ray(ray), patience_s=patience_s)

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


def _knock(address: str) -> None:
    """Raise OSError where nobody listens at host:port: Ray would try again for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


class _Ray:
    """See `Pool`."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._functions: dict[Callable[[bytes], Any], Any] = {}
        """Function -> what Ray calls it by: each is sent to the cluster once."""

    def slots(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        if function not in self._functions:
            # Done again by rawpack, which counts the deaths.
            self._functions[function] = self._ray.remote(num_cpus=1, max_retries=0)(function)
        return _RayCall(self._ray, self._functions[function].remote(order))

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
        raise PackError(f"Ray could not run a part: {error!r}. The same command goes on") from error


class _RayCall:
    """See `Call`."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference, self._future = ray, reference, reference.future()

    def done(self) -> bool:
        return bool(self._future.done())

    def result(self) -> Any:
        return self._future.result()

    def cancel(self) -> None:
        self._ray.cancel(self._reference, force=True)

    def add_done_callback(self, function: Callable[[Any], object]) -> None:
        self._future.add_done_callback(function)
