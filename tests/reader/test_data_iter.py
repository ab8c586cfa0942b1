"""MXNet's `DataIter` protocol, by loops in the shape of MXNet's own.

What is expected comes from the numpy batches and from the order of the samples.
"""

from __future__ import annotations

import gc
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pictures import picture
from reading import WAYS
from trained import numbered_store
from ways import way

import rawpack_packer
from rawpack import Reader, UsageError
from rawpack.transforms import Normalize, ToCHW

SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 3}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_store(tmp_path_factory.mktemp("numbered") / "store", 21)


def epochs_of(store: Path, count: int) -> list[list[int]]:
    """The order of the samples."""
    batches = Reader(store).batches(5, workers=0, **SHUFFLED)
    return [[row for batch in batches for row in batch["index"].tolist()] for _ in range(count)]


def fit(train: Any, val: Any, epochs: int) -> list[dict[str, list[int]]]:
    """The calls of `Module.fit` of MXNet 1.9, in its order: it takes each batch before it is done with the one before,
    resets the training data after an epoch, and the other before it evaluates. Returns the rows of each."""
    assert [(desc.name, desc.shape) for desc in train.provide_data] == [("data", (8, 3, 8, 8))]
    assert [(desc.name, desc.shape) for desc in train.provide_label] == [("softmax_label", (8,))]
    seen = []
    for _ in range(epochs):
        rows: dict[str, list[int]] = {"train": [], "val": []}
        iterator = iter(train)
        following = next(iterator)
        ended = False
        while not ended:
            batch = following
            assert [array.shape for array in (*batch.data, *batch.label)] == [(8, 3, 8, 8), (8,)]
            rows["train"] += batch.index.tolist()[: 8 - batch.pad]
            try:
                following = next(iterator)
            except StopIteration:
                ended = True
        val.reset()
        for batch in val:
            rows["val"] += batch.index.tolist()[: 8 - batch.pad]
        train.reset()
        seen.append(rows)
    return seen


@pytest.mark.parametrize("way", ["here", "processes"])
def test_a_loop_like_module_fit(store: Path, way: str) -> None:
    """Over three epochs: every sample once an epoch, in the orders of epochs 0, 1 and 2; reset() before anything was
    read skips no epoch."""
    reader = Reader(store)
    train = reader.batches(8, **SHUFFLED, **WAYS[way]).data_iter()
    val = reader.batches(8, **WAYS[way]).data_iter()
    train.reset()
    seen = fit(train, val, 3)
    assert [rows["train"] for rows in seen] == epochs_of(store, 3)
    assert [rows["val"] for rows in seen] == [list(range(21))] * 3


def test_values_and_padding(store: Path) -> None:
    """Channels come first; the last batch is filled up with the first rows of the epoch, and `pad` counts them. What is
    kept does not change."""
    reader = Reader(store)
    expected = {name: np.concatenate([b[name] for b in reader.batches(8, workers=0)]) for name in ("image", "label")}
    given = reader.batches(8, workers=0).data_iter()
    kept = list(given)
    assert [batch.pad for batch in kept] == [0, 0, 3]
    gc.collect()
    for number, batch in enumerate(kept):
        rows = [*range(21), 0, 1, 2][number * 8 : number * 8 + 8]
        assert batch.index.tolist() == rows
        np.testing.assert_array_equal(batch.data[0], expected["image"][rows].transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(batch.label[0], expected["label"][rows])
    assert list(given) == [], "until reset()"
    given.reset()
    assert len(list(given)) == len(given) == 3


@pytest.mark.parametrize(("samples", "size", "ranks"), [(3, 8, 1), (21, 4, 2), (21, 5, 4), (2, 3, 5)])
def test_ranks_that_are_filled_up(store: Path, samples: int, size: int, ranks: int) -> None:
    """Ranks get equally many batches, some with samples of the start of the epoch again and again. `pad` counts these:
    without them, all ranks together have each sample once."""
    rows = list[int]()
    for rank in range(ranks):
        given = Reader(store).select(range(samples)).batches(size, workers=0, ranks=(rank, ranks)).data_iter()
        assert len(given) == -(-samples // (size * ranks))
        rows += [row for batch in given for row in batch.index[: size - batch.pad].tolist()]
    assert sorted(rows) == list(range(samples))


def test_place_and_descriptions(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`place` gets each array, and says the dtype; descriptions are pairs with dtype and layout, of MXNet's own class
    where it is imported."""
    batches = Reader(store).batches(8, workers=0)
    given = batches.data_iter(place=lambda array: np.array(array, np.float32))
    ((name, shape),) = given.provide_data
    (described,) = given.provide_data
    assert (described.name, described.shape, described.dtype, described.layout) == (name, shape, np.float32, "NCHW")
    assert given.next().data[0].dtype == np.float32
    io = SimpleNamespace(DataDesc=lambda *values: ("mxnet's own", *values))
    monkeypatch.setitem(sys.modules, "mxnet", SimpleNamespace(io=io))  # type: ignore[arg-type]
    assert batches.data_iter().provide_label == [("mxnet's own", "softmax_label", (8,), np.int64, "N")]


def test_several_fields(tmp_path: Path) -> None:
    """Dicts name what MXNet gets; boxes are padded to a number; what has no fixed shape is refused."""
    samples = [
        {"image": picture(20, 24, i), "label": i, "pose": np.zeros(4, np.float32), "boxes": np.ones((i % 3, 5))}
        for i in range(7)
    ]
    rawpack_packer.pack(samples, tmp_path / "s", fields={"boxes": "float32[?,5]"}, workers=0, format="memmap")
    reader = Reader(tmp_path / "s")
    steps = [Normalize((0.5,) * 3, (0.2,) * 3), ToCHW()]
    batches = reader.batches(4, fields=["image", "pose", "boxes"], ragged=3, transform=steps, workers=0)
    given = batches.data_iter({"picture": "image", "pose": "pose"}, {"boxes": "boxes", "count": "boxes.length"})
    assert [(d.name, d.shape, d.layout) for d in (*given.provide_data, *given.provide_label)] == [
        ("picture", (4, 3, 20, 24), "NCHW"), ("pose", (4, 4), "NC"), ("boxes", (4, 3, 5), "NCH"), ("count", (4,), "N")
    ]  # fmt: skip
    last = list(given)[-1]
    assert last.pad == 1
    assert [array.shape for array in (*last.data, *last.label)] == [(4, 3, 20, 24), (4, 4), (4, 3, 5), (4,)]
    for data, label, words in (
        ("picture", None, "no field 'picture' in a batch, only image, pose, index, boxes, boxes.length"),
        ("image", "key", r"no field 'key' .*; the store has it: pass fields=\['image', 'pose', 'boxes', 'key'\] to"),
        (["image"], None, "must be the name of a field, or a dict"),
    ):
        with pytest.raises(UsageError, match=words):
            batches.data_iter(data, label)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'boxes' has no fixed shape"):
        reader.batches(4, fields=["image", "boxes"]).data_iter(label="boxes")


@way(
    "MXNet",
    "`data.state_dict()`",
    "to the sample",
)
def test_states(store: Path) -> None:
    """Of the batch that was trained on, although the loop has taken the next one; epochs follow each other."""
    orders = epochs_of(store, 2)
    given, again = (Reader(store).batches(8, **SHUFFLED, workers=0).data_iter() for _ in range(2))
    first, second = next(given), next(given)
    states = given.state_dict(after=first), given.state_dict(after=second), given.state_dict()
    assert states[1] == states[2]
    last = next(given)
    for state, start in ((states[0], 8), (states[1], 16)):
        again.load_state_dict(state)
        assert [row for batch in again for row in batch.index.tolist()[: 8 - batch.pad]] == orders[0][start:]
        again.reset()
        assert [row for batch in again for row in batch.index.tolist()[: 8 - batch.pad]] == orders[1]
    again.load_state_dict(given.state_dict(after=last))
    assert next(again).index.tolist() == orders[1][:8]
    again.set_epoch(0)
    assert next(again).index.tolist() == orders[0][:8]
    with pytest.raises(UsageError, match="pickle the reader"):
        pickle.dumps(again)


def test_a_short_epoch_is_over_at_its_reset(store: Path) -> None:
    """A loop that resets before the end, as one with a fixed number of steps: the state is the start of the next epoch,
    not where the loop left the last one."""
    given = Reader(store).batches(8, **SHUFFLED, workers=0).data_iter()
    for _ in range(2):
        next(given)
        given.reset()
    state = given.state_dict()
    assert (state["epoch"], state["position"]) == (2, 0)
    again = Reader(store).batches(8, **SHUFFLED, workers=0).data_iter()
    again.load_state_dict(state)
    assert next(again).index.tolist() == next(given).index.tolist() == epochs_of(store, 3)[2][:8]
