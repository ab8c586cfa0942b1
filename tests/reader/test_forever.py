"""`forever()`: epoch after epoch, with the batches, positions and states of a loop for each epoch."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS
from trained import numbered_store

from rawpack import Ranks, Reader
from rawpack.integrations.adapter import inputs_and_labels
from rawpack.integrations.keras import KerasBatches

SAMPLES, BATCH = 43, 5
SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 3}
NUMBER: dict[str, Any] = {"fields": ["number"]}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_store(tmp_path_factory.mktemp("numbered") / "store", SAMPLES)


def growing(epoch: int) -> Any:
    return np.random.default_rng(epoch).permutation(SAMPLES)[: 4 + 7 * epoch]


ORDERS: dict[str, dict[str, Any]] = {
    "block": {"shuffle": "block", "seed": 3, "drop_last": True},
    "epochs of several lengths": {"sampler": growing},
    "a rank with fewer samples": {"ranks": Ranks(2, 3, last="keep")},
}


def epochs_of(store: Path, count: int, **options: Any) -> list[list[int]]:
    """The batches of so many epochs, by a loop for each."""
    batches = Reader(store).batches(BATCH, workers=0, **NUMBER, **options)
    return [batch["number"].tolist() for _ in range(count) for batch in batches]


@pytest.mark.parametrize(("order", "way"), [*zip(ORDERS, WAYS, strict=True)])
def test_batches_are_those_of_a_loop_for_each_epoch(store: Path, order: str, way: str) -> None:
    """In every order, and made in every way; the state after each batch is the one of such a loop, and no batch is
    held but that of the caller."""
    expected = epochs_of(store, 4, **ORDERS[order])
    loops = Reader(store).batches(BATCH, workers=0, **ORDERS[order])
    states = [loops.state_dict() for _ in range(4) for _ in loops]
    batches = Reader(store).batches(BATCH, **NUMBER, **ORDERS[order], **WAYS[way])
    for numbers, state, batch in zip(expected, states, batches.forever(), strict=False):
        assert batch["number"].tolist() == numbers
        assert batches.state_dict() == batches.state_dict(after=batch) == state
        assert batches.stats()["held"] == 1
        del batch


MAKERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], list[int]]]] = {
    "numpy": (lambda batches: batches, lambda batch: batch["number"].tolist()),
    "MXNet": (lambda batches: batches.data_iter(data="number", label=None), lambda batch: batch.data[0].tolist()),
    "Keras": (
        lambda batches: KerasBatches(batches._feed, *inputs_and_labels(batches._feed, "number", None, None)),
        lambda batch: batch[0].tolist(),
    ),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_it_resumes_anywhere(store: Path, maker: str) -> None:
    """A run that stops after any number of batches, and resumes, also in a loop of its own for the rest of an epoch,
    goes on with the next batch."""
    make, numbers_in = MAKERS[maker]
    options = {**SHUFFLED, **NUMBER, "drop_last": True}
    expected = epochs_of(store, 9, **SHUFFLED, drop_last=True)
    chance, seen, state, ways = random.Random(5), list[list[int]](), None, [*WAYS.values()]
    while len(seen) < 5 * 8:
        batches = make(Reader(store).batches(BATCH, **options, **ways[len(seen) % 3]))
        if state is not None:
            batches.load_state_dict(state)
        seen += [numbers_in(batch) for batch in islice(batches.forever(), chance.randrange(1, 20))]
        state = json.loads(json.dumps(batches.state_dict()))
    assert seen == expected[: len(seen)]
    rest = Reader(store).batches(BATCH, workers=0, **options)
    rest.load_state_dict(state)
    left = [batch["number"].tolist() for batch in rest]
    assert left == expected[len(seen) : len(seen) + len(left)]


def test_it_begins_with_the_epoch_that_comes_next(store: Path) -> None:
    """After a loop that was left, and where `set_epoch` says; in the middle of an epoch that holds from the next on."""
    expected = epochs_of(store, 5, **SHUFFLED)
    batches = Reader(store).batches(BATCH, workers=0, **NUMBER, **SHUFFLED)
    next(iter(batches))
    forever = batches.forever()
    assert [batch["number"].tolist() for batch in islice(forever, 5)] == expected[9:14]
    batches.set_epoch(4)
    assert [batch["number"].tolist() for batch in islice(forever, 13)] == [*expected[14:18], *expected[36:45]]
