"""TurboLoader: one `.tbl` file of raw pixels, mapped; its threads crop, flip and normalize in one pass."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import turboloader

from systems.images import Source, encoded
from systems.job import Job

NAME = "turboloader"
# It has a thread for each CPU that the process may use, whatever is asked for, and delivers no bytes but floats,
# channels first: normalized, or from 0 to 1 as the variant `bare`. It resizes without antialias.


def pack(source: Source, folder: Path, job: Job) -> None:
    """Its packer reads an archive of JPEG files, in order."""
    files = folder / "images.tar"
    with tarfile.open(files, "w") as archive:
        for i, sample in source.samples():
            data = encoded(sample).tobytes() if job.kind == "raw" else sample
            entry = tarfile.TarInfo(f"{i:08}.jpg")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    turboloader.preprocess_to_tbl(str(files), folder / "images.tbl", image_size=job.shape[:2])
    files.unlink()


def read(folder: Path, job: Job) -> Callable[[int], Iterable[tuple[Any, Any]]]:
    """Whole images, or random-resized-crops: float32 (n, 3, side, side). It has no center crop."""
    loader = turboloader.DataLoader(
        str(folder / "images.tbl"),
        batch_size=job.batch,
        image_size=job.side,
        shuffle=True,
        train_aug=job.crop == "random",
        transform=None if job.variant == "bare" else turboloader.ImageNetNormalize(),
    )

    def epoch(number: int) -> Iterator[tuple[Any, Any]]:
        loader.set_epoch(number)
        for images, about in loader:
            yield images, about["indices"]

    return epoch
