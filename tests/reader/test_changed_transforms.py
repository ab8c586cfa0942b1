"""A transform that is changed between two epochs is another one from the next epoch on, whatever makes the batches."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS, nothing_left, wait_until, workers_of
from running import Packed

from rawpack import Reader, Workers
from rawpack import transforms as t
from rawpack.batches import Batches
from rawpack.workers.sent import SentSteps

BATCH = 6


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    return packed("memmap", "--size", 16)


@pytest.fixture
def reader(store: Path) -> Reader:
    return Reader(store)


class Paint(t.Step):
    """Images of one value."""

    def __init__(self, value: int = 0, table: Any = None) -> None:
        self.value, self.table = value, table

    def apply(self, image: Any, drawn: Any, out: Any = None) -> Any:
        return np.full_like(image, self.value)


def values_of(batches: Batches) -> set[int]:
    return {int(value) for batch in batches for value in np.unique(batch["image"])}


def crew(batches: Batches) -> list[int]:
    """The ids of the workers that wait for the next epoch."""
    (idle,) = batches._feed.pool_cache._idle
    assert idle.pool is not None
    return [handle.worker.process.pid for handle in idle.pool.handles]  # type: ignore[attr-defined]


def an_attribute(table: Any = None) -> tuple[Any, Callable[[int], None]]:
    step = Paint(table=table)
    return step, lambda value: setattr(step, "value", value)


def a_large_step() -> tuple[Any, Callable[[int], None]]:
    """Its pickle is too large to be compared in each epoch."""
    return an_attribute(np.zeros(1 << 21, np.uint8))


def a_closure() -> tuple[Any, Callable[[int], None]]:
    settings = {"value": 0}
    return lambda image: np.full_like(image, settings["value"]), lambda value: settings.update(value=value)


def sent_steps(reader: Reader, *steps: Any) -> SentSteps:
    """The steps as processes would get them."""
    return SentSteps(reader.batches(BATCH, transform=steps, workers=0)._feed.settings.pipelines)


@pytest.mark.parametrize(
    ("way", "made"),
    [("here", a_closure), ("threads", a_large_step), ("processes", a_closure), ("processes", a_large_step)],
)
def test_each_epoch_has_the_transform_of_its_beginning(reader: Reader, way: str, made: Any) -> None:
    """Changed after a whole epoch, or after one that was left; without a change the same workers go on. However large a
    step is, and wherever it keeps what was changed."""
    step, change = made()
    batches = reader.batches(BATCH, shuffle=True, transform=[step], **WAYS[way])
    seen = [values_of(batches)]
    before = crew(batches) if way == "processes" else []
    seen.append(values_of(batches))
    assert way != "processes" or crew(batches) == before
    change(3)
    seen.append({int(next(iter(batches))["image"].max())})
    change(5)
    batches.set_epoch(4)
    seen.append(values_of(batches))
    assert seen == [{0}, {0}, {3}, {5}]


def test_iterators_side_by_side(reader: Reader) -> None:
    """Each goes on with the transform of its beginning, a worker that replaces another one too; the next epoch has the
    workers of the latest transform, whichever iterator gave its workers back last."""
    step = Paint()
    with nothing_left():
        batches = reader.batches(BATCH, transform=[step], workers=Workers(1, backend="process"))
        old = iter(batches)
        seen = {int(next(old)["image"].max())}
        step.value = 1
        assert values_of(batches) == {1}
        latest = crew(batches)
        os.kill(workers_of(old)[0], signal.SIGKILL)
        with pytest.warns(RuntimeWarning, match="a worker died"):
            seen |= {int(batch["image"].max()) for batch in old}
        assert (seen, values_of(batches), crew(batches)) == ({0}, {1}, latest)
        del batches, old


def test_what_was_begun_early_is_thrown_away(reader: Reader, tmp_path: Path) -> None:
    """Processes have begun the next epoch when the transform is changed: none of that is handed over."""
    log, settings = tmp_path / "log", {"value": 0}

    def paint(image: Any) -> Any:
        with log.open("ab") as file:
            file.write(b".")
        return np.full_like(image, settings["value"])

    batches = reader.batches(BATCH, transform=[paint], workers=Workers(2, backend="process"))
    assert values_of(batches) == {0}
    wait_until(lambda: log.stat().st_size > len(reader), "the next epoch is begun")
    settings["value"] = 1
    assert values_of(batches) == {1}


def test_a_step_that_cannot_be_compared_is_named_once(reader: Reader) -> None:
    """It counts as unchanged; and a change of a step beside it is noticed all the same."""
    step, other, warned = Paint(table=np.random.default_rng(0)), Paint(), set[int]()
    sent = sent_steps(reader, step, other)
    step.table.random()
    with pytest.warns(UserWarning, match=r"(?s)Paint.*its pickle differs each time"):
        assert not sent.changed(warned)
    step.table = threading.Lock()
    assert not sent.changed(warned)
    other.value = 1
    assert sent.changed(warned)


def test_use_is_no_change(reader: Reader) -> None:
    """Steps of this package look the same after they were used as before."""
    last = [t.RandomHorizontalFlip(), t.Normalize((0.5,) * 3, (0.5,) * 3), t.ToCHW()]
    single = [t.RandomResizedCrop(12), t.ColorJitter(0.4, 0.4, 0.4, 0.1), t.RandAugment()]
    for transform in ([*single, t.Views(2, [*last, t.RandomErasing(0.5)])], [*single, *last, t.MixUp(field=None)]):
        batches, warned = reader.batches(BATCH, transform=transform, workers=0), set[int]()
        sent = SentSteps(batches._feed.settings.pipelines)
        list(batches)
        assert not sent.changed(warned)
        assert not warned
