"""What Keras asks of a `PyDataset`, asked here without Keras: in order, in any other order, and by several threads.

Batch k of an epoch is the same however it is asked for. What is expected comes from the numpy batches of a loop. That
Keras does ask like this is tried out in `tests/trainers/test_keras.py`.
"""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS
from trained import numbered_store

from rawpack import Batches, MissingExtraError, Reader, UsageError
from rawpack.integrations.adapter import inputs_and_labels
from rawpack.integrations.keras import KerasBatches
from rawpack.transforms import MixUp, OneHot, RandomHorizontalFlip, RandomResizedCrop

SAMPLES, BATCH = 43, 5
SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 3}
RANDOM: dict[str, Any] = {"transform": [RandomResizedCrop(6), RandomHorizontalFlip()]}
MIXED: dict[str, Any] = {"transform": [RandomHorizontalFlip(), OneHot(4), MixUp()]}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_store(tmp_path_factory.mktemp("numbered") / "store", SAMPLES)


def dataset(batches: Batches, x: Any = "image", y: Any = None, sample_weight: str | None = None) -> KerasBatches:
    """What `Batches.keras` makes, without the class of Keras that it derives from."""
    form, fields = inputs_and_labels(batches._feed, x, y, sample_weight)
    return KerasBatches(batches._feed, form, fields)


def expected(store: Path, epoch: int, **options: Any) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Copies of the batches of an epoch, as a loop over them gets them."""
    batches = Reader(store).batches(BATCH, workers=0, **SHUFFLED, **options)
    batches.set_epoch(epoch)
    return [{name: array.copy() for name, array in batch.items()} for batch in batches]


def same(given: tuple[Any, ...], batch: dict[str, Any]) -> bool:
    image, label = given
    return np.array_equal(image, batch["image"]) and np.array_equal(label, batch["label"])


def flat(batches: Iterable[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def numbers(data: KerasBatches) -> list[int]:
    """The samples of an epoch."""
    return flat(number.tolist() for (number,) in data)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("way", "options"), [("here", MIXED), ("threads", RANDOM), ("processes", MIXED)])
def test_batches_come_in_order(store: Path, way: str, options: dict[str, Any]) -> None:
    """Batch 0 may be asked for again, as Keras does; any other batch out of order is refused. Batches that are kept, by
    Keras's queue or the user, do not change."""
    batches, kept = Reader(store).batches(BATCH, **SHUFFLED, **WAYS[way], **options), []
    data = dataset(batches, "image", "label")
    for epoch, looked_at in enumerate((0, 3, 1)):
        for number in range(looked_at):
            assert same(data[number], expected(store, epoch, **options)[number])
        kept += [data[number] for number in range(len(data))]
        data.on_epoch_end()
    gc.collect()
    truth = [batch for epoch in range(3) for batch in expected(store, epoch, **options)]
    assert all(same(*pair) for pair in zip(kept, truth, strict=True))
    data[0]
    for number in (2, 5):
        with pytest.raises(UsageError, match=f"batch {number} was asked for instead of batch 1: .*shuffle=False"):
            data[number]


def test_an_epoch_is_over_when_all_of_it_was_asked_for(store: Path) -> None:
    """Keras also ends an epoch before it begins, after it has looked at the first batches, and twice."""
    data = dataset(Reader(store).batches(BATCH, workers=0, **SHUFFLED), "number")
    orders = [flat(batch["number"].tolist() for batch in expected(store, epoch)) for epoch in range(3)]
    data.on_epoch_end()
    data[0], data[1]
    data.on_epoch_end()
    data.on_epoch_end()
    assert numbers(data) == orders[0]
    data.on_epoch_end()
    data.on_epoch_end()
    assert numbers(data) == orders[1]
    assert numbers(data) == orders[1], "until Keras says that it is over"
    for epoch in (2, 0):
        data.set_epoch(epoch)
        assert numbers(data) == orders[epoch]


def test_it_resumes_in_the_middle(store: Path) -> None:
    """Batches count from the state after k of them, however many were asked for; states of `Batches` fit."""
    data, again = (dataset(Reader(store).batches(BATCH, **SHUFFLED, **WAYS["threads"]), "number") for _ in range(2))
    orders = [flat(batch["number"].tolist() for batch in expected(store, epoch)) for epoch in range(3)]
    data.set_epoch(1)
    first, second, *_ = [data[k] for k in range(4)]
    state = data.state_dict(after=2)
    assert data.state_dict(after=second) == state
    assert data.state_dict() == data.state_dict(after=4)
    with pytest.raises(UsageError, match="not copies or views"):
        data.state_dict(after=(first[0].copy(),))
    plain = Reader(store).batches(BATCH, workers=0, **SHUFFLED)
    plain.set_epoch(1)
    for _ in zip(range(2), plain, strict=False):
        pass
    assert state == plain.state_dict()

    again.load_state_dict(state)
    assert len(again) == again.num_batches == len(data)
    assert again.state_dict(after=0) == state
    assert numbers(again) == orders[1][2 * BATCH :]
    with pytest.raises(IndexError, match=r"epoch 1 has no batch 7: there are 7 .* checkpoint\(\)"):
        again[7]
    again.set_epoch(1)
    assert again[0][0].tolist() == orders[1][2 * BATCH : 3 * BATCH], "a loaded position stays"
    assert again.state_dict(after=7) == data.state_dict(after=9)
    numbers(again)
    again.on_epoch_end()
    assert numbers(again) == orders[2]


def test_what_keras_gets(store: Path) -> None:
    """A field alone, several as a tuple or by Keras's names, and weights; the last batch is a short one."""
    batches = Reader(store).batches(BATCH, workers=0)
    [only] = dataset(batches)[0]
    assert only.shape == (BATCH, 8, 8, 3)
    data = dataset(batches, ["image", "index"], {"a": "label", "b": "number"}, "label")
    both, labels, weights = [data[k] for k in range(9)][8]
    assert (type(both), both[0].shape, both[1].tolist()) == (tuple, (3, 8, 8, 3), [40, 41, 42])
    assert {key: array.tolist() for key, array in labels.items()} == {"a": [0, 1, 2], "b": [40, 41, 42]}
    assert weights.tolist() == [0, 1, 2]
    assert [len(part) for part in dataset(batches, ["image"], ["label"])[0]] == [1, 1]


def test_nonsense_is_refused(store: Path) -> None:
    """Fields and batches that there are not, Keras's own workers, and pickling."""
    batches = Reader(store).batches(BATCH, workers=0)
    data: Any = dataset(batches)
    for arguments, words in (
        (("picture",), "x: there is no field 'picture' in a batch, only image, number, label, index"),
        (("image", ["label", "lable"]), "y: there is no field 'lable'.* label, index. Did you mean 'label'?"),
        (("image", None, "number"), "sample_weight='number' needs y="),
    ):
        with pytest.raises(UsageError, match=words):
            dataset(batches, *arguments)
    for name, value in (("workers", 4), ("use_multiprocessing", True)):
        with pytest.raises(UsageError, match=f"cannot be {value}: pass workers="):
            setattr(data, name, value)
    with pytest.raises(UsageError, match="leave Keras's workers at 1"):
        pickle.dumps(data)
    for wrong in (9, -1):
        with pytest.raises(IndexError, match="epoch 0 has no batch"):
            data[wrong]


def test_without_keras_or_tensorflow(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors say what to install, also where Keras has no backend."""
    batches = Reader(store).batches(BATCH)
    for name in ("keras", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match="needs Keras 3 and one of its backends: pip install keras"):
        batches.keras()
    with pytest.raises(MissingExtraError, match="pip install tensorflow-cpu"):
        batches.tf_data()
