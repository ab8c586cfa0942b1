"""MosaicML streaming: MDS shards of 64 MB, read in place."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from systems.dataloader import resumed, stacked
from systems.images import Source, decoded
from systems.job import Job

NAME = "mosaicml-streaming"


def _without_torchvision() -> None:
    """Replace torchvision, which the library imports but does not use here: its wheel needs the CUDA build of torch."""
    for name in ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional"):
        module: Any = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.VisionDataset = module.CIFAR10 = module.to_tensor = object
        module.__path__ = []
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


_without_torchvision()

import streaming  # noqa: E402


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
        image = sample["image"]
        return decoded(image, self.job) if isinstance(image, bytes) else image, sample["index"]


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
