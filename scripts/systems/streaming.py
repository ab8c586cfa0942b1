"""MosaicML streaming: MDS shards of 64 MB, read in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from systems.dataloader import resumed, stacked
from systems.images import Source
from systems.job import Job
from systems.recipe import delivered, torchvision_transforms

# The library imports torchvision, too.
torchvision_transforms()

import streaming  # noqa: E402

NAME = "mosaicml-streaming"


def pack(source: Source, folder: Path, job: Job) -> None:
    columns = {
        "image": f"ndarray:uint8:{','.join(map(str, job.shape))}" if job.kind == "raw" else "bytes",
        "index": "int",
    }
    with streaming.MDSWriter(
        out=str(folder), columns=columns, size_limit=job.shard_bytes, progress_bar=False
    ) as writer:
        for i, sample in source.samples():
            writer.write({"image": sample, "index": i})


class Images(streaming.StreamingDataset):  # type: ignore[misc]
    """Samples as pairs."""

    def __init__(self, folder: Path, job: Job) -> None:
        place = {"remote": job.url, "local": job.cache} if job.url else {"local": str(folder)}
        super().__init__(**place, shuffle=True, shuffle_seed=1, batch_size=job.batch)
        self.job = job

    def __getitem__(self, index: Any) -> Any:
        sample = super().__getitem__(index)
        return delivered(sample["image"], self.job), sample["index"]


def loader(folder: Path, job: Job) -> Any:
    # Files that a killed process left in /dev/shm would keep the next one from starting.
    streaming.base.util.clean_stale_shared_memory()
    return streaming.StreamingDataLoader(
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
