"""Hugging Face datasets: Arrow files, read by rows in a DataLoader's workers; as an iterable to resume."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch

from systems.dataloader import as_it_is, loader, together
from systems.images import Source, single_threaded
from systems.job import Job
from systems.recipe import delivered

NAME = "datasets"
_SHARDS, _BUFFER = 8, 1000
datasets.disable_progress_bars()


def rows(numbers: list[int], source: Source) -> Iterator[dict[str, Any]]:
    single_threaded()
    for i in numbers:
        yield {"image": source.sample(i), "index": i}


def pack(source: Source, folder: Path, job: Job) -> None:
    image = datasets.Array3D(job.shape, "uint8") if job.kind == "raw" else datasets.Value("binary")
    cache = folder.with_name(f"{folder.name}.cache")
    made = datasets.Dataset.from_generator(
        rows,
        features=datasets.Features({"image": image, "index": datasets.Value("int64")}),
        gen_kwargs={"numbers": list(range(len(source))), "source": source},
        num_proc=job.workers,
        cache_dir=str(cache),
        writer_batch_size=100,
    )
    made.save_to_disk(folder)
    shutil.rmtree(cache)


class Rows:
    """The rows of a batch in one access."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.images = datasets.load_from_disk(folder)
        # Without the dtype, the numpy format turns uint8 into int64.
        self.numpy = self.images.with_format("numpy", columns=["image"], dtype=np.uint8)
        self.job = job

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, numbers: list[int]) -> Any:
        if self.job.kind == "raw":
            images = np.asarray(self.numpy[numbers]["image"])
            if self.job.floats:
                return together([delivered(image, self.job) for image in images]), torch.tensor(numbers)
            return torch.from_numpy(images), torch.tensor(numbers)
        found = self.images[numbers]
        return together([delivered(data, self.job) for data in found["image"]]), torch.tensor(found["index"])


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    return loader(Rows(folder, job), job, collate_fn=as_it_is)


def resume(folder: Path, job: Job, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    rows = datasets.load_from_disk(folder).to_iterable_dataset(num_shards=_SHARDS)
    batches = rows.shuffle(seed=1, buffer_size=_BUFFER).batch(job.batch)
    if state is not None:
        batches.load_state_dict(state)
    return ((batch["image"], np.array(batch["index"])) for batch in batches), batches.state_dict
