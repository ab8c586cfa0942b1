"""A queue of batches for several threads: each batch for one of them, in order, and nobody waits for nothing."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS, run_script, script, wait_until
from trained import numbered_store

from rawpack import Ranks, RawpackError, Reader, UsageError, WorkerError, Workers
from rawpack.transforms import BatchLambda

SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 3}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_store(tmp_path_factory.mktemp("numbered") / "store", 50)


def order_of(store: Path, epochs: int, size: int = 4) -> list[list[int]]:
    """The rows of each batch of these epochs."""
    batches = Reader(store).batches(size, workers=0, **SHUFFLED)
    return [batch["index"].tolist() for _ in range(epochs) for batch in batches]


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work` returns, or raises, in so many threads at once."""
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a consumer still waits"
    return results


def queue_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rawpack batch queue"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    """After each test, the threads of its queues end."""
    yield
    gc.collect()
    wait_until(lambda: not queue_threads(), "the threads of queues have ended")


@pytest.mark.parametrize(("way", "consumers"), [("here", 1), ("threads", 4), ("processes", 4)])
def test_each_batch_goes_to_one_thread(store: Path, way: str, consumers: int) -> None:
    """Over three epochs: every sample once an epoch; each thread gets its batches in order, and None at the end. One
    thread alone gets exactly the order of the epochs. What they keep does not change."""
    queue = Reader(store).batches(4, **SHUFFLED, **WAYS[way]).queue(depth=3, epochs=3)
    images = np.stack([Reader(store)[i]["image"] for i in range(50)])
    expected = order_of(store, 3)
    kept = together(consumers, lambda _: list(queue))
    numbers = sorted(tuple(batch["index"].tolist()) for batches in kept for batch in batches)
    assert numbers == sorted(map(tuple, expected))
    for batches in kept:
        places = iter(expected)
        assert all(batch["index"].tolist() in places for batch in batches)
        for batch in batches:
            np.testing.assert_array_equal(batch["image"], images[batch["index"]])
    assert queue.dequeue() is None


def test_an_error_reaches_every_consumer(store: Path) -> None:
    """After the batches before it, in its place; and whoever asks again gets it again."""

    def at_row(batch: dict[str, Any]) -> dict[str, Any]:
        if 30 in batch["index"]:
            raise RuntimeError("this sample is bad")
        return {}

    batches = Reader(store).batches(4, workers=Workers(2, backend="thread"), transform=[BatchLambda(at_row)])
    queue, rows = batches.queue(depth=3), list[int]()

    def work(_: int) -> None:
        while (batch := queue.dequeue()) is not None:
            rows.extend(batch["index"].tolist())

    assert ["this sample is bad" in str(error) for error in together(3, work)] == [True] * 3
    assert sorted(rows) == list(range(28))
    with pytest.raises(WorkerError):
        queue.dequeue()
    queue.close()
    assert queue.dequeue() is None


def test_close_ends_every_wait(store: Path) -> None:
    """Of consumers that wait for a slow batch, and of the thread that waits for room; the batches can be used again."""
    begun, goes_on = threading.Event(), threading.Event()

    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        goes_on.wait(120)
        return {}

    batches = Reader(store).batches(4, workers=Workers(1, backend="thread"), transform=[BatchLambda(slow)])
    queue = batches.queue()

    def work(number: int) -> Any:
        if number:
            return queue.dequeue()
        begun.wait(120)
        threading.Timer(0.3, goes_on.set).start()
        return queue.close()

    assert together(4, work) == [None] * 4
    with batches.queue(depth=1) as full:
        wait_until(lambda: full.stats()["ready"] == 1, "the queue is full")
    assert not queue_threads()
    batches.set_epoch(0)
    assert next(iter(batches))["index"].tolist() == [0, 1, 2, 3]


def test_a_queue_that_is_gone_ends(store: Path, tmp_path: Path) -> None:
    """Without close(): its thread ends with it; and Python ends although one is being filled."""
    queue = Reader(store).batches(4, workers=0).queue()
    assert queue.dequeue() is not None
    del queue  # the fixture sees that the thread ends
    ran = run_script(script(tmp_path, FILLED), store)
    assert (ran.code, ran.err) == (0, "")


FILLED = """
import sys, rawpack
queue = rawpack.Reader(sys.argv[1]).batches(4, workers=rawpack.Workers(2, backend="process")).queue()
assert queue.dequeue() is not None
"""


def test_a_state_is_that_of_what_was_taken(store: Path) -> None:
    """`queue.state_dict()` counts what threads have taken, not what waits, and nothing from before the queue; it is
    the next epoch's start after the last batch, and stays when the queue is closed."""
    batches = Reader(store).batches(4, workers=0, **SHUFFLED)
    for _ in zip(batches, range(2), strict=False):
        pass  # a loop that was left early: the queue begins with the next epoch
    with batches.queue(depth=5, epochs=1) as queue:
        states = [queue.state_dict()]
        for batch in queue:
            states.append(queue.state_dict())
            assert states[-1] == batches.state_dict(after=batch)
    assert [(state["epoch"], state["position"]) for state in states] == [(1, 4 * n) for n in range(13)] + [(2, 0)]
    assert queue.state_dict() == states[-1]


def test_a_state_that_is_loaded_too_late(store: Path) -> None:
    """A load in the middle of a queue is an error, which says what to do."""
    batches = Reader(store).batches(4, workers=0)
    state = batches.state_dict()
    queue = batches.queue(depth=1)
    assert queue.dequeue() is not None
    batches.load_state_dict(state)
    with pytest.raises(UsageError, match=r"load it before you call queue\(\)"):
        for _ in queue:
            pass


def test_nonsense_is_refused(store: Path) -> None:
    """Before a thread starts; an endless queue of nothing is an error, not a loop."""
    reader = Reader(store)
    for options, words in (({"depth": 0}, "depth=0 must be"), ({"epochs": 0}, "epochs=0 must be")):
        with pytest.raises(UsageError, match=words):
            reader.batches(4).queue(**options)
    with pytest.raises(UsageError, match="an epoch has no batches"):
        reader.select(range(3)).batches(3, workers=0, ranks=Ranks(3, 4, last="keep")).queue().dequeue()
    with pytest.raises(UsageError, match="pickle the reader"):
        pickle.dumps(reader.batches(4, workers=0).queue(depth=2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_wait(store: Path, tmp_path: Path) -> None:
    """The thread is in the parent only: asked for a batch, a queue in a child is an error. A lock that was held at the
    fork is not waited for when the child ends."""
    queue = Reader(store).batches(4, workers=0).queue()
    if (child := os.fork()) == 0:
        try:
            queue.close()
            queue.dequeue()
        except RawpackError:
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert queue.dequeue() is not None
    assert run_script(script(tmp_path, LOCKED), store, options=("-W", "ignore::DeprecationWarning")).code == 0


LOCKED = """
import os, sys, threading, rawpack
queue = rawpack.Reader(sys.argv[1]).batches(4, workers=0).queue()
held, forked = threading.Event(), threading.Event()
def hold():
    with queue._shared.changed:
        held.set(), forked.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child:
    forked.set()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
