"""tensordict: a memory-mapped TensorDict, indexed by the rows of a batch in a DataLoader's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from tensordict import MemoryMappedTensor, TensorDict

from images import SIDE, Source
from job import Job
from systems.dataloader import loader

NAME = "tensordict"


def pack(source: Source, folder: Path, job: Job) -> None:
    n = len(source)
    empty = {
        "image": MemoryMappedTensor.empty((n, SIDE, SIDE, 3), dtype=torch.uint8),
        "index": MemoryMappedTensor.empty((n,), dtype=torch.int64),
    }
    samples = TensorDict(empty, batch_size=[n]).memmap_(folder)
    for i, image in source.samples(job):
        samples["image"][i], samples["index"][i] = torch.from_numpy(image), i


class Rows:
    """The rows of a batch in one access."""

    def __init__(self, folder: Path) -> None:
        self.samples = TensorDict.load_memmap(folder)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitems__(self, rows: list[int]) -> Any:
        return self.samples[rows]


def pair(batch: Any) -> Any:
    return batch["image"], batch["index"]


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    return loader(Rows(folder), job, collate_fn=pair)
