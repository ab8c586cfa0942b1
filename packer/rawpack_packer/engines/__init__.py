"""What runs the parts of a packing job."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rawpack.errors import UsageError
from rawpack_packer.engines.contract import Engine, Report
from rawpack_packer.engines.inline import InlineEngine
from rawpack_packer.engines.local import LocalEngine

if TYPE_CHECKING:
    from rawpack_packer.engines.dask import DaskEngine
    from rawpack_packer.engines.executor import ExecutorEngine
    from rawpack_packer.engines.ray import RayEngine

__all__ = [
    "ENGINES",
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

ENGINES = ("local", "dask", "ray")
"""What the command knows."""


_LATER = {"DaskEngine": "dask", "ExecutorEngine": "executor", "RayEngine": "ray"}
"""Engine -> its module, which a worker of this machine has no use for."""


if not TYPE_CHECKING:  # who checks types knows all names

    def __getattr__(name: str) -> Any:
        """An engine for other machines, loaded when it is first asked for."""
        if name in _LATER:
            return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*globals(), *_LATER]


def engine_at(name: str, address: str | None, timeout: float | None = None) -> DaskEngine | RayEngine | None:
    """The engine of `--engine`, `--address` and `--engine-timeout`, connected, for the caller to close; None for the
    local one.

    Raises UsageError where it has no address, or what is none; PackError where none answers; MissingExtraError where
    its library is missing.
    """
    if name == "local":
        if address is not None or timeout is not None:
            given = "--address" if address is not None else "--engine-timeout"
            raise UsageError(f"{given} applies to a cluster: name its kind by --engine dask or --engine ray")
        return None
    if address is None:
        example = "tcp://host:8786, where a Dask scheduler listens" if name == "dask" else "auto, or host:6379"
        raise UsageError(f"--engine {name} needs --address: {example}")
    if name == "dask":
        _hush_dask()
        from rawpack_packer.engines.dask import DaskEngine

        return DaskEngine(address, timeout=timeout)
    from rawpack_packer.engines.ray import RayEngine

    return RayEngine(address, timeout=timeout)


def _hush_dask() -> None:
    """Have Dask log nothing in the command's process: what is wrong is said once, and by rawpack."""
    try:
        import dask
    except ImportError:
        return  # said by the engine
    # Read when `distributed` is imported.
    names = ("distributed", "distributed.client", "distributed.core", "distributed.comm", "tornado", "asyncio")
    dask.config.set({"logging": dict.fromkeys((*names, "tornado.application"), "critical")})


def as_engine(thing: Any) -> Engine | None:
    """What a user passes as `engine=`: an engine, or any `concurrent.futures.Executor`. Raises UsageError for what is
    none."""
    if thing is None or hasattr(thing, "run"):
        engine: Engine | None = thing
        return engine
    from concurrent.futures import Executor

    if isinstance(thing, Executor) or type(thing).__module__.partition(".")[0] in ("submitit", "mpi4py"):
        from rawpack_packer.engines.executor import ExecutorEngine

        return ExecutorEngine(thing)
    raise UsageError(
        f"engine= takes an engine of rawpack_packer.engines, or an executor, not a {type(thing).__name__}; of a Dask "
        "client: DaskEngine(client)"
    )
