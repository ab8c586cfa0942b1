"""Dask: the workers of a scheduler that runs already. Comes with the extra `rawpack[dask]`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rawpack.errors import MissingExtraError, PackError, UsageError
from rawpack_packer.engines.pooled import Call, PooledEngine

_CONNECT_S = 30.0


class DaskEngine(PooledEngine):
    """See `Engine`. One part for each thread of the cluster's workers."""

    def __init__(self, cluster: Any, *, patience_s: float = 3600.0) -> None:
        """cluster: a scheduler's address, "tcp://host:8786"; or a `distributed.Client`, which stays its owner's.

        Raises MissingExtraError without `distributed`, UsageError where no scheduler answers.
        """
        try:
            import distributed
        except ImportError:
            raise MissingExtraError("packing by Dask needs distributed: pip install 'rawpack[dask]'") from None
        self._own = None
        if isinstance(cluster, str):
            try:
                cluster = self._own = distributed.Client(cluster, timeout=_CONNECT_S, set_as_default=False)
            except (OSError, ValueError) as error:
                raise UsageError(f"no Dask scheduler answers at {cluster}: {error}") from None
        super().__init__(_Dask(distributed, cluster), patience_s=patience_s)

    def close(self) -> None:
        """Leave the cluster."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Dask:
    """See `Pool`."""

    def __init__(self, distributed: Any, client: Any) -> None:
        self._distributed, self._client = distributed, client

    def slots(self) -> int:
        try:
            return sum(self._client.nthreads().values())
        except (OSError, ValueError) as error:
            raise PackError(f"the Dask scheduler is gone ({error}); the same command goes on with another") from error

    def submit(self, function: Callable[[bytes], Any], order: bytes, /) -> Call:
        with warnings.catch_warnings():
            # A dataset that lies in memory travels with its parts: that is what was asked for.
            warnings.filterwarnings("ignore", message="Sending large graph")
            call: Call = self._client.submit(function, order, pure=False)
        return call

    def deaths(self, error: BaseException, /) -> int:
        # Dask gives a task whose worker died to others itself, and raises when that many have died of it.
        if isinstance(error, self._distributed.KilledWorker):
            return int(error.allowed_failures) + 1
        raise PackError(f"Dask could not run a part: {error!r}. The same command goes on") from error
