"""Balanced and weighted samplers: how often each class and each sample comes, in batches, epochs and over epochs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from draws import tries
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from reading import WAYS

from rawpack import Balanced, Reader, UsageError, Weighted
from rawpack.order.base import Order
from rawpack.transforms import RandomCrop

WORST = 5.0
"""Standard deviations that a statistic may lie from what chance gives: p is 6e-7."""


def order_of(sampler: Balanced | Weighted, count: int, seed: int = 0, batch_size: int = 8) -> Order:
    def no_column(name: str) -> Any:
        raise AssertionError(name)

    return sampler.order(no_column, count, seed, batch_size)


def epoch_of(order: Order, epoch: int = 0) -> NDArray[np.int64]:
    return order.samples(epoch, 0, order.length(epoch))


# ---------------------------------------------------------------------------------------------- balanced


COLUMNS = st.lists(st.integers(0, 6), min_size=1, max_size=60).map(lambda values: np.array(values) * 3 - 4)


@settings(deadline=None, max_examples=tries(120))
@given(
    column=COLUMNS,
    batch=st.integers(1, 20),
    length=st.sampled_from([None, "longest", "shortest", 1, 50]),
    replacement=st.booleans(),
    epoch=st.integers(0, 4),
)
def test_every_class_within_one(column: Any, batch: int, length: Any, replacement: bool, epoch: int) -> None:
    """Any two classes are within one of each other in every batch and at every position; at an epoch's end they are
    equal."""
    classes = np.unique(column)
    order = order_of(Balanced(column, length=length, replacement=replacement), len(column), 3, batch)
    came = column[epoch_of(order, epoch)]
    for start in range(0, len(came), batch):
        counts = [np.count_nonzero(came[start : start + batch] == one) for one in classes]
        assert max(counts) - min(counts) <= 1
    counts_so_far = np.cumsum(came[:, None] == classes, axis=0)
    assert (np.ptp(counts_so_far, axis=1) <= 1).all()
    assert np.ptp(counts_so_far[-1]) == 0


@settings(deadline=None, max_examples=tries(80))
@given(column=COLUMNS, batch=st.integers(1, 20), length=st.sampled_from([None, "longest", "shortest", 50]))
def test_classes_come_in_rounds(column: Any, batch: int, length: Any) -> None:
    """A class is used up before a sample of it comes again. What an epoch does not use comes in the next ones."""
    order = order_of(Balanced(column, length=length), len(column), 0, batch)
    epochs = [epoch_of(order, epoch).tolist() for epoch in range(6)]
    for one in np.unique(column):
        members = np.flatnonzero(column == one).tolist()
        drawn = [[sample for sample in epoch if column[sample] == one] for epoch in epochs]
        if len(drawn[0]) < len(members):
            drawn = [[sample for epoch in drawn for sample in epoch]]
        for samples in drawn:
            for at in range(0, len(samples), len(members)):
                piece = samples[at : at + len(members)]
                assert len(set(piece)) == len(piece)
                assert len(piece) < len(members) or sorted(piece) == members


def test_lengths_of_epochs() -> None:
    """None: as many samples as there are; "longest" and "shortest": as the largest and the smallest class say."""
    column = ["a"] * 10 + ["b"] * 3 + ["c"] * 4
    wanted = {None: 18, "longest": 30, "shortest": 9, 7: 9, 9: 9}
    assert {length: len(order_of(Balanced(column, length=length), 17)) for length in wanted} == wanted  # type: ignore[arg-type]


def test_samples_are_drawn_uniformly() -> None:
    """Each sample of a class is equally often at each place of its round, over classes, epochs and seeds."""
    classes, members, number = 100, 7, 20
    column, counts = np.repeat(np.arange(classes), members), np.zeros((members, members))
    for k in range(number):
        came = epoch_of(order_of(Balanced(column), len(column), seed=k // 2), epoch=k)
        by_class = came[np.argsort(column[came], kind="stable")].reshape(classes, members) % members
        for place in range(members):
            counts[place] += np.bincount(by_class[:, place], minlength=members)
    expected, freedom = number * classes / members, (members - 1) ** 2
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi2 - freedom) / math.sqrt(2 * freedom) < WORST


# ---------------------------------------------------------------------------------------------- weighted


def test_weights_with_replacement() -> None:
    """Each sample comes as often as its weight says, within what chance gives, and one of weight 0 never."""
    weights = np.array([0.0, 3, 1, 0, 0.5, 10, 0])
    came = epoch_of(order_of(Weighted(weights, length=100_000), 7))
    counts, shares = np.bincount(came, minlength=7), weights / weights.sum()
    assert (counts[weights == 0] == 0).all()
    deviation = np.sqrt(100_000 * shares * (1 - shares))[weights > 0]
    assert (np.abs(counts - 100_000 * shares)[weights > 0] < WORST * deviation).all()
    # Independent draws: how often two of the same follow each other.
    expected = 100_000 * (shares**2).sum()
    assert abs(np.count_nonzero(came[1:] == came[:-1]) - expected) < WORST * math.sqrt(expected)


@settings(deadline=None, max_examples=tries(120))
@given(
    weights=st.lists(st.one_of(st.just(0), st.integers(1, 9), st.floats(0.001, 5)), min_size=1, max_size=40),
    length=st.integers(1, 100),
    seed=st.integers(-5, 2**70),
    epoch=st.integers(0, 2**40),
)
def test_weights_without_replacement(weights: list[float], length: int, seed: int, epoch: int) -> None:
    """Each sample comes as often as its share of the epoch says, rounded down or up; at most once if that is at most
    1."""
    total = math.fsum(weights)
    if not total:
        weights[0] = total = 1
    order = order_of(Weighted(weights, length=length, replacement=False), len(weights), seed)
    counts = np.bincount(epoch_of(order, epoch), minlength=len(weights))
    assert counts.sum() == length
    for count, weight in zip(counts.tolist(), weights, strict=True):
        share = length * weight / total
        assert math.floor(share - 1e-9) <= count <= math.ceil(share + 1e-9)


def test_weights_even_out_over_epochs() -> None:
    """Equal weights and an epoch of all samples: each exactly once. Epochs of a tenth: over ten epochs, no sample is
    left behind."""
    assert sorted(epoch_of(order_of(Weighted(np.full(50, 0.3), replacement=False), 50))) == list(range(50))
    order = order_of(Weighted(np.ones(1000), length=100, replacement=False), 1000)
    epochs = [epoch_of(order, epoch) for epoch in range(30)]
    assert all(len(set(epoch.tolist())) == 100 for epoch in epochs)
    assert len({tuple(epoch.tolist()) for epoch in epochs}) == 30
    counts = np.bincount(np.concatenate(epochs), minlength=1000)
    assert (counts.min() >= 1, counts.max() <= 5) == (True, True)


# ---------------------------------------------------------------------------------------------- in batches


@pytest.fixture(scope="module")
def labeled(reader: Reader) -> Reader:
    return reader.select(mask=reader.column("label") >= 0)


def test_samples_that_repeat_are_transformed_alike_by_all_workers(reader: Reader) -> None:
    """Random steps do with each sample of a batch that is cut into slices, for several workers, what they do with it
    in a batch that is made whole."""
    options: dict[str, Any] = {"sampler": Weighted(np.ones(len(reader)), length=256), "transform": [RandomCrop(40)]}
    here, threads = (reader.batches(128, **options, **WAYS[way]) for way in ("here", "threads"))
    for whole, batch in zip(here, threads, strict=True):
        assert len(np.unique(whole["index"])) < 128
        assert all(np.array_equal(batch[name], whole[name]) for name in ("index", "image"))


def test_balanced_batches(labeled: Reader) -> None:
    """A field by its name, an array, and a selection: classes of samples that are read."""
    labels = labeled.column("label")
    for seed, sampler in enumerate((Balanced("label"), Balanced(labels), Balanced([f"class {n}" for n in labels]))):
        for batch in labeled.batches(10, sampler=sampler, seed=seed, workers=0):
            counts = np.bincount(batch["label"], minlength=len(labeled.classes or ()))
            assert np.ptp(counts[np.bincount(labels) > 0]) <= 1
    some = labeled.select(np.flatnonzero(labels < 3))
    for batch in some.batches(4, sampler=Balanced("label"), drop_last=True, workers=0):
        assert np.bincount(batch["label"]).tolist() == [0, 2, 2]


def test_what_is_refused(reader: Reader, labeled: Reader) -> None:
    """Columns that do not fit are named before anything is read."""
    count = len(labeled)
    wrong: list[tuple[Reader, dict[str, Any], str]] = [
        (reader, {"sampler": Balanced("label")}, r"2 samples have no label: leave them out first, with reader\.select"),
        (labeled, {"sampler": Balanced("label"), "shuffle": True}, "leave out shuffle="),
        (labeled, {"sampler": Balanced("nothing")}, "there is no field 'nothing'"),
        (labeled, {"sampler": Balanced("image")}, "'image' is in shards"),
        (labeled, {"sampler": Balanced([1, 2])}, rf"Balanced\(array\) must have one value for each of the {count}"),
        (labeled, {"sampler": Balanced(np.zeros(count))}, r"must have whole numbers or texts, not float64"),
        (labeled, {"sampler": Weighted("key")}, r"Weighted\('key'\) must have numbers"),
        (labeled, {"sampler": Weighted(np.zeros(count))}, "only weights of 0"),
        (labeled, {"sampler": Weighted(np.arange(count) - 1)}, r"sample 0 .*-1|-1.* sample 0"),
        (labeled, {"sampler": Weighted(np.full(count, np.nan))}, "nan"),
    ]
    for of, asked, words in wrong:
        with pytest.raises(UsageError, match=words):
            of.batches(4, **asked)
    with pytest.raises(UsageError, match=r"has no samples, and so no length, before .* batches\(sampler=\.\.\.\)"):
        len(Balanced("label"))
    with pytest.raises(UsageError, match="length="):
        Weighted("label", length=0)
