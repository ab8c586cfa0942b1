"""Where an epoch stands, and which samples a reader has: resuming, selecting, several stores as one, ranks."""

from __future__ import annotations

import io
import itertools
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
from reading import WAYS, Truth, rows_of
from running import FORMATS, Packed

import rawpack_packer
from rawpack import Balanced, Blocks, DamagedStoreError, Ranks, RawpackError, Reader, UsageError, Workers
from rawpack.batches import Batches
from rawpack.epoch.making import IN_FLIGHT
from rawpack.store.stores import Stores
from rawpack.workers import worker

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


@pytest.mark.parametrize("way", ["here", "processes"])
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


@pytest.mark.parametrize("change", [{"position": -1}, {"position": 76}, {"epoch": "1"}, {"version": 0}])
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
    for wrong in (-1, 1.5, "1"):
        with pytest.raises(UsageError, match="must be a whole number >= 0"):
            batches.set_epoch(wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize(("world", "last"), [(2, "pad"), (7, "pad"), (7, "keep"), (2, None), (7, None)])
def test_ranks(reader: Reader, truth: Truth, world: int, last: Any) -> None:
    """Ranks take every sample between them, step by step the next ones of the epoch; padded, they have equally many
    batches of equal sizes, and only samples from the epoch's start come twice; with drop_last, only whole steps."""
    expected = rows_of(reader.batches(BATCH, shuffle=True, workers=0))
    ranks = []
    for rank in range(world):
        own = Ranks(rank, world, last=last)
        batches = reader.batches(4, shuffle=True, drop_last=last is None, ranks=own, workers=0)
        taken = list(batches)
        assert len(taken) == len(batches)
        assert all(truth.holds(batch) for batch in taken)
        ranks.append([batch["index"].tolist() for batch in taken])
    joined = [row for step in itertools.zip_longest(*ranks, fillvalue=[]) for rows in step for row in rows]
    if last is None:
        assert joined == expected[: 75 // (4 * world) * 4 * world]
    elif last == "keep":
        assert joined == expected
    else:
        assert joined == [*expected, *expected[: len(joined) - 75]]
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
    ({"indices": [[1], [1, 2]]}, r"indices=\[\[1\], \[1, 2\]\] cannot be read"),
    ({"mask": [True]}, r"mask=\[True\] must contain 75 booleans"),
    ({"mask": [1] * 75}, r"mask=.* must contain 75 booleans"),
    ({"classes": ["none such"]}, "there is no class 'none such'"),
    ({"classes": "animals"}, r"a list of names.*\['animals'\]|\['animals'\]"),
]


@pytest.mark.parametrize(("asked", "message"), WRONG)
def test_a_wrong_selection_is_refused(reader: Reader, asked: dict[str, Any], message: str) -> None:
    """What selects nothing that exists is refused with the value and the reason."""
    with pytest.raises(UsageError, match=message):
        reader.select(**asked)


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


def test_stores_that_do_not_fit_together(packed: Packed) -> None:
    """Stores with other shapes are refused, by name."""
    with pytest.raises(UsageError, match=r"cannot be read as one: .*; Reader\.mix takes stores that differ"):
        Reader([packed("memmap", "--size", SIZE), packed("memmap", "--size", 160)])


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


def test_arguments_of_the_wrong_kind_name_the_cure(reader: Reader) -> None:
    """What a user may well pass by mistake is a UsageError that shows the right way, not a TypeError from within."""
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: reader.batches(4, fields="image"), r"\['image'\]"),
        (lambda: reader.select(classes="cat"), r"\['cat'\]"),
        (lambda: Reader(5), "path=5"),  # type: ignore[arg-type]
        (lambda: Reader([]), "no store was named"),
        (lambda: reader.batches(4).load_state_dict(None), "NoneType"),  # type: ignore[arg-type]
    ]
    for ask, words in wrong:
        with pytest.raises(UsageError, match=words):
            ask()
    every: list[tuple[Callable[..., object], dict[str, list[Any]]]] = [
        (partial(reader.batches, batch_size=4), {
            "batch_size": ["a", 0, 2.5, None, True],
            "shuffle": ["x", 1, None],
            "seed": ["x", 1.5, True],
            "drop_last": ["no", 1],
            "fields": [5, [5]],
            "image_size": ["x", 3.5, (1,), 0, True],
            "transform": [5],
            "decode": ["rgb", None, {"image": 5}],
            "workers": ["2", 1.5, -1, True],
            "ranks": [3, (1, 2, 3)],
            "ragged": ["x", 0, None],
        }),
        (Blocks, {"block": ["x", 0], "window": ["x", 0]}),
        (Workers, {"backend": ["x", 5], "timeout": ["x", 0, float("nan")]}),
        (partial(Ranks, 0, 2), {"last": ["x", 5]}),
    ]  # fmt: skip
    for made, options in every:
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
