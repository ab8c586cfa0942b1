"""From the batch to the step: the state after a batch that was trained on, whatever was handed over since."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from reading import WAYS, placed, rows_of

from rawpack import Reader, UsageError

SAMPLES, BATCH = 23, 4
STEPS = -(-SAMPLES // BATCH)


@pytest.fixture(scope="module")
def few(reader: Reader) -> Reader:
    """A reader of few samples, so that each position of an epoch can be tried."""
    return reader.select(range(10, 10 + SAMPLES))


@pytest.mark.parametrize("way", ["here", "processes"])
def test_batches_that_are_kept(few: Reader, way: str) -> None:
    """Each batch keeps its own state: with two iterators at once, after their end, and after close()."""
    batches = few.batches(BATCH, shuffle=True, **WAYS[way])
    pairs = list(zip(iter(batches), iter(batches), strict=True))
    closed = iter(batches)
    third = next(closed)
    closed.close()
    for step, pair in enumerate(pairs, 1):
        for epoch, batch in enumerate(pair):
            state = batches.state_dict(after={**batch, "image": None})
            end = step == STEPS
            assert (state["epoch"], state["position"]) == ((epoch + 1, 0) if end else (epoch, step * BATCH))
    state = batches.state_dict(after=third)
    assert (state["epoch"], state["position"]) == (2, BATCH)


@pytest.mark.parametrize("depth", [0, 2])
def test_batches_of_a_framework_keep_their_own_state(few: Reader, depth: int) -> None:
    """The same for batches of a framework: not that of another loop over them, or over the numpy batches, which began
    later."""
    batches = few.batches(BATCH, shuffle=True, workers=0)
    tensors = placed(batches, depth)
    iterators = iter(tensors), iter(batches), iter(tensors)
    kept = [[next(iterator) for iterator in iterators] for _ in range(STEPS)]
    for step, row in enumerate(kept[:-1], 1):
        for epoch, batch in enumerate(row):
            state = (batches if epoch == 1 else tensors).state_dict(after=batch)
            assert (state["epoch"], state["position"]) == (epoch, step * BATCH)
    assert tensors.state_dict() == tensors.state_dict(after=kept[-1][2])
    given = batches.data_iter()
    first, _, second = next(given), next(iter(batches)), next(given)
    for step, made in enumerate((first, second), 1):
        state = given.state_dict(after=made)
        assert (state["epoch"], state["position"]) == (3, step * BATCH)


def test_a_batch_that_is_not_known_is_refused(few: Reader) -> None:
    """Never another state than that of the batch: a copy, a foreign batch and one from before a resume are refused."""
    batches, others = few.batches(BATCH, workers=0), few.batches(BATCH, workers=0)
    batch, other = next(iter(batches)), next(iter(others))
    unknown: list[Any] = [{**batch, "index": batch["index"].copy()}, {"image": batch["image"]}, other, [batch], True]
    for wrong in unknown:
        with pytest.raises(UsageError, match=r"after= must be a batch of these batches.*the number of batches"):
            batches.state_dict(after=wrong)
    running = iter(batches)
    next(running)
    batches.load_state_dict(batches.state_dict(after=batch))
    late = next(running)
    for old in (batch, late):
        with pytest.raises(UsageError, match="after= must be a batch of these batches"):
            batches.state_dict(after=old)
    assert batches.state_dict(after=next(iter(batches)))["position"] == 2 * BATCH


@pytest.mark.parametrize("way", ["here", "processes"])
def test_no_batch_is_kept_alive(few: Reader, way: str) -> None:
    """What is remembered of a batch ends with it, and nothing grows over an epoch."""
    batches = few.batches(BATCH, **WAYS[way])
    for batch in batches:
        index = weakref.ref(batch["index"])
        assert len(batches._feed._bookmark._handed._known) <= 2
    del batch
    gc.collect()
    assert index() is None
    assert batches._feed._bookmark._handed._known == {}


def test_states_by_number(few: Reader) -> None:
    """after=k is the state after so many batches since the iterator began, also after a resume."""
    batches = few.batches(BATCH, shuffle=True, workers=0)
    assert batches.state_dict(after=0) == batches.state_dict()
    kept = list(batches)
    batches.load_state_dict(batches.state_dict(after=kept[1]))
    iterator = iter(batches)
    again = [next(iterator), next(iterator)]
    for k, batch in enumerate(again, 1):
        assert batches.state_dict(after=k)["position"] == (2 + k) * BATCH
        assert batches.state_dict(after=k) == batches.state_dict(after=batch)
    assert batches.state_dict(after=0)["position"] == 2 * BATCH
    end = batches.state_dict(after=STEPS - 2)
    assert (end["epoch"], end["position"]) == (1, 0)
    for wrong in (STEPS - 1, -1, 1.5, True, "1"):
        with pytest.raises(UsageError, match="after="):
            batches.state_dict(after=wrong)  # type: ignore[arg-type]


def test_a_position_outlasts_iter_and_set_epoch(few: Reader) -> None:
    """Trainers load a state, call iter() and set_epoch(), in some order: the position stays, unless another epoch is
    named."""
    whole = few.batches(BATCH, shuffle=True, workers=0)
    epochs = [rows_of(whole) for _ in range(4)]
    batches = few.batches(BATCH, shuffle=True, workers=0)
    batches.set_epoch(2)
    next(iter(batches))
    state = batches.state_dict()
    iterator = iter(batches)
    batches.load_state_dict(state)
    later = iter(batches)
    batches.set_epoch(2)
    batches.set_epoch(2)
    assert batches.state_dict() == state
    assert rows_of(iterator) == epochs[2][BATCH:]
    batches.set_epoch(2)
    assert rows_of(later) == epochs[2], "the position was taken"
    batches.load_state_dict(state)
    batches.set_epoch(3)
    batches.set_epoch(2)
    assert rows_of(batches) == epochs[2]
