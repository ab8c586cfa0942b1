"""From the batch to the step: the state after a batch that was trained on, whatever was handed over since."""

from __future__ import annotations

import gc
import json
import queue
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_frames import Frames, pack_frames
from numpy.typing import NDArray
from reading import WAYS, children, nothing_left, rows_of
from running import Packed

from rawpack import DamagedStoreError, Ranks, Reader, UsageError
from rawpack.batches import Batches
from rawpack.integrations.placed import Copies, PlacedBatches

SAMPLES, BATCH = 23, 4
STEPS = -(-SAMPLES // BATCH)
DEPTHS = range(1, 5)


@pytest.fixture(scope="module")
def few(reader: Reader) -> Reader:
    """A reader of few samples, so that each position of an epoch can be tried."""
    return reader.select(range(10, 10 + SAMPLES))


def queued(batches: Any, depth: int) -> Iterator[dict[str, Any]]:
    """The batches, some of which are taken before the first is given."""
    ahead: deque[dict[str, Any]] = deque()
    for batch in batches:
        ahead.append(batch)
        if len(ahead) > depth:
            yield ahead.popleft()
    yield from ahead


def as_saved(state: dict[str, Any]) -> dict[str, Any]:
    """A state as a checkpoint file gives it back."""
    loaded: dict[str, Any] = json.loads(json.dumps(state))
    return loaded


def trained(batches: Batches, depth: int, steps: int) -> tuple[list[int], dict[str, Any]]:
    """Train some steps of epoch 0, with a queue before the loop: the samples, and the state to save."""
    batches.set_epoch(0)
    rows, state = list[int](), batches.state_dict()
    for step, batch in enumerate(queued(batches, depth)):
        if step == steps:
            break
        rows += batch["index"].tolist()
        state = batches.state_dict(after=batch)
    return rows, as_saved(state)


# ---------------------------------------------------------------------------------------------- stop and resume


@pytest.mark.parametrize("way", WAYS)
def test_every_sample_once_with_a_queue(few: Reader, way: str) -> None:
    """A run that stops after any step, with a queue of any depth before the loop, and resumes, has trained on every
    sample of the epoch exactly once, in its order."""
    whole = rows_of(few.batches(BATCH, shuffle=True, workers=0))
    first, second = (few.batches(BATCH, shuffle=True, **WAYS[way]) for _ in range(2))
    for depth in DEPTHS:
        for steps in range(STEPS + 1):
            rows, state = trained(first, depth, steps)
            assert rows == whole[: steps * BATCH]
            second.load_state_dict(state)
            if steps < STEPS:
                rows += rows_of(second)
            assert rows == whole
            assert second.state_dict()["epoch"] == 1


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
            again.load_state_dict(as_saved(batches.state_dict(after=batch)))
            assert rows + rows_of(again) == whole
    thread.join()
    assert rows == whole


@pytest.mark.parametrize("uneven", ["pad", "keep"])
def test_the_last_step_of_ranks(few: Reader, uneven: Any) -> None:
    """After a rank's last batch of an epoch, its state is the start of the next."""
    for rank in range(3):
        batches = few.batches(BATCH, workers=0, ranks=Ranks(rank, 3, last=uneven))
        kept = list(batches)
        positions = [(state["epoch"], state["position"]) for state in (batches.state_dict(after=one) for one in kept)]
        assert positions == [(0, BATCH * 3 * (k + 1)) for k in range(len(kept) - 1)] + [(1, 0)]


def test_a_sampler_and_clips(few: Reader, tmp_path: Path) -> None:
    """Batches of a sampler and of clips have their states as well, in epochs that are long over."""

    def sampler(epoch: int) -> Any:
        return np.random.default_rng(epoch).permutation(SAMPLES)[: 10 + epoch]

    frames = Reader(pack_frames(Frames([range(9), range(30)]), tmp_path / "videos", "memmap"))
    for reader, options in ((few, {"sampler": sampler}), (frames.clips(3, per_video=8), {"shuffle": True})):
        batches, again = (reader.batches(3, workers=0, **options) for _ in range(2))
        epochs = [list(batches) for _ in range(4)]
        for number, epoch in enumerate(epochs):
            for k, batch in enumerate(epoch[:-1]):
                again.load_state_dict(as_saved(batches.state_dict(after=batch)))
                assert again.state_dict()["epoch"] == number
                rest = [one["index"].tolist() for one in again]
                assert rest == [one["index"].tolist() for one in epoch[k + 1 :]]


# ---------------------------------------------------------------------------------------------- which batch


@pytest.mark.parametrize("way", WAYS)
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


class Here(Copies):
    """Nothing is copied."""

    def begin(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        return dict(arrays)


@pytest.mark.parametrize("depth", [0, 2])
def test_batches_of_a_framework_keep_their_own_state(few: Reader, depth: int) -> None:
    """The same for batches of a framework: not that of another loop over them, or over the numpy batches, which began
    later."""
    batches = few.batches(BATCH, shuffle=True, workers=0)
    placed = PlacedBatches(batches._feed, Here(), depth, None, "here")
    iterators = iter(placed), iter(batches), iter(placed)
    kept = [[next(iterator) for iterator in iterators] for _ in range(STEPS)]
    for step, row in enumerate(kept[:-1], 1):
        for epoch, batch in enumerate(row):
            state = (batches if epoch == 1 else placed).state_dict(after=batch)
            assert (state["epoch"], state["position"]) == (epoch, step * BATCH)
    assert placed.state_dict() == placed.state_dict(after=kept[-1][2])
    given = batches.data_iter()
    first, _, second = next(given), next(iter(batches)), next(given)
    for step, made in enumerate((first, second), 1):
        state = given.state_dict(after=made)
        assert (state["epoch"], state["position"]) == (3, step * BATCH)


def test_a_batch_that_is_not_known_is_refused(few: Reader) -> None:
    """Never another state than that of the batch: a copy, a foreign batch and one from before a resume are refused."""
    batches, others = few.batches(BATCH, workers=0), few.batches(BATCH, workers=0)
    batch, other = next(iter(batches)), next(iter(others))
    unknown: list[Any] = [
        {**batch, "index": batch["index"].copy()},
        {**batch, "index": batch["index"][:]},
        {**batch, "index": batch["index"].tolist()},
        {"image": batch["image"]},
        {},
        other,
        [batch],
        True,
    ]
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


@pytest.mark.parametrize("way", WAYS)
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
    state = as_saved(batches.state_dict())
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
    import shutil

    store = shutil.copytree(packed("memmap", "--size", 48), tmp_path / "store")
    batches = Reader(store).batches(BATCH, workers=0)
    next(iter(batches))
    state = batches.state_dict()
    shard = next(iter(sorted(store.glob("shard-*.npy"))))
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size - 1)
    iterator = iter(batches)
    with pytest.raises(DamagedStoreError, match=shard.name):
        next(iterator)
    assert list(iterator) == []
    assert batches.state_dict() == state
