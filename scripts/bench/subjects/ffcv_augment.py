"""FFCV with its own random resized crops and flips, over the images of the stores: raw, or JPEG of quality 90."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import data
from contract import Epoch, Pixels, Settings, consume
from subjects.ffcv_loader import Images
from subjects.rawpack_augment import side_of


class FfcvAugment:
    """`RandomResizedCropRGBImageDecoder`, `RandomHorizontalFlip`; `Loader(os_cache=True, order=RANDOM)`."""

    needs: tuple[str, ...] = ("torch", "ffcv")

    def __init__(self, *, jpeg: bool) -> None:
        self._jpeg = jpeg

    def prepare(self, settings: Settings) -> None:
        from ffcv.fields import IntField, RGBImageField
        from ffcv.writer import DatasetWriter

        data.make_array(settings)
        path = self._path(settings)
        if not path.exists():
            partial = path.with_suffix(".partial")
            image = RGBImageField(write_mode="jpg" if self._jpeg else "raw", jpeg_quality=90)
            array = np.load(data.array_path(settings), mmap_mode="r")
            rows = Images(len(array), array.__getitem__)
            DatasetWriter(str(partial), {"image": image, "label": IntField()}, num_workers=2).from_indexed_dataset(rows)
            partial.rename(path)

    def open(self, settings: Settings) -> None:
        from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor

        self._consumer = settings.consumer
        side = side_of(settings)
        self._loader = Loader(
            str(self._path(settings)),
            batch_size=settings.batch,
            num_workers=max(1, settings.workers or 1),
            order=OrderOption.RANDOM,
            os_cache=True,
            drop_last=False,
            pipelines={
                "image": [RandomResizedCropRGBImageDecoder((side, side)), RandomHorizontalFlip(), ToTensor()],
                "label": [IntDecoder(), ToTensor(), Squeeze()],
            },
        )

    def epoch(self, n: int) -> Epoch:
        return consume(self._batches(), self._consumer)

    def _batches(self) -> Iterator[Pixels]:
        for images, _ in self._loader:
            yield images.numpy()

    def _path(self, settings: Settings) -> Path:
        return data.array_path(settings).with_suffix(".jpg.beton" if self._jpeg else ".raw.beton")
