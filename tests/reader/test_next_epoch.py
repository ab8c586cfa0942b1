"""At the end of an epoch its workers begin the next: nobody waits for its first batch, and no more is to be seen."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reading import WAYS, Truth, rows_of, wait_until, workers_of
from running import Packed

from rawpack import Reader, WorkerError, Workers
from rawpack.epoch.making import IN_FLIGHT

BATCH = 5
CREWS = [way for way in WAYS if way != "here"]


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    return packed("memmap", "--size", 64)


class Counting:
    """A transform that counts its samples in a file, from whatever process."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"

    @property
    def samples(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        with self.log.open("ab") as log:
            log.write(b".")
        return image


def alone(reader: Reader, epoch: int, **options: Any) -> list[int]:
    """The rows of an epoch that nothing went before."""
    batches = reader.batches(BATCH, shuffle=True, **{"workers": 0, **options})
    batches.set_epoch(epoch)
    return rows_of(batches)


def test_it_is_begun_before_it_is_asked_for(reader: Reader, tmp_path: Path) -> None:
    """At the end of an epoch, as many batches of the next are made as else while a batch is held; and once only."""
    count = Counting(tmp_path)
    batches = reader.batches(BATCH, shuffle=True, transform=[count], workers=Workers(2, backend="process"))
    for epoch in range(1, 4):
        rows_of(batches)
        made = epoch * len(reader) + (IN_FLIGHT + 1) * BATCH
        wait_until(lambda made=made: count.samples == made, "the next epoch is begun")


@pytest.mark.parametrize("way", CREWS)
def test_what_comes_is_right_whatever_is_asked_for(reader: Reader, truth: Truth, way: str) -> None:
    """The next epoch, another one, one that goes on in its middle, one after a break: each is what it is by itself."""
    batches = reader.batches(BATCH, shuffle=True, **WAYS[way])

    def epoch() -> list[int]:
        rows: list[int] = []
        for batch in batches:
            assert truth.holds(batch)
            rows += batch["index"].tolist()
        return rows

    assert [epoch(), epoch()] == [alone(reader, 0), alone(reader, 1)]
    batches.set_epoch(7)
    assert [epoch(), epoch()] == [alone(reader, 7), alone(reader, 8)]
    batches.set_epoch(7)
    taken = next(iter(batches))["index"].tolist()
    state = batches.state_dict()
    assert [epoch(), epoch()] == [alone(reader, 8), alone(reader, 9)]
    batches.load_state_dict(state)
    assert [taken + epoch(), epoch()] == [alone(reader, 7), alone(reader, 8)]
    outer = []
    for number, batch in enumerate(batches):
        outer += batch["index"].tolist()
        if number == 1:
            assert epoch() == alone(reader, 10)
    assert outer == alone(reader, 9)
    assert epoch() == alone(reader, 11)


def test_workers_that_die_between_two_epochs(reader: Reader) -> None:
    """What they had begun is made again by others."""
    batches = reader.batches(BATCH, shuffle=True, **WAYS["processes"])
    epoch = iter(batches)
    next(epoch)
    workers = workers_of(epoch)
    rows_of(epoch)
    del epoch
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="a worker died"):
        assert rows_of(batches) == alone(reader, 1)


def test_a_sampler_is_not_asked_early(reader: Reader) -> None:
    """What a user's function gives may hang on what happens between two epochs."""
    asked = []

    def sampler(epoch: int) -> list[int]:
        asked.append(epoch)
        return list(range(epoch, len(reader)))

    batches = reader.batches(BATCH, sampler=sampler, workers=Workers(2, backend="thread"))
    for epoch in range(3):
        assert rows_of(batches) == list(range(epoch, len(reader)))
        assert set(asked) == set(range(epoch + 1))


@pytest.mark.parametrize(("dies", "left", "begun"), [(False, 1, BATCH), (True, 2, 0)])
def test_what_fails_in_it_is_told_in_it(reader: Reader, tmp_path: Path, dies: bool, left: int, begun: int) -> None:
    """An error of its first batches, or a sample that ends each worker that touches it, is no business of the epoch
    before, and none of a loop that never comes to it."""
    count, armed = Counting(tmp_path), tmp_path / "armed"

    def fails(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        if armed.exists() and dies:
            os._exit(3)
        if armed.exists():
            raise ValueError("told to fail")
        return image

    batches = reader.batches(BATCH, shuffle=True, transform=[fails, count], workers=Workers(2, backend="process"))
    epoch = iter(batches)
    rows = [row for _ in range(len(batches) - left) for row in next(epoch)["index"].tolist()]
    # All of this epoch is made, and one batch of the next is begun with its last but one.
    wait_until(lambda: count.samples == len(reader) + begun, "this epoch is made", seconds=20)
    armed.touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows += rows_of(epoch)
        assert rows == alone(reader, 0)
        with pytest.raises(WorkerError, match="died" if dies else "told to fail"):
            rows_of(batches)
