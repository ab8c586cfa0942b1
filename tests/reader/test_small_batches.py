"""Small batches, several of which are made at once, in one slot, by workers or in this process: nobody can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reading import WAYS, Truth, rows_of
from running import Packed

from rawpack import Balanced, Buckets, RawpackError, Reader, UsageError
from rawpack.choose import layout
from rawpack.transforms import MixUp, Normalize, RandomCrop, RandomHorizontalFlip, Step, ToCHW

BATCH = 4
CREWS = [way for way in WAYS if way != "here"]


@pytest.fixture(scope="module")
def store(packed: Packed) -> Path:
    return packed("memmap", "--size", 16)


@pytest.fixture
def reader(store: Path) -> Reader:
    return Reader(store)


@pytest.fixture(autouse=True)
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers make three batches of bytes at once, so that an epoch takes several slots."""
    monkeypatch.setattr(layout, "TOGETHER_BYTES", 3 * BATCH * (16 * 16 * 3 + 16))
    monkeypatch.setattr(layout, "TOGETHER_HERE_BYTES", 2 << 20)


FLOATS = [RandomHorizontalFlip(), Normalize((0.5,), (0.2,)), ToCHW()]


@pytest.mark.parametrize(
    ("options", "shared", "way"),
    [
        ({}, True, "threads"),
        ({"drop_last": True}, True, "here"),
        ({"fields": ["key", "label"], "ranks": (1, 2)}, True, "processes"),
        ({"transform": FLOATS}, True, "here"),
        ({"transform": FLOATS}, True, "processes"),
        ({"transform": [RandomCrop(8)]}, False, "threads"),
        ({"transform": [*FLOATS, MixUp(num_classes=9)]}, False, "here"),
        ({"transform": FLOATS, "sampler": Balanced()}, False, "here"),
        ({"sampler": Balanced()}, True, "threads"),
    ],
)
def test_what_is_made_at_once_is_the_same(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, way: str, options: dict[str, Any], shared: bool
) -> None:
    """Copied or transformed, in any way, batches are bit for bit what they are one by one, epoch after epoch; what
    depends on the batch, or on the position in it, is made one by one."""
    monkeypatch.setattr(layout, "TOGETHER_BYTES", 1 << 16)
    labeled, asked = reader.select(mask=reader.column("label") >= 0), {"shuffle": "sampler" not in options, **options}
    several = labeled.batches(BATCH, **WAYS[way], **asked)
    with monkeypatch.context() as one_by_one:
        one_by_one.setattr(layout, "TOGETHER_HERE_BYTES", 1)
        alone = labeled.batches(BATCH, workers=0, **asked)
    assert (several._feed.making.together > 1, alone._feed.making.together) == (shared, 1)
    for _ in range(2):
        for one, other in zip(several, alone, strict=True):
            assert one.keys() == other.keys()
            for name, values in one.items():
                assert np.array_equal(values, other[name])
                assert isinstance(values, list) or values.dtype == other[name].dtype


class Fails(Step):
    """A step on many samples, that fails where one of them is what it was told."""

    vectorized = True

    def __init__(self, image: NDArray[np.uint8]) -> None:
        self.image = image

    def apply(self, image: Any, drawn: Any, out: Any = None) -> Any:
        if (image == self.image).all(axis=(-3, -2, -1)).any():
            raise ValueError("broken")
        return image


@pytest.mark.parametrize("way", ["here", "processes"])
def test_batches_before_one_that_fails_are_handed_over(reader: Reader, store: Path, way: str) -> None:
    """Though they were made at once; the error names the sample, and comes again in the next epoch, where it is."""
    truth, bad = Truth(store), 13
    batches = reader.batches(BATCH, shuffle=True, transform=[Fails(truth.images[bad])], **WAYS[way])
    assert batches._feed.making.together > 1
    for epoch in range(3):
        alone = reader.batches(BATCH, shuffle=True, workers=0)
        alone.set_epoch(epoch)
        rows, seen = rows_of(alone), list[dict[str, Any]]()
        with pytest.raises(RawpackError, match=rf"sample {bad} .*broken"):
            seen.extend(batches)
        at = rows.index(bad)
        assert rows_of(seen) == rows[: at - at % BATCH]
        assert all(truth.holds(batch) for batch in seen)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_kept_of_a_slot_keeps_it(reader: Reader, store: Path, way: str) -> None:
    """One batch of each epoch, or all of them: what is kept is never overwritten, and what is written to one of them
    reaches no other."""
    truth, batches = Truth(store), reader.batches(BATCH, shuffle=True, **WAYS[way])
    written, *kept = [next(batch for k, batch in enumerate(batches) if k == epoch) for epoch in range(7)]
    written["image"][:] = 7
    kept += [batch for _ in range(2) for batch in batches]
    for _ in range(3):
        assert all(truth.holds(batch) for batch in batches)
    assert (written["image"] == 7).all()
    assert all(truth.holds(batch) for batch in kept)


@pytest.mark.parametrize(
    ("samples", "options", "words"),
    [
        (7, {"batch_size": 8}, "a full one needs 8, and an epoch has 7 samples; pass a batch_size of at most 7, or "),
        (7, {"batch_size": 2, "ranks": (3, 4)}, "needs 8: 2 for each of 4 ranks, and .* at most 1, or "),
        (3, {"batch_size": 1, "ranks": (0, 4)}, "an epoch has 3 samples; pass fewer ranks, or drop_last"),
        (20, {"batch_size": 17, "image_size": Buckets([16, (16, 32)])}, "the largest bucket has .* of at most"),
    ],
)
def test_dropping_every_batch_is_refused(packed: Packed, samples: int, options: dict[str, Any], words: str) -> None:
    """A loop over an epoch of which drop_last=True leaves nothing would train on nothing: batches() raises, with the
    sizes that do not fit and what to pass. Without drop_last, there are batches."""
    reader = Reader(packed("memmap", "--size", "keep" if "image_size" in options else 16)).select(range(samples))
    with pytest.raises(UsageError, match=f"^drop_last=True leaves out every batch: .*{words}"):
        reader.batches(**options, drop_last=True, workers=0)
    assert list(reader.batches(**options, workers=0))
