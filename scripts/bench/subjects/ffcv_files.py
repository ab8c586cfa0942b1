"""What all subjects of FFCV share: its files, written, and its loader over one, all of it in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from contract import Pixels, Settings

NEEDS = ("torch", "ffcv")


class Images:
    """Pairs of image and label, as the writer wants them."""

    def __init__(self, count: int, image: Callable[[int], Pixels]) -> None:
        self._count, self._image = count, image

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> tuple[Pixels, int]:
        return np.ascontiguousarray(self._image(row)), row % 1000


def write(path: Path, images: Images, *, jpeg: bool, workers: int = 2) -> None:
    """A file of these images: raw, or JPEG of quality 90; whole or not there."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    partial = path.with_suffix(".partial")
    image = RGBImageField(write_mode="jpg" if jpeg else "raw", jpeg_quality=90)
    DatasetWriter(str(partial), {"image": image, "label": IntField()}, num_workers=workers).from_indexed_dataset(images)
    partial.rename(path)


class Batches:
    """`Loader(os_cache=True, order=RANDOM)`; the last batch may be short."""

    def __init__(self, path: Path, settings: Settings, steps: list[Any]) -> None:
        """steps: of the images, before `ToTensor`."""
        from ffcv.fields.decoders import IntDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import Squeeze, ToTensor

        self._loader = Loader(
            str(path),
            batch_size=settings.batch,
            num_workers=max(1, settings.workers or 1),
            order=OrderOption.RANDOM,
            os_cache=True,
            drop_last=False,
            pipelines={"image": [*steps, ToTensor()], "label": [IntDecoder(), ToTensor(), Squeeze()]},
        )

    def __iter__(self) -> Iterator[Pixels]:
        for images, _ in self._loader:
            yield images.numpy()
