"""FFCV over raw images: its own file, its own loader, all of it in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import data
from contract import Epoch, Pixels, Settings, consume


class FfcvRaw:
    """`Loader(os_cache=True, order=RANDOM)`; the last batch may be short."""

    needs: tuple[str, ...] = ("torch", "ffcv")

    def prepare(self, settings: Settings) -> None:
        from ffcv.fields import IntField, RGBImageField
        from ffcv.writer import DatasetWriter

        data.make_array(settings)
        path = _path(settings)
        if not path.exists():
            partial = path.with_suffix(".partial")
            fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
            rows = Labelled(np.load(data.array_path(settings), mmap_mode="r"))
            DatasetWriter(str(partial), fields, num_workers=2).from_indexed_dataset(rows)
            partial.rename(path)

    def open(self, settings: Settings) -> None:
        from ffcv.fields.decoders import IntDecoder, SimpleRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import Squeeze, ToTensor

        self._consumer = settings.consumer
        self._loader = Loader(
            str(_path(settings)),
            batch_size=settings.batch,
            num_workers=max(1, settings.workers or 1),
            order=OrderOption.RANDOM,
            os_cache=True,
            drop_last=False,
            pipelines={
                "image": [SimpleRGBImageDecoder(), ToTensor()],
                "label": [IntDecoder(), ToTensor(), Squeeze()],
            },
        )

    def epoch(self, n: int) -> Epoch:
        return consume(self._batches(), self._consumer)

    def _batches(self) -> Iterator[Pixels]:
        for images, _ in self._loader:
            yield images.numpy()


class Labelled:
    """Pairs of image and label, as the writer wants them."""

    def __init__(self, images: Pixels) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return np.array(self._images[row]), row % 1000


def _path(settings: Settings) -> Path:
    return data.array_path(settings).with_suffix(".beton")
