"""Mixing stores: each store's share in every batch, its samples in rounds, and what may differ between stores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clip_frames import Frames, pack_frames
from draws import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import rawpack_packer
from rawpack import Reader, UsageError, look
from rawpack.order.mixed import Mixed, shares_of
from rawpack.order.shuffled import Sequential, Shuffled

SIZES = {"a": 23, "b": 7, "c": 3}
SHARES = {"a": 0.6, "b": 0.3, "c": 0.1}
BATCH = 6


@dataclass
class Numbered:
    count: int
    store: int
    side: int
    classes: Sequence[str]
    extra: dict[str, Any]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> dict[str, Any]:
        image = np.full((self.side, self.side + 1, 3), self.store, np.uint8)
        image[..., 1] = i
        return {"image": image, "label": i % len(self.classes), **self.extra}


def packed_numbers(
    folder: Path, count: int, store: int = 0, side: int = 5, classes: Sequence[str] = ("x", "y"), **extra: Any
) -> Path:
    """A store whose images hold the number of their store and their own; fields and classes as asked for."""
    options = {name: extra.pop(name) for name in ("format", "compression") if name in extra}
    rawpack_packer.pack(Numbered(count, store, side, classes, extra), folder, size="keep", workers=0, **options)
    return folder


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three small stores, each of another format."""
    base = tmp_path_factory.mktemp("stores")
    formats: list[dict[str, Any]] = [{}, {"format": "hdf5", "compression": "gzip"}, {"format": "hdf5"}]
    return {
        name: packed_numbers(base / name, count, number, **options)
        for number, ((name, count), options) in enumerate(zip(SIZES.items(), formats, strict=True))
    }


@pytest.fixture(scope="module")
def mixed(stores: Mapping[str, Path]) -> Reader:
    return Reader.mix({stores[name]: share for name, share in SHARES.items()})


def within_one(counts: NDArray[np.int64], shares: Sequence[Fraction], batch: int) -> bool:
    """Whether counts (batches, stores) are within one of the shares in every batch and at every prefix."""
    for one, before in zip(counts.tolist(), np.cumsum(counts, axis=0).tolist(), strict=True):
        number = sum(before)
        for count, total, share in zip(one, before, shares, strict=True):
            if abs(count - share * batch) >= 1 or abs(total - share * number) >= 1:
                return False
    return bool((counts.sum(axis=1) == batch).all())


def counted(order: Mixed, epoch: int = 0) -> NDArray[np.int64]:
    """How many samples of each store are in each batch, (batches, stores)."""
    ends = np.cumsum([len(one) for one in order.orders])
    which = np.searchsorted(ends, order.samples(epoch, 0, order.length(epoch)), side="right")
    return np.stack([np.bincount(batch, minlength=len(ends)) for batch in which.reshape(-1, order.batch_size)])


# ---------------------------------------------------------------------------------------------- shares


@settings(deadline=None, max_examples=tries(120))
@given(
    parts=st.lists(st.one_of(st.integers(1, 50), st.floats(0.01, 10)), min_size=1, max_size=9),
    batch=st.integers(1, 40),
    batches=st.integers(1, 60),
    epoch=st.integers(0, 3),
)
def test_every_store_has_its_share(parts: list[float], batch: int, batches: int, epoch: int) -> None:
    """In every batch, and in all batches up to any of them, each store's count is its share, rounded up or down."""
    exact = [Fraction(str(part)) / sum(Fraction(str(one)) for one in parts) for part in parts]
    orders = tuple(Sequential(3 + 5 * number) for number in range(len(parts)))
    order = Mixed(orders, shares_of(parts), batch, batch * batches)
    assert order.length(epoch) == batch * batches
    assert within_one(counted(order, epoch), exact, batch)


def test_stores_with_nearly_a_sample_of_every_batch() -> None:
    """The same where most stores miss only a few batches, so that being late once would make them late again."""
    shares = [
        part / 4 for part in (Fraction(9, 10), Fraction(5, 7), Fraction(19, 20), Fraction(19, 20), Fraction(17, 35))
    ]
    order = Mixed(tuple(Sequential(100) for _ in shares), tuple(shares), 4, 4 * 400)
    assert within_one(counted(order), shares, 4)


def test_shares_hold_over_many_periods() -> None:
    """Shares of many digits are within one too, as far as 4,096 batches; they are the fractions that were meant."""
    assert shares_of([1 / 3, 1 / 2, 1 / 6, 2]) == (Fraction(1, 9), Fraction(1, 6), Fraction(1, 18), Fraction(2, 3))
    odd = [math.sqrt(2), math.sqrt(3), math.pi]
    order = Mixed(tuple(Sequential(10_000) for _ in odd), shares_of(odd), 5, 4096 * 5)
    assert within_one(counted(order), [Fraction(one) / Fraction(sum(odd)) for one in odd], 5)


def test_samples_of_a_store_are_spread_within_a_batch() -> None:
    """So that a batch that is cut into pieces for gradient accumulation has about the shares in each piece."""
    order = Mixed((Sequential(99), Sequential(99)), shares_of([3, 1]), 16, 160)
    for start in range(0, 160, 4):
        assert np.count_nonzero(order.samples(0, start, start + 4) >= 99) == 1


def test_shares_reach_the_batches(mixed: Reader) -> None:
    """The field `store` says which store each sample is from; its image is that of the sample. Each batch of each rank
    has the shares, also where some ranks read batches again."""
    exact = [Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)]
    starts = np.cumsum([0, *SIZES.values()])
    for rank, world_size in ((0, 1), (0, 3), (2, 3)):
        epoch = list(mixed.batches(BATCH, shuffle=True, workers=0, ranks=(rank, world_size)))
        counts = np.stack([np.bincount(batch["store"], minlength=3) for batch in epoch])
        assert all(abs(count - share * BATCH) < 1 for one in counts for count, share in zip(one, exact, strict=True))
        assert world_size > 1 or within_one(counts, exact, BATCH)
        for batch in epoch:
            assert batch["store"].dtype == np.int64
            assert (batch["image"][:, 0, 0, 0] == batch["store"]).all()
            assert (batch["image"][:, 0, 0, 1] == batch["index"] - starts[batch["store"]]).all()


# ---------------------------------------------------------------------------------------------- rounds and epochs


def drawn_of(order: Mixed, store: int, epochs: range) -> list[list[int]]:
    """What each epoch takes of a store, in order."""
    ends = np.cumsum([0, *(len(one) for one in order.orders)])
    found = []
    for epoch in epochs:
        samples = order.samples(epoch, 0, order.length(epoch))
        found.append((samples[(samples >= ends[store]) & (samples < ends[store + 1])] - ends[store]).tolist())
    return found


@pytest.mark.parametrize("length", ["longest", "shortest", 100, 7])
def test_stores_come_in_rounds(length: Any) -> None:
    """A store comes completely before it repeats, in another order each time. What an epoch does not use up of it comes
    in the next epochs."""
    order = Mixed(tuple(Shuffled(n, n) for n in (50, 20, 3)), shares_of([5, 4, 3]), 8, length)
    for store, n in enumerate((50, 20, 3)):
        epochs = drawn_of(order, store, range(20))
        if len(epochs[0]) < n:
            epochs = [[sample for epoch in epochs for sample in epoch]]
        rounds = [epoch[at : at + n] for epoch in epochs for at in range(0, len(epoch), n)]
        complete = [one for one in rounds if len(one) == n]
        assert all(len(set(one)) == len(one) for one in rounds)
        assert complete
        assert n < 5 or len({tuple(one) for one in complete}) == len(complete)


def test_lengths() -> None:
    """ "longest": each store completely, and no batch more than that takes. "shortest": no sample twice, and no batch
    less. A number: rounded up to whole batches."""
    sizes, parts = (50, 21, 13), (5, 4, 3)
    for batch in range(4, 14):
        orders = {
            length: Mixed(tuple(map(Shuffled, sizes)), shares_of(parts), batch, length)  # type: ignore[arg-type]
            for length in ("longest", "shortest", 100)
        }
        assert len(orders[100]) == math.ceil(100 / batch) * batch
        fewest = [len(set(drawn_of(orders["longest"], store, range(1))[0])) for store in range(3)]
        assert fewest == list(sizes)
        assert any(
            (len(orders["longest"]) - batch) * Fraction(part, 12) < n for n, part in zip(sizes, parts, strict=True)
        )
        for store in range(3):
            (drawn,) = drawn_of(orders["shortest"], store, range(1))
            assert len(set(drawn)) == len(drawn)
        assert any(
            (len(orders["shortest"]) + batch) * Fraction(part, 12) > n for n, part in zip(sizes, parts, strict=True)
        )


# ---------------------------------------------------------------------------------------------- how it is read


def test_a_mix_is_a_reader(mixed: Reader, stores: dict[str, Path]) -> None:
    """Everything but batches() treats the stores as one, one after another."""
    several = Reader.mix([(Reader(stores["a"]).select([20, 3]), 1), ([stores["b"], stores["c"]], 1)])
    assert len(several) == 12
    assert several.column("store").tolist() == [0] * 2 + [1] * 10
    assert [several[i]["store"] for i in (0, 1, 2, -1)] == [0, 0, 1, 1]
    assert [several[i]["index"] for i in (0, 1, 2, -1)] == [0, 1, 2, 11]
    assert several.column("store_row")[[0, 1, 2, -1]].tolist() == [20, 3, 23, 32]
    assert several[[0, 2, 11]]["image"][:, 0, 0, :2].tolist() == [[0, 20], [1, 0], [2, 2]]
    assert several.classes == ("x", "y")
    assert next(iter(several.batches(4, fields=["label"], workers=0))).keys() == {"label", "store", "index"}
    preloaded = Reader.mix([(Reader(stores[name], preload=True, verify=True), share) for name, share in SHARES.items()])
    for one, other in zip(preloaded.batches(BATCH, workers=2), mixed.batches(BATCH, workers=0), strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])


def test_images_of_different_sizes(tmp_path: Path) -> None:
    """Stores may differ in size, format and encoding where image_size= or the transform makes them alike."""
    small = packed_numbers(tmp_path / "small", count=9, side=8)
    large = packed_numbers(tmp_path / "large", count=5, store=1, side=24, format="lmdb")
    mixed = Reader.mix({small: 2, large: 1})
    assert mixed.fields["image"].shape == (None, None, 3)
    assert look(mixed).shapes("image").tolist() == [[8, 9, 3]] * 9 + [[24, 25, 3]] * 5
    assert [mixed[i]["image"].shape for i in (0, 9)] == [(8, 9, 3), (24, 25, 3)]
    with pytest.raises(UsageError, match="pass image_size="):
        mixed.batches(6)
    for batch in mixed.batches(6, image_size=8, workers=0):
        assert batch["image"].shape == (6, 8, 8, 3)
        assert (np.abs(batch["image"][:, 0, 0, 0].astype(int) - batch["store"]) <= 2).all()
        assert np.bincount(batch["store"]).tolist() == [4, 2]


def test_fields_that_differ(tmp_path: Path) -> None:
    """A mix has the fields that all stores have. What the others are, and why, is said where they are asked for."""
    one = packed_numbers(tmp_path / "one", count=4, score=np.float32(1), caption="first", depth=np.zeros(3))
    two = packed_numbers(tmp_path / "two", count=4, score=np.float32(2), caption="second")
    mixed = Reader.mix({one: 1, two: 1})
    assert set(mixed.fields) == {"image", "label", "score", "caption", "key", "store"}
    batch = next(iter(mixed.batches(4, fields=["score", "caption"], workers=0)))
    assert batch["caption"] == ["first" if store == 0 else "second" for store in batch["store"]]
    assert (batch["score"] == batch["store"] + 1).all()
    with pytest.raises(UsageError, match=r"two has no field 'depth'.*the store has"):
        mixed.batches(4, fields=["depth"])
    other = packed_numbers(tmp_path / "other", count=4, score=np.float64(3))
    with pytest.raises(UsageError, match=r"'score' is number float32 \(\) in .*one and number float64 \(\) in .*other"):
        Reader.mix({one: 1, other: 1}).batches(4)


def test_classes_that_differ(tmp_path: Path, stores: dict[str, Path]) -> None:
    """Labels of different classes are mixed only if they are named."""
    cats = packed_numbers(tmp_path / "cats", count=4, classes=("cat", "dog", "owl"))
    mixed = Reader.mix({cats: 1, stores["a"]: 1})
    assert mixed.classes is None
    with pytest.raises(UsageError, match=r"have different classes.*name 'label' in fields="):
        mixed.batches(4)
    for batch in mixed.batches(4, fields=["label"], workers=0):
        assert (batch["label"] == np.where(batch["store"] == 0, batch["index"] % 3, (batch["index"] - 4) % 2)).all()
    assert "label" not in next(iter(mixed.batches(4, fields=["image"], image_size=4, workers=0)))


def test_clips_of_a_mix(tmp_path: Path) -> None:
    """Clips of a mix: shares count clips, and a clip has one `store`."""
    first = pack_frames(Frames([range(20), range(9)]), tmp_path / "first", "memmap")
    second = pack_frames(Frames([range(8)]), tmp_path / "second", "memmap")
    frames = Reader.mix({first: 2, second: 1})
    for clips in (frames.clips(4), frames.clips(4, per_video=3)):
        for batch in clips.batches(6, shuffle=True, fields=["video", "store_row"], workers=0):
            assert batch["store_row"].shape == (6, 4)
            assert (batch["store"][:, None] == (batch["store_row"] >= 29)).all()
            assert np.bincount(batch["store"]).tolist() == [4, 2]
    assert frames.clips(4)[-1]["store"] == 1
    with (
        pytest.warns(RuntimeWarning, match="left out"),
        pytest.raises(UsageError, match=r"second has no samples to mix"),
    ):
        frames.clips(9)
    with pytest.raises(UsageError, match=r"call clips\(\) on the mix"):
        Reader.mix([(Reader(first).clips(4), 1), (second, 1)])


# ---------------------------------------------------------------------------------------------- refusals


def test_what_is_refused(tmp_path: Path, mixed: Reader, stores: dict[str, Path]) -> None:
    """Mistakes are named before anything is read."""
    a, b = stores["a"], stores["b"]
    own = tmp_path / "own"
    rawpack_packer.pack([{"image": np.zeros((5, 6, 3), np.uint8), "label": 0, "store": 4}], own, workers=0)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        ([a, b], {}, "must map paths to shares"),
        ({a: 1, b: 0}, {}, "a share must be a number above 0, not 0"),
        ({a: float("nan")}, {}, "a share must be a number above 0, not nan"),
        ([(3, 1)], {}, "must be a folder or URL"),
        ([(Reader(a).select([]), 1), (b, 1)], {}, "has no samples to mix"),
        ([(mixed, 1), (b, 1)], {}, "cannot be mixed"),
        ({a: 1, own: 1}, {}, "'store', which is the name"),
        ({a: 1, b: 1}, {"length": "most"}, "length='most' must be"),
        ({a: 1, b: 1e-12}, {}, r"share .* of store 1 is too small"),
        ({a: 7, b: 3}, {"length": "shortest"}, r"length='shortest' leaves no batch: store 1 of the mix has 7 samples"),
    ]
    for asked, options, words in wrong:
        with pytest.raises(UsageError, match=words):
            Reader.mix(asked, **options).batches(50)
    with pytest.raises(UsageError, match="mix readers on which it was called"):
        mixed.select([1])
    with pytest.raises(UsageError, match="leave out sampler="):
        mixed.batches(4, sampler=[1, 2])
