"""The rank of this process, as torch.distributed says, or the launcher that started it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Literal

from rawpack.errors import UsageError
from rawpack.order.keys import rank_in, whole_number
from rawpack.system.warning import warn

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "MPICH or Intel MPI": ("PMI_RANK", "PMI_SIZE"),
    "SLURM": ("SLURM_PROCID", "SLURM_NTASKS"),
}
"""Launcher -> its variables, the innermost first: SLURM often starts torchrun and mpirun, and then counts nodes, not
processes."""

LIGHTNING = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
"""What Lightning sets for the processes that it starts itself."""

CURE = "start the processes by torchrun, mpirun or srun, or give rank= and world_size="
_warned = False
"""Whether this process was warned that all ranks read everything."""


def resolve_rank(
    rank: int | Literal["auto"] | None = None,
    world_size: int = 1,
    environ: Mapping[str, str] | None = None,
    known: tuple[int, int] = (0, 1),
) -> tuple[int, int]:
    """(rank, world_size), checked.

    rank: "auto" asks torch.distributed if this process has initialized it, else the launcher's variables in `environ`
        (os.environ); without either the answer is (0, 1). None means 0 of 1, with a warning, once, where a launcher
        says that there are more.
    known: what "auto" answered before. The environment is not asked again once it has named a world of more than one.

    Raises UsageError for a rank outside the world, for a world_size other than 1 without a rank, or that differs from
    the launcher's, and for variables of a launcher that are incomplete or invalid.
    """
    environ = os.environ if environ is None else environ
    if rank != "auto":
        world_size = whole_number("world_size", world_size, 1)
        if rank is None and world_size == 1:
            _warn_of_others(environ)
        return rank_in(rank, world_size), world_size
    found = _from_torch() or (known if known[1] > 1 else _read(environ))
    if world_size not in (1, found[1]):
        raise UsageError(
            f'rank="auto" found a world of {found[1]} ranks, not world_size={world_size}: leave world_size out'
        )
    return found


def ranks_here(world_size: int, environ: Mapping[str, str] | None = None) -> int:
    """How many ranks run on this machine, by torchrun's variable in `environ` (os.environ); all where it is not set."""
    text = (os.environ if environ is None else environ).get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() and 0 < int(text) <= world_size else world_size


def _warn_of_others(environ: Mapping[str, str]) -> None:
    """Warn, once in a process, where there seem to be other ranks and no rank was given."""
    global _warned
    try:
        world_size = 1 if _warned else (_from_torch() or _read(environ))[1]
    except UsageError:
        return
    if world_size > 1:
        _warned = True
        warn(
            f'this process is one of {world_size}, and each of them reads all samples: pass rank="auto" to share '
            "each epoch between them, or rank=0, world_size=1 if all of them should read everything",
            UserWarning,
        )


def _from_torch() -> tuple[int, int] | None:
    """What torch.distributed says, which is not imported for that; None where it is not initialized."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _read(environ: Mapping[str, str]) -> tuple[int, int]:
    """What the first launcher that says both numbers says, unless half of an earlier one contradicts it."""
    if (found := _from_lightning(environ)) is not None:
        return found
    halves: dict[str, int] = {}
    for rank_name, size_name in LAUNCHERS.values():
        given = {name: _number(name, environ[name]) for name in (rank_name, size_name) if name in environ}
        if len(given) < 2:
            halves |= given
            continue
        rank, world_size = given[rank_name], given[size_name]
        if not 0 <= rank < world_size:
            raise UsageError(f"the environment's {_listed(given)} are inconsistent; {CURE}")
        for name, number in halves.items():
            if number != (rank if "RANK" in name else world_size):
                raise UsageError(f"the environment's {_listed({name: number})} contradicts {_listed(given)}; {CURE}")
        return rank, world_size
    if "LOCAL_RANK" in environ:
        given = {name: _number(name, environ[name]) for name in LIGHTNING if name in environ}
        raise UsageError(
            f"the environment's {_listed(given)} do not say the rank among all processes: call batches() when "
            "torch.distributed is initialized, as in Lightning's train_dataloader(), or give rank= and world_size="
        )
    if halves:
        raise UsageError(f"the environment has {_listed(halves)} without its partner; {CURE}")
    return 0, 1


def _from_lightning(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """What Lightning says to the processes that it starts. None where it does not; nor on a second machine, because it
    does not say how many processes each machine has."""
    if "RANK" in environ or not all(name in environ for name in LIGHTNING):
        return None
    given = {name: _number(name, environ[name]) for name in LIGHTNING}
    rank, node, world_size = given.values()
    if node > 0:
        return None
    if node < 0 or not 0 <= rank < world_size:
        raise UsageError(f"the environment's {_listed(given)} are inconsistent; {CURE}")
    return rank, world_size


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"the environment's {name}={text!r} is not a whole number; {CURE}") from None


def _listed(given: Mapping[str, int]) -> str:
    return " and ".join(f"{name}={number}" for name, number in given.items())
