"""Ranks that read different orders of the same samples are found out, by what they note in torch's store."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from rawpack import Balanced, Blocks, Ranks, Reader, UsageError
from rawpack.order import agreement
from rawpack.transforms import RandomHorizontalFlip


class Store(dict[str, str]):
    """What torch's stores do: a key that nobody has written is as good as the empty text. It has nothing that waits."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        if self.get(key, "") == expected:
            self[key] = desired
        return self.get(key, expected).encode()


class World:
    """Processes with a process group of torch, one after another in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int = 2) -> None:
        self.store: Any = Store()
        self._rank, self._monkeypatch = 0, monkeypatch
        self._counts: dict[int, Any] = defaultdict(lambda: defaultdict(count))
        self.torch = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: self._rank,
            get_world_size=lambda: size,
            group=SimpleNamespace(WORLD=object()),
            distributed_c10d=SimpleNamespace(_get_default_store=lambda: self.store),
        )
        monkeypatch.setitem(sys.modules, "torch.distributed", self.torch)  # type: ignore[arg-type]

    def batches(self, rank: int, reader: Reader, *args: Any, **options: Any) -> list[int]:
        """What a rank reads in an epoch of batches of its own."""
        made = reader.batches(*(args or (5,)), **{"workers": 0, "fields": ["label"], "ranks": "auto"} | options)
        return self.read(rank, made)

    def read(self, rank: int, batches: Any) -> list[int]:
        self._rank = rank
        self._monkeypatch.setattr(agreement, "_numbers", self._counts[rank])
        return [int(one) for batch in batches for one in batch["index"]]


@pytest.fixture(scope="module")
def reader(store: Path) -> Reader:
    """A reader with 24 samples."""
    return Reader(store).select(range(24))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_ranks_with_one_seed_share_an_epoch(world: World, reader: Reader) -> None:
    """Each sample is read once; where seeds differ, the rank that comes second says how, each time."""
    ranks = [reader.batches(6, shuffle=True, seed=3, ranks="auto", workers=0) for _ in range(2)]
    for _ in range(2):
        assert sorted(world.read(0, ranks[0]) + world.read(1, ranks[1])) == list(range(24))
    assert [batches.stats()["ranks"] for batches in ranks] == [None, None]
    assert len(world.store) == 1
    world.batches(1, reader, shuffle=True, seed=101)
    late = reader.batches(5, shuffle=True, seed=100, ranks="auto", workers=0)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"rank 0 .* of rank 1: seed=100 here and 101 there.* pass the same seed"):
            world.read(0, late)


class AtRandom:
    def __iter__(self) -> Iterator[int]:
        return iter(np.random.default_rng().permutation(24).tolist())


CASES: dict[str, tuple[bool, dict[str, Any], dict[str, Any]]] = {
    "shuffle": (False, {"shuffle": True}, {}),
    "blocks": (False, {"shuffle": Blocks(4, window=2)}, {"shuffle": Blocks(8, window=2)}),
    "indices": (False, {"sampler": [0, 1, 2, 3]}, {"sampler": [4, 5, 6, 7]}),
    "random sampler": (False, {"sampler": AtRandom()}, {"sampler": AtRandom()}),
    "balanced": (False, {"sampler": Balanced("label")}, {"sampler": Balanced("label"), "seed": 1}),
    "drop_last": (False, {"drop_last": True}, {}),
    "last": (False, {"ranks": Ranks("auto", last="keep")}, {}),
    "workers": (True, {}, {"workers": 1}),
    "transform": (True, {}, {"fields": ["image"], "transform": [RandomHorizontalFlip()]}),
    "seed of no order": (True, {}, {"seed": 1}),
    "seed of indices": (True, {"sampler": range(24)}, {"sampler": range(24), "seed": 1}),
}
"""Whether two ranks with these options read one order."""


@pytest.mark.parametrize("name", CASES)
def test_what_decides_the_order_is_compared(world: World, reader: Reader, name: str) -> None:
    """What makes ranks read other samples than their own share is an error; what does not may differ."""
    same, first, second = CASES[name]
    read = world.batches(0, reader, **first)
    if same:
        assert {*read, *world.batches(1, reader, **second)} == {*range(24)}
        return
    with pytest.raises(UsageError, match="rank 1 does not read in the order of rank 0"):
        world.batches(1, reader, **second)


def test_processes_that_were_started_anew_are_not_compared_with_those_before(
    world: World, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure, torchrun starts all ranks again: another seed is right then, though the store is the same."""
    world.batches(0, reader, shuffle=True, seed=1)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    again = World(monkeypatch)
    again.store = world.store
    read = again.batches(0, reader, shuffle=True, seed=2) + again.batches(1, reader, shuffle=True, seed=2)
    assert {*read} == {*range(24)}


def test_only_the_same_batches_are_compared(world: World, reader: Reader) -> None:
    """Batches of other samples, of another size, or of another turn are not compared; nor are ranks given as numbers, a
    single process, and processes without a process group."""
    for seed in (1, 2):
        world.batches(0, reader, shuffle=True, seed=seed)
    world.batches(1, reader, shuffle=True, seed=1)
    world.batches(1, reader.select(range(12)), shuffle=True, seed=7)
    world.batches(1, reader, 4, shuffle=True, seed=7)
    world.batches(1, reader, shuffle=True, seed=2)
    noted = dict(world.store)
    for seed, ranks in enumerate([(1, 2), Ranks(1, 2), (0, 1)], 10):
        world.batches(1, reader, shuffle=True, seed=seed, ranks=ranks)
    world.torch.get_world_size = lambda: 1
    world.batches(0, reader, shuffle=True, seed=20)
    world.torch.is_initialized = lambda: False
    world.batches(0, reader, shuffle=True, seed=21)
    assert world.store == noted


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (object(), "compare_set"),
        (SimpleNamespace(compare_set=Mock(side_effect=RuntimeError("connection reset\nfrom x"))), "connection reset"),
        (SimpleNamespace(compare_set=lambda *_: b""), "Expecting value"),
    ],
)
def test_without_the_store_stats_say_so(world: World, reader: Reader, broken: Any, reason: str) -> None:
    """Where the store cannot be used, the epoch is read all the same, and stats() have the reason in a line."""
    world.store = broken
    batches = reader.batches(6, ranks="auto", workers=0)
    assert world.read(0, batches) == [*range(6), *range(12, 18)]
    line = batches.stats()["ranks"]
    assert line.startswith("not compared")
    assert reason in line
    assert "\n" not in line


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_leaves_the_connections_of_its_parent_alone(
    world: World, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that was forked uses no connection of its parent's process group; those of its own it uses."""
    child = os.fork()
    if not child:
        os._exit(3 if agreement._inherited is world.torch.group.WORLD else 9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    monkeypatch.setattr(agreement, "_inherited", world.torch.group.WORLD)
    for own in (False, True):
        if own:
            world.torch.group.WORLD = object()
        batches = reader.batches(6, ranks="auto", workers=0, fields=["label"])
        world.read(0, batches)
        assert (len(world.store), batches.stats()["ranks"] is None) == (own, own)
