"""`index` of a sample or batch: its position in its reader, so that `reader[index]` is the same again."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rawpack_packer
from rawpack import Reader, UsageError, look

SAMPLES, VIDEO = 24, 6
ROWS = np.arange(SAMPLES)
COLUMNS = {
    "image": np.broadcast_to(ROWS.astype(np.uint8)[:, None, None, None], (SAMPLES, 8, 8, 3)),
    "label": ROWS % 3,
    "number": ROWS,
    "video": ROWS // VIDEO,
    "frame": ROWS % VIDEO,
    "pts_seconds": ROWS % VIDEO / 10,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose `number` is the row, of four videos of six frames each."""
    where = tmp_path_factory.mktemp("positions") / "store"
    rawpack_packer.pack(COLUMNS, where, workers=0)
    return where


def odd(store: Path) -> Reader:
    return Reader(store).select(where="number % 2 == 1")


def mixed(store: Path) -> Reader:
    return Reader.mix([(Reader(store).select(range(12, SAMPLES)), 1), (odd(store), 1)])


KINDS: dict[str, Callable[[Path], Reader]] = {
    "whole": Reader,
    "selection of a selection": lambda store: odd(store).select([7, 2, 2, -1]),
    "several stores": lambda store: Reader([store, store]).select(range(20, 30)),
    "mix of selections": mixed,
    "clips of a selection": lambda store: Reader(store).select(range(VIDEO, SAMPLES)).clips(2),
    "selection of clips": lambda store: Reader(store).clips(3).select([5, 2, 7]),
    "clips of a mix": lambda store: mixed(store).clips(1),
    "offsets": lambda store: Reader(store).select(range(2, 20)).clips(offsets={"number": [-0.1, 0.0]}).select([3, 9]),
    "pickled": lambda store: pickle.loads(pickle.dumps(odd(store))),
}


def check(reader: Reader, batch: dict[str, Any]) -> None:
    """A batch has what the reader has at its `index`; so has each sample of it."""
    again = reader[batch["index"]]
    assert (batch["index"].dtype, batch["index"].ndim) == (np.int64, 1)
    for name in {*batch} - {"store_row", "valid"}:
        np.testing.assert_array_equal(again[name], batch[name])
    for k, position in enumerate(batch["index"].tolist()):
        sample = reader[position]
        assert (sample["index"], sample["index"].dtype) == (position, np.int64)
        np.testing.assert_array_equal(sample["number"], batch["number"][k])
    np.testing.assert_array_equal(reader.column("store_row")[batch["index"]], batch["store_row"])
    np.testing.assert_array_equal(batch["store_row"] % SAMPLES, own_rows(reader, batch))


def own_rows(reader: Reader, batch: dict[str, Any]) -> NDArray[np.int64]:
    """The rows that the numbers of a batch say; with offsets, the last frame is the sample's own."""
    found: NDArray[np.int64] = batch["number"][:, -1] if "number_is_pad" in batch else batch["number"]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_has_its_batches_at_their_index(store: Path, kind: str) -> None:
    """Whatever a reader was made of, in any order, whoever makes them."""
    reader = KINDS[kind](store)
    names = [*reader.fields, "store_row"]
    orders: list[dict[str, Any]] = [{"shuffle": True, "workers": 2}, {}]
    if "mix" not in kind:
        orders += [{"sampler": [len(reader) - 1, 0, 0]}, {"ranks": (1, 2), "shuffle": "block"}]
    for order in orders:
        options: dict[str, Any] = {"workers": 0, "fields": names} | order
        for batch in reader.batches(4, **options):
            check(reader, batch)
    everything = reader[:]
    assert everything["index"].tolist() == reader.column("index").tolist() == list(range(len(reader)))
    assert "store_row" not in everything


def test_conditions_are_on_positions_and_rows(store: Path) -> None:
    """`index` counts in the reader that is asked, `store_row` in its stores, of which a random clip has none yet."""
    reader = odd(store)
    assert look(reader).find("index in (0, 3)").tolist() == [0, 3]
    assert look(reader).find("store_row in (1, 7)").tolist() == [0, 3]
    assert reader[look(reader).find("label == 1")]["number"].tolist() == [1, 7, 13, 19]
    drawn = Reader(store).clips(2, per_video=3)
    assert look(drawn).find("index >= 9").tolist() == [9, 10, 11]
    with pytest.raises(UsageError, match="'store_row' of random clips differs from epoch to epoch"):
        drawn.select(where="store_row > 3")


STATE = {"version": 1, "pixels": 2, "epoch": 0, "position": 4, "order": "shuffled", "order_version": 1, "seed": 3} | {
    "samples": 24, "keys": "9f0e83e058ea47d3", "selected": "8c089e5927fcac86", "clips": None
}  # fmt: skip
OF_MIX = {"order": "mixed 1/2 of 12 shuffled + 1/2 of 12 shuffled, longest", "samples": 48, "batch_size": 4} | {
    "keys": "5a978476fcc74aa4", "selected": "98f6119675760b33"
}  # fmt: skip
OF_CLIPS = {"position": 2, "seed": 0, "selected": "b646439632f0eed2"} | {
    "clips": "3 frames, stride 1, step 3, drop a104e4cb77d09fa9"
}


@pytest.mark.parametrize(
    ("made", "size", "state", "left"),
    [
        (odd, 4, STATE, [[15, 9, 21, 3], [1, 19, 13, 11]]),
        (mixed, 4, STATE | OF_MIX, [[15, 7, 16, 13], [22, 11, 20, 19], [18, 21, 14, 9]]),
        (KINDS["selection of clips"], 2, STATE | OF_CLIPS, [[[21, 22, 23]]]),
    ],
    ids=["selection", "mix of selections", "selection of clips"],
)
def test_states_of_before_resume(store: Path, made: Any, size: int, state: dict[str, Any], left: list[Any]) -> None:
    """A state counts positions of the epoch. These were saved when `index` was the row; what is left is the same."""
    batches = made(store).batches(size, shuffle=True, workers=0, seed=state["seed"], fields=["number"])
    batches.load_state_dict(state)
    assert [batch["number"].tolist() for batch in batches][: len(left)] == left
