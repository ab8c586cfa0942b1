"""FFCV: its own file, its own loader, all of it in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import data
from contract import Epoch, Settings, consume
from subjects import ffcv_files


class FfcvLoader:
    """Raw images of the settings' shape; or JPEG of `stored` pixels a side, of which the centre is cut out."""

    needs: tuple[str, ...] = ffcv_files.NEEDS

    def __init__(self, stored: int | None = None) -> None:
        """stored: None for raw images."""
        self._stored = stored

    def prepare(self, settings: Settings) -> None:
        path = self._path(settings)
        if path.exists():
            return
        if self._stored is None:
            data.make_array(settings)
            array = np.load(data.array_path(settings), mmap_mode="r")
            images = ffcv_files.Images(len(array), array.__getitem__)
        else:
            # What rawpack's lmdb store decodes to, so that both decode as many pixels of the same pictures.
            from rawpack import Reader

            at_size = replace(settings, shape=(self._stored, self._stored, 3))
            data.make_store(at_size, "lmdb")
            reader = Reader(data.store_path(at_size, "lmdb"))
            images = ffcv_files.Images(len(reader), lambda row: reader[row]["image"])
        ffcv_files.write(path, images, jpeg=self._stored is not None)

    def open(self, settings: Settings) -> None:
        from ffcv.fields.decoders import CenterCropRGBImageDecoder, SimpleRGBImageDecoder

        self._consumer = settings.consumer
        if self._stored is None:
            decoder = SimpleRGBImageDecoder()
        else:
            decoder = CenterCropRGBImageDecoder(settings.shape[:2], settings.shape[0] / self._stored)
        self._batches = ffcv_files.Batches(self._path(settings), settings, [decoder])

    def epoch(self, n: int) -> Epoch:
        return consume(self._batches, self._consumer)

    def _path(self, settings: Settings) -> Path:
        kind = "raw" if self._stored is None else f"{self._stored}-jpeg"
        return settings.folder / f"{Path(settings.images).name}-{settings.size}.{kind}.beton"
