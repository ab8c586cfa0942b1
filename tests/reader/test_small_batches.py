"""Small batches of tiny samples, several of which are read at once in this process: nobody can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reading import Truth, rows_of
from running import Packed

from rawpack import RawpackError, Reader

BATCH = 4


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    return packed("memmap", "--size", 16)


@pytest.fixture
def reader(store: Path) -> Reader:
    return Reader(store)


@pytest.fixture
def readings(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> list[NDArray[np.int64]]:
    """The rows of which each reading of images was asked."""
    asked: list[NDArray[np.int64]] = []
    read = reader._library.read_into

    def read_into(name: str, rows: NDArray[np.int64], out: Any) -> None:
        if name == "image":
            asked.append(rows.copy())
        read(name, rows, out)

    monkeypatch.setattr(reader._library, "read_into", read_into)
    return asked


def test_many_batches_are_one_reading(reader: Reader, readings: list[NDArray[np.int64]]) -> None:
    """What makes it fast: all these batches are read in one call."""
    batches = reader.batches(BATCH, shuffle=True, workers=0)
    assert rows_of(batches) == readings[0].tolist()
    assert len(batches) > len(readings) == 1


@pytest.mark.parametrize(
    "options", [{}, {"drop_last": True}, {"rank": 1, "world_size": 3}, {"fields": ["key", "label"]}]
)
def test_batches_are_the_same_as_one_by_one(store: Path, options: dict[str, Any]) -> None:
    """Same batches, same sizes, epoch after epoch, as where `max_slots` keeps them apart."""
    together = Reader(store).batches(BATCH, shuffle=True, workers=0, **options)
    alone = Reader(store).batches(BATCH, shuffle=True, workers=0, max_slots=100, **options)
    for _ in range(3):
        for one, other in zip(together, alone, strict=True):
            assert one.keys() == other.keys()
            for name, values in one.items():
                assert np.array_equal(values, other[name])


def test_a_batch_that_is_kept_stays_right(store: Path, reader: Reader) -> None:
    """Also where those beside it in memory are gone, and where it was written to."""
    truth = Truth(store)
    batches = reader.batches(BATCH, shuffle=True, workers=0)
    kept = [next(batch for k, batch in enumerate(batches) if k == epoch) for epoch in range(8)]
    kept[0]["image"][:] = 7
    for _ in range(3):
        assert all(truth.holds(batch) for batch in batches)
    assert (kept[0]["image"] == 7).all()
    assert all(truth.holds(batch) for batch in kept[1:])


def test_a_state_counts_what_was_handed_over(reader: Reader) -> None:
    """Not what was read along with it."""
    batches = reader.batches(BATCH, shuffle=True, workers=0)
    rows = rows_of(batches)
    batches.set_epoch(0)
    iterator = iter(batches)
    for taken in (1, 2, 3):
        next(iterator)
        assert batches.state_dict()["position"] == taken * BATCH
    resumed = reader.batches(BATCH, shuffle=True, workers=0)
    resumed.load_state_dict(batches.state_dict())
    assert rows_of(resumed) == rows[3 * BATCH :]


def test_batches_before_a_bad_sample_are_handed_over(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes where the bad sample does, and names it."""
    batches = reader.batches(BATCH, shuffle=True, workers=0)
    rows = rows_of(batches)
    bad, read = rows[2 * BATCH + 1], reader._library.read_into

    def read_into(name: str, wanted: NDArray[np.int64], out: Any) -> None:
        if name == "image" and bad in wanted:
            raise ValueError("broken")
        read(name, wanted, out)

    monkeypatch.setattr(reader._library, "read_into", read_into)
    batches.set_epoch(0)
    seen: list[int] = []
    with pytest.raises(RawpackError, match=rf"sample {bad} .*broken"):
        seen.extend(row for batch in batches for row in batch["index"].tolist())
    assert seen == rows[: 2 * BATCH]
    monkeypatch.undo()
    batches.set_epoch(0)
    assert rows_of(batches) == rows
