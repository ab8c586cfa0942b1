"""Where an epoch stands, and which samples a reader has: resuming, selecting, several stores as one, ranks."""

from __future__ import annotations

import io
import json
import pickle
import re
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tqdm.std
from reading import WAYS, Truth, placed, rows_of
from running import FORMATS, Packed

import rawpack_packer
from rawpack import Balanced, Blocks, Buckets, DamagedStoreError, Ranks, RawpackError, Reader, UsageError, Workers
from rawpack.batches import Batches
from rawpack.epoch.making import IN_FLIGHT
from rawpack.store.stores import Stores
from rawpack.workers import worker

BATCH = 6
SIZE = 48
ORDERS: dict[str, dict[str, Any]] = {
    "as stored": {},
    "shuffled": {"shuffle": True, "seed": 5},
    "block": {"shuffle": Blocks(block=4, window=3), "seed": 5},
    "sampler": {"sampler": np.random.default_rng(0).permutation(75)[:50].tolist() * 2},
}


def begun(batches: Batches, steps: int) -> dict[str, Any]:
    """The state after so many batches of the epoch that comes next, as a checkpoint file gives it back."""
    batches.load_state_dict(batches.state_dict())
    iterator = iter(batches)
    for _ in range(steps):
        next(iterator)
    state: dict[str, Any] = json.loads(json.dumps(batches.state_dict()))
    iterator.close()
    return state


# ---------------------------------------------------------------------------------------------- one order


@pytest.mark.parametrize("order", ORDERS)
def test_one_order_everywhere(packed: Packed, order: str) -> None:
    """Every format gives the same samples in the same order over two epochs, in every way and for any number of
    workers."""
    orders = set()
    ways = [*WAYS.values(), {"workers": Workers(3, backend="thread")}]
    for layout, way in [*(("memmap", way) for way in ways), *((layout, WAYS["here"]) for layout in FORMATS)]:
        batches = Reader(packed(layout, "--size", SIZE)).batches(BATCH, **ORDERS[order], **way)
        batches.set_epoch(0)
        orders.add(json.dumps([rows_of(batches) for _ in range(2)]))
    assert len(orders) == 1


# ---------------------------------------------------------------------------------------------- resuming


@pytest.mark.parametrize(("turn", "order"), list(enumerate(ORDERS)))
def test_resume(packed: Packed, reader: Reader, turn: int, order: str) -> None:
    """A run that resumes, in any way and from another format of the same set, goes on exactly where it stood, through
    the rest of the epoch and the next. Each order is stopped in each way, and each way at each step."""
    whole = reader.batches(BATCH, **ORDERS[order], workers=0)
    epochs = [rows_of(whole) for _ in range(3)]
    for k, (layout, steps) in enumerate((("memmap", 0), ("hdf5-gzip", 1), ("lmdb", 7))):
        way = [*WAYS][(k + turn) % 3]
        first = reader.batches(BATCH, **ORDERS[order], **WAYS[way])
        first.set_epoch(1)
        state = begun(first, steps)
        again = Reader(packed(layout, "--size", SIZE)).batches(
            BATCH, workers=Workers(1, backend="thread"), **ORDERS[order]
        )
        again.load_state_dict(state)
        assert rows_of(again) == epochs[1][steps * BATCH :]
        assert rows_of(again) == epochs[2]


def test_resume_with_another_batch_size(reader: Reader) -> None:
    """The position counts samples: a run may go on with another batch size, and stop and go on again."""
    expected = rows_of(reader.batches(BATCH, shuffle=True, workers=0))
    first = reader.batches(BATCH, shuffle=True, workers=0)
    second = reader.batches(10, shuffle=True, workers=0)
    second.load_state_dict(begun(first, 3))
    third = reader.batches(7, shuffle=True, workers=0)
    third.load_state_dict(begun(second, 2))
    assert rows_of(third) == expected[3 * BATCH + 2 * 10 :]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_read_to_skip(reader: Reader, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After a resume no sample is read but those that are still to come, in whichever process they are read."""
    expected = rows_of(reader.batches(BATCH, shuffle=True, workers=0))
    state = begun(reader.batches(BATCH, shuffle=True, workers=0), 9)
    log, main = tmp_path / "read", worker.main

    def watched(read: Any) -> Any:
        def read_into(self: Any, name: str, rows: Any, out: Any) -> None:
            with log.open("a") as file:
                file.write("".join(f"{row}\n" for row in rows.tolist() if name == "image"))
            read(self, name, rows, out)

        return read_into

    def in_a_worker(*args: Any) -> None:
        from rawpack.store.stores import Stores

        Stores.read_into = watched(Stores.read_into)  # type: ignore[method-assign]
        main(*args)

    monkeypatch.setattr(worker, "main", in_a_worker)
    monkeypatch.setattr(Stores, "read_into", watched(Stores.read_into))
    again = reader.batches(BATCH, shuffle=True, **WAYS[way])
    again.load_state_dict(state)
    assert rows_of(again) == expected[9 * BATCH :]
    read = Counter(map(int, log.read_text().split()))
    assert read >= Counter(expected[9 * BATCH :])
    # At its end the next epoch is begun, and no further than its first batches.
    assert read - Counter(expected[9 * BATCH :]) <= Counter(rows_of(again)[: (IN_FLIGHT + 1) * BATCH])


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 5), (4, 2)])
def test_resume_with_another_world_size(reader: Reader, before: int, after: int) -> None:
    """What another number of ranks goes on with is exactly what is left, each sample once."""
    split: dict[str, Any] = {"shuffle": True, "workers": 0}
    expected = rows_of(reader.batches(BATCH, shuffle=True, workers=0))
    states = [begun(reader.batches(4, ranks=Ranks(rank, before, last="keep"), **split), 2) for rank in range(before)]
    assert all(state == states[0] for state in states)
    left = []
    for rank in range(after):
        batches = reader.batches(3, ranks=Ranks(rank, after, last="keep"), **split)
        batches.load_state_dict(states[0])
        left += rows_of(batches)
    assert sorted(left) == sorted(expected[2 * 4 * before :])


UNEVEN: dict[str, Any] = {
    "one sample more for some": lambda reader: (reader.select(range(14)), {"batch_size": 3}),
    "no batch for some": lambda reader: (reader.select(range(13)), {"batch_size": 3}),
    "no batch at all": lambda reader: (reader.select(range(2)), {"batch_size": 3}),
    "a mix": lambda reader: (Reader.mix([(reader.select(range(9)), 1), (reader, 2)]), {"batch_size": 3}),
    "buckets": lambda reader: (
        reader.select(range(25)),
        {"batch_size": 2, "image_size": Buckets([(40, 56), 48])},
    ),
}
"""What parts three ranks with last="keep" -> of a reader, the samples and the options."""


@pytest.mark.parametrize("kind", ["numpy", "placed", "queue"])
@pytest.mark.parametrize("uneven", UNEVEN)
def test_a_state_of_any_rank_resumes_all(packed: Packed, reader: Reader, uneven: str, kind: str) -> None:
    """Ranks that step together say the same, also where some have no batch in the last step, or none in any; it is the
    state of what is left, for any number of ranks, and saving and loading again adds nothing."""
    some = Reader(packed("memmap", "--size", "keep")) if uneven == "buckets" else reader
    few, options = UNEVEN[uneven](some)
    world = 3

    def made(rank: int, world_size: int = world) -> Any:
        batches = few.batches(workers=0, shuffle=True, ranks=Ranks(rank, world_size, last="keep"), **options)
        return placed(batches, depth=2) if kind == "placed" else batches

    alone, ranks = made(0, 1), [made(rank) for rank in range(world)]
    epochs = [sorted(rows_of(alone)) for _ in range(2)]
    loops = [batches.queue(epochs=1) if kind == "queue" else iter(batches) for batches in ranks]
    owners = loops if kind == "queue" else ranks
    steps, read = max(map(len, (made(rank) for rank in range(world)))), list[int]()
    for step in range(steps + 1):
        states = [owner.state_dict() for owner in owners]
        assert states == [owner.state_dict(after=step) for owner in owners] == states[:1] * world
        assert states[0]["epoch"] == (step == steps)
        for world_size in (1, world):
            left = list[int]()
            for rank in range(world_size):
                batches = made(rank, world_size)
                for _ in range(2):
                    batches.load_state_dict(states[0])
                    assert batches.state_dict() == states[0]
                left += rows_of(batches)
            assert sorted(left if step == steps else left + read) == epochs[step == steps]
        for loop in loops:
            batch = next(loop, None)
            read += [] if batch is None else batch["index"].tolist()


@pytest.mark.parametrize("drop_last", [False, True])
def test_state_at_the_end_of_an_epoch(reader: Reader, drop_last: bool) -> None:
    """A state taken after an epoch's last batch resumes with the next epoch."""
    whole = reader.batches(BATCH, shuffle=True, drop_last=drop_last, workers=0)
    epochs = [rows_of(whole) for _ in range(2)]
    first = reader.batches(BATCH, shuffle=True, drop_last=drop_last, workers=0)
    state = begun(first, len(first))
    assert (state["epoch"], state["position"]) == (1, 0)
    again = reader.batches(BATCH, shuffle=True, drop_last=drop_last, workers=0)
    again.load_state_dict(state)
    assert rows_of(again) == epochs[1]


def test_state_speaks_of_the_latest_iterator(reader: Reader) -> None:
    """With several iterators, the state is that of the one that began last, and of none that began before."""
    batches = reader.batches(BATCH, workers=0)
    newer, older = iter(batches), iter(batches)
    next(older)
    next(newer)
    for _ in range(3):
        next(older)
    assert (batches.state_dict()["epoch"], batches.state_dict()["position"]) == (1, BATCH)


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "another seed": ({"shuffle": True, "seed": 6}, "seed is 5, here it is 6"),
    "another order": ({"seed": 5}, "order is 'shuffled', here it is 'sequential'"),
    "another kind of shuffle": ({"shuffle": "block", "seed": 5}, "order is 'shuffled', here it is 'block 32 256'"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_state_of_another_order_is_refused(reader: Reader, other: str) -> None:
    """A state that means other samples is refused, and the message says in what it differs."""
    state = begun(reader.batches(BATCH, shuffle=True, seed=5, workers=0), 2)
    options, message = OTHERS[other]
    with pytest.raises(UsageError, match=f"does not fit: its {message}"):
        reader.batches(BATCH, workers=0, **options).load_state_dict(state)


def test_a_state_of_another_set_is_refused(reader: Reader, store: Path) -> None:
    """A state of other samples is refused: another selection, another number of them, the same in another order."""
    state = begun(reader.batches(BATCH, shuffle=True, workers=0), 2)
    for other, words in (
        (reader.select(range(75)[::-1]), "another selection of these samples"),
        (reader.select(range(70)), "another selection of these samples"),
        (Reader([store, store]), "another store or split: 75 samples, here 150"),
    ):
        with pytest.raises(UsageError, match=f"this state does not fit: it is of {words}"):
            other.batches(BATCH, shuffle=True, workers=0).load_state_dict(state)


@pytest.mark.parametrize(
    "change", [{"position": -1}, {"position": 76}, {"epoch": -1}, {"epoch": "1"}, {"position": None}, {"version": 0}]
)
def test_a_damaged_state_is_refused(reader: Reader, change: dict[str, Any]) -> None:
    """A state with values that no run can have is refused."""
    batches = reader.batches(BATCH, shuffle=True, workers=0)
    with pytest.raises(UsageError, match="this state"):
        batches.load_state_dict(batches.state_dict() | change)
    with pytest.raises(UsageError, match="this is no state of batches"):
        batches.load_state_dict({})


def test_set_epoch(reader: Reader) -> None:
    """iter() takes epoch 0, then 1; after set_epoch(n), n, then n + 1, whatever was begun before."""
    batches = reader.batches(BATCH, shuffle=True, workers=0)
    epochs = [rows_of(batches) for _ in range(4)]
    assert len({tuple(rows) for rows in epochs}) == 4
    for epoch in (2, 0, 3):
        next(iter(batches))
        batches.set_epoch(epoch)
        assert rows_of(batches) == epochs[epoch]
    batches.set_epoch(1)
    assert [rows_of(batches) for _ in range(3)] == epochs[1:]
    for wrong in (-1, 1.5, True, "1"):
        with pytest.raises(UsageError, match="must be a whole number >= 0"):
            batches.set_epoch(wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize("world", [2, 7])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("uneven", ["pad", "keep"])
def test_ranks(reader: Reader, truth: Truth, world: int, drop_last: bool, uneven: Any) -> None:
    """Ranks take every sample between them, step by step the next ones of the epoch; padded, they have equally many
    batches of equal sizes, and only samples from the epoch's start come twice."""
    expected = rows_of(reader.batches(BATCH, shuffle=True, workers=0))
    ranks = []
    for rank in range(world):
        way = WAYS["threads"] if rank == 0 else WAYS["here"]
        batches = reader.batches(
            4, shuffle=True, drop_last=drop_last, ranks=Ranks(rank, world, last=None if drop_last else uneven), **way
        )
        taken = list(batches)
        assert len(taken) == len(batches)
        assert all(truth.holds(batch) for batch in taken)
        ranks.append([batch["index"].tolist() for batch in taken])
    steps = max(map(len, ranks))
    joined = [row for step in range(steps) for rank in ranks if step < len(rank) for row in rank[step]]
    whole = len(expected) // (4 * world) * 4 * world
    if drop_last:
        assert joined == expected[:whole]
    elif uneven == "keep":
        assert joined == expected
    else:
        assert joined[: len(expected)] == expected
        assert joined[len(expected) :] == expected[: len(joined) - len(expected)]
        assert len({tuple(map(len, rank)) for rank in ranks}) == 1


# ---------------------------------------------------------------------------------------------- selecting


def test_select_by_indices(reader: Reader, truth: Truth) -> None:
    """A selection by indices reads those samples in that order; negative ones count from the end."""
    some = reader.select([7, -1, 0, 7])
    assert len(some) == 4
    for way in WAYS.values():
        (batch,) = some.batches(10, fields=["image", "label", "store_row"], **way)
        assert batch["store_row"].tolist() == [7, 74, 0, 7]
        assert batch["index"].tolist() == [0, 1, 2, 3]
        assert truth.holds(batch)
    assert some[-1]["index"] == 3
    assert np.array_equal(some[1]["image"], truth.images[74])


def test_select_by_mask_and_classes(reader: Reader, truth: Truth) -> None:
    """A selection by mask or by classes keeps the store's order, and labels mean what they meant."""
    mask = np.arange(len(reader)) % 3 == 1
    for some in (reader.select(mask=mask), reader.select(mask)):
        assert some.column("store_row").tolist() == np.flatnonzero(mask).tolist()
        assert rows_of(some.batches(4, workers=0)) == list(range(len(some)))
    assert reader.classes is not None
    names = [reader.classes[3], reader.classes[1]]
    chosen = reader.select(classes=names)
    expected = np.flatnonzero(np.isin(truth.labels, [1, 3]))
    assert chosen.column("store_row").tolist() == expected.tolist()
    assert chosen.classes == reader.classes
    assert sorted(rows_of(chosen.batches(4, shuffle=True, workers=0))) == list(range(len(chosen)))


def test_select_of_a_selection(reader: Reader, truth: Truth) -> None:
    """A selection of a selection counts in it, and `store_row` stays the row in the store."""
    some = reader.select(range(10, 70)).select([5, -1, 0]).select(mask=[True, False, True])
    assert some.column("store_row").tolist() == [15, 10]
    label = int(truth.labels[15])
    if label >= 0:
        assert reader.classes is not None
        of_class = reader.select(range(10, 70)).select(classes=[reader.classes[label]])
        assert of_class.column("store_row").tolist() == [r for r in range(10, 70) if truth.labels[r] == label]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "takes one of"),
    ({"indices": [0], "mask": [True] * 75}, "takes one of"),
    ({"indices": [75]}, "there is no sample 75: the reader has 75"),
    ({"indices": [-76]}, "there is no sample -76"),
    ({"indices": [1.5]}, "whole numbers"),
    ({"indices": [[1]]}, "one dimension"),
    ({"mask": [True]}, r"mask=\[True\] must contain 75 booleans"),
    ({"mask": [1] * 75}, r"mask=.* must contain 75 booleans"),
    ({"classes": ["none such"]}, "there is no class 'none such'"),
    ({"classes": "animals"}, "a list of names"),
    ({"classes": 5}, "classes=5 must be a list of names"),
    ({"classes": [["animals"]]}, "a list of names"),
    ({"indices": "abc"}, "indices='abc' must be whole numbers"),
    ({"indices": [[1], [1, 2]]}, r"indices=\[\[1\], \[1, 2\]\] cannot be read"),
    ({"mask": "x"}, "mask='x' must contain 75 booleans"),
]


@pytest.mark.parametrize(("asked", "message"), WRONG)
def test_a_wrong_selection_is_refused(reader: Reader, asked: dict[str, Any], message: str) -> None:
    """What selects nothing that exists is refused with the value and the reason."""
    with pytest.raises(UsageError, match=message):
        reader.select(**asked)


@pytest.mark.parametrize("way", WAYS)
def test_only_what_is_asked_for_is_read(packed: Packed, truth: Truth, way: str, tmp_path: Path) -> None:
    """fields=["label", "key"] touches no shard: it works where the shards are gone."""
    path = shutil.copytree(packed("memmap", "--size", SIZE), tmp_path / "store")
    keys = [Reader(path)[row]["key"] for row in range(len(truth))]
    for shard in path.glob("shard-*"):
        shard.unlink()
    reader = Reader(path)
    batches = list(reader.batches(BATCH, shuffle=True, fields=["label", "key"], **WAYS[way]))
    assert sum(len(batch["index"]) for batch in batches) == len(truth)
    for batch in batches:
        assert set(batch) == {"label", "key", "index"}
        assert np.array_equal(batch["label"], truth.labels[batch["index"]])
        assert batch["key"] == [keys[row] for row in batch["index"]]
    with pytest.raises(RawpackError, match=r"shard-0000\d\.npy is missing"):
        list(reader.batches(BATCH, fields=["image"], **WAYS[way]))


# ---------------------------------------------------------------------------------------------- several stores, memory


def test_stores_that_do_not_fit_together(packed: Packed) -> None:
    """Stores with other shapes are refused, by name."""
    with pytest.raises(UsageError, match=r"cannot be read as one: .*; Reader\.mix takes stores that differ"):
        Reader([packed("memmap", "--size", SIZE), packed("memmap", "--size", 160)])
    with pytest.raises(UsageError, match="no store was named"):
        Reader([])


@pytest.mark.parametrize("layout", FORMATS)
def test_preload(packed: Packed, layout: str, tmp_path: Path) -> None:
    """A preloaded reader reads the same in every way, also when its shards have gone."""
    path = shutil.copytree(packed(layout, "--size", SIZE), tmp_path / "store")
    plain, loaded = Reader(packed(layout, "--size", SIZE)), Reader(path, preload=True)
    for shard in path.glob("shard-*"):
        shard.unlink()
    for seed, way in enumerate(WAYS.values()):
        here, batches = (
            reader.batches(BATCH, shuffle=True, seed=seed, **how)
            for reader, how in ((plain, WAYS["here"]), (loaded, way))
        )
        for one, other in zip(here, batches, strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("damage", ["shorter", "longer", "other bytes", "missing"])
def test_preload_refuses_a_damaged_shard(packed: Packed, damage: str, tmp_path: Path) -> None:
    """What is not the shard that was packed is not preloaded, and the error names it."""
    path = shutil.copytree(packed("memmap", "--size", SIZE), tmp_path / "store")
    shard = path / "shard-00001.npy"
    data = shard.read_bytes()
    changed = {"shorter": data[:-1], "longer": data + b"x", "other bytes": data[:5000] + b"x" + data[5001:]}
    if damage == "missing":
        shard.unlink()
    else:
        assert changed[damage] != data
        shard.write_bytes(changed[damage])
    with pytest.raises(DamagedStoreError, match=r"shard-00001\.npy (has|is missing|is not the file that was packed)"):
        Reader(path, preload=True)


def test_preload_shows_progress(packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar of preloading counts the bytes of all shards, of all stores."""
    bars: list[Any] = []

    class Bar(tqdm.std.tqdm):  # type: ignore[type-arg]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options | {"file": io.StringIO(), "delay": 0})
            bars.append(self)

    monkeypatch.setattr("tqdm.auto.tqdm", Bar)
    paths = [packed(layout, "--size", SIZE) for layout in ("memmap", "lmdb")]
    Reader(paths, preload=True)
    size = sum(shard.stat().st_size for path in paths for shard in path.glob("shard-*"))
    assert [(bar.n, bar.total, bar.unit) for bar in bars] == [(size, size, "B")]


@pytest.mark.parametrize("preload", [False, True])
def test_a_relative_path(packed: Packed, truth: Truth, preload: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was named relative to the working folder is the same after that has changed: here, in workers, and
    in a pickled copy."""
    path = packed("memmap", "--size", SIZE)
    monkeypatch.chdir(path.parent)
    reader = Reader(path.name, preload=preload)
    monkeypatch.chdir("/")
    for one in (reader, pickle.loads(pickle.dumps(reader))):
        for way in WAYS.values():
            assert [truth.holds(batch) for batch in one.batches(25, **way)] == [True] * 3


# ---------------------------------------------------------------------------------------------- samplers


def test_a_resume_by_a_function_of_the_epoch(reader: Reader) -> None:
    """A sampler that depends on nothing but the epoch resumes exactly, epochs of different lengths included."""

    def sampler(epoch: int) -> Any:
        return np.random.default_rng(epoch).integers(0, 75, 20 + 7 * epoch)

    first = reader.batches(3, sampler=sampler, workers=0)
    first.set_epoch(2)
    assert len(first) == -(-34 // 3)
    again = reader.batches(3, sampler=sampler, **WAYS["threads"])
    again.load_state_dict(begun(first, 4))
    assert rows_of(again) == sampler(2)[12:].tolist()
    assert rows_of(again) == sampler(3).tolist()


@pytest.mark.parametrize("sampler", [None, range(5), Balanced("index")], ids=["none", "range", "balanced"])
def test_a_batch_larger_than_an_epoch_takes_no_more_memory_than_that(reader: Reader, sampler: Any) -> None:
    """Whatever the order is, as long as the length of all epochs is known."""
    (batch,) = reader.batches(1 << 40, sampler=sampler, workers=0)
    assert len(batch["index"]) == (5 if isinstance(sampler, range) else len(reader))


def test_a_sampler_that_has_no_more_epochs_is_an_error(reader: Reader) -> None:
    """A function that takes its epochs from an iterator which ends gives no empty epoch, but an error."""
    orders = iter([[3, 1, 2]])
    batches = reader.batches(2, sampler=lambda epoch: next(orders), workers=0)
    assert rows_of(batches) == [3, 1, 2]
    with pytest.raises(UsageError, match="the sampler's epoch 1 raised StopIteration"):
        list(batches)


def test_arguments_of_the_wrong_kind_name_the_cure(store: Path) -> None:
    """What a user may well pass by mistake is a UsageError that shows the right way, not a TypeError from within."""
    reader = Reader(store)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: reader.batches(4, workers=1.5), "workers=1.5"),  # type: ignore[arg-type]
        (lambda: reader.batches(4, workers="2"), "workers='2'"),  # type: ignore[arg-type]
        (lambda: reader.batches(4, image_size=3.5), "image_size=3.5"),  # type: ignore[arg-type]
        (lambda: reader.batches(4, fields="image"), r"\['image'\]"),
        (lambda: reader.select(classes="cat"), r"\['cat'\]"),
        (lambda: Reader(5), "path=5"),  # type: ignore[arg-type]
        (lambda: reader.batches(4).load_state_dict(None), "NoneType"),  # type: ignore[arg-type]
    ]
    for ask, words in wrong:
        with pytest.raises(UsageError, match=words):
            ask()
    every: dict[str, list[Any]] = {
        "batch_size": ["a", 0, 2.5, None, True],
        "shuffle": ["x", 1, None, [1]],
        "seed": ["x", 1.5, None, True],
        "drop_last": ["no", 1],
        "fields": [5, [5], [["a"]]],
        "image_size": ["x", (1,), (1, "a"), 0, True],
        "transform": [5],
        "decode": ["rgb", 5, None, {"image": 5}],
        "workers": ["a", -1, True],
        "ranks": [3, 1.5, (1, 2, 3)],
        "ragged": ["x", 0, 1.5, None, [1]],
    }
    for name, values in every.items():
        for value in values:
            with pytest.raises(UsageError, match=f"^{re.escape(f'{name}={value!r} ')}"):
                reader.batches(**({"batch_size": 4} | {name: value}))
    within: list[tuple[Callable[..., object], dict[str, list[Any]]]] = [
        (Blocks, {"block": ["x", 0], "window": ["x", 0]}),
        (Workers, {"backend": ["x", 5], "timeout": ["x", 0, float("nan")]}),
        (partial(Ranks, 0, 2), {"last": ["x", 5]}),
    ]
    for made, options in within:
        for name, values in options.items():
            for value in values:
                with pytest.raises(UsageError, match=f"^{re.escape(f'{name}={value!r} ')}"):
                    made(**{name: value})
    size = np.int64(8)
    assert next(iter(reader.batches(4, image_size=size, workers=0)))["image"].shape[1:3] == (8, 8)  # type: ignore[arg-type]


def test_a_state_of_as_many_other_samples_is_refused(reader: Reader, tmp_path: Path) -> None:
    """A store with as many samples of other names is another one, and the state says so."""
    state = begun(reader.batches(BATCH, shuffle=True, workers=0), 2)
    rawpack_packer.pack(np.zeros((len(reader), 8, 8, 3), np.uint8), tmp_path / "other", workers=0)
    with pytest.raises(UsageError, match="it is of another store or split: the names of"):
        Reader(tmp_path / "other").batches(BATCH, shuffle=True, workers=0).load_state_dict(state)
