"""Uses of a reader that no page shows: programs that end while they read, flags of Python, interruptions at any call,
pools of the user's own."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from reading import WAYS, Truth, rows_of, run_script, script
from running import Packed

from rawpack import Reader, UsageError, Workers

BATCH = 8


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    return packed("memmap", "--size", 16)


def test_a_program_that_ends_while_a_thread_reads(store: Path, tmp_path: Path) -> None:
    """It ends with code 0, and says nothing."""
    code = """
import sys, threading
from rawpack import Reader, UsageError, Workers
batches, went = Reader(sys.argv[1]).batches(8, workers=Workers(2, backend="thread")), threading.Event()
def read():
    for batch in batches.forever():
        went.set()
threading.Thread(target=read, daemon=True).start()
went.wait()
"""
    ran = run_script(script(tmp_path, code), store, options=())
    assert (ran.code, ran.out, ran.err) == (0, "", "")


@pytest.mark.parametrize("flags", [("-I", "-OO"), ("-X", "dev", "-W", "error")], ids=" ".join)
def test_flags_of_python(store: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Without the environment, without docstrings and asserts, with everything that Python warns of."""
    code = """
import sys
from rawpack import Reader, UsageError, Workers
reader = Reader(sys.argv[1])
for workers in 0, Workers(2, backend="thread"), Workers(2, backend="process"):
    print([sum(batch["label"].sum() + batch["image"].sum(dtype="int64") for batch in
           reader.batches(8, shuffle=True, workers=workers, transform=[lambda image: image // 2]))])
"""
    ran = run_script(script(tmp_path, code), store, options=flags)
    images, labels = Truth(store).images, Truth(store).labels
    assert (ran.code, ran.err) == (0, "")
    assert [line.split("(")[-1].strip("[]()") for line in ran.out.split("\n") if line] == [
        str((images // 2).sum(dtype="int64") + labels.sum())
    ] * 3


def test_workers_start_while_another_thread_imports(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that ends while the pool looks at what is loaded harms no epoch."""

    class Name(str):
        __slots__ = ()

        def startswith(self, *prefix: Any) -> bool:
            monkeypatch.setitem(sys.modules, "imported_meanwhile", pytest)
            return super().startswith(*prefix)

    reader = Reader(store)
    monkeypatch.setitem(sys.modules, Name("imported_before"), pytest)
    batches = reader.batches(BATCH, workers=Workers(2, backend="process"), transform=[lambda image: image // 2])
    assert sorted(rows_of(batches)) == [*range(len(reader))]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupted finalizers
@pytest.mark.parametrize("way", ["here", "threads"])
def test_an_interruption_at_any_call(store: Path, way: str) -> None:
    """Wherever in the package a handler of a signal raises, the next epoch has every sample once, with its pixels."""
    truth, batches = Truth(store), Reader(store).batches(BATCH, shuffle=True, **WAYS[way])
    list(batches)
    interrupted = 0
    for moment in itertools.count(1, 7):
        calls = itertools.count(1)

        def at_call(frame: FrameType, event: str, argument: Any, moment: int = moment, calls: Any = calls) -> None:
            if event == "call" and "rawpack" in frame.f_code.co_filename and next(calls) == moment:
                sys.setprofile(None)
                raise KeyboardInterrupt

        sys.setprofile(at_call)
        try:
            for _ in itertools.islice(batches, 3):
                pass
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        finally:
            sys.setprofile(None)
        if moment % 5 == 1:
            kept = list(batches)
            assert sorted(row for batch in kept for row in batch["index"].tolist()) == list(range(len(truth)))
            assert all(truth.holds(batch) for batch in kept)
    assert interrupted >= 5


def _labels(pickled: bytes, row: int) -> list[int]:
    """In a process of a pool: the labels of a batch of a reader that was sent there."""
    reader = pickle.loads(pickled)
    return [*next(iter(reader.batches(4, workers=1)))["label"].tolist(), int(reader[row]["label"])]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_the_user(store: Path, method: str) -> None:
    """A pickled selection, which is small, reads in their processes, also with workers of its own."""
    reader = Reader(store).select(range(70, 20, -2))
    next(iter(reader.batches(4, workers=Workers(1, backend="process"))))
    labels, pickled = Truth(store).labels[70:20:-2].tolist(), pickle.dumps(reader)
    assert len(pickled) < 4096
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(_labels, (pickled, 7)) == [*labels[:4], labels[7]]


def test_odd_numbers(store: Path) -> None:
    """Batches larger than the store, more ranks than samples, and selections of nothing."""
    reader = Reader(store)
    count = len(reader)
    assert [len(batch["index"]) for batch in reader.batches(100_000, workers=0)] == [count]
    ranks = [reader.batches(BATCH, workers=0, ranks=(rank, 2 * count)) for rank in range(2 * count)]
    steps = [[batch["index"][batch["valid"]].tolist() for batch in one] for one in ranks]
    assert sorted(row for (rows,) in steps for row in rows) == list(range(count))
    with pytest.raises(UsageError, match="there are no samples to read"):
        reader.select([]).batches(BATCH)
