"""Small batches of tiny samples, several of which are read at once in this process: nobody can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reading import Truth, rows_of
from running import Packed

from rawpack import Buckets, RawpackError, Reader, UsageError, Workers

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


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"ranks": (1, 3)}, {"fields": ["key", "label"]}])
def test_batches_are_the_same_as_one_by_one(store: Path, options: dict[str, Any]) -> None:
    """Same batches, same sizes, epoch after epoch, as where `max_held` keeps them apart."""
    together = Reader(store).batches(BATCH, shuffle=True, workers=0, **options)
    alone = Reader(store).batches(BATCH, shuffle=True, workers=Workers(0, max_held=100), **options)
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


@pytest.mark.parametrize(
    ("samples", "options", "words"),
    [
        (7, {"batch_size": 8}, "a full one needs 8, and an epoch has 7 samples; pass a batch_size of at most 7, or "),
        (1, {"batch_size": 8, "shuffle": True}, "has 1 sample; pass a batch_size of at most 1, or drop_last=False"),
        (7, {"batch_size": 2, "ranks": (3, 4)}, "needs 8: 2 for each of 4 ranks, and .* at most 1, or "),
        (3, {"batch_size": 1, "ranks": (0, 4)}, "an epoch has 3 samples; pass fewer ranks, or drop_last"),
        (9, {"batch_size": 6, "sampler": [4, 3, 2, 1, 0]}, "has 5 samples; pass a batch_size of at most 5"),
        (
            20,
            {"batch_size": 17, "image_size": Buckets([(16, 16), (16, 32)])},
            "the largest bucket has .* batch_size of at most",
        ),
    ],
)
def test_dropping_every_batch_is_refused(packed: Packed, samples: int, options: dict[str, Any], words: str) -> None:
    """A loop over an epoch of which drop_last=True leaves nothing would train on nothing: batches() raises, with the
    sizes that do not fit and what to pass. One sample fewer in a batch, or no drop_last, gives batches."""
    reader = Reader(packed("memmap", "--size", "keep" if "image_size" in options else 16)).select(range(samples))
    with pytest.raises(UsageError, match=f"^drop_last=True leaves out every batch: .*{words}"):
        reader.batches(**options, drop_last=True, workers=0)
    assert list(reader.batches(**options, workers=0))
    most = samples // options.get("ranks", (0, 1))[1]
    if most and "sampler" not in options and "image_size" not in options:
        kept = list(reader.batches(**options | {"batch_size": most}, drop_last=True, workers=0))
        assert [len(batch["index"]) for batch in kept] == [most]


def test_an_epoch_that_becomes_too_short_is_refused(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the length of an epoch, or the number of ranks, shows when it begins, so does the error; the rest of an
    epoch that was resumed ends without one."""
    batches = reader.batches(4, sampler=lambda epoch: range((8, 5, 3)[epoch]), drop_last=True, workers=0)
    assert [rows_of(batches) for _ in range(2)] == [list(range(8)), list(range(4))]
    with pytest.raises(UsageError, match="an epoch has 3 samples; pass a batch_size of at most 3"):
        next(iter(batches))
    some = reader.select(range(7))
    resumed = some.batches(4, drop_last=True, workers=0)
    resumed.load_state_dict({**some.batches(4, workers=0).state_dict(), "position": 4})
    assert rows_of(resumed) == []
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    late = some.batches(4, drop_last=True, workers=0, ranks="auto")
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="needs 8: 4 for each of 2 ranks"):
        next(iter(late))
