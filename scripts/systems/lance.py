"""Lance: a column of fixed-size lists or of bytes; `take` of a batch's rows in a DataLoader's spawned workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow
import torch

from systems.dataloader import as_it_is, loader, together
from systems.images import Source
from systems.job import Job
from systems.recipe import delivered

NAME = "pylance"
_ROWS = 256


def pack(source: Source, folder: Path, job: Job) -> None:
    raw, pixels = job.kind == "raw", math.prod(job.shape)
    image = pyarrow.list_(pyarrow.uint8(), pixels) if raw else pyarrow.large_binary()
    schema = pyarrow.schema([("image", image), ("index", pyarrow.int64())])

    def record(numbers: list[int], samples: list[Any]) -> Any:
        if raw:
            flat = pyarrow.array(np.concatenate([sample.reshape(-1) for sample in samples]))
            images = pyarrow.FixedSizeListArray.from_arrays(flat, pixels)
        else:
            images = pyarrow.array(samples, pyarrow.large_binary())
        return pyarrow.RecordBatch.from_arrays([images, pyarrow.array(numbers, pyarrow.int64())], schema=schema)

    def records() -> Iterator[Any]:
        numbers, samples = list[int](), list[Any]()
        for i, sample in source.samples():
            numbers.append(i)
            samples.append(sample)
            if len(samples) == _ROWS:
                yield record(numbers, samples)
                numbers, samples = [], []
        if samples:
            yield record(numbers, samples)

    lance.write_dataset(records(), folder / "images.lance", schema=schema, mode="overwrite")


class Rows:
    """The rows of a batch in one `take`. Opened in the worker, because Lance does not survive a fork."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.path, self.job = str(folder / "images.lance"), job
        self.count = lance.dataset(self.path).count_rows()
        self.opened: Any = None

    def __len__(self) -> int:
        return int(self.count)

    def __getitems__(self, rows: list[int]) -> Any:
        self.opened = self.opened or lance.dataset(self.path)
        table = self.opened.take(rows).combine_chunks()
        images, numbers = table["image"].chunk(0), table["index"].to_numpy()
        if pyarrow.types.is_fixed_size_list(images.type):
            samples = images.flatten().to_numpy().reshape(-1, *self.job.shape)
            if not self.job.floats:
                # torch needs memory that may be written to.
                return torch.from_numpy(samples.copy()), torch.from_numpy(numbers.copy())
        else:
            samples = [data.as_py() for data in images]
        found = together([delivered(sample, self.job) for sample in samples])
        return found, torch.from_numpy(numbers.copy())


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    return loader(Rows(folder, job), job, collate_fn=as_it_is, multiprocessing_context="spawn")
