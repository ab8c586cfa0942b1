"""rawpack: three formats, one reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import rawpack_packer
from rawpack import Reader, Workers
from rawpack.transforms import CenterCrop, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToCHW
from systems.images import QUALITY, Source
from systems.job import Job
from systems.recipe import MEAN, STD

NAME = "rawpack"


def pack(source: Source, folder: Path, job: Job) -> None:
    options: dict[str, Any] = {} if job.kind == "raw" else {"quality": QUALITY}
    # Shards as large as those of the others.
    rawpack_packer.pack(
        job.images, folder, format=job.variant, size=job.shape[:2], shard_size="64MB", workers=job.workers, **options
    )


def open_batches(folder: Path, job: Job) -> Any:
    options: dict[str, Any] = {}
    if job.floats:
        options["transform"] = [RandomResizedCrop(job.side), RandomHorizontalFlip(), Normalize(MEAN, STD), ToCHW()]
    elif job.crop == "random":
        options["transform"] = [RandomResizedCrop(job.side, interpolation="area"), RandomHorizontalFlip()]
    elif job.kind == "jpeg":
        options["transform"] = [CenterCrop(job.side)]
    workers = Workers(job.workers, backend="process" if job.action == "kill_worker" else None)
    return Reader(folder).batches(job.batch, shuffle=True, seed=1, workers=workers, **options)


def read(folder: Path, job: Job) -> Callable[[int], Iterable[tuple[Any, Any]]]:
    batches = open_batches(folder, job)

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        batches.set_epoch(number)
        for batch in batches:
            yield batch["image"], batch["index"]

    return epoch


def resume(folder: Path, job: Job, state: Any) -> tuple[Iterator[tuple[Any, Any]], Callable[[], Any]]:
    batches = open_batches(folder, job)
    if state is not None:
        batches.load_state_dict(state)
    return ((batch["image"], batch["index"]) for batch in batches), batches.state_dict
