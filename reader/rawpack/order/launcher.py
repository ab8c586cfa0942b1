"""The ranks of `Reader.batches`: which of how many processes this is, as the user says, torch.distributed, or the
launcher that started it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.order.ranks import Last
from rawpack.system.user import suggesting, warn_once

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "Lightning": ("LOCAL_RANK", "WORLD_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "MPICH or Intel MPI": ("PMI_RANK", "PMI_SIZE"),
    "SLURM": ("SLURM_PROCID", "SLURM_NTASKS"),
}
"""Launcher -> its variables, the innermost first: SLURM often starts torchrun and mpirun, and then counts nodes, not
processes."""

CURE = (
    "start the processes by torchrun, mpirun or srun, call batches() when torch.distributed is initialized, as in "
    "Lightning's train_dataloader(), or give ranks=(rank, world_size)"
)


@suggesting
@dataclass(frozen=True)
class Ranks:
    """For `ranks=` of `Reader.batches`: which of how many processes this is, and what the last step of an epoch is.

        reader.batches(256, ranks=Ranks("auto", last="keep"))

    rank, world_size: the rank, counted from 0, of how many. Or only "auto": whenever an epoch begins,
        torch.distributed, JAX or Accelerate is asked if this process has initialized it, else the launcher's variables
        in the environment; without any of them, the answer is 0 of 1.
    last: where the samples that are left for the last step do not divide: "pad" (the default, also as None) repeats
        samples from the start of the epoch, so that all ranks get equal batches; "keep" has each sample once.
    """

    rank: int | Literal["auto"] = "auto"
    world_size: int | None = None
    _: KW_ONLY
    last: Last | None = None

    def __post_init__(self) -> None:
        if isinstance(self.rank, str):
            if self.rank != "auto" or self.world_size is not None:
                raise UsageError(f'ranks={self!r} must be "auto" alone, or (rank, world_size), such as (0, 4)')
        elif self.world_size is None:
            raise UsageError(
                f'ranks={self!r} does not say of how many: pass (rank, world_size), such as (0, 4), or "auto"'
            )
        else:
            world_size, rank = whole_number("world_size", self.world_size, 1), whole_number("rank", self.rank, 0)
            if rank >= world_size:
                raise UsageError(f"rank={rank} must be below world_size={world_size}")
            object.__setattr__(self, "world_size", world_size)
            object.__setattr__(self, "rank", rank)
        if self.last not in (None, "pad", "keep"):
            raise UsageError(f"last={self.last!r} must be 'pad' or 'keep'")

    def __repr__(self) -> str:
        given = ['"auto"'] if self.rank == "auto" and self.world_size is None else [repr(self.rank)]
        given += [] if self.world_size is None else [repr(self.world_size)]
        return f"Ranks({', '.join([*given, *([] if self.last is None else [f'last={self.last!r}'])])})"


def ranks_of(value: object) -> Ranks | None:
    if value is None or isinstance(value, Ranks):
        return value
    if isinstance(value, str):
        return Ranks(value)  # type: ignore[arg-type] # it raises for others than "auto"
    if isinstance(value, tuple | list) and len(value) == 2:
        return Ranks(*value)
    raise UsageError(f'ranks={value!r} must be None, "auto", (rank, world_size), such as (0, 4), or Ranks(...)')


def resolve_rank(
    ranks: Ranks | None = None, environ: Mapping[str, str] | None = None, known: tuple[int, int] = (0, 1)
) -> tuple[int, int]:
    """(rank, world_size) now.

    ranks: None means 0 of 1: see `check_alone`.
    environ: os.environ, or other variables of a launcher.
    known: what "auto" answered before. The environment is not asked again once it has named a world of more than one.

    Raises UsageError for variables of a launcher that are incomplete or invalid.
    """
    environ = os.environ if environ is None else environ
    if ranks is None:
        return 0, 1
    if ranks.rank != "auto":
        assert ranks.world_size is not None
        return ranks.rank, ranks.world_size
    return _initialized() or (known if known[1] > 1 else _read(environ))


def ranks_here(world_size: int, environ: Mapping[str, str] | None = None) -> int:
    """How many ranks run on this machine, by torchrun's variable in `environ` (os.environ); all where it is not set."""
    text = (os.environ if environ is None else environ).get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() and 0 < int(text) <= world_size else world_size


def check_alone(environ: Mapping[str, str] | None = None) -> None:
    """Called where an epoch begins and `ranks=` was left out. Raises UsageError where a framework is initialized for
    several processes; warns, once in a process, where only a launcher's variables in `environ` (os.environ) say so."""
    initialized = _initialized()
    if initialized is not None and (processes := initialized[1]) > 1:
        share = {2: "half", 3: "a third", 4: "a quarter"}.get(processes, f"1/{processes}")
        raise UsageError(
            f'{processes} processes: ranks="auto" (each reads {share}) or ranks=(0, 1) (each reads everything)'
        )
    try:
        world_size = _read(os.environ if environ is None else environ)[1]
    except UsageError:
        return
    if world_size > 1:
        warn_once(
            "ranks",
            f'this process is one of {world_size}, and each of them reads all samples: pass ranks="auto" to share '
            "each epoch between them, or ranks=(0, 1) if all of them should read everything",
        )


def torch_distributed() -> Any:
    """The module torch.distributed, which is not imported for that; None where it is not initialized."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _initialized() -> tuple[int, int] | None:
    """What torch.distributed says, or else JAX or Accelerate; None where none of them is initialized. None is
    imported."""
    if (distributed := torch_distributed()) is not None:
        return distributed.get_rank(), distributed.get_world_size()
    jax, state = sys.modules.get("jax"), sys.modules.get("accelerate.state")
    if jax is not None and getattr(getattr(jax, "distributed", None), "is_initialized", bool)():
        return jax.process_index(), jax.process_count()
    if state is not None and getattr(state, "is_initialized", bool)():
        return state.PartialState().process_index, state.PartialState().num_processes
    return None


def _read(environ: Mapping[str, str]) -> tuple[int, int]:
    """What the first launcher that says both numbers says."""
    seen = dict[str, str]()
    for launcher, names in LAUNCHERS.items():
        given = {name: environ[name] for name in names if name in environ}
        seen |= given
        # Lightning counts the processes of each machine from 0, and does not say how many each has.
        if len(given) < 2 or (launcher == "Lightning" and environ.get("NODE_RANK") != "0"):
            continue
        rank, world_size = (int(text) if text.strip().isdecimal() else -1 for text in given.values())
        if not 0 <= rank < world_size:
            raise UsageError(f"the environment's {_listed(given)} are not a rank and a number of processes; {CURE}")
        return rank, world_size
    if seen:
        verb = "does" if len(seen) == 1 else "do"
        raise UsageError(f"the environment's {_listed(seen)} {verb} not say the rank among all processes; {CURE}")
    return 0, 1


def _listed(given: Mapping[str, str]) -> str:
    return " and ".join(f"{name}={text}" for name, text in given.items())
