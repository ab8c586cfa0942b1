"""torch's DataLoader over the shards of a memmap store, as one writes it by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import data
from contract import Epoch, Pixels, Settings, consume


class TorchLoader:
    """A map-style data set that copies one row a sample, collated by default; or a batch at once, as it is."""

    needs: tuple[str, ...] = ("torch",)

    def __init__(self, *, whole_batches: bool = False) -> None:
        self._whole_batches = whole_batches

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, "memmap")

    def open(self, settings: Settings) -> None:
        from torch.utils.data import DataLoader

        workers = settings.workers or 0
        self._consumer = settings.consumer
        shards, options = data.shards(settings), dict[str, Any]()
        rows: Any = MappedRows(shards)
        if self._whole_batches:
            rows, options = MappedBatches(shards), {"collate_fn": as_it_is}
        self._loader = DataLoader(
            rows, settings.batch, shuffle=True, num_workers=workers, persistent_workers=workers > 0, **options
        )

    def epoch(self, n: int) -> Epoch:
        return consume(self._batches(), self._consumer)

    def _batches(self) -> Iterator[Pixels]:
        for batch in self._loader:
            yield batch.numpy()


class MappedRows:
    """Rows of several mapped arrays, one after another."""

    def __init__(self, shards: list[Pixels]) -> None:
        self._shards, self._ends = shards, np.cumsum([len(shard) for shard in shards])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, row: int) -> Any:
        import torch

        shard = int(np.searchsorted(self._ends, row, side="right"))
        first = int(self._ends[shard - 1]) if shard else 0
        return torch.from_numpy(self._shards[shard][row - first].copy())


class MappedBatches(MappedRows):
    """The same, many rows in one call."""

    def __getitems__(self, rows: list[int]) -> Any:
        import torch

        wanted = np.array(rows)
        shards = np.searchsorted(self._ends, wanted, side="right")
        out = np.empty((len(rows), *self._shards[0].shape[1:]), np.uint8)
        for k in np.unique(shards).tolist():
            first = int(self._ends[k - 1]) if k else 0
            out[shards == k] = self._shards[k][wanted[shards == k] - first]
        return torch.from_numpy(out)


def as_it_is(batch: Any) -> Any:
    return batch
