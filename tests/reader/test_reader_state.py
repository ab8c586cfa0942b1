"""Where an epoch stands, and which samples a reader has: resuming, selecting, several stores as one, ranks."""

from __future__ import annotations

import gc
import itertools
import json
import pickle
import re
import shutil
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS, Truth, placed, rows_of
from running import FORMATS, Packed

import rawpack_packer
from rawpack import Blocks, DamagedStoreError, Ranks, RawpackError, Reader, UsageError, Workers
from rawpack.batches import Batches
from rawpack.store.stores import Stores

BATCH = 6
SIZE = 48


def begun(batches: Batches, steps: int) -> dict[str, Any]:
    """The state after so many batches of the epoch that comes next, as a checkpoint file gives it back."""
    batches.load_state_dict(batches.state_dict())
    iterator = iter(batches)
    for _ in range(steps):
        next(iterator)
    state: dict[str, Any] = json.loads(json.dumps(batches.state_dict()))
    iterator.close()
    return state


# ---------------------------------------------------------------------------------------------- one order, resuming


@pytest.mark.parametrize("shuffle", [False, True, Blocks(block=4, window=3)])
def test_every_format_has_one_order(packed: Packed, shuffle: Any) -> None:
    """The same samples in the same order over two epochs; a run goes on in another format of the same set exactly where
    it stood."""
    readers = [Reader(packed(layout, "--size", SIZE)) for layout in FORMATS]
    made = [reader.batches(BATCH, shuffle=shuffle, seed=5, workers=0) for reader in readers]
    for batches in made:
        batches.set_epoch(0)
    (first, second), *others = [[rows_of(batches) for _ in range(2)] for batches in made]
    assert others == [[first, second]] * 4
    for one, other in itertools.pairwise(made):
        one.set_epoch(0)
        other.load_state_dict(begun(one, 7))
        assert [rows_of(other), rows_of(other)] == [first[7 * BATCH :], second]


def test_nothing_is_read_to_skip(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a resume no sample is read but those that are still to come."""
    expected = rows_of(reader.batches(BATCH, shuffle=True, workers=0))[9 * BATCH :]
    read, real = list[int](), Stores.read_into

    def read_into(stores: Stores, name: str, rows: Any, out: Any) -> None:
        read.extend(rows.tolist() if name == "image" else ())
        real(stores, name, rows, out)

    again = reader.batches(BATCH, shuffle=True, workers=0)
    again.load_state_dict(begun(reader.batches(BATCH, shuffle=True, workers=0), 9))
    monkeypatch.setattr(Stores, "read_into", read_into)
    assert rows_of(again) == expected
    assert sorted(read) == sorted(expected)


def test_state_speaks_of_the_latest_iterator(reader: Reader) -> None:
    """With several iterators, the state is that of the one that began last, and of none that began before."""
    batches = reader.batches(BATCH, workers=0)
    newer, older = iter(batches), iter(batches)
    next(older)
    next(newer)
    for _ in range(3):
        next(older)
    assert (batches.state_dict()["epoch"], batches.state_dict()["position"]) == (1, BATCH)


@pytest.mark.parametrize("change", [{"position": -1}, {"position": 76}, {"epoch": "1"}, {"version": 0}])
def test_a_damaged_state_is_refused(reader: Reader, change: dict[str, Any]) -> None:
    """A state with values that no run can have is refused."""
    batches = reader.batches(BATCH, shuffle=True, workers=0)
    with pytest.raises(UsageError, match="this state"):
        batches.load_state_dict(batches.state_dict() | change)


# ---------------------------------------------------------------------------------------------- after which batch

SAMPLES = 33
STEPS = -(-SAMPLES // BATCH)


@pytest.fixture(scope="module")
def few(reader: Reader) -> Reader:
    """A reader of few samples, so that each position of an epoch can be tried."""
    return reader.select(range(10, 10 + SAMPLES))


@pytest.mark.parametrize("way", ["here", "processes"])
def test_batches_that_are_kept(few: Reader, way: str) -> None:
    """Each batch keeps its own state: with two iterators at once, after their end, and after close()."""
    batches = few.batches(BATCH, shuffle=True, **WAYS[way])
    pairs = list(zip(iter(batches), iter(batches), strict=True))
    closed = iter(batches)
    third = next(closed)
    closed.close()
    for step, pair in enumerate(pairs, 1):
        for epoch, batch in enumerate(pair):
            state = batches.state_dict(after={**batch, "image": None})
            end = step == STEPS
            assert (state["epoch"], state["position"]) == ((epoch + 1, 0) if end else (epoch, step * BATCH))
    state = batches.state_dict(after=third)
    assert (state["epoch"], state["position"]) == (2, BATCH)


@pytest.mark.parametrize("depth", [0, 2])
def test_batches_of_a_framework_keep_their_own_state(few: Reader, depth: int) -> None:
    """The same for batches of a framework: not that of another loop over them, or over the numpy batches, which began
    later."""
    batches = few.batches(BATCH, shuffle=True, workers=0)
    tensors = placed(batches, depth)
    iterators = iter(tensors), iter(batches), iter(tensors)
    kept = [[next(iterator) for iterator in iterators] for _ in range(STEPS)]
    for step, row in enumerate(kept[:-1], 1):
        for epoch, batch in enumerate(row):
            state = (batches if epoch == 1 else tensors).state_dict(after=batch)
            assert (state["epoch"], state["position"]) == (epoch, step * BATCH)
    assert tensors.state_dict() == tensors.state_dict(after=kept[-1][2])
    given = batches.data_iter()
    first, _, second = next(given), next(iter(batches)), next(given)
    for step, made in enumerate((first, second), 1):
        state = given.state_dict(after=made)
        assert (state["epoch"], state["position"]) == (3, step * BATCH)


def test_a_batch_that_is_not_known_is_refused(few: Reader) -> None:
    """Never another state than that of the batch: a copy, a foreign batch and one from before a resume are refused."""
    batches, others = few.batches(BATCH, workers=0), few.batches(BATCH, workers=0)
    batch, other = next(iter(batches)), next(iter(others))
    unknown: list[Any] = [{**batch, "index": batch["index"].copy()}, {"image": batch["image"]}, other, [batch], True]
    for wrong in unknown:
        with pytest.raises(UsageError, match=r"after= must be a batch of these batches.*the number of batches"):
            batches.state_dict(after=wrong)
    running = iter(batches)
    next(running)
    batches.load_state_dict(batches.state_dict(after=batch))
    late = next(running)
    for old in (batch, late):
        with pytest.raises(UsageError, match="after= must be a batch of these batches"):
            batches.state_dict(after=old)
    assert batches.state_dict(after=next(iter(batches)))["position"] == 2 * BATCH


@pytest.mark.parametrize("way", ["here", "processes"])
def test_no_batch_is_kept_alive(few: Reader, way: str) -> None:
    """What is remembered of a batch ends with it, and nothing grows over an epoch."""
    batches = few.batches(BATCH, **WAYS[way])
    for batch in batches:
        index = weakref.ref(batch["index"])
        assert len(batches._feed._bookmark._handed._known) <= 2
    del batch
    gc.collect()
    assert index() is None
    assert batches._feed._bookmark._handed._known == {}


def test_states_by_number(few: Reader) -> None:
    """after=k is the state after so many batches since the iterator began, also after a resume. The last one's is that
    of the next epoch, also where samples are left out."""
    batches = few.batches(BATCH, shuffle=True, workers=0)
    assert batches.state_dict(after=0) == batches.state_dict()
    kept = list(batches)
    batches.load_state_dict(batches.state_dict(after=kept[1]))
    iterator = iter(batches)
    again = [next(iterator), next(iterator)]
    for k, batch in enumerate(again, 1):
        assert batches.state_dict(after=k)["position"] == (2 + k) * BATCH
        assert batches.state_dict(after=k) == batches.state_dict(after=batch)
    assert batches.state_dict(after=0)["position"] == 2 * BATCH
    end = batches.state_dict(after=STEPS - 2)
    assert (end["epoch"], end["position"]) == (1, 0)
    whole = few.batches(BATCH, drop_last=True, workers=0)
    states = [whole.state_dict(after=batch) for batch in whole]
    assert [(one["epoch"], one["position"]) for one in states] == [
        *((0, BATCH * k) for k in range(1, STEPS - 1)),
        (1, 0),
    ]
    for wrong in (STEPS - 1, -1, 1.5, True, "1"):
        with pytest.raises(UsageError, match="after="):
            batches.state_dict(after=wrong)  # type: ignore[arg-type]


def test_a_position_outlasts_iter_and_set_epoch(few: Reader) -> None:
    """Trainers load a state, call iter() and set_epoch(), in some order: the position stays, unless another epoch is
    named."""
    whole = few.batches(BATCH, shuffle=True, workers=0)
    epochs = [rows_of(whole) for _ in range(4)]
    batches = few.batches(BATCH, shuffle=True, workers=0)
    batches.set_epoch(2)
    next(iter(batches))
    state = batches.state_dict()
    iterator = iter(batches)
    batches.load_state_dict(state)
    later = iter(batches)
    batches.set_epoch(2)
    batches.set_epoch(2)
    assert batches.state_dict() == state
    assert rows_of(iterator) == epochs[2][BATCH:]
    batches.set_epoch(2)
    assert rows_of(later) == epochs[2], "the position was taken"
    batches.load_state_dict(state)
    batches.set_epoch(3)
    batches.set_epoch(2)
    assert rows_of(batches) == epochs[2]


def test_select(reader: Reader, truth: Truth) -> None:
    """By indices in their order, negative ones from the end; by mask or classes in the store's order, with labels that
    mean what they meant. A selection of a selection counts in it, and `store_row` stays the row in the store."""
    some = reader.select([7, -1, 0, 7])
    for way in WAYS.values():
        (batch,) = some.batches(10, fields=["image", "label", "store_row"], **way)
        assert batch["store_row"].tolist() == [7, 74, 0, 7]
        assert batch["index"].tolist() == [0, 1, 2, 3]
        assert truth.holds(batch)
    assert (len(some), some[-1]["index"]) == (4, 3)
    mask = np.arange(len(reader)) % 3 == 1
    for by_mask in (reader.select(mask=mask), reader.select(mask)):
        assert by_mask.column("store_row").tolist() == np.flatnonzero(mask).tolist()
    assert reader.classes is not None
    chosen = reader.select(classes=[reader.classes[3], reader.classes[1]])
    assert chosen.column("store_row").tolist() == np.flatnonzero(np.isin(truth.labels, [1, 3])).tolist()
    assert chosen.classes == reader.classes
    part = reader.select(range(10, 70))
    assert part.select([5, -1, 0]).select(mask=[True, False, True]).column("store_row").tolist() == [15, 10]
    of_class = part.select(classes=[reader.classes[1]]).column("store_row")
    assert of_class.tolist() == [row for row in range(10, 70) if truth.labels[row] == 1]


@pytest.mark.parametrize("way", ["here", "processes"])
def test_only_what_is_asked_for_is_read(packed: Packed, truth: Truth, way: str, tmp_path: Path) -> None:
    """A column and fields=["label", "key"] touch no shard: they work where the shards are gone."""
    path = shutil.copytree(packed("memmap", "--size", SIZE), tmp_path / "store")
    keys = [Reader(path)[row]["key"] for row in range(len(truth))]
    for shard in path.glob("shard-*"):
        shard.unlink()
    reader = Reader(path)
    assert np.array_equal(reader.column("label"), truth.labels)
    batches = list(reader.batches(BATCH, shuffle=True, fields=["label", "key"], **WAYS[way]))
    assert sum(len(batch["index"]) for batch in batches) == len(truth)
    for batch in batches:
        assert set(batch) == {"label", "key", "index"}
        assert np.array_equal(batch["label"], truth.labels[batch["index"]])
        assert batch["key"] == [keys[row] for row in batch["index"]]
    with pytest.raises(RawpackError, match=r"shard-0000\d\.npy is missing"):
        list(reader.batches(BATCH, fields=["image"], **WAYS[way]))


# ---------------------------------------------------------------------------------------------- several stores, memory


@pytest.mark.parametrize("layout", FORMATS)
def test_preload(packed: Packed, layout: str, tmp_path: Path) -> None:
    """A preloaded reader reads the same in every way, also when its shards have gone."""
    path = shutil.copytree(packed(layout, "--size", SIZE), tmp_path / "store")
    plain, loaded = Reader(packed(layout, "--size", SIZE)), Reader(path, preload=True)
    for shard in path.glob("shard-*"):
        shard.unlink()
    whole = list(plain.batches(BATCH, shuffle=True, workers=0))
    for way in WAYS.values():
        batches = loaded.batches(BATCH, shuffle=True, **way)
        batches.set_epoch(0)
        for one, other in zip(whole, batches, strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("damage", ["shorter", "longer", "other bytes", "missing"])
def test_preload_refuses_a_damaged_shard(packed: Packed, damage: str, tmp_path: Path) -> None:
    """What is not the shard that was packed is not preloaded, and the error names it."""
    path = shutil.copytree(packed("memmap", "--size", SIZE), tmp_path / "store")
    shard = path / "shard-00001.npy"
    data = shard.read_bytes()
    changed = {"shorter": data[:-1], "longer": data + b"x", "other bytes": data[:5000] + b"x" + data[5001:]}
    shard.unlink()
    if damage in changed:
        shard.write_bytes(changed[damage])
    with pytest.raises(DamagedStoreError, match=r"shard-00001\.npy (has|is missing|is not the file that was packed)"):
        Reader(path, preload=True)


def test_a_relative_path(packed: Packed, truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was named relative to the working folder is the same after that has changed: here, in workers, and
    in a pickled copy, preloaded or not."""
    path = packed("memmap", "--size", SIZE)
    monkeypatch.chdir(path.parent)
    readers = [Reader(path.name, preload=preload) for preload in (False, True)]
    monkeypatch.chdir("/")
    for reader in readers:
        for one, way in ((reader, "processes"), (pickle.loads(pickle.dumps(reader)), "here")):
            assert [truth.holds(batch) for batch in one.batches(25, **WAYS[way])] == [True] * 3


# ---------------------------------------------------------------------------------------------- samplers


def test_a_sampler_that_has_no_more_epochs_is_an_error(reader: Reader) -> None:
    """A function that takes its epochs from an iterator which ends gives no empty epoch, but an error."""
    orders = iter([[3, 1, 2]])
    batches = reader.batches(2, sampler=lambda epoch: next(orders), workers=0)
    assert rows_of(batches) == [3, 1, 2]
    with pytest.raises(UsageError, match="the sampler's epoch 1 raised StopIteration"):
        list(batches)


def test_arguments_of_the_wrong_kind_name_the_cure(reader: Reader) -> None:
    """What a user may well pass by mistake is a UsageError that shows the right way, not a TypeError from within."""
    batches, select = reader.batches(4, workers=0), reader.select
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: reader.batches(4, fields="image"), r"\['image'\]"),
        (lambda: Reader(5), "path=5"),  # type: ignore[arg-type]
        (lambda: Reader([]), "no store was named"),
        (lambda: batches.load_state_dict(None), "NoneType"),  # type: ignore[arg-type]
        (lambda: batches.load_state_dict({}), "this is no state of batches"),
        (lambda: batches.set_epoch(-1), "must be a whole number >= 0"),
        (lambda: select([0], mask=[True] * 75), "takes one of"),
        (lambda: select([75]), "there is no sample 75: the reader has 75"),
        (lambda: select([1.5]), "whole numbers"),
        (lambda: select(mask=[True]), r"mask=\[True\] must contain 75 booleans"),
        (lambda: select(mask=[1] * 75), r"mask=.* must contain 75 booleans"),
        (lambda: select(classes=["none such"]), "there is no class 'none such'"),
        (lambda: select(classes="animals"), r"\['animals'\]"),
    ]
    for ask, words in wrong:
        with pytest.raises(UsageError, match=words):
            ask()
    every: list[tuple[Callable[..., object], dict[str, list[Any]]]] = [
        (partial(reader.batches, batch_size=4), {
            "batch_size": ["a", 0, 2.5, None, True],
            "shuffle": ["x", 1],
            "seed": ["x", 1.5],
            "drop_last": ["no"],
            "fields": [5, [5]],
            "image_size": ["x", 3.5, (1,), 0],
            "transform": [5],
            "decode": ["rgb", {"image": 5}],
            "workers": ["2", 1.5, -1],
            "ranks": [3, (1, 2, 3)],
            "ragged": ["x", 0],
        }),
        (Blocks, {"block": ["x", 0], "window": ["x", 0]}),
        (Workers, {"backend": ["x"], "timeout": ["x", 0, float("nan")]}),
        (partial(Ranks, 0, 2), {"last": ["x"]}),
    ]  # fmt: skip
    for made, options in every:
        for name, values in options.items():
            for value in values:
                with pytest.raises(UsageError, match=f"^{re.escape(f'{name}={value!r} ')}"):
                    made(**{name: value})


def test_a_state_of_as_many_other_samples_is_refused(reader: Reader, tmp_path: Path) -> None:
    """A store with as many samples of other names is another one, and the state says so."""
    state = begun(reader.batches(BATCH, shuffle=True, workers=0), 2)
    rawpack_packer.pack(np.zeros((len(reader), 8, 8, 3), np.uint8), tmp_path / "other", workers=0)
    with pytest.raises(UsageError, match="it is of another store or split: the names of"):
        Reader(tmp_path / "other").batches(BATCH, shuffle=True, workers=0).load_state_dict(state)
