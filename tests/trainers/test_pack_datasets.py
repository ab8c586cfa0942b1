"""Objects of other libraries as sources: what they hold is what the store holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rawpack_packer
from rawpack import Reader, UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_tensordict_is_a_dict_of_columns(tmp_path: Path, workers: int) -> None:
    """Each entry is a field; names may differ."""
    tensordict = pytest.importorskip("tensordict", reason="tensordict is not installed")
    pixels = torch.randint(0, 256, (70, 6, 5, 3), dtype=torch.uint8)
    source = tensordict.TensorDict({"pixels": pixels, "label": torch.arange(70) % 3}, batch_size=[70])
    rawpack_packer.pack(source, tmp_path / "s", names={"image": "pixels"}, workers=workers)
    batch = Reader(tmp_path / "s")[list(range(70))]
    np.testing.assert_array_equal(batch["image"], pixels.numpy())
    assert batch["label"].tolist() == [i % 3 for i in range(70)]


def test_tensors_whose_channels_come_first(tmp_path: Path) -> None:
    """torch's own TensorDataset, whose samples are tuples: they are asked for, and `.torch()` gives what it has."""
    pixels = torch.randint(0, 256, (9, 3, 24, 32), dtype=torch.uint8)
    source = torch.utils.data.TensorDataset(pixels, torch.arange(9))
    with pytest.raises(UsageError, match="image='chw' moves them to the end"):
        rawpack_packer.pack(source, tmp_path / "s", workers=0)
    rawpack_packer.pack(source, tmp_path / "s", image="chw", workers=0)
    (batch,) = Reader(tmp_path / "s").batches(9, workers=0).torch()
    assert torch.equal(batch["image"], pixels)
    assert batch["label"].tolist() == list(range(9))
