"""A loop that makes new batches for each epoch reads epoch 0 again and again: it is told so, once; other loops are not.

The programs here are those that people write. What they read is compared with what a plain list of rows says."""

from __future__ import annotations

import gc
import re
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS, placed, rows_of
from trained import numbered_store

from rawpack import Balanced, Batches, Reader
from rawpack.integrations.adapter import inputs_and_labels
from rawpack.integrations.keras import KerasBatches
from rawpack.transforms import (
    CenterCrop,
    Lambda,
    Normalize,
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
    "crop": lambda reader, epoch: reader.batches(BATCH, transform=[RandomResizedCrop(6)], workers=0),
    "own step": lambda reader, epoch: reader.batches(BATCH, transform=[JITTER], workers=0),
    "functions": lambda reader, epoch: reader.batches(BATCH, transform=[halved, Lambda(np.flipud)], **SHUFFLED),
    "threads": lambda reader, epoch: reader.batches(BATCH, shuffle=True, **WAYS["threads"]),
    "queue": lambda reader, epoch: reader.batches(BATCH, **SHUFFLED).queue(epochs=1),
    "MXNet": lambda reader, epoch: reader.batches(BATCH, **SHUFFLED).data_iter(),
    "placed": lambda reader, epoch: placed(reader.batches(BATCH, **SHUFFLED)),
    "keras": lambda reader, epoch: keras(reader.batches(BATCH, **SHUFFLED)),
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


def test_the_warning_shows_the_lines_to_write(store: Path) -> None:
    """It stands at the user's line and names what repeats. The line of code, run as it is before a loop over epochs,
    reads another order in each."""
    reader, options = Reader(store), SHUFFLED | {"transform": [RandomHorizontalFlip()]}
    rows_of(reader.batches(BATCH, **options))
    again = iter(reader.batches(BATCH, **options))
    with pytest.warns(UserWarning, match="^rawpack: epoch 0 is read again") as caught:
        next(again)
    assert [Path(one.filename) for one in caught] == [Path(__file__)]
    text = str(caught[0].message)
    assert "with the same order and random numbers for transform=: " in text
    (line,) = re.findall(r"^    (.*)$", text, re.MULTILINE)
    assert f'Reader("{store}").batches(5, shuffle=True, ...)' in line
    loop = "for epoch in range(3):\n  for batch in batches: rows[epoch].append(batch)"
    rows: list[list[Any]] = [[], [], []]
    exec("\n".join([line.replace(", ...)", ", workers=0)"), loop]), {"Reader": Reader, "rows": rows})
    found = [rows_of(epoch) for epoch in rows]
    assert all(sorted(epoch) == list(range(SAMPLES)) for epoch in found)
    assert found[0] != found[1] != found[2]


@pytest.mark.parametrize("loop", ["mix", "queue", "MXNet", "placed"])
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


# ---------------------------------------------------------------------------------------------- loops that do not


def test_training_and_validation(store: Path) -> None:
    """Training with batches made once, all of them or a few steps, and validation with new ones in every epoch, both
    twice: no word."""
    steps: list[Any] = [Resize(10), CenterCrop(6), Normalize((0.5,), (0.5,)), lambda image: image * 2]
    with told() as warned:
        for seed in range(2):
            train = Reader(store).batches(BATCH, seed=seed, transform=[RandomResizedCrop(6)], **SHUFFLED)
            for taken in (None, 3, None, 3):
                read(train, taken)
                read(Reader(store).batches(BATCH, transform=steps, workers=0))
                read(Reader(store).batches(BATCH, sampler=np.arange(10), image_size=4, workers=0))
                read(Reader(store).batches(BATCH, workers=0).queue(epochs=1))
                read(Reader.mix([(store, 1), (store, 1)]).batches(4, workers=0))
                read(Reader(store).batches(BATCH, workers=0), 3)
    assert warned == []


CHOSEN: dict[str, Loop] = {
    "set_epoch": lambda reader, epoch: begun_at(reader.batches(BATCH, **SHUFFLED), epoch),
    "the same one, as said": lambda reader, epoch: begun_at(reader.batches(BATCH, **SHUFFLED), 0),
    "set_epoch of tensors": lambda reader, epoch: begun_at(placed(reader.batches(BATCH, **SHUFFLED)), 0),
    "a state": lambda reader, epoch: loaded(reader.batches(BATCH, **SHUFFLED)),
    "seeds": lambda reader, epoch: reader.batches(BATCH, seed=epoch, **SHUFFLED),
    "transforms": lambda reader, epoch: reader.batches(BATCH, transform=[CenterCrop(4 + epoch)], **SHUFFLED),
    "steps of a user": lambda reader, epoch: reader.batches(BATCH, transform=[Jitter()], workers=0),
    "selections": lambda reader, epoch: reader.select(range(epoch, 20)).batches(BATCH, **SHUFFLED),
    "folds": lambda reader, epoch: reader.batches(
        BATCH, sampler=np.arange(epoch, 20), transform=[RandomHorizontalFlip()], workers=0
    ),
    "ranks": lambda reader, epoch: reader.batches(BATCH, ranks=(epoch, 3), **SHUFFLED),
    "mixes": lambda reader, epoch: Reader.mix([(reader, 1), (reader, 2 + epoch)]).batches(4, **SHUFFLED),
}


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


def test_nothing_is_kept(store: Path) -> None:
    """Readers, functions and arrays go when the loop lets them go."""

    class Function:
        def __call__(self, image: Any) -> Any:
            return image

    function = Function()
    batches = Reader(store).batches(BATCH, transform=[function], **SHUFFLED)
    kept = [weakref.ref(function), weakref.ref(batches), weakref.ref(next(iter(batches))["image"])]
    again = Reader(store).batches(BATCH, transform=[function], **SHUFFLED)
    read(again)
    kept.append(weakref.ref(again))
    del function, batches, again
    gc.collect()
    assert [one() for one in kept] == [None] * len(kept)
