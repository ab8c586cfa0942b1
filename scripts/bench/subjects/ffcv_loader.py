"""FFCV: its own file, its own loader, all of it in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import data
from contract import Epoch, Pixels, Settings, consume


class FfcvLoader:
    """`Loader(os_cache=True, order=RANDOM)`; the last batch may be short.

    Raw images of the settings' shape; or JPEG of `stored` pixels a side, of which the centre is cut out.
    """

    needs: tuple[str, ...] = ("torch", "ffcv")

    def __init__(self, stored: int | None = None) -> None:
        """stored: None for raw images."""
        self._stored = stored

    def prepare(self, settings: Settings) -> None:
        from ffcv.fields import IntField, RGBImageField
        from ffcv.writer import DatasetWriter

        path = self._path(settings)
        if path.exists():
            return
        if self._stored is None:
            data.make_array(settings)
            array = np.load(data.array_path(settings), mmap_mode="r")
            images, image = Images(len(array), array.__getitem__), RGBImageField(write_mode="raw")
        else:
            # What rawpack's lmdb store decodes to, so that both decode as many pixels of the same pictures.
            from rawpack import Reader

            at_size = replace(settings, shape=(self._stored, self._stored, 3))
            data.make_store(at_size, "lmdb")
            reader = Reader(data.store_path(at_size, "lmdb"))
            images = Images(len(reader), lambda row: reader[row]["image"])
            image = RGBImageField(write_mode="jpg", jpeg_quality=90)
        partial = path.with_suffix(".partial")
        DatasetWriter(str(partial), {"image": image, "label": IntField()}, num_workers=2).from_indexed_dataset(images)
        partial.rename(path)

    def open(self, settings: Settings) -> None:
        from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, SimpleRGBImageDecoder
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import Squeeze, ToTensor

        self._consumer = settings.consumer
        if self._stored is None:
            decoder = SimpleRGBImageDecoder()
        else:
            decoder = CenterCropRGBImageDecoder(settings.shape[:2], settings.shape[0] / self._stored)
        self._loader = Loader(
            str(self._path(settings)),
            batch_size=settings.batch,
            num_workers=max(1, settings.workers or 1),
            order=OrderOption.RANDOM,
            os_cache=True,
            drop_last=False,
            pipelines={"image": [decoder, ToTensor()], "label": [IntDecoder(), ToTensor(), Squeeze()]},
        )

    def epoch(self, n: int) -> Epoch:
        return consume(self._batches(), self._consumer)

    def _batches(self) -> Iterator[Pixels]:
        for images, _ in self._loader:
            yield images.numpy()

    def _path(self, settings: Settings) -> Path:
        kind = "raw" if self._stored is None else f"{self._stored}-jpeg"
        return settings.folder / f"{Path(settings.images).name}-{settings.size}.{kind}.beton"


class Images:
    """Pairs of image and label, as the writer wants them."""

    def __init__(self, count: int, image: Callable[[int], Pixels]) -> None:
        self._count, self._image = count, image

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> tuple[Pixels, int]:
        return np.array(self._image(row)), row % 1000
