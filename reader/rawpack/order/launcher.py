"""The rank of this process, from the environment variables of the launcher that started it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from rawpack.errors import UsageError
from rawpack.order.keys import whole_number

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "MPICH or Intel MPI": ("PMI_RANK", "PMI_SIZE"),
    "SLURM": ("SLURM_PROCID", "SLURM_NTASKS"),
}
"""Launcher -> its variables, the innermost first: SLURM often starts torchrun and mpirun, and then counts nodes, not
processes."""

CURE = "start the processes by torchrun, mpirun or srun, or give rank= and world_size="


def resolve_rank(
    rank: int | Literal["auto"] = 0, world_size: int = 1, environ: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """(rank, world_size), checked; with rank="auto", from `environ` (os.environ), or (0, 1) without a launcher.

    Raises UsageError for a rank outside the world, for variables of a launcher that are incomplete or invalid, and for
    a world_size other than 1 that differs from the launcher's.
    """
    if rank != "auto":
        world_size = whole_number("world_size", world_size, 1)
        return whole_number("rank", rank, 0, world_size - 1), world_size
    found = _read(os.environ if environ is None else environ)
    if world_size not in (1, found[1]):
        raise UsageError(
            f'rank="auto" found a world of {found[1]} ranks, not world_size={world_size}: leave world_size out'
        )
    return found


def ranks_here(world_size: int, environ: Mapping[str, str] | None = None) -> int:
    """How many ranks run on this machine, by torchrun's variable in `environ` (os.environ); all where it is not set."""
    text = (os.environ if environ is None else environ).get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() and 0 < int(text) <= world_size else world_size


def _read(environ: Mapping[str, str]) -> tuple[int, int]:
    """Rank and world size of the first launcher that set both. Raises UsageError where an earlier one disagrees."""
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
    if halves:
        raise UsageError(f"the environment has {_listed(halves)} without its partner; {CURE}")
    return 0, 1


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"the environment's {name}={text!r} is not a whole number; {CURE}") from None


def _listed(given: Mapping[str, int]) -> str:
    return " and ".join(f"{name}={number}" for name, number in given.items())
