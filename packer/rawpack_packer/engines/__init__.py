"""Engines, which run the parts of a packing job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rawpack.errors import UsageError
from rawpack_packer.lazy import on_first_use
from rawpack_packer.options import opt

if TYPE_CHECKING:
    from rawpack_packer.engines.clusters import DaskEngine, RayEngine
    from rawpack_packer.engines.executor import ExecutorEngine
    from rawpack_packer.engines.local import Engine, InlineEngine, LocalEngine, Report

__all__ = [
    "DaskEngine",
    "Engine",
    "ExecutorEngine",
    "InlineEngine",
    "LocalEngine",
    "RayEngine",
    "Report",
    "as_engine",
    "engine_at",
]

if not TYPE_CHECKING:  # type checkers see the imports above
    _LOCAL = dict.fromkeys(("Engine", "InlineEngine", "LocalEngine", "Report"), "local")
    # A local worker, which imports this package when it starts, needs no cluster; who asks for one, nothing that packs.
    __getattr__, __dir__ = on_first_use(
        __name__, {"DaskEngine": "clusters", "RayEngine": "clusters", "ExecutorEngine": "executor", **_LOCAL}
    )


def engine_at(name: str, address: str | None, timeout: float | None = None) -> DaskEngine | RayEngine | None:
    """The connected engine for `--engine`, `--address` and `--engine-timeout`, which the caller closes; None for the
    local engine.

    Raises UsageError for a missing or malformed address, PackError where no cluster answers, MissingExtraError where
    the cluster's library is not installed.
    """
    if name == "local":
        if address is not None or timeout is not None:
            option = str(opt.address) if address is not None else str(opt.engine_timeout)
            raise UsageError(
                f"{option} applies to a cluster: name its kind by {opt.engine('dask')} or {opt.engine('ray')}"
            )
        return None
    if address is None:
        example = "tcp://host:8786, where a Dask scheduler listens" if name == "dask" else "auto, or host:6379"
        raise UsageError(f"{opt.engine(name)} needs {opt.address}: {example}")
    from rawpack_packer.engines import clusters

    if name == "ray":
        return clusters.RayEngine(address, timeout=timeout)
    _silence_dask()
    return clusters.DaskEngine(address, timeout=timeout)


def _silence_dask() -> None:
    """Turn off Dask's logging in the command's process: rawpack reports each error itself, once."""
    try:
        import dask
    except ImportError:
        return  # the engine raises MissingExtraError
    # Read when `distributed` is imported.
    names = ("distributed", "distributed.client", "distributed.core", "distributed.comm", "tornado", "asyncio")
    dask.config.set({"logging": dict.fromkeys((*names, "tornado.application"), "critical")})


def as_engine(thing: Any) -> Engine | None:
    """The engine for a user's `engine=`, which is an engine, an executor, a Dask client or None. Raises UsageError for
    anything else."""
    library = type(thing).__module__.partition(".")[0]
    if library == "distributed" and hasattr(thing, "nthreads"):  # it has a `run` too
        from rawpack_packer.engines.clusters import DaskEngine

        return DaskEngine(thing)
    if thing is None or hasattr(thing, "run"):
        engine: Engine | None = thing
        return engine
    from concurrent.futures import Executor

    if isinstance(thing, Executor) or library in ("submitit", "mpi4py"):
        from rawpack_packer.engines.executor import ExecutorEngine

        return ExecutorEngine(thing)
    raise UsageError(
        f"engine= takes an engine of rawpack_packer.engines, an executor or a Dask client, not a {type(thing).__name__}"
    )
