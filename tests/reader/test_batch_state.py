"""From the batch to the step: the state after a batch that was trained on, whatever was handed over since."""

from __future__ import annotations

import gc
import os
import queue
import shutil
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from reading import WAYS, children, nothing_left, placed, rows_of
from running import Packed

from rawpack import DamagedStoreError, Reader, UsageError

SAMPLES, BATCH = 23, 4
STEPS = -(-SAMPLES // BATCH)


@pytest.fixture(scope="module")
def few(reader: Reader) -> Reader:
    """A reader of few samples, so that each position of an epoch can be tried."""
    return reader.select(range(10, 10 + SAMPLES))


# ---------------------------------------------------------------------------------------------- stop and resume


def test_a_thread_that_prefetches(few: Reader) -> None:
    """The iterator may run in another thread than the loop, which asks for states."""
    batches = few.batches(BATCH, shuffle=True, **WAYS["threads"])
    filled: queue.Queue[dict[str, Any] | None] = queue.Queue(2)

    def fill() -> None:
        for batch in batches:
            filled.put(batch)
        filled.put(None)

    thread = threading.Thread(target=fill)
    thread.start()
    again = few.batches(BATCH, shuffle=True, workers=0)
    whole = rows_of(few.batches(BATCH, shuffle=True, workers=0))
    rows: list[int] = []
    while (batch := filled.get()) is not None:
        rows += batch["index"].tolist()
        if len(rows) < SAMPLES:
            again.load_state_dict(batches.state_dict(after=batch))
            assert rows + rows_of(again) == whole
    thread.join()
    assert rows == whole


# ---------------------------------------------------------------------------------------------- which batch


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
    assert batches.state_dict(after=3)["position"] == 3 * BATCH
    kept = list(batches)
    for k, batch in enumerate(kept, 1):
        assert batches.state_dict(after=k) == batches.state_dict(after=batch)
    batches.load_state_dict(batches.state_dict(after=kept[1]))
    assert batches.state_dict(after=0)["position"] == 2 * BATCH
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


# ---------------------------------------------------------------------------------------------- when an epoch begins


@pytest.mark.parametrize("way", WAYS)
def test_iter_alone_takes_nothing(few: Reader, way: str) -> None:
    """An iterator takes its epoch, and workers start, at its first next(); one that never begins costs nothing."""
    with nothing_left():
        batches = few.batches(BATCH, shuffle=True, **WAYS[way])
        before, threads = children(), threading.active_count()
        unused, closed, used = iter(batches), iter(batches), iter(batches)
        closed.close()
        assert list(closed) == []
        assert (children(), threading.active_count()) == (before, threads)
        assert batches.state_dict()["epoch"] == 0
        assert len(batches) == STEPS
        whole = few.batches(BATCH, shuffle=True, workers=0)
        assert rows_of(used) == rows_of(whole)
        assert rows_of(unused) == rows_of(whole)
        del batches, unused, closed, used


def test_a_position_outlasts_iter_and_set_epoch(few: Reader) -> None:
    """Trainers load a state, call iter() and set_epoch(), in some order: the position stays, unless another epoch is
    named."""
    whole = few.batches(BATCH, shuffle=True, workers=0)
    epochs = [rows_of(whole) for _ in range(4)]
    batches = few.batches(BATCH, shuffle=True, workers=0)
    batches.set_epoch(2)
    next(iter(batches))
    state = batches.state_dict()
    for _ in range(2):
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
    batches.set_epoch(1)
    assert rows_of(batches) == epochs[1]
    batches.load_state_dict(state)
    batches.set_epoch(3)
    batches.set_epoch(2)
    assert rows_of(batches) == epochs[2]


def test_a_changed_file_is_noticed_at_the_first_next(packed: Packed, tmp_path: Path) -> None:
    """What fails when an epoch begins is raised by next(), and the epoch is not taken."""
    store = shutil.copytree(packed("memmap", "--size", 48), tmp_path / "store")
    batches = Reader(store).batches(BATCH, workers=0)
    next(iter(batches))
    state = batches.state_dict()
    shard = min(store.glob("shard-*.npy"))
    os.truncate(shard, shard.stat().st_size - 1)
    iterator = iter(batches)
    with pytest.raises(DamagedStoreError, match=shard.name):
        next(iterator)
    assert list(iterator) == []
    assert batches.state_dict() == state
