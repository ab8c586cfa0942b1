"""What torch and JAX get of samples with several images."""

from __future__ import annotations

import numpy as np
import pytest
from several import NAMES, PICTURES, check_batch, first_of, others_of, stores_in

from rawpack import Reader


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(stores_in(tmp_path_factory.mktemp)("memmap"))


def test_tensors_of_torch(reader: Reader) -> None:
    """Each image has its channels first and its own dtype, int32 for uint16; `dtype=` converts pictures, and leaves
    values as they are, which a half would not hold."""
    torch = pytest.importorskip("torch")
    for batch in reader.batches(16, workers=0).torch():
        images = {name: batch[name].movedim(1, -1).numpy() for name in NAMES}
        assert images["depth"].dtype == np.int32
        images["depth"] = images["depth"].astype(np.uint16)
        check_batch(images, batch["number"])
    batch = next(iter(reader.batches(16, workers=0).torch(dtype="float16")))
    halves = {name for name in NAMES if batch[name].dtype == torch.float16}
    assert halves == {*PICTURES}
    np.testing.assert_array_equal(batch["depth"][3].movedim(0, -1).numpy(), others_of(first_of(3, (12, 16)))["depth"])


def test_arrays_of_jax(reader: Reader) -> None:
    """Each image has its own shape and dtype."""
    pytest.importorskip("jax")
    for batch in reader.batches(16, workers=0).jax():
        assert check_batch(batch, batch["number"]) == len(batch["number"])
