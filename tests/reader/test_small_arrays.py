"""Small arrays of a batch have memory of their own: who keeps the labels does not keep the images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS

import rawpack
from rawpack import Reader
from rawpack.epoch.making import IN_FLIGHT

COUNT, BATCH = 60, 8


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of 3,072 bytes, and what is besides them: up to 192 bytes, a 16th, and more."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("small") / "store"
    data = {
        "image": rng.integers(0, 255, (COUNT, 32, 32, 3), np.uint8),
        "mask": rng.integers(0, 3, (COUNT, 32, 32), np.uint8),
        "label": rng.integers(0, 10, COUNT),
        "score": rng.random(COUNT),
        "small": rng.random((COUNT, 16)),
        "large": rng.random((COUNT, 256)),
        "spans": [rng.random((n % 4, 2), np.float32) for n in range(COUNT)],
        "text": [f"text {n}" for n in range(COUNT)],
    }
    kinds = {"mask": "mask", "small": "array", "large": "array", "spans": "float32[?,2]"}
    rawpack.pack(data, folder, format="memmap", fields=kinds, workers=0)
    return folder


def in_slot(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array is over memory that other arrays are over, too: what is at the end of its bases is no array."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base is not None


@pytest.mark.parametrize("ragged", ["list", "pad"])
@pytest.mark.parametrize("way", ["here", "processes"])
def test_small_arrays_are_copies(store: Path, way: str, ragged: Any) -> None:
    """What has at most a 16th of the bytes of its batch, and ragged fields, hold nothing else; the rest are views."""
    reader = Reader(store)
    for batch in reader.batches(BATCH, fields=[*reader.fields], ragged=ragged, **WAYS[way]):
        arrays = {name: one for name, one in batch.items() if isinstance(one, np.ndarray)}
        assert {name for name, array in arrays.items() if in_slot(array)} == {"image", "mask", "large"}
        assert all(array.flags.writeable and array.flags.c_contiguous for array in arrays.values())
        assert not any(map(in_slot, batch["spans"])) if ragged == "list" else not in_slot(batch["spans.length"])


@pytest.mark.parametrize("way", WAYS)
def test_labels_that_are_kept_hold_no_slot(store: Path, way: str) -> None:
    """Over three epochs of kept labels, no more slots are made; values are right."""
    reader = Reader(store)
    batches = reader.batches(BATCH, shuffle=True, fields=["image", "label", "score", "small"], **WAYS[way])
    kept, pools = list[dict[str, Any]](), set[Any]()
    for _ in range(3):
        iterator = iter(batches)
        for batch in iterator:
            kept.append({name: array for name, array in batch.items() if name != "image"})
            pools.add(iterator._source.slot_pool)
    del batch
    assert [pool._next <= IN_FLIGHT + 2 for pool in pools] == [True]
    for batch in kept:
        for name in ("label", "score", "small"):
            assert np.array_equal(batch[name], reader.column(name)[batch["index"]])
