"""Batches as TensorDict: the tensors of the adapter for torch, with texts and boxes that are indexed along."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import picture
from ways import way

import rawpack_packer
from rawpack import Reader, Workers

torch = pytest.importorskip("torch", reason="torch is not installed")
tensordict = pytest.importorskip("tensordict", reason="tensordict is not installed")

NAMES = ["image", "label", "caption", "boxes"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    samples = [
        {"image": picture(20, 24, i), "label": i % 3, "caption": f"number {i}", "boxes": np.full((i % 4, 5), float(i))}
        for i in range(22)
    ]
    where = tmp_path_factory.mktemp("mixed") / "store"
    rawpack_packer.pack(samples, where, fields={"boxes": "float64[?,5]"}, workers=0, format="memmap")
    return Reader(where)


def test_values_are_those_of_torch(reader: Reader) -> None:
    """Over two epochs: the same tensors; lists have an entry per sample; what is kept does not change."""
    options: dict[str, Any] = {"shuffle": True, "fields": NAMES, "workers": Workers(2, backend="thread")}
    tensors = reader.batches(8, **options).torch(dtype="float16")
    given = reader.batches(8, **options).tensordict(dtype="float16")
    kept = []
    for _ in range(2):
        for expected, batch in zip(tensors, given, strict=True):
            assert isinstance(batch, tensordict.TensorDict)
            assert batch.batch_size == (len(expected["index"]),)
            assert set(batch.keys()) == set(expected)
            kept.append((batch[1:, ...], {name: expected[name].clone() for name in ("image", "label", "index")}))
    gc.collect()
    for batch, expected in kept:
        for name, tensor in expected.items():
            assert torch.equal(batch[name], tensor[1:])
        rows = batch["index"].tolist()
        assert list(batch["caption"]) == [f"number {row}" for row in rows]
        for row, boxes in zip(rows, batch["boxes"], strict=True):
            np.testing.assert_array_equal(boxes.numpy(), np.full((row % 4, 5), row))


def test_what_is_done_with_them(reader: Reader) -> None:
    """Split, concatenated and moved, with their texts; padded boxes are tensors."""
    batch = next(iter(reader.batches(6, fields=NAMES, ragged="pad", workers=0).tensordict(channels="last")))
    assert (batch["image"].shape, batch["boxes"].shape, batch["boxes.length"].shape) == (
        (6, 20, 24, 3), (6, 3, 5), (6,)
    )  # fmt: skip
    first, second = batch.split(3)
    again = torch.cat([second, first])
    assert list(again["caption"]) == [f"number {i}" for i in (3, 4, 5, 0, 1, 2)]
    assert again["label"].tolist() == [0, 1, 2, 0, 1, 2]
    assert batch[4]["caption"] == "number 4"
    assert batch.to("meta")["image"].device.type == "meta"


@way("tensordict", "`loader.state_dict()`", "to the sample")
def test_states(reader: Reader) -> None:
    """Those of the adapter for torch: a run that stops anywhere resumes with the next sample."""
    whole = [batch["index"].tolist() for batch in reader.batches(4, shuffle=True, workers=0)]
    given = reader.batches(4, shuffle=True, workers=0).tensordict()
    given.set_epoch(0)
    states = [json.loads(json.dumps(given.state_dict())) for _ in given]
    for done, state in enumerate(states[:-1], 1):
        again = reader.batches(4, shuffle=True, workers=0).tensordict()
        again.load_state_dict(state)
        assert [batch["index"].tolist() for batch in again] == whole[done:]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_tensordict_is_a_dict_of_columns(tmp_path: Path, workers: int) -> None:
    """Each entry is a field; names may differ."""
    pixels = torch.randint(0, 256, (70, 6, 5, 3), dtype=torch.uint8)
    source = tensordict.TensorDict({"pixels": pixels, "label": torch.arange(70) % 3}, batch_size=[70])
    rawpack_packer.pack(source, tmp_path / "s", names={"image": "pixels"}, workers=workers)
    batch = Reader(tmp_path / "s")[list(range(70))]
    np.testing.assert_array_equal(batch["image"], pixels.numpy())
    assert batch["label"].tolist() == [i % 3 for i in range(70)]
