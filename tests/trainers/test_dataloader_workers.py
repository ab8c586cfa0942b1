"""torch's own DataLoader around batches or a reader: each sample once, never silently more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading import WAYS, rows_of
from running import environment

from rawpack import Reader

data: Any = pytest.importorskip("torch.utils.data", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning", "ignore::DeprecationWarning")
SAMPLES, BATCH = 23, 4


@pytest.fixture(scope="module")
def few(reader: Reader) -> Reader:
    return reader.select(range(10, 10 + SAMPLES))


@pytest.mark.parametrize("way", WAYS)
def test_a_dataloader(few: Reader, way: str) -> None:
    """A DataLoader around batches gives tensors of each sample once, with any number of workers."""
    whole = rows_of(few.batches(BATCH, shuffle=True, workers=0))
    for workers in (0, 2, 3):
        batches = few.batches(BATCH, shuffle=True, **WAYS[way])
        batches.set_epoch(0)
        loader = data.DataLoader(batches, batch_size=None, num_workers=workers)
        found = list(loader)
        assert len(found) == len(loader)
        assert type(found[0]["image"]).__name__ == "Tensor"
        assert rows_of(found) == whole


EPOCHS = """
import json, sys
from torch.utils.data import DataLoader, IterableDataset
from rawpack import Reader

class Own(IterableDataset):
    def __iter__(self):
        return iter(made())

def made():
    return Reader(sys.argv[1]).batches(1, shuffle=True, seed=4, workers=0)

dataset, orders = Own() if "own" in sys.argv else made(), []
loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers="persistent_workers" in sys.argv)
for epoch in range(3):
    if "set_epoch" in sys.argv:
        dataset.set_epoch(epoch)
    orders.append([row for batch in loader for row in batch["index"].tolist()])
print(json.dumps(orders))
"""


@pytest.mark.parametrize(
    ("how", "epochs", "warnings"),
    [
        (["set_epoch"], [0, 1, 2], 0),
        (["persistent_workers"], [0, 1, 2], 0),
        ([], [0, 0, 0], 1),
        (["own"], [0, 0, 0], 1),
        (["own", "persistent_workers"], [0, 0, 0], 1),
    ],
    ids=str,
)
def test_epochs_of_a_dataloader(store: Path, how: list[str], epochs: list[int], warnings: int) -> None:
    """With set_epoch before each loop, or with workers that stay, epochs differ and nothing is said. With neither, each
    is the first one again, and so is each of a dataset that calls batches() itself: one warning says so."""
    ran = subprocess.run(
        [sys.executable, "-c", EPOCHS, str(store), *how], env=environment(), capture_output=True, text=True, check=True
    )
    alone = Reader(store).batches(1, shuffle=True, seed=4, workers=0)
    orders = [rows_of(alone) for _ in range(3)]
    assert json.loads(ran.stdout) == [orders[epoch] for epoch in epochs]
    assert ran.stderr.count("rawpack: epoch 0 is read again, with the same order: each loop over a Data") == warnings


def test_a_reader_is_a_map_style_dataset(few: Reader) -> None:
    """A DataLoader indexes a reader, and stacks its samples."""
    for workers in (0, 2):
        found = list(data.DataLoader(few, batch_size=BATCH, num_workers=workers))
        assert [len(batch["key"]) for batch in found] == [4] * 5 + [3]
        assert rows_of(found) == list(range(10, 33))
        together = np.concatenate([batch["image"].numpy() for batch in found])
        assert np.array_equal(together, few[list(range(SAMPLES))]["image"])
