"""tensordict: a memory-mapped TensorDict, indexed in this process, which is faster than in a DataLoader's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from tensordict import MemoryMappedTensor, TensorDict

from systems.images import Source
from systems.job import Job

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


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    samples = TensorDict.load_memmap(folder)

    def epoch(number: int) -> Iterator[Any]:
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(number))
        for rows in order.split(job.batch):
            batch = samples[rows]
            yield batch["image"], batch["index"]

    return epoch
