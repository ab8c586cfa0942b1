"""A loop that makes new batches for each epoch reads epoch 0 again and again: it is told so, once; other loops are not.

The programs here are those that people write. What they read is compared with what a plain list of rows says."""

from __future__ import annotations

import gc
import os
import re
import shutil
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_frames import Frames, pack_frames
from reading import WAYS, placed, rows_of, run_script, script, wait_until
from running import Packed
from trained import numbered_store

from rawpack import Balanced, Batches, Buckets, Reader
from rawpack.epoch import repeats
from rawpack.integrations.adapter import inputs_and_labels
from rawpack.integrations.keras import KerasBatches
from rawpack.transforms import (
    CenterCrop,
    Lambda,
    MixUp,
    Normalize,
    OneHot,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Step,
)

SAMPLES, BATCH = 23, 5
Loop = Callable[[Reader, int], Iterable[Any]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_store(tmp_path_factory.mktemp("numbered") / "store", SAMPLES)


@contextmanager
def told() -> Iterator[list[str]]:
    """The warnings about epochs that come meanwhile."""
    found = list[str]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
        gc.collect()
    found += [str(one.message) for one in caught if " is read again, " in str(one.message)]
    assert len(found) == len(caught), [str(one.message) for one in caught]


class Jitter(Step):
    """A random step of a user's own."""

    def draw(self, random: Any, height: int, width: int) -> int:
        return int(random.integer(9))

    def apply(self, image: Any, drawn: int, out: Any = None) -> Any:
        return image + np.uint8(drawn)


JITTER = Jitter()


def halved(image: Any) -> Any:
    return image // 2


# ---------------------------------------------------------------------------------------------- loops that repeat


SHUFFLED: dict[str, Any] = {"shuffle": True, "workers": 0}
IN_ORDER: dict[str, Any] = {"workers": 0}


def read(batches: Iterable[Any], steps: int | None = None) -> None:
    """A loop, which may be left early."""
    for _ in islice(batches, steps):
        pass


REPEATING: dict[str, Loop] = {
    "full": lambda reader, epoch: reader.batches(BATCH, shuffle=True, workers=0),
    "balanced": lambda reader, epoch: reader.batches(BATCH, sampler=Balanced("label"), workers=0),
    "by epoch": lambda reader, epoch: reader.batches(BATCH, sampler=lambda n: [n, 1, 2, 3, 4, 5, 6], workers=0),
    "selection": lambda reader, epoch: reader.select(where="label == 1").batches(2, **SHUFFLED),
    "mix": lambda reader, epoch: Reader.mix([(reader, 2), (reader, 1)]).batches(BATCH, **SHUFFLED),
    "crop": lambda reader, epoch: reader.batches(BATCH, transform=[RandomResizedCrop(6)], **IN_ORDER),
    "own step": lambda reader, epoch: reader.batches(BATCH, transform=[JITTER], **IN_ORDER),
    "mixup": lambda reader, epoch: reader.batches(
        BATCH, transform=[Normalize((0.5,), (0.5,)), OneHot(4), MixUp()], **IN_ORDER
    ),
    "functions": lambda reader, epoch: reader.batches(BATCH, transform=[halved, Lambda(np.flipud)], **SHUFFLED),
    "threads": lambda reader, epoch: reader.batches(BATCH, shuffle=True, **WAYS["threads"]),
    "queue": lambda reader, epoch: reader.batches(BATCH, **SHUFFLED).queue(epochs=1),
    "MXNet": lambda reader, epoch: reader.batches(BATCH, **SHUFFLED).data_iter(),
    "placed": lambda reader, epoch: placed(reader.batches(BATCH, **SHUFFLED)),
    "keras": lambda reader, epoch: keras(reader.batches(BATCH, **SHUFFLED)),
    "counted": lambda reader, epoch: islice(made := reader.batches(BATCH, **SHUFFLED), len(made)),
}


def keras(batches: Batches) -> Iterator[Any]:
    """One epoch, as `fit` asks for it: it looks at the first batch before."""
    data: Any = KerasBatches(batches._feed, *inputs_and_labels(batches._feed, "image", "label", None))
    data[0]
    data.on_epoch_end()
    for number in range(len(data)):
        yield data[number]
    data.on_epoch_end()


@pytest.mark.parametrize("loop", REPEATING)
def test_new_batches_in_each_epoch(store: Path, loop: str) -> None:
    """Whatever is random, in whichever form, with a new reader or the same one: one warning in the second round, and
    none later."""
    reader, rounds = Reader(store), []
    for epoch in range(3):
        with told() as warned:
            read(REPEATING[loop](reader if loop == "full" else Reader(store), epoch))
        rounds.append(len(warned))
    assert rounds == [0, 1, 0]


def test_what_is_drawn_anew(packed: Packed, tmp_path: Path) -> None:
    """Batches repeat where clips are drawn for each epoch, where batches of several sizes are shuffled, and where crops
    of files that a GPU decodes are drawn here; not where the same samples come in order."""
    clips = Reader(pack_frames(Frames([range(9), range(12)]), tmp_path / "s"))
    sizes, files = Reader(packed("memmap", "--size", "keep")), Reader(packed("lmdb", "--size", 48))
    buckets: dict[str, Any] = {"image_size": Buckets([(20, 30), (30, 20)])}
    loops: list[tuple[int, Callable[[], Iterable[Any]]]] = [
        (0, lambda: clips.clips(3).batches(2, workers=0)),
        (1, lambda: clips.clips(3, per_video=2).batches(2, workers=0)),
        (0, lambda: sizes.batches(16, **buckets, **IN_ORDER)),
        (1, lambda: sizes.batches(16, **buckets, **SHUFFLED)),
        (0, lambda: files.batches(16, transform=[CenterCrop(20)], workers=0, decode=False)),
        (1, lambda: files.batches(16, transform=[RandomResizedCrop(20)], workers=0, decode=False)),
    ]
    for count, made in loops:
        repeats._warned = False
        with told() as warned:
            read(made())
            read(made())
        assert len(warned) == count


def test_the_warning_shows_the_lines_to_write(store: Path) -> None:
    """It stands at the user's line and names what repeats, in two lines. The line of code, run as it is before a loop
    over epochs, reads another order in each."""
    reader, transform = Reader(store), [RandomHorizontalFlip()]
    rows_of(reader.batches(BATCH, shuffle=True, transform=transform, workers=0))
    again = iter(reader.batches(BATCH, shuffle=True, transform=transform, workers=0))
    with pytest.warns(UserWarning, match="^rawpack: epoch 0 is read again") as caught:
        next(again)
    assert len(caught) == 1
    assert Path(caught[0].filename) == Path(__file__)
    text = str(caught[0].message)
    assert "with the same order and random numbers for transform=: " in text
    assert "another run, such as the next trial of a sweep" in text
    assert text.count("\n") == 1
    (line,) = re.findall(r"^    (.*)$", text, re.MULTILINE)
    assert f'Reader("{store}").batches(5, shuffle=True, ...)' in line
    loop = "for epoch in range(3):\n  for batch in batches: rows[epoch].append(batch)"
    program = "\n".join([line.replace(", ...)", ", workers=0)"), loop])
    rows: list[list[Any]] = [[], [], []]
    exec(program, {"Reader": Reader, "rows": rows})
    found = [rows_of(epoch) for epoch in rows]
    assert all(sorted(epoch) == list(range(SAMPLES)) for epoch in found)
    assert found[0] != found[1] != found[2]


@pytest.mark.parametrize(
    ("cell", "rounds"),
    [
        ("for batch in Reader(store).batches(5, shuffle=True, workers=0): pass", [0, 1, 0]),
        ("batches = Reader(store).batches(5, shuffle=True, workers=0)\nfor batch in batches: pass", [0, 1, 0]),
        (
            "batches = reader.batches(5, shuffle=True, workers=0)\nfor e in range(3):\n for batch in batches: pass",
            [0] * 3,
        ),
        ("for batch in made: pass", [0] * 3),
        ("batch = next(iter(reader.batches(5, shuffle=True, workers=0)))", [0] * 3),
        ("for k, batch in enumerate(reader.batches(5, shuffle=True, workers=0)):\n if k: break", [0, 0, 1, 0]),
    ],
)
def test_cells_of_a_notebook_that_run_again(store: Path, cell: str, rounds: list[int]) -> None:
    """A cell that reads one epoch of new batches reads the same one again. Not one that trains for several epochs, has
    its batches from another cell, or only looks at a batch."""
    reader = Reader(store)
    names = {"Reader": Reader, "reader": reader, "store": store, "made": reader.batches(4, shuffle=True, workers=0)}
    found = []
    for _ in rounds:
        with told() as warned:
            exec(cell, names)
        found.append(len(warned))
    assert found == rounds


@pytest.mark.parametrize("loop", ["crop", "mix", "queue", "MXNet", "placed", "threads"])
def test_epochs_that_are_left_early(store: Path, loop: str) -> None:
    """A loop with a fixed number of steps for each epoch, from new batches each time: one warning when the same ones
    begin for the third time."""
    reader, rounds = Reader(store), []
    for epoch in range(5):
        with told() as warned:
            batches = REPEATING[loop](reader, epoch)
            read(batches, 3)
            for one in (batches, getattr(batches, "_iterator", None)):
                getattr(one, "close", int)()
            del batches
        rounds.append(len(warned))
    assert rounds == [0, 0, 1, 0, 0]


def test_steps_that_are_no_repetition(store: Path) -> None:
    """Epochs of a fixed number of steps: from batches that are made once, in order, with an epoch that is named, or
    from one setting to the next. Not a word, however often."""
    with told() as warned:
        for seed in range(4):
            made = Reader(store).batches(BATCH, seed=seed, **SHUFFLED)
            for epoch in range(4):
                read(made, 3)
                read(Reader(store).batches(BATCH, workers=0), 3)
                read(begun_at(Reader(store).batches(BATCH, **SHUFFLED), epoch), 3)
                read(begun_at(Reader(store).batches(BATCH, **SHUFFLED), 0), 3)
        for _ in range(4):
            made = Reader(store).batches(BATCH, **SHUFFLED)
            read(made, 3)
            read(made, 3)
    assert warned == []


# ---------------------------------------------------------------------------------------------- loops that do not


def test_training_and_validation(store: Path) -> None:
    """Training with batches made once, validation with new ones in every epoch, twice one after another: no word."""
    steps: list[Any] = [Resize(10), CenterCrop(6), Normalize((0.5,), (0.5,)), lambda image: image * 2]
    with told() as warned:
        for _ in range(2):
            train = Reader(store).batches(BATCH, shuffle=True, transform=[RandomResizedCrop(6)], workers=0)
            for _ in range(3):
                read(train)
                read(Reader(store).batches(BATCH, transform=steps, workers=0))
                read(Reader(store).batches(BATCH, sampler=np.arange(10), image_size=4, workers=0))
                read(Reader(store).batches(BATCH, workers=0).queue(epochs=1))
                read(Reader.mix([(store, 1), (store, 1)]).batches(4, workers=0))
    assert warned == []


def test_trainings_of_several_epochs(store: Path) -> None:
    """Four trainings one after another, of two epochs, of one and a part, resumed, and from a later epoch: no word."""
    with told() as warned:
        state = None
        for epochs in (2, 1, 1, 1):
            batches = Reader(store).batches(BATCH, shuffle=True, workers=0)
            if state is not None:
                batches.load_state_dict(state)
            for _ in range(epochs):
                read(batches)
            next(iter(batches))
            state = batches.state_dict()
    assert warned == []


CHOSEN: dict[str, Loop] = {
    "set_epoch": lambda reader, epoch: begun_at(reader.batches(BATCH, **SHUFFLED), epoch),
    "the same one, as said": lambda reader, epoch: begun_at(reader.batches(BATCH, **SHUFFLED), 0),
    "set_epoch of tensors": lambda reader, epoch: begun_at(placed(reader.batches(BATCH, **SHUFFLED)), 0),
    "a state": lambda reader, epoch: loaded(reader.batches(BATCH, **SHUFFLED)),
    "seeds": lambda reader, epoch: reader.batches(BATCH, seed=epoch, **SHUFFLED),
    "sizes": lambda reader, epoch: reader.batches(BATCH, image_size=4 + epoch, **SHUFFLED),
    "transforms": lambda reader, epoch: reader.batches(BATCH, transform=[CenterCrop(4 + epoch)], **SHUFFLED),
    "steps of a user": lambda reader, epoch: reader.batches(BATCH, transform=[Jitter()], **IN_ORDER),
    "the same function anew": lambda reader, epoch: reader.batches(
        BATCH, transform=[lambda image: image // 2], **SHUFFLED
    ),
    "selections": lambda reader, epoch: reader.select(range(epoch, 20)).batches(BATCH, **SHUFFLED),
    "folds": lambda reader, epoch: reader.batches(
        BATCH, sampler=np.arange(epoch, 20), transform=[RandomHorizontalFlip()], workers=0
    ),
    "drawn by the user": lambda reader, epoch: reader.batches(BATCH, sampler=Anew(), workers=0),
    "ranks": lambda reader, epoch: reader.batches(BATCH, ranks=(epoch, 3), **SHUFFLED),
    "mixes": lambda reader, epoch: Reader.mix([(reader, 1), (reader, 2 + epoch)]).batches(4, **SHUFFLED),
}


class Anew:
    """A sampler that draws a new order whenever it is iterated."""

    random = np.random.default_rng(5)

    def __iter__(self) -> Iterator[int]:
        return iter(self.random.permutation(SAMPLES).tolist())


def begun_at(batches: Any, epoch: int) -> Any:
    batches.set_epoch(epoch)
    return batches


def loaded(batches: Batches) -> Batches:
    batches.load_state_dict(batches.state_dict())
    return batches


@pytest.mark.parametrize("loop", CHOSEN)
def test_new_batches_that_are_meant(store: Path, loop: str) -> None:
    """Where the user says from where to read, or what is read differs: no word."""
    reader = Reader(store)
    with told() as warned:
        for epoch in range(3):
            read(CHOSEN[loop](reader, epoch))
    assert warned == []


def test_what_a_queue_holds_is_not_read(store: Path) -> None:
    """A queue that is full with a whole epoch, of which one batch was looked at, is no epoch that was read; nor is one
    that was read while the next was being filled."""
    reader = Reader(store)
    with told() as warned:
        for _ in range(3):
            with reader.batches(SAMPLES // 3, **SHUFFLED).queue(depth=9, epochs=1) as queue:
                wait_until(lambda queue=queue: queue.stats()["ready"] == 4, "the queue is full")
                next(queue)
        for _ in range(3):
            with reader.batches(SAMPLES // 3, **SHUFFLED).queue(depth=9) as queue:
                wait_until(lambda queue=queue: queue.stats()["ready"] == 9, "the queue is full")
                for _ in range(4):
                    next(queue)
    assert warned == []


@pytest.mark.parametrize("loop", ["full", "crop", "queue", "placed", "MXNet"])
def test_equal_batches_that_take_turns(store: Path, loop: str) -> None:
    """Two that were made before either was read, as for two models: no word."""
    reader = Reader(store)
    both = [REPEATING[loop](reader, 0) for _ in range(2)]
    with told() as warned:
        for batches in both:
            read(batches)
    assert warned == []


def test_other_stores(store: Path, tmp_path: Path) -> None:
    """Another store with as many samples is another one; a copy of the same one is not."""
    other, copy = numbered_store(tmp_path / "other", SAMPLES, classes=3), shutil.copytree(store, tmp_path / "copy")
    for second, count in ((other, 0), (copy, 1)):
        with told() as warned:
            for path in (store, second):
                read(Reader(path).batches(BATCH, **SHUFFLED))
        assert len(warned) == count


# ---------------------------------------------------------------------------------------------- other processes


FORKS = """
import os, sys, warnings
from rawpack import Reader

def made():
    return Reader(sys.argv[1]).batches(5, shuffle=True, workers=0)

def warned(batches):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in batches:
            pass
    return sum(" is read again, " in str(one.message) for one in caught)

before = made()
warned(made())
if os.fork() == 0:
    print([warned(before), warned(made()), warned(made())], flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forked_children_begin_afresh(store: Path, tmp_path: Path) -> None:
    """What a parent has read is no repetition in its children, whether they read its batches or their own; a child
    that repeats its own loop is told so."""
    ran = run_script(script(tmp_path, FORKS), store, options=())
    assert (ran.code, ran.out) == (0, "[0, 0, 1]\n"), ran.err


def test_threads(store: Path) -> None:
    """Eight threads that all repeat: told once, and every epoch is whole."""
    together = threading.Barrier(8, timeout=60)

    def repeat(_: int) -> list[list[int]]:
        together.wait()
        return [sorted(rows_of(Reader(store).batches(BATCH, **SHUFFLED))) for _ in range(3)]

    with told() as warned, ThreadPoolExecutor(8) as pool:
        whole = [*pool.map(repeat, range(8))]
    assert len(warned) == 1
    assert whole == [[list(range(SAMPLES))] * 3] * 8


# ---------------------------------------------------------------------------------------------- what it costs


def test_nothing_is_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers, functions and arrays go when the loop lets them go; of many different batches, the last ones count."""

    class Function:
        def __call__(self, image: Any) -> Any:
            return image

    function = Function()
    batches = Reader(store).batches(BATCH, shuffle=True, transform=[function], **IN_ORDER)
    kept = [weakref.ref(function), weakref.ref(batches), weakref.ref(next(iter(batches))["image"])]
    again = Reader(store).batches(BATCH, shuffle=True, transform=[function], **IN_ORDER)
    read(again)
    kept.append(weakref.ref(again))
    del function, batches, again
    gc.collect()
    assert [one() for one in kept] == [None] * len(kept)
    monkeypatch.setattr(repeats, "_read", deque(maxlen=20))
    for seeds, count in ((range(30), 0), ([29], 1)):
        with told() as warned:
            for seed in seeds:
                read(Reader(store).batches(SAMPLES, seed=seed, **SHUFFLED))
        assert len(warned) == count
