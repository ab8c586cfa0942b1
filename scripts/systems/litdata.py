"""litdata: chunks of 64 MB; shuffles the order of the chunks, and the samples within each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from systems.dataloader import resumed, stacked
from systems.images import Source
from systems.job import Job
from systems.recipe import delivered

# optimize() deletes all files in these folders, by default $TMPDIR/chunks and $TMPDIR/data, whoever wrote them.
for _name in ("DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER"):
    os.environ.setdefault(_name, tempfile.mkdtemp())

import litdata  # noqa: E402

NAME = "litdata"


def sample(i: int, source: Source) -> dict[str, Any]:
    return {"image": source.sample(i), "index": i}


def pack(source: Source, folder: Path, job: Job) -> None:
    litdata.optimize(
        fn=partial(sample, source=source),
        inputs=list(range(len(source))),
        output_dir=str(folder),
        chunk_bytes="64MB",
        num_workers=max(1, job.workers),
        verbose=False,
    )


class Images(litdata.StreamingDataset):  # type: ignore[misc]
    """Samples as pairs."""

    def __init__(self, folder: Path, job: Job) -> None:
        # By default it decodes a window of neighbors for each sample, which a shuffle throws away: 7 times slower.
        super().__init__(str(folder), shuffle=True, seed=1, batch_decode=1)
        self.job = job

    def __getitem__(self, index: Any) -> Any:
        sample = super().__getitem__(index)
        image = sample["image"]
        # Bytes are a view of the mapped chunk.
        image = np.asarray(image) if self.job.kind == "raw" else bytes(image)
        return delivered(image, self.job), sample["index"]


def loader(folder: Path, job: Job) -> Any:
    return litdata.StreamingDataLoader(
        Images(folder, job),
        batch_size=job.batch,
        num_workers=job.workers,
        collate_fn=stacked,
        persistent_workers=job.workers > 0,
    )


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    batches = loader(folder, job)
    return lambda number: batches


def resume(folder: Path, job: Job, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    return resumed(loader(folder, job), state)
