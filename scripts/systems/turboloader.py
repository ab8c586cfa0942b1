"""TurboLoader: raw pixels in one `.tbl` file, mapped, or JPEG files in one tar archive; its threads crop, flip and
normalize in one pass."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import turboloader

from systems.images import Source, encoded
from systems.job import Job

NAME = "turboloader"
# It has a thread for each CPU that the process may use, whatever is asked for, and delivers no bytes but floats,
# channels first: normalized, or from 0 to 1 as the variant `bare`. It resizes without antialias.


def pack(source: Source, folder: Path, job: Job) -> None:
    """Its packer for raw pixels reads an archive of JPEG files, in order."""
    files = folder / "images.tar"
    with tarfile.open(files, "w") as archive:
        for i, sample in source.samples():
            data = encoded(sample).tobytes() if job.kind == "raw" else sample
            entry = tarfile.TarInfo(f"{i:08}.jpg")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    if job.kind == "raw":
        turboloader.preprocess_to_tbl(str(files), folder / "images.tbl", image_size=job.shape[:2])
        files.unlink()


def open_loader(folder: Path, job: Job) -> Any:
    """Random-resized-crops, or whole images: it has no center crop."""
    random = job.crop == "random"
    return turboloader.DataLoader(
        str(folder / ("images.tbl" if job.kind == "raw" else "images.tar")),
        batch_size=job.batch,
        image_size=job.side if random else job.shape[0],
        output_format="pytorch",
        shuffle=True,
        train_aug=random,
        transform=turboloader.ImageNetNormalize() if random and job.variant != "bare" else None,
    )


def batches_of(loader: Any, job: Job) -> Iterator[tuple[Any, Any]]:
    """float32 (n, 3, side, side); without random crops, the centers of whole images as bytes, to check the pixels."""
    margin = (job.shape[0] - job.side) // 2
    for images, about in loader:
        if job.crop != "random":
            whole = np.rint(np.asarray(images) * 255).astype(np.uint8).transpose(0, 2, 3, 1)
            images = whole[:, margin : margin + job.side, margin : margin + job.side]
        yield images, about["indices"]


def read(folder: Path, job: Job) -> Callable[[int], Iterable[tuple[Any, Any]]]:
    loader = open_loader(folder, job)

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        loader.set_epoch(number)
        yield from batches_of(loader, job)

    return epoch


def resume(folder: Path, job: Job, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
    loader = open_loader(folder, job)
    if state is not None:
        loader.load_state_dict(state)
    return batches_of(loader, job), loader.state_dict
