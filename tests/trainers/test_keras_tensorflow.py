"""Keras 3 trains under TensorFlow: the tests of `test_keras.py` again. `tf.data` has the batches of a plain loop."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if find_spec("tensorflow") is None:
    pytest.skip("needs tensorflow, or tensorflow-cpu", allow_module_level=True)
os.environ["KERAS_BACKEND"] = "tensorflow"

from pictures import picture
from reading import WAYS
from trainers import test_keras
from trainers.test_keras import *  # noqa: F403
from trainers.test_keras import BATCH, SAMPLES, counts, make_model
from ways import way

import rawpack_packer
from rawpack import Reader, UsageError

pytestmark = [
    *test_keras.pytestmark,
    pytest.mark.soak,
    # Keras looks at the first batches here before it trains, and tests train twice in a process.
    pytest.mark.filterwarnings("ignore:.*is read again"),
]
SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 3}


@pytest.mark.parametrize("way", WAYS)
def test_tf_data_has_the_batches_of_a_loop(store: Path, way: str) -> None:
    """In the same order, over epochs and with `repeat()`; tensors that are kept do not change; it may be left early."""
    reader = Reader(store)
    plain = reader.batches(BATCH, workers=0, **SHUFFLED)
    truth = [{name: array.copy() for name, array in batch.items()} for _ in range(3) for batch in plain]
    dataset = reader.batches(BATCH, **SHUFFLED, **WAYS[way]).tf_data()
    assert dataset.cardinality() == len(plain) == 13
    kept = [batch for _ in range(3) for batch in dataset]
    repeated = reader.batches(BATCH, **SHUFFLED, **WAYS[way]).tf_data().repeat().prefetch(3)
    kept += [batch for batch, _ in zip(repeated, range(3 * 13), strict=False)]
    for batch, expected in zip(kept, 2 * truth, strict=True):
        assert list(batch) == list(expected)
        for name, array in expected.items():
            assert batch[name].dtype == array.dtype
            np.testing.assert_array_equal(batch[name], array)
    early = reader.batches(BATCH, **SHUFFLED, **WAYS[way])
    for _ in range(2):
        next(iter(early.tf_data()))
    assert early.state_dict()["epoch"] == 1


def test_the_signature_is_made_of_the_fields(tmp_path: Path) -> None:
    """Shapes with None for what differs, texts in any script, padded boxes; lists of boxes are refused by name."""
    import tensorflow as tf

    samples = [
        {"image": picture(20, 24, i), "boxes": np.full((i % 4, 5), i, np.float32), "caption": f"Nº {i}" * (i % 3)}
        for i in range(10)
    ]
    rawpack_packer.pack(samples, tmp_path / "s", fields={"boxes": "float32[?,5]"}, workers=0, format="memmap")
    reader, names = Reader(tmp_path / "s"), ["image", "boxes", "caption"]
    dataset = reader.batches(4, fields=names, ragged="pad", workers=0).tf_data()
    shapes = {name: (tuple(spec.shape), spec.dtype) for name, spec in dataset.element_spec.items()}
    assert shapes == {
        "image": ((None, 20, 24, 3), tf.uint8), "index": ((None,), tf.int64), "boxes": ((None, None, 5), tf.float32),
        "boxes.length": ((None,), tf.int64), "caption": ((None,), tf.string),
    }  # fmt: skip
    batches = list(dataset)
    assert [batch["boxes"].shape for batch in batches] == [(4, 3, 5), (4, 3, 5), (2, 1, 5)]
    captions = [text.decode() for batch in batches for text in batch["caption"].numpy()]
    assert captions == [f"Nº {i}" * (i % 3) for i in range(10)]
    with pytest.raises(UsageError, match="'boxes' is a list of arrays of different lengths"):
        reader.batches(4, fields=names).tf_data()


@way("tf.data", "`batches.state_dict(after=n)`", "to the sample")
def test_tf_data_resumes(store: Path) -> None:
    """Exactly, by counting steps, although TensorFlow has taken more batches."""
    reader = Reader(store)
    whole = [batch["index"].numpy().tolist() for batch in reader.batches(BATCH, workers=2, **SHUFFLED).tf_data()]
    batches = reader.batches(BATCH, workers=2, **SHUFFLED)
    for number, _ in enumerate(batches.tf_data().prefetch(4), 1):
        if number == 5:
            state = batches.state_dict(after=number)
            break
    again = reader.batches(BATCH, workers=2, **SHUFFLED)
    again.load_state_dict(state)
    rest = again.tf_data()
    assert rest.cardinality() == -2, "not known: later epochs are longer"
    assert [batch["index"].numpy().tolist() for batch in rest] == whole[5:]
    assert len(list(rest)) == 13


def test_keras_trains_from_tf_data(store: Path) -> None:
    """Every sample once an epoch."""
    model = make_model()
    names = {"image": "image", "number": "number"}
    dataset = Reader(store).batches(BATCH, **SHUFFLED).tf_data(x=names, y="label")
    model.fit(dataset, epochs=2, shuffle=False, verbose=0)
    assert counts(model) == [2] * SAMPLES
