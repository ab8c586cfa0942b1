"""torch's DataLoader over data sets as people write them: one memory-mapped .npy file, or a folder of JPEG files.

Variant "whole batches": a data set with `__getitems__`, which copies the rows of a batch in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from systems.images import Source
from systems.job import Job
from systems.recipe import delivered

NAME = "torch"


def pack(source: Source, folder: Path, job: Job) -> None:
    if job.kind == "raw":
        images = np.lib.format.open_memmap(folder / "images.npy", "w+", np.uint8, (len(source), *job.shape))
        for i, image in source.samples():
            images[i] = image
        images.flush()
    else:
        for i, data in source.samples():
            (folder / f"{i:07}.jpg").write_bytes(data)


class Rows(Dataset[Any]):  # type: ignore[misc]
    """Rows of the mapped file."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.images, self.job = np.load(folder / "images.npy", mmap_mode="r"), job

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        image = self.images[i]
        return (delivered(image, self.job) if self.job.floats else torch.from_numpy(image.copy())), i


class WholeBatches(Rows):
    """The rows of a batch at once."""

    def __getitems__(self, rows: list[int]) -> Any:
        images = self.images[rows]
        if self.job.floats:
            return together([delivered(image, self.job) for image in images]), torch.tensor(rows)
        return torch.from_numpy(images), torch.tensor(rows)


class Files(Dataset[Any]):  # type: ignore[misc]
    """JPEG files."""

    def __init__(self, folder: Path, job: Job) -> None:
        self.files, self.job = sorted(folder.glob("*.jpg")), job

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> Any:
        return torch.as_tensor(delivered(self.files[i].read_bytes(), self.job)), i


def as_it_is(batch: Any) -> Any:
    return batch


def stacked(samples: list[Any]) -> Any:
    """A batch of pairs of image and number, for adapters whose images may be numpy arrays."""
    return together([image for image, _ in samples]), torch.tensor([number for _, number in samples])


def together(images: list[Any]) -> Any:
    """A batch of images: arrays or tensors."""
    if isinstance(images[0], torch.Tensor):
        return torch.stack(images)
    return torch.from_numpy(np.stack(images))


def loader(dataset: Any, job: Job, **options: Any) -> Callable[[int], Iterable[Any]]:
    """A DataLoader as people write it: shuffled, with persistent workers. Other adapters use it too."""
    options = {"shuffle": True, "persistent_workers": job.workers > 0} | options
    batches = DataLoader(dataset, job.batch, num_workers=job.workers, **options)
    return lambda number: batches


def resumed(batches: Any, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    """What `resume` of an adapter returns, for a loader with a `state_dict`."""
    if state is not None:
        batches.load_state_dict(state)
    return iter(batches), batches.state_dict


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    if job.kind == "jpeg":
        return loader(Files(folder, job), job)
    if job.variant:
        return loader(WholeBatches(folder, job), job, collate_fn=as_it_is)
    return loader(Rows(folder, job), job)
