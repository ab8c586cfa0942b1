"""WebDataset: tar shards in shuffled order, and a shuffle buffer for the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import webdataset

from systems.dataloader import stacked
from systems.images import Source
from systems.job import Job
from systems.recipe import delivered

NAME = "webdataset"
_SHARD, _BUFFER = 256, 1000


def pack(source: Source, folder: Path, job: Job) -> None:
    with webdataset.ShardWriter(f"{folder}/%05d.tar", maxcount=_SHARD, maxsize=job.shard_bytes, verbose=0) as writer:
        for i, sample in source.samples():
            data = {"bin": sample.tobytes()} if job.kind == "raw" else {"jpg": sample}
            writer.write({"__key__": f"{i:07}", "cls": str(i).encode(), **data})


class Decode:
    """Turns the bytes of a sample into an image and its number."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, sample: dict[str, Any]) -> Any:
        if "bin" in sample:
            stored: Any = np.frombuffer(sample["bin"], np.uint8).reshape(self.job.shape)
        else:
            stored = sample["jpg"]
        return delivered(stored, self.job), int(sample["cls"])


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    shards = [f"{job.url or folder}/{path.name}" for path in sorted(folder.glob("*.tar"))]
    samples = webdataset.WebDataset(
        shards, shardshuffle=len(shards), nodesplitter=webdataset.split_by_node, seed=1, empty_check=False
    )
    samples = samples.shuffle(_BUFFER).map(Decode(job)).batched(job.batch, collation_fn=stacked, partial=True)
    batches = webdataset.WebLoader(
        samples, batch_size=None, shuffle=False, num_workers=job.workers, persistent_workers=job.workers > 0
    )
    return lambda number: batches
