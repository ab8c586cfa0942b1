"""FFCV: one .beton file, read by threads with a compiled pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import (
    CenterCropRGBImageDecoder,
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter

from systems.images import QUALITY, Source, single_threaded
from systems.job import Job
from systems.recipe import LEVELS

NAME = "ffcv"


class Images:
    """Pairs of image and number for the writer, which encodes the images itself."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, i: int) -> Any:
        return self.source.image(i), i


def pack(source: Source, folder: Path, job: Job) -> None:
    single_threaded()
    raw = job.kind == "raw"
    fields = {"image": RGBImageField(write_mode="raw" if raw else "jpg", jpeg_quality=QUALITY), "index": IntField()}
    # Pages are padded at their ends. The default of 8 MiB suits raw images of 150 kB; of a file of JPEG images that is
    # this small, the last page of each process would be a third.
    page = 1 << (23 if raw else 21)
    writer = DatasetWriter(str(folder / "images.beton"), fields, page_size=page, num_workers=max(1, job.workers))
    writer.from_indexed_dataset(Images(source))


def read(folder: Path, job: Job) -> Callable[[int], Iterable[Any]]:
    steps: list[Any]
    side = (job.side, job.side)
    if job.crop == "random":
        steps = [RandomResizedCropRGBImageDecoder(side), RandomHorizontalFlip()]
    elif job.kind == "raw":
        steps = [SimpleRGBImageDecoder()]
    else:
        steps = [CenterCropRGBImageDecoder(side, job.side / job.shape[0])]
    # On a CPU, normalizing comes before a tensor is made. ToTorchImage leaves the channels last in memory.
    last = [ToTensor()]
    if job.floats:
        mean, std = map(np.array, LEVELS)
        last = [NormalizeImage(mean, std, np.float32), ToTensor(), ToTorchImage()]
    batches = Loader(
        str(folder / "images.beton"),
        batch_size=job.batch,
        num_workers=max(1, job.workers),
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        seed=1,
        pipelines={"image": [*steps, *last], "index": [IntDecoder(), ToTensor(), Squeeze()]},
    )
    return lambda number: batches
