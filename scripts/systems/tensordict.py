"""tensordict: a memory-mapped TensorDict, indexed in this process, which is faster than in a DataLoader's workers.

Where images are transformed, the workers are faster: they index and transform a batch each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from tensordict import MemoryMappedTensor, TensorDict

from systems.dataloader import as_it_is, loader, together
from systems.images import Source
from systems.job import Job
from systems.recipe import delivered

NAME = "tensordict"


def pack(source: Source, folder: Path, job: Job) -> None:
    n = len(source)
    empty = {
        "image": MemoryMappedTensor.empty((n, *job.shape), dtype=torch.uint8),
        "index": MemoryMappedTensor.empty((n,), dtype=torch.int64),
    }
    samples = TensorDict(empty, batch_size=[n]).memmap_(folder)
    for i, image in source.samples():
        samples["image"][i], samples["index"][i] = torch.from_numpy(image), i


class Rows:
    """The samples of a batch in one access, transformed."""

    def __init__(self, samples: Any, job: Job) -> None:
        self.samples, self.job = samples, job

    def __len__(self) -> int:
        return len(self.samples)

    def __getitems__(self, rows: list[int]) -> Any:
        batch = self.samples[rows]
        return together([delivered(image.numpy(), self.job) for image in batch["image"]]), batch["index"]


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    samples = TensorDict.load_memmap(folder)
    if job.floats:
        return loader(Rows(samples, job), job, collate_fn=as_it_is)

    def epoch(number: int) -> Iterator[Any]:
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(number))
        for rows in order.split(job.batch):
            batch = samples[rows]
            yield batch["image"], batch["index"]

    return epoch
