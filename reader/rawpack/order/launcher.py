"""The rank of this process, as the launcher that started it says in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from rawpack.errors import UsageError
from rawpack.order.keys import rank_in, whole_number

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE"),
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "MPICH or Intel MPI": ("PMI_RANK", "PMI_SIZE"),
    "SLURM": ("SLURM_PROCID", "SLURM_NTASKS"),
}
"""Launcher -> its variables, the innermost first: torchrun and mpirun are often started by SLURM, which then
counts nodes, not processes."""

CURE = "start the processes by torchrun, mpirun or srun, or give rank= and world_size="


def resolve_rank(
    rank: int | Literal["auto"] = 0, world_size: int = 1, environ: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """(rank, world_size), checked; with rank="auto", from `environ` (os.environ): (0, 1) without a launcher.

    UsageError for a rank outside the world, for a launcher that says only one of its two numbers or says
    nonsense, and for a world_size other than 1 that the launcher contradicts.
    """
    if rank != "auto":
        world_size = whole_number("world_size", world_size, 1)
        return rank_in(rank, world_size), world_size
    found = _read(os.environ if environ is None else environ)
    if world_size not in (1, found[1]):
        raise UsageError(
            f'rank="auto" found a world of {found[1]} ranks, not world_size={world_size}: leave world_size out'
        )
    return found


def ranks_here(world_size: int, environ: Mapping[str, str] | None = None) -> int:
    """How many ranks of the world run on this machine: as torchrun says in `environ` (os.environ); else maybe all."""
    text = (os.environ if environ is None else environ).get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() and 0 < int(text) <= world_size else world_size


def _read(environ: Mapping[str, str]) -> tuple[int, int]:
    """What the first launcher that says both numbers says, unless half of an earlier one contradicts it."""
    halves: dict[str, int] = {}
    for rank_name, size_name in LAUNCHERS.values():
        given = {name: _number(name, environ[name]) for name in (rank_name, size_name) if name in environ}
        if len(given) < 2:
            halves |= given
            continue
        rank, world_size = given[rank_name], given[size_name]
        if not 0 <= rank < world_size:
            raise UsageError(f"the environment's {_said(given)} are inconsistent; {CURE}")
        for name, number in halves.items():
            if number != (rank if "RANK" in name else world_size):
                raise UsageError(f"the environment's {_said({name: number})} contradicts {_said(given)}; {CURE}")
        return rank, world_size
    if halves:
        raise UsageError(f"the environment has {_said(halves)} without its partner; {CURE}")
    return 0, 1


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"the environment's {name}={text!r} is not a whole number; {CURE}") from None


def _said(given: Mapping[str, int]) -> str:
    return " and ".join(f"{name}={number}" for name, number in given.items())
