"""A batch stays right as long as it is held, whatever of it is held, and what is let go is used again."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from numpy.typing import NDArray
from reading import WAYS, Truth, nothing_left, run_script, script, workers_in
from running import Packed

from rawpack import Buckets, Reader, Workers
from rawpack.batches import Batches
from rawpack.epoch.making import IN_FLIGHT
from rawpack.workers import slots

BATCH = 7
SIZE = 160
"""Pixels a side: with them, a batch is large enough to be cut into slices, one for each worker."""

Array = NDArray[Any]


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    return packed("memmap", "--size", SIZE)


@pytest.fixture(scope="module", params=WAYS)
def batches(request: pytest.FixtureRequest, reader: Reader) -> Batches:
    """Shuffled batches in every way there is, kept from test to test: each test takes the next epochs."""
    return reader.batches(BATCH, shuffle=True, **WAYS[request.param])


def test_array_after_a_shifted_one_begins_after_its_end() -> None:
    """An array that fills its pages and is shifted moves the next one by a page."""
    layout = slots.SlotLayout(
        [slots.SlotField("image", "uint8", (4096,), 16), slots.SlotField("label", "int64", ())], 2
    )
    views = layout.views(bytearray(layout.size), 2)
    views["image"][:], views["label"][:] = 255, 0
    assert views["image"].min() == 255


# ---------------------------------------------------------------------------------------------- what is held


def same(image: Array) -> Array:
    return image


HELD: dict[str, tuple[Callable[[Array], Any], Callable[[Array], Array]]] = {
    "the array": (same, same),
    "another dtype": (lambda image: image.reshape(-1).view("<u4"), lambda image: image.reshape(-1).view("<u4")),
    "a view of a view of a view": (lambda image: image[1:][::-1].T[0], lambda image: image[1:][::-1].T[0]),
    "a strided overlay": (
        lambda image: np.lib.stride_tricks.as_strided(image, (2, *image.shape[1:]), image.strides),
        lambda image: image[:2],
    ),
    "a memoryview's part": (lambda image: image.reshape(-1).data[5:900], lambda image: image.reshape(-1)[5:900]),
    "an array through DLPack": (lambda image: np.from_dlpack(image), same),
    "an array through ctypes": (lambda image: np.ctypeslib.as_array(np.ctypeslib.as_ctypes(image)), same),
}


@pytest.mark.parametrize("what", HELD)
def test_what_is_held_stays_right(batches: Batches, truth: Truth, what: str) -> None:
    """Whatever is kept of batches over two epochs, with all else let go, holds what it held when it was handed over."""
    take, part = HELD[what]
    kept = [(batch["index"].tolist(), take(batch["image"])) for _ in range(2) for batch in batches]
    assert len(kept) == 2 * len(batches)
    for rows, held in kept:
        assert np.array_equal(np.asarray(held), part(truth.images[rows]))


def test_batches_are_the_callers_to_write(batches: Batches, truth: Truth) -> None:
    """Arrays may be written to, and what is written there reaches no other batch and no store."""
    for _ in range(3):
        kept = []
        for batch in batches:
            assert truth.holds(batch)
            batch["image"][:], batch["label"][:], batch["index"][:] = 77, -7, 0
            kept.append(batch)
        assert all((batch["image"] == 77).all() and (batch["label"] == -7).all() for batch in kept)


@pytest.mark.parametrize(
    "options", [{"image_size": Buckets([(48, 48), (64, 40)])}, {"decode": False}], ids=["sizes", "files"]
)
def test_what_is_held_of_batches_that_differ_in_size_stays_right(packed: Packed, options: dict[str, Any]) -> None:
    """A view of one image of a bucket, or one file, although batches of other sizes came since."""
    batches = Reader(packed("lmdb", "--size", "keep")).batches(6, shuffle=True, **WAYS["processes"], **options)
    kept: list[tuple[Array, Array]] = []
    for _ in range(3):
        for batch in batches:
            one = np.asarray(batch["image"][0])
            kept += [(one, one.copy())] * (len(kept) % 3 > 0 or one.size % 3 > 0)
    assert all(np.array_equal(one, copy) for one, copy in kept)


def test_a_batch_outlives_its_reader(store: Path, truth: Truth) -> None:
    """A batch, or one field of it, stays right when iterator, batches, reader and workers are gone."""
    for way in WAYS.values():
        with nothing_left():
            batches = Reader(store).batches(BATCH, **way)
            kept = [batch for _, batch in zip(range(3), batches, strict=False)]
            labels = [next(iter(batches))["label"]]
            del batches
            gc.collect()
            assert all(truth.holds(batch) for batch in kept)
            assert np.array_equal(labels[0], truth.labels[:BATCH])


# ---------------------------------------------------------------------------------------------- what is let go


@pytest.mark.parametrize("way", ["here", "processes"])
def test_memory_is_used_again(reader: Reader, way: str) -> None:
    """A loop that lets go of its batches runs in a few slots, epoch after epoch, also after a whole one was held, of
    which `stats()` tells."""
    batches = reader.batches(BATCH, shuffle=True, **WAYS[way])
    used = {slots.slot_of(batch["image"]) for _ in range(50 // len(batches) + 1) for batch in batches}
    assert len(used) <= (IN_FLIGHT + 2 if workers_in(way) else 2)
    held = [batch["image"][:1, ::2] for batch in batches]
    assert batches.stats()["held"] == len(held)
    held.clear()
    assert batches.stats()["held"] == 0
    assert len({slots.slot_of(batch["image"]) for _ in range(4) for batch in batches}) <= IN_FLIGHT + 2


def test_nothing_grows_from_epoch_to_epoch(packed: Packed) -> None:
    """Over many epochs, neither descriptors nor mappings nor memory grow, here or in a worker."""
    batches = Reader(packed("memmap", "--size", 48)).batches(25, shuffle=True, workers=Workers(1, backend="process"))
    held: list[dict[str, Any]] = []
    figures = []
    for epoch in range(70):
        for batch in batches:
            # A few are always held beyond the ring, so that fresh memory comes and goes as well.
            held.append(batch)
            del held[:-8]
        if epoch in (19, 69):
            processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
            figures.append([
                (process.pid, process.num_fds(), len(process.memory_maps(grouped=False)), process.memory_info().rss)
                for process in processes
            ])  # fmt: skip
    for (pid, opened, maps, resident), (pid_then, opened_then, maps_then, resident_then) in zip(*figures, strict=True):
        assert (pid_then, opened_then) == (pid, opened)
        assert maps_then <= maps + 4
        assert resident_then - resident < 6 << 20


@pytest.mark.parametrize("way", WAYS)
def test_batches_may_go_at_any_line(reader: Reader, truth: Truth, way: str) -> None:
    """A batch that is let go in the middle of the very code that manages slots, as a garbage collection does, neither
    deadlocks nor spoils what is being handed over."""
    batches = reader.batches(BATCH, shuffle=True, **WAYS[way])
    held = [batch for _ in range(6) for batch in batches]
    before, kept = len(held), list[dict[str, Any]]()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != slots.__file__:
            return None
        if event == "line" and held:
            held.pop()
        return trace

    iterator = iter(batches)
    sys.settrace(trace)
    try:
        kept.extend(iterator)
    finally:
        sys.settrace(None)
    assert len(held) < before - 20
    assert sorted(row for batch in kept for row in batch["index"].tolist()) == list(range(len(truth)))
    assert all(truth.holds(batch) for batch in [*kept, *held])


FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
import numpy as np
from rawpack import Reader, Workers
reader = Reader(sys.argv[1])
for way in ({"workers": 0}, {"workers": Workers(2, backend="thread")}, {"workers": Workers(2, backend="process")}):
    held = list(reader.batches(1, sampler=np.arange(150) % len(reader), **way))
    assert [int(batch["index"][0]) for batch in held] == [i % len(reader) for i in range(150)]
    assert all((batch["image"][0] == held[int(batch["index"][0])]["image"][0]).all() for batch in held)
print("done")
"""


def test_150_batches_under_128_descriptors(packed: Packed, tmp_path: Path) -> None:
    """list(batches) of 150 batches works where a process may open no more than 128 files."""
    ran = run_script(script(tmp_path, FEW_DESCRIPTORS), packed("memmap", "--size", 48))
    assert (ran.code, ran.out, ran.err) == (0, "done\n", "")


@pytest.mark.parametrize("way", ["here", "processes"])
def test_a_cycle_that_has_an_iterator_leaves_nothing(store: Path, way: str) -> None:
    """Where a framework's objects hold an iterator in a cycle, as Keras's do, workers and memory go with it, closed in
    order: of a second epoch, whose workers are older than the iterator, so that the collector comes to them first."""
    with nothing_left():
        batches = Reader(store).batches(BATCH, **WAYS[way])
        list(batches)
        held: list[Any] = [iter(batches)]
        held.append(held)
        next(held[0])
        del batches, held
        gc.collect()


def test_a_thread_that_was_interrupted_as_it_started_ends(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while this thread waits until a worker's thread runs leaves neither thread nor descriptors."""
    start, started = threading.Thread.start, list[threading.Thread]()

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        started.append(thread)
        raise KeyboardInterrupt

    with nothing_left():
        batches = Reader(store).batches(BATCH, **WAYS["threads"])
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(iter(batches))
        (thread,) = started
        thread.join(20)
        assert not thread.is_alive()
